package http2

import (
	"bufio"
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

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/race"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// parkAll returns a handler that parks each request's stream, and sends it to parked. The stream's function ends the stream when the client
// does, and sends "bye" during a shutdown.
func parkAll(parked chan<- *filo.ParkedConn, ended chan<- error) filo.Handler {
	return func(c *filo.Ctx) error {
		p, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error {
			if why == filo.WakeShutdown {
				p.Queue(filo.NewPreparedMessage([]byte("bye\n")))
				return nil
			}
			_, err := p.Read(make([]byte, 100))
			return err
		})
		if err != nil {
			return err
		}
		p.OnClose(func() { ended <- nil })
		parked <- p
		return nil
	}
}

// A parked stream reuses the memory of another connection's request, which had a body. The parked stream's own connection has never had a
// body, and must stay usable when the client resets the stream.
func TestHTTP2ParkedAfterABody(t *testing.T) {
	parked, ended := make(chan *filo.ParkedConn, 1), make(chan error, 10)
	park := parkAll(parked, ended)
	_, dial := filotest.ServeRawHTTP2(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		if c.Method() == "POST" {
			return echoBody(c)
		}
		if c.Path() == "/" {
			return c.Text(200, "ok")
		}
		return park(c)
	}}, false)
	withBody, without := dial(), dial()
	for id := uint32(1); id < 20; id += 2 {
		withBody.Request(id, "/", false, ":method", "POST").Data(id, true, []byte("a body")).Send()
		withBody.WantAnswer(id, "200 a body")
		without.Request(id, "/events", true).Send()
		filotest.Recv(t, parked, "the parked stream")
		without.Add(func(f *http2.Framer) { f.WriteRSTStream(id, http2.ErrCodeCancel) }).Send()
		filotest.Recv(t, ended, "the stream's end")
	}
	without.Request(21, "/", true).Send()
	without.WantAnswer(21, "200 ok")
}

// Bytes that are written or queued on a parked stream arrive in order, and other streams continue.
func TestHTTP2Parked(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		parked, ended := make(chan *filo.ParkedConn, 1), make(chan error, 10)
		park := parkAll(parked, ended)
		s, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() == "/" {
				return c.Text(200, "ok")
			}
			c.Response.Header.Set("Content-Type", "text/event-stream")
			return park(c)
		}})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		response, err := c.Fetch(ctx, "GET", "/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		p := filotest.Recv(t, parked, "the parked stream")
		lines := bufio.NewReader(response.Body)
		for _, line := range []string{"one\n", "two\n", strings.Repeat("x", 200_000) + "\n", "four\n"} {
			if _, err := p.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
			if got, err := lines.ReadString('\n'); got != line || err != nil {
				t.Fatalf("%s: %v", filotest.CutText(got), err)
			}
			if err := p.Queue(filo.NewPreparedMessage([]byte("queued " + line))); err != nil {
				t.Fatal(err)
			}
			if got, err := lines.ReadString('\n'); got != "queued "+line || err != nil {
				t.Fatalf("%s: %v", filotest.CutText(got), err)
			}
			c.Want("GET", "/", nil, 200, "ok")
		}
		filotest.Await(t, "the parked stream alone", func() bool { return s.Stats().Streams == 1 })
		cancel()
		filotest.Recv(t, ended, "the end of the parked stream")
		filotest.Await(t, "the stream to be gone", func() bool { return s.Stats().Streams == 0 })
		if _, err := p.Write([]byte("late")); err == nil {
			t.Error("a write after the end has no error")
		}
	})
}

