package http2

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/inside"
)

// shut is the setting of a client whose stream windows are closed.
var shut = http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}

// tally is a body that adds the number of bytes read to a counter that all answers share.
type tally struct {
	io.Reader
	n *atomic.Int64
}

func (r tally) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n.Add(int64(n))
	return n, err
}

// heads reads frames until n answers have begun.
func (c *frameClient) heads(n int) {
	c.Helper()
	for n > 0 {
		if strings.HasPrefix(c.next(), "HEADERS ") {
			n--
		}
	}
}

// bodies reads frames until n answers have ended, and returns the bodies by stream.
func (c *frameClient) bodies(n int) map[uint32]string {
	c.Helper()
	got := make(map[uint32]string)
	for n > 0 {
		frame, err := c.ReadFrame()
		if err != nil {
			c.Fatal(err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			got[f.StreamID] += f.PseudoValue("status") + " "
			if f.StreamEnded() {
				n--
			}
		case *http2.DataFrame:
			got[f.StreamID] += string(f.Data())
			if f.StreamEnded() {
				n--
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			c.Fatalf("%v", f)
		}
	}
	return got
}

// The server doesn't read an answer's body while the window of the stream or of the connection is closed. If the windows open by a byte at a
// time, it reads the body in small pieces.
func TestHTTP2ReadsNothingAhead(t *testing.T) {
	const streams, size = 50, 100 << 10
	content := strings.Repeat("0123456789", size/10)
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		var read atomic.Int64
		c := dial(&filo.Server{Handler: func(c *filo.Ctx) error {
			return c.Reader(200, "text/plain", tally{strings.NewReader(content), &read}, size)
		}}, shut)
		for i := range uint32(streams) {
			c.request(1+2*i, "GET", "/", true)
		}
		c.heads(streams)
		if n := read.Load(); n > 0 {
			t.Errorf("%d bytes were read while the windows were closed", n)
		}
		for i := range uint32(streams) {
			c.done(c.WriteWindowUpdate(1+2*i, 1))
		}
		for n := 0; n < streams; {
			if strings.HasPrefix(c.next(), "DATA ") {
				n++
			}
		}
		if n := read.Load(); n > streams*(8<<10) {
			t.Errorf("%d bytes were read when %d windows had let a byte through each", n, streams)
		}
		c.done(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: size}))
		for got := streams; got < 65535; {
			frame, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if f, ok := frame.(*http2.DataFrame); ok {
				got += len(f.Data())
			}
		}
		c.ping(1)
		c.await("PING 1")
		// Several streams may have read ahead for the same bytes of the connection's window.
		if n := read.Load(); n > 65535+streams*(36<<10) {
			t.Errorf("%d bytes were read when the connection's window had let 65535 through", n)
		}
		c.done(c.WriteWindowUpdate(0, streams*size))
		for i := range uint32(streams) {
			c.done(c.WriteWindowUpdate(1+2*i, size))
		}
		for id, body := range c.bodies(streams) {
			if !strings.HasSuffix(content, body) {
				t.Errorf("stream %d: the end of its body is wrong", id)
			}
		}
		if n := read.Load(); n != streams*size {
			t.Errorf("%d bytes were read of %d", n, streams*size)
		}
	})
}

