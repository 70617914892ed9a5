package http2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The server must forget that a request waits for its body as soon as the request is answered, because another connection's request may then
// reuse its memory.
func TestHTTP2UndecidedIsForgotten(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		var second *filotest.RawHTTP2
		_, dial := serve(&filo.Server{Leaders: 1, Handler: filo.Inline(func(c *filo.Ctx) error {
			body, err := c.Body()
			if err != nil {
				return err
			}
			if c.Path() == "/last of the turn" {
				second.Send()
			}
			if c.Path() == "/undecided" {
				return c.NoContent() // so that no answer waits to be sent
			}
			return c.Text(200, c.Path()+" "+string(body))
		})})
		first := dial()
		second = dial()
		first.Request(1, "/first", true).Send()
		second.Request(1, "/second", true).Send()
		first.WantAnswer(1, "200 /first ")
		second.WantAnswer(1, "200 /second ")
		for round := range 20 {
			id := uint32(3 + 1000*round)
			// A request whose class isn't known yet is followed by more requests than one turn can hold.
			first.Request(id, "/undecided", false, ":method", "POST").Data(id, true, []byte("x"))
			last := id
			for i := range 300 {
				last += 2
				path := "/quick"
				if i == 100 {
					path = "/last%20of%20the%20turn"
				}
				first.Request(last, path, true)
			}
			second.Request(id, "/secret", false, ":method", "POST", "content-length", "4")
			first.Send()
			first.WantAnswer(id, "204 ")
			first.WantAnswer(last, "200 /quick ")
			second.Data(id, true, []byte("body")).Send()
			second.WantAnswer(id, "200 /secret body")
		}
	})
}

// If a handler hangs, another worker takes its connection over, even if the leader had lost its seat before the handler began.
func TestHTTP2SeatLostBeforeHandler(t *testing.T) {
	filotest.NeedLoops(t)
	var delay atomic.Bool
	var retakes atomic.Uint64 // Stats.Retakes before the request
	release, stuck := make(chan struct{}), make(chan struct{})
	var s *filotest.Server
	config := &filo.Server{Leaders: 1, ConnState: func(_ net.Conn, state filo.ConnState) {
		if state == filo.StateActive && delay.CompareAndSwap(true, false) {
			filotest.Try(func() bool { return s.Stats().Retakes > retakes.Load() })
		}
	}, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/stuck" {
			close(stuck)
			<-release
		}
		return c.Text(200, c.Path())
	}}
	s, dial := filotest.ServeRawHTTP2(t, config, false)
	c := dial()
	id := uint32(1)
	for ; id < 1000; id += 2 { // until the server has measured the handler as quick
		c.Request(id, "/quick", true).Send()
		c.WantAnswer(id, "200 /quick")
	}
	filotest.Await(t, "an idle connection", func() bool { return s.Stats().ConnsActive == 0 })
	retakes.Store(s.Stats().Retakes)
	delay.Store(true)
	c.Request(id, "/stuck", true).Send()
	filotest.Recv(t, stuck, "the handler")
	c.Request(id+2, "/sibling", true).Send()
	c.SetReadDeadline(time.Now().Add(filotest.Bound))
	c.WantAnswer(id+2, "200 /sibling")
	close(release)
	c.SetReadDeadline(time.Now().Add(filotest.Bound))
	c.WantAnswer(id, "200 /stuck")
}

// If a body arrives faster than its handler reads, it takes no more memory than the flow-control windows allow.
func TestHTTP2BodyIsBounded(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		const total = 4 << 20
		var sent, held atomic.Int64
		_, dial := serve(&filo.Server{MaxBodyBytes: -1, Handler: func(c *filo.Ctx) error {
			b, read := make([]byte, 10_000), int64(0)
			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for read < total {
				for sent.Load() < min(read+50_000, total) {
					time.Sleep(time.Millisecond) // so that some unread bytes always wait
				}
				n, err := c.BodyReader().Read(b)
				if err != nil {
					return err
				}
				if read += int64(n); read >= total-50_000 && held.Load() == 0 {
					runtime.GC()
					runtime.ReadMemStats(&now)
					held.Store(max(1, int64(now.HeapAlloc)-int64(before.HeapAlloc)))
				}
			}
			return c.Text(200, fmt.Sprint(read))
		}})
		c := dial()
		c.Request(1, "/", false, ":method", "POST").Send()
		go func() {
			for piece := make([]byte, 8<<10); sent.Load() < total; runtime.Gosched() {
				c.Books.Lock()
				room := 65535 + c.Streams[1].Grown - sent.Load()
				c.Books.Unlock()
				if n := min(room, int64(len(piece)), total-sent.Load()); n > 0 {
					c.Data(1, sent.Load()+n == total, piece[:n]).Send()
					sent.Add(n)
				}
			}
		}()
		c.WantAnswer(1, "200 "+fmt.Sprint(total))
		if n := held.Load(); n > 2<<20 {
			t.Errorf("%d KB were held", n>>10)
		}
	})
}