// End ends the body properly, Close aborts it, and a shutdown lets the stream's function send a last message.
func TestHTTP2ParkedEnds(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*filotest.Server, *filo.ParkedConn)
		want string
		err  bool
	}{
		"End":      {func(_ *filotest.Server, p *filo.ParkedConn) { p.End() }, "hello", false},
		"Close":    {func(_ *filotest.Server, p *filo.ParkedConn) { p.Close() }, "hello", true},
		"shutdown": {func(s *filotest.Server, _ *filo.ParkedConn) { go s.ShutdownInTime() }, "hellobye\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
				parked, ended := make(chan *filo.ParkedConn, 1), make(chan error, 1)
				s, c := serve(&filo.Server{Handler: parkAll(parked, ended)})
				response, err := c.Fetch(context.Background(), "GET", "/", nil)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				p := filotest.Recv(t, parked, "the parked stream")
				p.Write([]byte("hello"))
				if _, err := io.ReadFull(response.Body, make([]byte, 5)); err != nil {
					t.Fatal(err)
				}
				test.end(s, p)
				rest, err := io.ReadAll(response.Body)
				if got := "hello" + string(rest); got != test.want || (err != nil) != test.err {
					t.Errorf("%q, %v", got, err)
				}
				filotest.Recv(t, ended, "OnClose")
			})
		})
	}
}

// The deadline of SetWait wakes the function of a parked stream.
func TestHTTP2ParkedDeadline(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			p, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error {
				if why != filo.WakeDeadline {
					return errors.New("not the deadline")
				}
				p.Write([]byte("tick"))
				return io.EOF
			})
			if err != nil {
				return err
			}
			p.SetWait(time.Now().Add(20 * time.Millisecond))
			return nil
		}})
		c.Want("GET", "/", nil, 200, "tick")
	})
}

// The server detects a vanished client with a PING.
func TestHTTP2Ping(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		begun, release := make(chan struct{}), make(chan struct{})
		_, c := serve(&filo.Server{HTTP2: filo.HTTP2Options{PingInterval: 10 * time.Millisecond}, Handler: func(c *filo.Ctx) error {
			if c.Path() == "/slow" {
				close(begun)
				<-release
			}
			return c.Text(200, "ok")
		}})
		slow := make(chan struct{})
		go func() {
			defer close(slow)
			c.Want("GET", "/slow", nil, 200, "ok") // net/http's client answers the PINGs
		}()
		filotest.Recv(t, begun, "the handler")
		time.Sleep(50 * time.Millisecond) // time for several PINGs; the test also passes without them
		close(release)
		filotest.Recv(t, slow, "the answer")
		c.Want("GET", "/", nil, 200, "ok")
	})
}

// http2Raw is a client that sends and reads single frames, and opens windows only when the test does so.
type http2Raw struct {
	*http2.Framer
	net.Conn
	t      testing.TB
	next   uint32
	fields bytes.Buffer
	hpack  *hpack.Encoder
}

func newHTTP2Raw(t testing.TB, s *filotest.Server, settings ...http2.Setting) *http2Raw {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(filotest.Bound))
	c := &http2Raw{Framer: http2.NewFramer(conn, conn), Conn: conn, t: t, next: 1}
	c.hpack = hpack.NewEncoder(&c.fields)
	io.WriteString(conn, http2.ClientPreface)
	c.WriteSettings(settings...)
	return c
}

// ask sends a request, and returns its stream. If goesOn is true, the request doesn't end yet.
func (c *http2Raw) ask(path string, goesOn bool) uint32 {
	c.t.Helper()
	return c.askWith(path, goesOn)
}

// askWith does the same as ask, with an additional field.
func (c *http2Raw) askWith(path string, goesOn bool, field ...string) uint32 {
	c.t.Helper()
	c.fields.Reset()
	for _, f := range [...]hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"},
		{Name: ":path", Value: path}} {
		c.hpack.WriteField(f)
	}
	if len(field) > 0 {
		c.hpack.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	id := c.next
	c.next += 2
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.fields.Bytes(), EndHeaders: true, EndStream: !goesOn}); err != nil {
		c.t.Fatal(err)
	}
	return id
}

// await reads frames until is returns true for one.
func (c *http2Raw) await(what string, is func(http2.Frame) bool) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("waiting for %s: %v", what, err)
		}
		if settings, ok := f.(*http2.SettingsFrame); ok && !settings.IsAck() {
			c.WriteSettingsAck()
		}
		if is(f) {
			return
		}
	}
}

