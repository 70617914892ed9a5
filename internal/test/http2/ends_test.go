package http2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// frameClient is an HTTP/2 client that sends and reads single frames.
type frameClient struct {
	*http2.Framer
	testing.TB
}

// eachFrames runs a test with a frameClient, over a socket and over an in-memory connection. The client has already sent its preface and settings.
func eachFrames(t *testing.T, test func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient)) {
	run := func(t *testing.T, listener net.Listener, connect func() (net.Conn, error)) {
		test(t, func(config *filo.Server, settings ...http2.Setting) *frameClient {
			config.HTTP2.Unencrypted = true
			filotest.Serve(t, config, listener)
			conn, err := connect()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			conn.SetDeadline(time.Now().Add(filotest.Bound))
			c := &frameClient{http2.NewFramer(conn, conn), t}
			c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			c.done(c.WriteSettings(settings...))
			c.await("SETTINGS")
			c.done(c.WriteSettingsAck())
			c.await("SETTINGS ACK")
			return c
		})
	}
	t.Run("socket", func(t *testing.T) {
		listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
		run(t, listener, func() (net.Conn, error) { return net.Dial("tcp", listener.Addr().String()) })
	})
	t.Run("memory", func(t *testing.T) {
		listener := servertest.NewListener()
		run(t, listener, func() (net.Conn, error) { return listener.Dial() })
	})
}

func (c *frameClient) done(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// request sends a request's head.
func (c *frameClient) request(stream uint32, method, path string, endStream bool, fields ...string) {
	c.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	fields = append([]string{":method", method, ":scheme", "http", ":authority", "example.com", ":path", path}, fields...)
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	c.done(c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: endStream, EndHeaders: true}))
}

// next reads a frame, and describes it.
func (c *frameClient) next() string {
	c.Helper()
	frame, err := c.ReadFrame()
	if err != nil {
		c.Fatal(err)
	}
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		text := fmt.Sprintf("HEADERS %d", f.StreamID)
		if status := f.PseudoValue("status"); status != "" {
			text += " " + status
		}
		if f.StreamEnded() {
			text += " END"
		}
		return text
	case *http2.DataFrame:
		text := fmt.Sprintf("DATA %d %q", f.StreamID, f.Data())
		if f.StreamEnded() {
			text += " END"
		}
		return text
	case *http2.RSTStreamFrame:
		return fmt.Sprintf("RST_STREAM %d %v", f.StreamID, f.ErrCode)
	case *http2.PingFrame:
		return fmt.Sprintf("PING %d", f.Data[0])
	case *http2.SettingsFrame:
		if f.IsAck() {
			return "SETTINGS ACK"
		}
	}
	return frame.Header().Type.String()
}

// await reads frames until one matches the description.
func (c *frameClient) await(frame string) {
	c.Helper()
	for c.next() != frame {
	}
}

// want reads the next frames, which must match the descriptions.
func (c *frameClient) want(frames ...string) {
	c.Helper()
	for _, want := range frames {
		if got := c.next(); got != want {
			c.Fatalf("got %s, want %s", got, want)
		}
	}
}

// ping sends a PING. The server's answer follows all frames that the server sends because of earlier ones.
func (c *frameClient) ping(n byte) {
	c.Helper()
	c.done(c.WritePing(false, [8]byte{n}))
}

// If a client doesn't end its request within a second after the whole answer, the server resets the stream, even if the client is silent and
// the server has no time-outs. Otherwise such a request would occupy its place, and the connection, for ever.
func TestHTTP2AnswerBeforeRequestEnds(t *testing.T) {
	t.Parallel()
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		apart := make(chan struct{}, 1)
		defer close(apart)
		server := &filo.Server{ReadTimeout: -1, IdleTimeout: -1, WriteTimeout: -1, Handler: route(map[string]filo.Handler{
			"/": func(c *filo.Ctx) error { return c.Text(200, "ok") },
			"/apart": func(c *filo.Ctx) error {
				<-apart
				return c.Text(200, "ok")
			},
		})}
		c := dial(server)
		c.request(1, "POST", "/", false)
		c.want("HEADERS 1 200", `DATA 1 "ok" END`)
		c.done(c.WriteData(1, true, []byte("late")))
		c.request(3, "POST", "/", false)
		c.want("HEADERS 3 200", `DATA 3 "ok" END`, "RST_STREAM 3 NO_ERROR") // and no RST_STREAM for stream 1
		c.request(5, "POST", "/apart", false)
		c.ping(1)
		c.want("PING 1") // so another worker serves the connection
		apart <- struct{}{}
		c.want("HEADERS 5 200", `DATA 5 "ok" END`, "RST_STREAM 5 NO_ERROR")
		if open := server.Stats().Streams; open != 0 {
			t.Errorf("%d streams are open", open)
		}
	})
}