// Whole answers that wait for windows take no more memory than the budget, whatever the number of connections. Beyond the budget, an answer
// whose bytes were copied for this client becomes a 503, and any other answer waits in its worker. At the end, the budget is completely free
// again.
func TestAnswerBudget(t *testing.T) {
	const size, streams, fit = 100 << 10, 20, 10
	text := strings.Repeat("x", size)
	for kind, answer := range map[string]filo.Handler{
		"copied":  func(c *filo.Ctx) error { return c.Bytes(200, "text/plain", []byte(text)) },
		"shared":  func(c *filo.Ctx) error { return c.Text(200, text) },
		"stream":  func(c *filo.Ctx) error { _, err := c.Stream().WriteString(text); return err },
		"written": func(c *filo.Ctx) error { return c.Reader(200, "text/plain", bytes.NewReader([]byte(text)), -1) },
	} {
		t.Run(kind, func(t *testing.T) {
			filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
				s, dial := serve(&filo.Server{MaxBufferedAnswers: 2 * fit * size, Handler: answer})
				c := dial(shut)
				for i := range uint32(streams) {
					c.Request(1+2*i, "/", true)
				}
				readBegun(c.Send(), streams)
				// Several answers that are made at the same time may each find room for one more, and exceed the budget together. The texts
				// of the refusals also count.
				atOnce := runtime.GOMAXPROCS(0) - 1
				most := int64((fit+atOnce)*size + streams*100)
				if used := s.Stats().AnswersBuffered; used > most {
					t.Errorf("%d bytes wait, and a connection may have %d", used, most)
				}
				for i := range uint32(streams) {
					c.Open(1+2*i, size)
				}
				c.Send()
				refused := 0
				for i := range uint32(streams) {
					switch got := c.Answer(1 + 2*i); {
					case got.Status == 200 && string(got.Body) == text && got.Ended:
					case got.Status == 503 && got.Header["retry-after"] != "" && got.Ended:
						refused++
					default:
						t.Errorf("stream %d: %v", 1+2*i, got)
					}
				}
				if want := map[bool]int{true: streams - fit}[kind == "copied"]; refused > want || refused < want-atOnce {
					t.Errorf("%d of %d answers were refused, want %d", refused, streams, want)
				}
				if got := s.Stats().Refusals.UnsentAnswers; got != uint64(refused) {
					t.Errorf("%d are counted, and %d were refused", got, refused)
				}
				filotest.Await(t, "the room to be free", func() bool { return s.Stats().AnswersBuffered == 0 })
			})
		})
	}
}

// readBegun reads frames until n answers have begun.
func readBegun(c *filotest.RawHTTP2, n int) {
	c.T.Helper()
	for begun := 0; begun < n; {
		if err := c.Take(); err != nil {
			c.T.Fatal(err)
		}
		begun = 0
		for _, s := range c.Streams {
			if s.Status != 0 {
				begun++
			}
		}
	}
}

// The server releases a request's memory when its handler has returned, even if the answer still waits. Otherwise a client that refers to a
// large field in HPACK's table could occupy much memory with a few bytes.
func TestHTTP2WaitingAnswersKeepNoRequests(t *testing.T) {
	const requests, size = 100, 3500
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		_, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }})
		c := dial(shut)
		large := strings.Repeat("x", size)
		before := filotest.HeapInUse()
		for i := range uint32(requests) {
			c.Request(1+2*i, "/", true, "a", large, "a", large, "a", large, "a", large)
		}
		readBegun(c.Send(), requests)
		var grown int64
		if !filotest.Try(func() bool { grown = int64(filotest.HeapInUse()) - int64(before); return grown <= requests*8<<10 }) {
			t.Errorf("%d waiting answers hold %d KB, and the requests had %d KB", requests, grown>>10, requests*4*size>>10)
		}
		for i := range uint32(requests) {
			c.Open(1+2*i, 10)
		}
		c.Send()
		for i := range uint32(requests) {
			c.WantAnswer(1+2*i, "200 ok")
		}
	})
}

// If clients open their windows but don't read from their sockets, a limit for all clients together bounds the bytes that streaming handlers
// have written ahead.
func TestAnswerBudgetOfUnreadSockets(t *testing.T) {
	const conns, streams, limit = 3, 20, 2 << 20
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		s, dial := serve(&filo.Server{MaxBufferedAnswers: limit, Handler: func(c *filo.Ctx) error {
			w, piece := c.Stream(), make([]byte, 100<<10)
			for {
				if _, err := w.Write(piece); err != nil {
					return err
				}
			}
		}})
		for range conns {
			c := dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
			for i := range uint32(streams) {
				c.Request(1+2*i, "/", true)
			}
			c.Open(0, 1<<30).Send()
		}
		filotest.Await(t, "the handlers to wait", func() bool {
			return s.Stats().Streams == conns*streams &&
				strings.Contains(inside.Leftover(s.Server), fmt.Sprintf("handlers that wait for windows: %d\n", conns*streams))
		})
		if used := s.Stats().AnswersBuffered; used > limit {
			t.Errorf("%d bytes wait, and the limit is %d", used, limit)
		}
		s.Close()
		filotest.Await(t, "the room to be free", func() bool { return s.Stats().AnswersBuffered == 0 })
	})
}