// head waits for the head of a stream's answer.
func (c *http2Raw) head(id uint32) {
	c.t.Helper()
	c.await("the head", func(f http2.Frame) bool { return f.Header().Type == http2.FrameHeaders && f.Header().StreamID == id })
}

// body reads n bytes of a stream's answer, or the whole answer if n is negative.
func (c *http2Raw) body(id uint32, n int) string {
	c.t.Helper()
	var got []byte
	c.await("the body", func(f http2.Frame) bool {
		if d, ok := f.(*http2.DataFrame); ok && d.StreamID == id {
			got = append(got, d.Data()...)
			return d.StreamEnded() || n >= 0 && len(got) >= n
		}
		return false
	})
	return string(got)
}

// serveRaw serves over a socket.
func serveRaw(t testing.TB, config *filo.Server) *filotest.Server {
	config.HTTP2.Unencrypted = true
	return filotest.Serve(t, config)
}

// "While nothing happens no goroutine has the stream", and a thousand of them take little memory.
func TestHTTP2ParkedRests(t *testing.T) {
	const streams = 1000
	parked := make(chan *filo.ParkedConn, 1)
	ended := make(chan error, streams)
	config := &filo.Server{Handler: parkAll(parked, ended)}
	config.HTTP2.MaxConcurrentStreams = streams
	s := serveRaw(t, config)
	c := newHTTP2Raw(t, s)
	c.head(c.ask("/", false)) // so that memory which only the first stream allocates isn't counted
	conns := []*filo.ParkedConn{<-parked}
	before := parkedHeap()
	for range streams - 1 {
		c.head(c.ask("/", false))
		conns = append(conns, <-parked)
	}
	filotest.Await(t, "the streams to rest", func() bool { return !strings.Contains(s.Goroutines(), "Parked") })
	// A stream takes about 700 bytes. The workers that have run the handlers also take some memory.
	if each := (parkedHeap() - before) / streams; each > 1536 && !race.Enabled {
		t.Errorf("%d bytes for each stream", each)
	}
	message := filo.NewPreparedMessage([]byte("event\n"))
	for _, p := range conns {
		if err := p.Queue(message); err != nil {
			t.Fatal(err)
		}
	}
	got := 0
	c.await("the events", func(f http2.Frame) bool {
		if d, ok := f.(*http2.DataFrame); ok && string(d.Data()) == "event\n" {
			got++
		}
		return got == streams
	})
	c.Close()
	for range streams {
		filotest.Recv(t, ended, "OnClose")
	}
}

