package http2

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// framesHTTP2 is a client that sends any frames.
type framesHTTP2 struct {
	*http2.Framer
	out    bytes.Buffer // frames that the Framer has written, but send hasn't sent yet
	conn   net.Conn
	fields bytes.Buffer
	t      testing.TB
}

func dialFramesHTTP2(t testing.TB, addr string) *framesHTTP2 {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &framesHTTP2{conn: conn, t: t}
	c.Framer = http2.NewFramer(&c.out, conn)
	c.out.WriteString(http2.ClientPreface)
	c.WriteSettings()
	return c
}

// send sends the written frames.
func (c *framesHTTP2) send() {
	c.t.Helper()
	if _, err := c.conn.Write(c.out.Bytes()); err != nil {
		c.t.Fatal(err)
	}
	c.out.Reset()
}

// request writes HEADERS.
func (c *framesHTTP2) request(id uint32, path string, endStream bool, fields ...string) {
	c.fields.Reset()
	e := hpack.NewEncoder(&c.fields)
	method := "GET"
	if !endStream {
		method = "POST"
	}
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path},
		{Name: ":authority", Value: "a"}} {
		e.WriteField(f)
	}
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.fields.Bytes(), EndStream: endStream, EndHeaders: true})
}

// If the client has disconnected, the server doesn't run the handlers of its waiting requests, although it reads the requests one after the other.
func TestHTTP2ClientLeft(t *testing.T) {
	filotest.NeedLoops(t)
	const requests = 100
	var calls atomic.Int32
	closed := make(chan struct{})
	var once sync.Once
	listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
	c := dialFramesHTTP2(t, listener.Addr().String())
	for i := range uint32(requests) {
		c.request(1+2*i, "/", true)
	}
	c.send()
	c.conn.Close() // before the server accepts, so that the server reads the end together with the requests
	filotest.Serve(t, &filo.Server{
		Handler: filo.Offload(func(c *filo.Ctx) error {
			calls.Add(1)
			<-c.Context().Done()
			return nil
		}),
		HTTP2: filo.HTTP2Options{Unencrypted: true},
		ConnState: func(_ net.Conn, state filo.ConnState) {
			if state == filo.StateClosed {
				once.Do(func() { close(closed) })
			}
		},
	}, listener)
	filotest.Recv(t, closed, "the end of the connection")
	if n := calls.Load(); n > requests/4 {
		t.Errorf("%d of %d handlers were called", n, requests)
	}
}

// settle sends a PING and reads frames until its answer. It calls each for the other frames.
func (c *framesHTTP2) settle(each func(http2.Frame)) {
	c.t.Helper()
	c.WritePing(false, [8]byte{1})
	c.send()
	c.conn.SetReadDeadline(time.Now().Add(filotest.Bound))
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		if ping, ok := f.(*http2.PingFrame); ok && ping.IsAck() {
			return
		}
		each(f)
	}
}