// While the server sends a large answer to a slow client, it still reads from the client, which may reset the stream or send another request.
func TestHTTP2ListensWhileSending(t *testing.T) {
	large := make([]byte, 64<<20)
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		asked := make(chan struct{})
		_, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() == "/small" {
				asked <- struct{}{}
				return c.Text(200, "small")
			}
			return c.BytesNoCopy(200, "application/octet-stream", large)
		}})
		c := dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
		c.Open(0, 1<<31-1-65535).Request(1, "/large", true).Send()
		for c.Streams[1].Status == 0 {
			if err := c.Take(); err != nil {
				t.Fatal(err)
			}
		}
		for id := uint32(3); id < 63; id += 2 {
			c.Request(id, "/small", true).Send()
			filotest.Recv(t, asked, "a request while another one's answer waits")
		}
		c.Add(func(f *http2.Framer) { f.WriteRSTStream(1, http2.ErrCodeCancel) }).Send()
		c.WantAnswer(61, "200 small")
	})
}

// If ConnState panics or ends its goroutine, at most its connection is lost.
func TestHTTP2ConnStatePanics(t *testing.T) {
	for _, test := range []struct {
		at     string
		goexit bool
	}{{"new", false}, {"active", false}, {"active", true}, {"idle", false}, {"idle", true}, {"closed", false}, {"closed", true}, {"all", false}} {
		t.Run(fmt.Sprint(test.at, " ", test.goexit), func(t *testing.T) {
			filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
				var armed, failed, idle atomic.Bool
				s, dial := serve(&filo.Server{ConnState: func(_ net.Conn, state filo.ConnState) {
					idle.Store(state == filo.StateIdle)
					if armed.Load() && (state.String() == test.at || test.at == "all") {
						failed.Store(true)
						if test.goexit {
							runtime.Goexit()
						}
						panic("on purpose")
					}
				}, Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }})
				armed.Store(test.at == "new")
				c := dial()
				c.Request(1, "/", true).Send()
				if test.at != "new" {
					c.WantAnswer(1, "200 ok")
					filotest.Await(t, "an idle connection", idle.Load) // Stats reports the idle state before ConnState is called
					armed.Store(true)
					c.Request(3, "/", true).Send()
				}
				if test.at == "closed" {
					c.Data(0, false, []byte("an error of the connection")).Send()
				}
				filotest.Await(t, "the failure", failed.Load)
				if !test.goexit || test.at == "closed" {
					for c.Take() == nil {
					}
				}
				armed.Store(false)
				c.Close()
				filotest.Await(t, "the connection to be gone", func() bool { return s.Stats().ConnsOpen == 0 })
				c = dial()
				c.Request(1, "/", true).Send()
				c.WantAnswer(1, "200 ok")
				c.Close()
				if err := s.ShutdownInTime(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// If ConnState panics in a worker that has taken the connection over, ServeConn returns, and the program survives.
func TestHTTP2ServeConnPanics(t *testing.T) {
	for _, at := range []filo.ConnState{filo.StateIdle, filo.StateClosed} {
		var armed atomic.Bool
		stuck, release := make(chan struct{}), make(chan struct{})
		s := filotest.Serve(t, &filo.Server{HTTP2: filo.HTTP2Options{Unencrypted: true}, ConnState: func(_ net.Conn, state filo.ConnState) {
			if state == at && armed.Load() {
				panic("on purpose")
			}
		}, Handler: func(c *filo.Ctx) error {
			if c.Path() == "/stuck" {
				close(stuck)
				<-release
			}
			return c.Text(200, "ok")
		}})
		client, conn := servertest.Pipe()
		served := make(chan error, 1)
		s.Go(func() { served <- s.ServeConn(conn) })
		c := filotest.NewRawHTTP2(t, client)
		c.Request(1, "/stuck", true).Send()
		filotest.Recv(t, stuck, "the handler")
		c.Request(3, "/", true).Send()
		c.WantAnswer(3, "200 ok")
		armed.Store(true)
		close(release)
		if at == filo.StateClosed {
			c.Data(0, false, []byte("an error of the connection")).Send()
		}
		for c.Take() == nil {
		}
		filotest.Recv(t, served, "ServeConn to return")
	}
}

// If user code panics or ends its goroutine after its handler has returned, at most the stream is lost.
func TestHTTP2FailuresAtTheEnd(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		fail := func(c *filo.Ctx) {
			if c.Path()[1] == 'g' {
				runtime.Goexit()
			}
			panic("on purpose")
		}
		s, dial := serve(&filo.Server{ErrorHandler: func(c *filo.Ctx, _ error) { fail(c) }, Handler: func(c *filo.Ctx) error {
			if strings.HasSuffix(c.Path(), "apart") {
				time.Sleep(5 * time.Millisecond)
			}
			switch strings.Split(c.Path(), "/")[2] {
			case "close":
				c.Response.SetBodyStream(failingBody{strings.NewReader("ok"), func() { fail(c) }}, 2)
			case "read":
				c.Response.SetBodyStream(failingBody{unknownLength(readFunc(func() { fail(c) })), func() {}}, 2)
			case "error":
				return io.ErrUnexpectedEOF
			case "exit":
				runtime.Goexit()
			case "wrap":
				c.Response.WrapBody(func(c *filo.Ctx, _ io.Writer, _ int64) io.WriteCloser { fail(c); return nil })
				return c.Text(200, "ok")
			}
			return c.Text(200, "ok")
		}})
		c := dial()
		id := uint32(1)
		for range 200 {
			c.Request(id, "/p/quick", true).Send()
			c.WantAnswer(id, "200 ok")
			id += 2
		}
		for _, work := range []string{"close", "read", "error", "exit", "wrap"} {
			for _, how := range []string{"p", "g"} {
				for _, where := range []string{"inline", "apart"} {
					c.Request(id, "/"+how+"/"+work+"/"+where, true).Send()
					c.Answer(id)
					c.Request(id+2, "/p/quick", true).Send()
					c.WantAnswer(id+2, "200 ok")
					id += 4
				}
			}
		}
		filotest.Await(t, "the places", func() bool { return s.Stats().Streams == 0 && s.Stats().WorkersRunning <= filotest.WorkersOf(1) })
	})
}

// failingBody is the stream of a response's body.
type failingBody struct {
	io.Reader
	close func()
}

func (b failingBody) Close() error {
	b.close()
	return nil
}

type readFunc func()

func (f readFunc) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// The server sends nothing on a stream after RST_STREAM: filotest's client checks this.
func TestHTTP2NothingBehindReset(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		_, dial := serve(&filo.Server{Handler: filo.Inline(func(c *filo.Ctx) error {
			if c.Path() == "/aborts" {
				return filo.ErrAbort
			}
			return c.Text(200, "ok")
		})})
		c := dial()
		for id := uint32(1); id < 500; id += 2 {
			c.Request(id, "/", true).Send()
			c.WantAnswer(id, "200 ok")
		}
		c.Request(501, "/aborts", false, ":method", "POST", "content-length", "33")
		for i := range 33 { // the server returns the padding with WINDOW_UPDATE, just before the handler runs
			c.Add(func(f *http2.Framer) { f.WriteDataPadded(501, i == 32, []byte("x"), make([]byte, 255)) })
		}
		c.Send()
		c.WantAnswer(501, "0 , reset with INTERNAL_ERROR")
		c.Request(503, "/", true).Send()
		c.WantAnswer(503, "200 ok")
	})
}