func parkedHeap() int {
	var m runtime.MemStats
	for range 3 {
		runtime.GC() // pools give up their contents only in the second GC
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Bytes that the client's window doesn't allow yet wait in the order of the calls. The queue's limit and the deadline apply.
func TestHTTP2ParkedWindow(t *testing.T) {
	parked, ended := make(chan *filo.ParkedConn, 1), make(chan error, 1)
	s := serveRaw(t, &filo.Server{Handler: parkAll(parked, ended)})
	c := newHTTP2Raw(t, s, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	id := c.ask("/", false)
	c.head(id)
	p := <-parked

	// The stream accepts a part of the message, and the rest waits in the queue.
	head := strings.Repeat("h", 20_000)
	p.SetQueueLimit(10_000)
	if err := p.Queue(filo.NewPreparedMessage([]byte(head))); err != nil {
		t.Fatal(err)
	}
	if err := p.Queue(filo.NewPreparedMessage([]byte(head))); !errors.Is(err, filo.ErrQueueFull) {
		t.Fatalf("more than the limit: %v", err)
	}
	p.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	if n, err := p.Write([]byte("late")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a Write behind that: %d, %v", n, err)
	}
	p.SetWriteDeadline(time.Time{})

	const writers, lines = 4, 50
	var written sync.WaitGroup
	for i := range writers {
		written.Go(func() {
			for n := range lines {
				if _, err := fmt.Fprintf(p, "%d:%d\n", i, n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var got strings.Builder
	opened := 0
	for window := 1; got.Len() < len(head) || strings.Count(got.String(), "\n") < writers*lines; window = window%700 + 13 {
		c.WriteWindowUpdate(id, uint32(window))
		opened += window
		if piece := c.body(id, 1); len(piece) > 0 {
			got.WriteString(piece)
		}
		if got.Len() > opened {
			t.Fatalf("%d bytes came, and the window was %d", got.Len(), opened)
		}
	}
	written.Wait()
	rest, ok := strings.CutPrefix(got.String(), head)
	if !ok {
		t.Fatal("what was queued first didn't come first")
	}
	next := [writers]int{}
	for line := range strings.SplitSeq(strings.TrimSuffix(rest, "\n"), "\n") {
		var i, n int
		if _, err := fmt.Sscanf(line, "%d:%d", &i, &n); err != nil || next[i] != n {
			t.Fatalf("%q: %v, after %v", line, err, next)
		}
		next[i]++
	}

	// End takes effect when the window has opened, without a waiting goroutine.
	tail := strings.Repeat("t", 30_000)
	c.WriteWindowUpdate(id, 1)
	if err := p.Queue(filo.NewPreparedMessage([]byte(tail))); err != nil {
		t.Fatal(err)
	}
	p.End()
	filotest.Await(t, "the ending stream to rest", func() bool { return !strings.Contains(s.Goroutines(), "Parked") })
	c.WriteWindowUpdate(id, uint32(len(tail)))
	if got := c.body(id, -1); got != tail {
		t.Errorf("%d bytes behind End, want %d", len(got), len(tail))
	}
	filotest.Recv(t, ended, "OnClose")
	filotest.Await(t, "the stream to be gone", func() bool { return s.Stats().Streams == 0 })
}

// If a Write waits for a client's window, it returns when the stream ends, even if it waits while the stream's function runs.
func TestHTTP2ParkedWriteEnds(t *testing.T) {
	for name, end := range map[string]func(*http2Raw, uint32, *filo.ParkedConn){
		"reset":      func(c *http2Raw, id uint32, _ *filo.ParkedConn) { c.WriteRSTStream(id, http2.ErrCodeCancel) },
		"connection": func(c *http2Raw, _ uint32, _ *filo.ParkedConn) { c.Close() },
		"Close":      func(_ *http2Raw, _ uint32, p *filo.ParkedConn) { p.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			parked, ended, failed := make(chan *filo.ParkedConn, 1), make(chan error, 1), make(chan error, 2)
			running := make(chan struct{})
			s := serveRaw(t, &filo.Server{Handler: func(c *filo.Ctx) error {
				p, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error {
					var b [10]byte
					n, err := p.Read(b[:])
					if n > 0 {
						close(running)
						_, err = p.Write(make([]byte, 100_000))
						failed <- err
					}
					return err
				})
				if err == nil {
					p.OnClose(func() { ended <- nil })
					parked <- p
				}
				return err
			}})
			c := newHTTP2Raw(t, s)
			id := c.ask("/", true)
			c.head(id)
			p := <-parked
			c.WriteData(id, false, []byte("x"))
			filotest.Recv(t, running, "the function")
			go func() {
				_, err := p.Write(make([]byte, 100_000))
				failed <- err
			}()
			c.body(id, 60_000) // the first window
			end(c, id, p)
			for range 2 {
				if err := filotest.Recv(t, failed, "the Write to end"); err == nil {
					t.Error("a Write that the client didn't take has no error")
				}
			}
			filotest.Recv(t, ended, "OnClose")
			filotest.Await(t, "the stream to be gone", func() bool { return s.Stats().Streams == 0 })
		})
	}
}

// A shutdown also wakes a parked stream whose connection accepts no further requests.
func TestHTTP2ParkedOnLeavingConnection(t *testing.T) {
	parked, ended := make(chan *filo.ParkedConn, 1), make(chan error, 1)
	s := serveRaw(t, &filo.Server{Handler: parkAll(parked, ended), MaxRequestsPerConn: 1})
	c := newHTTP2Raw(t, s)
	id := c.ask("/", false)
	left := false
	c.await("GOAWAY", func(f http2.Frame) bool {
		switch f := f.(type) {
		case *http2.PingFrame:
			c.WritePing(true, f.Data)
		case *http2.GoAwayFrame:
			left = f.LastStreamID == id
		}
		return left
	})
	done := make(chan error, 1)
	go func() { done <- s.ShutdownInTime() }()
	if got := c.body(id, -1); got != "bye\n" {
		t.Errorf("%q", got)
	}
	filotest.Recv(t, ended, "OnClose")
	c.Close()
	if err := filotest.Recv(t, done, "the shutdown"); err != nil {
		t.Error(err)
	}
}

// When the function of a parked stream fails in any way, the stream ends.
func TestHTTP2ParkedFunctionEnds(t *testing.T) {
	for name, serve := range map[string]func(*filo.ParkedConn, filo.Wake) error{
		"panic":  func(*filo.ParkedConn, filo.Wake) error { panic("of the test") },
		"Goexit": func(*filo.ParkedConn, filo.Wake) error { runtime.Goexit(); return nil },
		"error":  func(*filo.ParkedConn, filo.Wake) error { return errors.New("of the test") },
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			s := serveRaw(t, &filo.Server{Handler: func(c *filo.Ctx) error {
				p, err := c.ParkStream(serve)
				if err == nil {
					p.OnClose(func() { ended <- nil })
				}
				return err
			}})
			c := newHTTP2Raw(t, s)
			id := c.ask("/", true)
			c.head(id)
			c.WriteData(id, false, []byte("x"))
			c.await("RST_STREAM", func(f http2.Frame) bool { return f.Header().Type == http2.FrameRSTStream })
			filotest.Recv(t, ended, "OnClose")
			filotest.Await(t, "the stream to be gone", func() bool { return s.Stats().Streams == 0 })
		})
	}
}

// A goroutine may wait in the reader of DuplexReader when the handler parks the stream. Its Read ends, whatever the client sends next, and the
// stream's function reads the rest of the body.
func TestHTTP2ParkedWhileRead(t *testing.T) {
	for _, by := range []string{"data", "end", "reset"} {
		t.Run(by, func(t *testing.T) {
			failed, parked, rest := make(chan error, 1), make(chan struct{}, 1), make(chan string, 1)
			_, dial := filotest.ServeRawHTTP2(t, &filo.Server{Handler: func(c *filo.Ctx) error {
				if c.Method() == "GET" {
					return c.Text(200, "ok")
				}
				reader, ok := c.Request.DuplexReader()
				if !ok {
					return filo.Error(500, "no reader")
				}
				got := make([]byte, 5)
				if _, err := io.ReadFull(reader, got); err != nil || string(got) != "first" {
					t.Errorf("%q, %v", got, err)
				}
				waits := make(chan struct{})
				go func() {
					close(waits)
					_, err := reader.Read(make([]byte, 100))
					failed <- err
				}()
				<-waits
				time.Sleep(20 * time.Millisecond) // so that it waits in Read
				_, err := c.ParkStream(func(p *filo.ParkedConn, _ filo.Wake) error {
					b := make([]byte, 100)
					n, err := p.Read(b)
					if n > 0 {
						rest <- string(b[:n])
					}
					return err
				})
				parked <- struct{}{}
				return err
			}}, false)
			c := dial()
			c.Request(1, "/", false, ":method", "POST").Data(1, false, []byte("first")).Send()
			filotest.Recv(t, parked, "the handler")
			if err := filotest.Recv(t, failed, "the end of the read"); err == nil {
				t.Error("the read has no error")
			}
			switch by {
			case "data":
				c.Data(1, false, []byte("rest")).Send()
				if got := filotest.Recv(t, rest, "the rest"); got != "rest" {
					t.Errorf("the function reads %q", got)
				}
			case "end":
				c.Data(1, true, nil).Send()
			case "reset":
				c.Add(func(f *http2.Framer) { f.WriteRSTStream(1, http2.ErrCodeCancel) }).Send()
			}
			c.Request(3, "/", true).Send()
			c.WantAnswer(3, "200 ok")
		})
	}
}