// If handlers read bodies as fast as they arrive, the windows grow beyond 64 KB. All windows of a connection together grow by at most
// MaxConnWindow.
func TestHTTP2WindowsGrow(t *testing.T) {
	const begin, limit, streams = 1<<16 - 1, 1 << 20, 6
	var reads [streams + 1]chan int64
	for i := range reads {
		reads[i] = make(chan int64)
	}
	done := make(chan error)
	s := filotest.Serve(t, &filo.Server{
		Handler: func(c *filo.Ctx) error {
			if c.Path() == "/" {
				return c.NoContent()
			}
			for n := range reads[c.Path()[1]-'0'] {
				_, err := io.CopyN(io.Discard, c.BodyReader(), n)
				done <- err
			}
			return nil
		},
		MaxBodyBytes: -1,
		HTTP2:        filo.HTTP2Options{Unencrypted: true, MaxStreamWindow: limit, MaxConnWindow: limit, MaxGlitches: -1},
	})
	// The first connection may have been accepted by the kernel before Serve. It would lack socket options that Serve sets on the listener,
	// such as TCP_NODELAY, so each round would take 40 ms.
	filotest.NewHTTP2Client(t, "http://"+s.Addr, nil, nil).Want("GET", "/", nil, 204, "")
	c := dialFramesHTTP2(t, s.Addr)
	conn, windows := begin, map[uint32]int{}
	update := func(f http2.Frame) {
		switch f := f.(type) {
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				conn += int(f.Increment)
			} else {
				windows[f.StreamID] += int(f.Increment)
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			t.Fatal(f)
		}
	}
	piece := make([]byte, 16<<10)
	grow := func(i uint32) (sum int) {
		id := 1 + 2*i
		windows[id] = begin
		c.request(id, fmt.Sprintf("/%d", i), false)
		for range 20 {
			sent := 0
			for n := 0; windows[id] > 0 && conn > 0; sent += n {
				n = min(len(piece), windows[id], conn)
				c.WriteData(id, false, piece[:n])
				windows[id], conn = windows[id]-n, conn-n
			}
			c.send()
			reads[i] <- int64(sent)
			if err := filotest.Recv(t, done, "the body to be read"); err != nil {
				t.Fatal(err)
			}
			c.settle(update)
		}
		close(reads[i])
		for _, window := range windows {
			sum += window
		}
		return sum
	}
	for i := range uint32(streams) {
		if sum := grow(i); i == 0 && sum < limit/2 || sum > len(windows)*begin+limit {
			t.Errorf("%d streams have windows of %d bytes", len(windows), sum)
		}
	}
	for id := range windows {
		c.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	clear(windows)
	if sum := grow(streams); sum < limit/2 {
		t.Errorf("when they have ended, the next one has a window of %d bytes", sum)
	}
}

// countingBody is an endless body that counts the bytes that are read, and records when it is closed.
type countingBody struct {
	read   atomic.Int64
	closed chan struct{}
}

func (b *countingBody) Read(p []byte) (int, error) {
	b.read.Add(int64(len(p)))
	return len(p), nil
}

func (b *countingBody) Close() error {
	close(b.closed)
	return nil
}

// The server reads no byte of a body beyond the client's window, however long the body is.
func TestHTTP2ReadAhead(t *testing.T) {
	const window = 1<<16 - 1
	body := &countingBody{closed: make(chan struct{})}
	s := filotest.Serve(t, &filo.Server{
		Handler: func(c *filo.Ctx) error { return c.Reader(200, "application/octet-stream", body, 1<<40) },
		HTTP2:   filo.HTTP2Options{Unencrypted: true},
	})
	c := dialFramesHTTP2(t, s.Addr)
	c.request(1, "/", true)
	c.send()
	c.conn.SetReadDeadline(time.Now().Add(filotest.Bound))
	for got := 0; got < window; {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := f.(*http2.DataFrame); ok {
			got += len(data.Data())
		}
	}
	c.WriteRSTStream(1, http2.ErrCodeCancel)
	c.send()
	filotest.Recv(t, body.closed, "the end of the body")
	if n := body.read.Load(); n > window+4<<10 {
		t.Errorf("%d bytes were read, of which %d were sent", n, window)
	}
}

// Several equal requests are independent: changes by one handler don't affect later requests. On each connection, the same HPACK indices
// stand for other texts, and usually the same worker serves the connections.
func TestHTTP2SameRequests(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		_, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			r := &c.Request
			was := fmt.Sprintf("%s %s %s", r.URI().String(), r.Header.Get("x"), r.Header.Get("y"))
			r.Header.Set("X", "changed")
			r.Header.Add("Y", "added")
			if err := r.SetTarget("/changed"); err != nil {
				return err
			}
			return c.Text(200, was)
		}})
		const conns, rounds, requests = 4, 5, 8
		var clients [conns]*filotest.RawHTTP2
		for i := range clients {
			clients[i] = dial()
		}
		for round := range rounds {
			path := func(i int) string { return fmt.Sprint("/", i, "/", round/2) }
			for i, c := range clients {
				for n := range uint32(requests) {
					c.Request(1+2*(n+requests*uint32(round)), path(i), true, "x", fmt.Sprint(i))
				}
				c.Send()
			}
			for i, c := range clients {
				for n := range uint32(requests) {
					c.WantAnswer(1+2*(n+requests*uint32(round)), fmt.Sprintf("200 http://example.com%s %d ", path(i), i))
				}
			}
		}
	})
}

// The server acknowledges SETTINGS after it has applied them (RFC 9113, section 6.5.3). It doesn't acknowledge SETTINGS that end the connection.
func TestHTTP2WrongSettings(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		_, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }})
		for wrong, code := range map[http2.Setting]http2.ErrCode{
			{ID: http2.SettingMaxFrameSize, Val: 1 << 24}:      http2.ErrCodeProtocol,
			{ID: http2.SettingInitialWindowSize, Val: 1 << 31}: http2.ErrCodeFlowControl,
		} {
			// The client doesn't record SETTINGS that are written with Add, so it would report an acknowledgement of them as an error.
			dial().Add(func(f *http2.Framer) { f.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize}, wrong) }).Send().WantEnd(code)
		}
	})
}