// If a client waits for a 100 and gets a final answer instead, RST_STREAM doesn't follow sooner than after other answers.
func TestHTTP2AnswerInPlaceOfContinue(t *testing.T) {
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		c := dial(&filo.Server{Handler: route(map[string]filo.Handler{
			"/refused": func(c *filo.Ctx) error { return c.Text(401, "no") },
			"/read": func(c *filo.Ctx) error {
				c.BodyReader().Read(make([]byte, 1))
				return c.Text(200, "ok")
			},
		})})
		c.request(1, "POST", "/refused", false, "expect", "100-continue", "content-length", "4")
		c.want("HEADERS 1 401", `DATA 1 "no" END`)
		c.ping(1)
		c.want("PING 1") // if RST_STREAM comes together with the answer, curl loses the answer
		c.done(c.WriteRSTStream(1, http2.ErrCodeNo))
		c.request(3, "POST", "/read", false, "expect", "100-continue", "content-length", "4")
		c.want("HEADERS 3 100")
		c.done(c.WriteData(3, false, []byte("bo")))
		c.want("HEADERS 3 200", `DATA 3 "ok" END`)
		c.done(c.WriteData(3, true, []byte("dy")))
		c.ping(2)
		c.want("PING 2")
	})
}

// A client that reads its answer only after it has sent its whole request, as Java's does, can send all of it: the server opens the stream's
// window again for all bytes that arrive, even before the answer, while the handler runs, and after the answer.
func TestHTTP2AnswerBeforeLargeBody(t *testing.T) {
	const size, piece = 600 << 10, 16 << 10
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		apart := make(chan struct{})
		defer close(apart)
		wait := func(c *filo.Ctx) error {
			if _, err := c.BodyReader().Read(make([]byte, 1)); err != nil {
				return err
			}
			<-apart
			return c.Text(200, "ok")
		}
		c := dial(&filo.Server{Handler: route(map[string]filo.Handler{
			"/":      func(c *filo.Ctx) error { return c.Text(200, "ok") },
			"/apart": wait,
			"/timeout": func(c *filo.Ctx) error {
				if _, err := c.BodyReader().Read(make([]byte, 1)); err != nil {
					return err
				}
				c.SetTimeout(time.Millisecond, nil)
				<-c.Context().Done()
				<-apart
				return c.Text(200, "ok")
			},
		})})
		for i, path := range []string{"/", "/apart", "/timeout"} {
			id := uint32(4*i + 1)
			c.request(id, "POST", path, false)
			for sent, window := 0, 64<<10-1; sent < size; {
				if n := min(piece, size-sent, window); n > 0 {
					c.done(c.WriteData(id, false, make([]byte, n)))
					sent, window = sent+n, window-n
					continue
				}
				if sent == 64<<10-1 && path != "/" {
					apart <- struct{}{} // the handler returns only after a whole window of bytes has arrived
				}
				for more := false; !more; {
					frame, err := c.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					switch f := frame.(type) {
					case *http2.WindowUpdateFrame:
						if more = f.StreamID == id; more {
							window += int(f.Increment)
						}
					case *http2.RSTStreamFrame:
						t.Fatalf("%s: reset with %v after %d bytes", path, f.ErrCode, sent)
					}
				}
			}
			c.done(c.WriteData(id, true, nil))
			c.request(id+2, "GET", "/", true)
			c.await(fmt.Sprintf("DATA %d \"ok\" END", id+2))
		}
	})
}