// When a connection ends because of an error, none of its handlers keeps waiting, even if the client doesn't read.
func TestHTTP2ErrorEndsHandlers(t *testing.T) {
	large := make([]byte, 64<<20)
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		begun, ended := make(chan struct{}), make(chan error, 1)
		_, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() == "/waits" {
				close(begun)
				<-c.Context().Done()
				ended <- c.Context().Err()
				return nil
			}
			return c.BytesNoCopy(200, "application/octet-stream", large)
		}})
		c := dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
		c.Open(0, 1<<31-1-65535).Request(1, "/large", true).Request(3, "/waits", true).Send()
		filotest.Recv(t, begun, "the handler")
		for c.Streams[1].Status == 0 {
			if err := c.Take(); err != nil {
				t.Fatal(err)
			}
		}
		c.Data(0, false, []byte("an error of the connection")).Send()
		filotest.Recv(t, ended, "the end of the handler's context")
	})
}

// If a time-out answers while the handler waits for its body, the handler's Read fails at once, whatever the client does. This also holds for
// a net/http handler.
func TestHTTP2ReadAfterTimeout(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		ended := make(chan error, 1)
		read := func(r io.Reader) { // called by the handlers
			_, err := io.Copy(io.Discard, r)
			ended <- err
		}
		plain := adaptor.FromHTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { read(r.Body) }))
		s, dial := serve(&filo.Server{ReadTimeout: -1, MinTransferRate: -1, Handler: func(c *filo.Ctx) error {
			c.SetTimeout(10*time.Millisecond, nil)
			if c.Path() == "/net/http" {
				return plain(c)
			}
			read(c.BodyReader())
			return nil
		}})
		for _, path := range []string{"/", "/net/http", "/head"} {
			c, method, want := dial(), "POST", "503 "+filotest.TimedOutBody
			if path == "/head" {
				method, want = "HEAD", "503 "
			}
			c.Request(1, path, false, ":method", method).Data(1, false, []byte("some")).Send()
			c.WantAnswer(1, want)
			if err := filotest.Recv(t, ended, "the handler's read to end"); !errors.Is(err, filo.ErrHandlerTimeout) {
				t.Errorf("%s: the handler's read ended with %v", path, err)
			}
			c.Close()
			filotest.Await(t, "the stream's place", func() bool { return s.Stats().Streams == 0 })
		}
	})
}