// If a connection's client doesn't read, the server buffers a large part of one streamed answer, whose handler need not wait, and a small
// part of each other answer.
func TestUnsentStreamsOfAConnection(t *testing.T) {
	const streams, much, little = 20, 256 << 10, 32 << 10 // 16 KB, but 32 for the streams that write before one has a large part
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		for _, size := range []int{1 << 10, 10 << 10, 32 << 10, 100 << 10} {
			t.Run(fmt.Sprint(size), func(t *testing.T) {
				s, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
					w, piece := c.Stream(), make([]byte, size)
					for {
						if _, err := w.Write(piece); err != nil {
							return err
						}
					}
				}})
				c := dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
				c.Open(0, 1<<30)
				for i := range uint32(streams) {
					c.Request(1+2*i, "/", true)
				}
				c.Send()
				filotest.Await(t, "the handlers to wait", func() bool {
					return s.Stats().Streams == streams &&
						strings.Contains(inside.Leftover(s.Server), fmt.Sprintf("handlers that wait for windows: %d\n", streams))
				})
				if used := s.Stats().AnswersBuffered; used > much+(streams-1)*little {
					t.Errorf("%d KB wait without their handlers", used>>10)
				}
			})
		}
	})
}

// While the windows are closed, the server copies nothing from a parked stream's queue. It sends all of the queue when they open, the
// connection's window last.
func TestParkedStreamsCopyNothingAhead(t *testing.T) {
	const streams, size, messages = 20, 10 << 10, 20
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		message := filo.NewPreparedMessage([]byte(strings.Repeat("m", size)))
		var config *filo.Server
		queued := make(chan struct{}, streams)
		config = &filo.Server{Handler: func(c *filo.Ctx) error {
			p, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error { return io.EOF })
			if err != nil {
				return err
			}
			for range messages {
				if err := p.Queue(message); err != nil {
					t.Error(err)
				}
			}
			p.End()
			queued <- struct{}{}
			return nil
		}}
		c := dial(config, shut)
		for i := range uint32(streams) {
			c.request(1+2*i, "GET", "/", true)
		}
		for range streams {
			filotest.Recv(t, queued, "the messages to be queued")
		}
		c.heads(streams)
		if n := config.Stats().AnswersBuffered; n > 0 {
			t.Errorf("%d bytes were copied", n)
		}
		c.done(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
		c.done(c.WriteWindowUpdate(0, streams*size*messages))
		for id, body := range c.bodies(streams) {
			if len(body) != size*messages {
				t.Errorf("stream %d: %d bytes", id, len(body))
			}
		}
	})
}

// A whole answer stays in memory until its last byte is sent, so all of it counts until then.
func TestRestOfAnswerCountsWhole(t *testing.T) {
	const streams, size = 4, 1 << 20
	body := bytes.Repeat([]byte("x"), size)
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.Bytes(200, "text/plain", body) }}
		c := dial(s, http2.Setting{ID: http2.SettingInitialWindowSize, Val: size - 1})
		c.done(c.WriteWindowUpdate(0, streams*size))
		for i := range uint32(streams) {
			c.request(1+2*i, "GET", "/", true)
		}
		read := func(n int) {
			for n > 0 {
				frame, err := c.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				if f, ok := frame.(*http2.DataFrame); ok {
					n -= len(f.Data())
				}
			}
		}
		read(streams * (size - 1))
		filotest.Await(t, "the answers to count", func() bool { return s.Stats().AnswersBuffered >= streams*size })
		for i := range uint32(streams) {
			c.done(c.WriteWindowUpdate(1+2*i, 1))
		}
		read(streams)
		filotest.Await(t, "the room to be free", func() bool { return s.Stats().AnswersBuffered == 0 })
	})
}