// An answer to HEAD ends with its head, even if the handler streams.
func TestHTTP2HeadOfStream(t *testing.T) {
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		more := make(chan struct{})
		defer close(more)
		c := dial(&filo.Server{Handler: func(c *filo.Ctx) error {
			c.Stream().WriteString("one")
			c.Stream().Flush()
			<-more
			c.Stream().WriteString("two")
			return c.Stream().Flush()
		}})
		c.request(1, "HEAD", "/", true)
		c.want("HEADERS 1 200 END")
		c.ping(1)
		more <- struct{}{}
		c.want("PING 1")
		c.request(3, "HEAD", "/", false)
		c.want("HEADERS 3 200")
		more <- struct{}{}
		c.want(`DATA 3 "" END`)
	})
}

// If a client doesn't open its window for the rest of an answer, the server ends the stream after WriteTimeout, whatever the IdleTimeout is.
func TestHTTP2AnswerWithoutWindow(t *testing.T) {
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		apart := make(chan struct{})
		defer close(apart)
		c := dial(&filo.Server{IdleTimeout: -1, WriteTimeout: 20 * time.Millisecond, Handler: func(c *filo.Ctx) error {
			<-apart
			return c.Text(200, "ok")
		}}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		c.request(1, "GET", "/", true)
		c.ping(1)
		c.want("PING 1")
		apart <- struct{}{}
		c.want("HEADERS 1 200", "RST_STREAM 1 CANCEL")
	})
}

// If an answer waits for the client's window, each further piece allocates only memory for its own size, not for all waiting pieces.
func TestHTTP2PiecesWithoutWindow(t *testing.T) {
	const size = 4 << 10
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		allocated := make(chan uint64, 1)
		c := dial(&filo.Server{Handler: func(c *filo.Ctx) error {
			var before, after runtime.MemStats
			stream := c.Stream()
			stream.Flush()
			runtime.ReadMemStats(&before)
			for range size {
				stream.WriteString("x")
				if err := stream.Flush(); err != nil {
					return err
				}
			}
			runtime.ReadMemStats(&after)
			allocated <- after.TotalAlloc - before.TotalAlloc
			return nil
		}}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		c.request(1, "GET", "/", true)
		if got := filotest.Recv(t, allocated, "the handler to write"); got > 100*size {
			t.Errorf("%d bytes were allocated for an answer of %d", got, size)
		}
		c.done(c.WriteWindowUpdate(1, size))
		c.want("HEADERS 1 200")
		for got := 0; got < size; {
			frame, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			got += len(frame.(*http2.DataFrame).Data())
		}
	})
}

// After the write deadline, the server sends nothing more, and resets the stream. A later deadline doesn't change that.
func TestHTTP2WriteDeadline(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		arrived := make(chan struct{})
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			stream := c.Stream()
			stream.WriteString("one")
			if err := stream.Flush(); err != nil {
				t.Error(err)
			}
			<-arrived // another goroutine may still have to send flushed bytes, and a reset drops unsent bytes
			for _, deadline := range []time.Time{time.Now().Add(-time.Second), time.Now().Add(time.Hour)} {
				if err := c.SetWriteDeadline(deadline); err != nil {
					t.Error(err)
				}
				stream.WriteString("two")
				if err := stream.Flush(); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("Flush returns %v", err)
				}
			}
			return nil
		}})
		response, err := c.Fetch(context.Background(), "GET", "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var one [3]byte
		_, err = io.ReadFull(response.Body, one[:])
		close(arrived)
		if string(one[:]) != "one" || err != nil {
			t.Errorf("%q, %v; want the first part of the body", one, err)
		}
		if body, err := io.ReadAll(response.Body); len(body) > 0 || err == nil {
			t.Errorf("%q, %v; want nothing more than an error", body, err)
		}
	})
}