// If a stream has already ended when another worker takes the connection from the stream's handler, the stream isn't ended a second time.
func TestHTTP2TakenWhenOver(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		release, stuck := make(chan struct{}), make(chan struct{}, 2)
		s, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			switch c.Path() {
			case "/timeout":
				c.SetTimeout(time.Microsecond, nil)
				stuck <- struct{}{}
				<-release
			case "/park":
				<-c.Context().Done()
				_, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
				stuck <- struct{}{}
				return err
			}
			return c.Text(200, "ok")
		}})
		c := dial()
		id := uint32(1)
		for ; id < 500; id += 2 {
			c.Request(id, "/", true).Send()
			c.WantAnswer(id, "200 ok")
		}
		c.Request(id, "/timeout", true).Send()
		filotest.Recv(t, stuck, "the handler")
		c.WantAnswer(id, "503 Service Unavailable: the handler took too long\n")
		c.Request(id+2, "/", true).Send()
		c.WantAnswer(id+2, "200 ok") // so another worker has taken the connection over
		close(release)
		c.Request(id+4, "/park", true).Send()
		c.Add(func(f *http2.Framer) { f.WriteRSTStream(id+4, http2.ErrCodeCancel) }).Send()
		filotest.Recv(t, stuck, "the handler")
		filotest.Await(t, "the streams to end", func() bool { return s.Stats().Streams == 0 })
		c.Close()
		filotest.Await(t, "the connection to end", func() bool { return s.Stats().ConnsOpen == 0 })
	})
}

// "Endpoints MUST NOT increase the value they send in the last stream identifier" (RFC 9113, section 6.8). The client checks.
func TestHTTP2GoAwayNeverRises(t *testing.T) {
	t.Parallel()
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		release := make(chan struct{})
		s, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			<-release
			return c.Text(200, "ok")
		}})
		c := dial()
		c.Request(1, "/", true).Send()
		filotest.Await(t, "the request", func() bool { return s.Stats().Streams == 1 })
		ended := make(chan error, 1)
		go func() { ended <- s.ShutdownInTime() }()
		for !c.GoneAll || c.LastID != 1 {
			if err := c.Take(); err != nil {
				t.Fatal(err)
			}
		}
		c.Request(5, "/late", true).Data(0, false, []byte("an error of the connection")).Send()
		c.WantEnd(http2.ErrCodeProtocol)
		close(release)
		if err := filotest.Recv(t, ended, "the shutdown"); err != nil {
			t.Error(err)
		}
	})
}

// The server can end an answer without any window.
func TestHTTP2EndNeedsNoWindow(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		proceed := make(chan struct{})
		_, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() == "/large" {
				return c.Text(200, strings.Repeat("x", 100_000))
			}
			w := c.Stream()
			if err := w.Flush(); err != nil {
				return err
			}
			<-proceed
			c.Response.Trailer.Set("X-End", "here")
			return nil
		}})
		c := dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		c.Request(1, "/end", true).Request(3, "/large", true).Send()
		for len(c.Streams[3].Body) < 65535 {
			if err := c.Take(); err != nil {
				t.Fatal(err)
			}
		}
		close(proceed)
		c.SetReadDeadline(time.Now().Add(filotest.Bound))
		c.WantAnswer(1, "200 ")
		c.Open(3, 100_000).Send()
		c.SetReadDeadline(time.Now().Add(filotest.Bound))
		if s := c.Answer(3); len(s.Body) != 100_000 {
			t.Error(s)
		}
	})
}

// If the server always holds an incomplete frame, but each frame is completed in time, ReadHeaderTimeout doesn't end the connection.
func TestHTTP2FramesInPieces(t *testing.T) {
	t.Parallel()
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		const timeout = 2 * time.Second // far more than a busy machine keeps the client from sending
		_, dial := serve(&filo.Server{ReadHeaderTimeout: timeout, Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }})
		c := dial()
		c.Request(1, "/", true).Send()
		c.WantAnswer(1, "200 ok")
		id := uint32(1)
		for begin := time.Now(); time.Since(begin) < 3*timeout/2; {
			id += 2
			c.Request(id, "/", true)
			whole := c.Out.Len()
			c.Add(func(f *http2.Framer) { f.WritePing(false, [8]byte{}) })
			cut := append([]byte(nil), c.Out.Bytes()[whole+5:]...)
			c.Out.Truncate(whole + 5)
			c.Send()
			c.WantAnswer(id, "200 ok")
			time.Sleep(timeout / 40) // the server waits with an incomplete frame
			c.Out.Write(cut)
		}
	})
}

// If ConnContext panics, the server calls it again for the next request. A request served without the connection's values might be treated as
// another user's.
func TestHTTP2ConnContextPanics(t *testing.T) {
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		type key struct{}
		calls := 0
		c := dial(&filo.Server{
			ConnContext: func(net.Conn) context.Context {
				if calls++; calls == 1 {
					panic("a mistake of the program's")
				}
				return context.WithValue(context.Background(), key{}, calls)
			},
			Handler: func(c *filo.Ctx) error { return c.Text(200, fmt.Sprint(c.Context().Value(key{}))) },
		})
		c.request(1, "GET", "/", true)
		c.await("HEADERS 1 500")
		for _, stream := range []uint32{3, 5} {
			c.request(stream, "GET", "/", true)
			c.await(fmt.Sprintf("DATA %d %q END", stream, "2"))
		}
	})
}

// The head of a request may be as large as the server says, in frames of 16 KB.
func TestHTTP2LargeHead(t *testing.T) {
	const pieces = 12
	eachFrames(t, func(t *testing.T, dial func(*filo.Server, ...http2.Setting) *frameClient) {
		c := dial(&filo.Server{MaxHeaderBytes: 1 << 20, Handler: func(c *filo.Ctx) error { return c.Text(200, fmt.Sprint(c.Request.Header.Len())) }})
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for _, f := range []string{":method GET", ":scheme http", ":authority example.com", ":path /"} {
			name, value, _ := strings.Cut(f, " ")
			e.WriteField(hpack.HeaderField{Name: name, Value: value})
		}
		for i := range pieces {
			e.WriteField(hpack.HeaderField{Name: fmt.Sprint("x-", i), Value: strings.Repeat("\xff", 16<<10), Sensitive: true})
		}
		rest := block.Bytes()
		c.done(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: rest[:16<<10], EndStream: true}))
		for rest = rest[16<<10:]; len(rest) > 0; {
			n := min(16<<10, len(rest))
			c.done(c.WriteContinuation(1, n == len(rest), rest[:n]))
			rest = rest[n:]
		}
		c.await(fmt.Sprintf("DATA 1 %q END", fmt.Sprint(pieces+1)))
	})
}

// ReadHeaderTimeout also limits the time for the preface.
func TestHTTP2PrefaceTrickles(t *testing.T) {
	t.Parallel()
	// The time is long enough for the first byte, without which there would be no answer, and too short for all.
	s := filotest.Serve(t, &filo.Server{ReadHeaderTimeout: 2 * time.Second, HTTP2: filo.HTTP2Options{Unencrypted: true},
		Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }})
	c := s.Dial(t)
	answered := make(chan struct{})
	go func() {
		for i := range len(http2.ClientPreface) - 1 {
			if _, err := io.WriteString(c.Conn, http2.ClientPreface[i:i+1]); err != nil {
				return
			}
			select {
			case <-answered:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	response, _, err := c.TryAnswer()
	close(answered)
	if err != nil || response.StatusCode != 408 {
		t.Errorf("%v, %v", response, err)
	}
}

// "IdleTimeout is how long a connection may wait between requests": PINGs that the client sends in this time don't extend it.
func TestHTTP2IdlePings(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		_, dial := serve(&filo.Server{IdleTimeout: 200 * time.Millisecond, Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }})
		c := dial().Request(1, "/", true).Send()
		c.WantAnswer(1, "200 ok")
		ended := make(chan struct{})
		defer close(ended)
		go func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(10 * time.Millisecond):
					c.Add(func(f *http2.Framer) { f.WritePing(false, [8]byte{}) }).Send()
				}
			}
		}()
		c.WantEnd(http2.ErrCodeNo)
	})
}