// A trailer section may follow any answer whose status permits one. The answer keeps its Content-Length, and its head announces the trailer's
// fields.
func TestHTTP2Trailers(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		trailer := func(answer filo.Handler) filo.Handler {
			return func(c *filo.Ctx) error {
				c.Response.Trailer.Set("X-One", "1")
				c.Response.Trailer.Set("Content-Type", "isn't one")
				c.Response.Trailer.Set("X-Two", "2")
				return answer(c)
			}
		}
		_, c := serve(&filo.Server{Handler: route(map[string]filo.Handler{
			"/whole": trailer(func(c *filo.Ctx) error { return c.Text(200, "whole") }),
			"/empty": trailer(func(*filo.Ctx) error { return nil }),
			"/stream": trailer(func(c *filo.Ctx) error {
				_, err := c.Stream().WriteString("a stream")
				return err
			}),
			"/flushed": trailer(func(c *filo.Ctx) error {
				c.Stream().WriteString("flushed")
				return c.Stream().Flush()
			}),
			"/none": trailer(func(c *filo.Ctx) error { return c.NoContent() }),
			"/unfit": func(c *filo.Ctx) error { // none of these fields is allowed in a trailer section
				c.Response.Trailer.Set("Content-Length", "1")
				return c.Text(200, "unfit")
			},
		})})
		for _, test := range []struct {
			method, path, body string
			length             int64
			trailer            bool
		}{
			{"GET", "/whole", "whole", 5, true},
			{"GET", "/empty", "", 0, true},
			{"GET", "/stream", "a stream", 8, true},
			{"GET", "/flushed", "flushed", -1, true},
			{"GET", "/none", "", 0, false},
			{"GET", "/unfit", "unfit", 5, false},
			{"HEAD", "/whole", "", 5, false},
		} {
			response, err := c.Fetch(context.Background(), test.method, test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			announced := fmt.Sprint(response.Trailer)
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			want, wantAnnounced := "map[]", "map[]"
			if test.trailer {
				want, wantAnnounced = "map[X-One:[1] X-Two:[2]]", "map[X-One:[] X-Two:[]]"
			}
			if got := fmt.Sprint(response.Trailer); got != want || announced != wantAnnounced || err != nil || string(body) != test.body ||
				response.ContentLength != test.length {
				t.Errorf("%s %s: %q, %v, length %d, announced %s, trailer %s", test.method, test.path, body, err, response.ContentLength, announced, got)
			}
		}
	})
}

// A client that has begun HTTP/2 but sent no request is idle: ConnState reports this, and a shutdown doesn't wait for its first request.
func TestHTTP2Silent(t *testing.T) {
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		var mu sync.Mutex
		var states []string
		server := &filo.Server{ConnState: func(_ net.Conn, state filo.ConnState) {
			mu.Lock()
			defer mu.Unlock()
			states = append(states, state.String())
		}, Handler: echoBody}
		dial(server)
		filotest.Await(t, "an idle connection", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(states, " ") == "new active idle"
		})
	})
}

// The bytes of a tunnel follow the head of a 2xx to CONNECT, so the server neither announces nor sends a trailer section.
func TestHTTP2ConnectWithoutTrailer(t *testing.T) {
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		c := dial(&filo.Server{Handler: func(c *filo.Ctx) error {
			c.Response.Trailer.Set("X-Sum", "1")
			if c.Request.Header.Get("X-Whole") != "" {
				return c.Text(200, "ok")
			}
			c.Stream().WriteString("ok")
			return nil
		}})
		for i, whole := range []string{"", "1"} {
			id := uint32(2*i + 1)
			var block bytes.Buffer
			e := hpack.NewEncoder(&block)
			for _, f := range [][2]string{{":method", "CONNECT"}, {":authority", "a.test:443"}, {"x-whole", whole}} {
				e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
			}
			c.done(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}))
			for ended := false; !ended; {
				frame, err := c.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				switch f := frame.(type) {
				case *http2.MetaHeadersFrame:
					if f.PseudoValue("status") == "" || strings.Contains(fmt.Sprint(f.Fields), "trailer") {
						t.Fatalf("got %v", f.Fields)
					}
				case *http2.DataFrame:
					ended = f.StreamEnded()
				}
			}
		}
	})
}
