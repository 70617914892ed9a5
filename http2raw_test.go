package filo_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawHTTP2 is a client of HTTP/2 that sends any frames, and holds the server's to the rules. One goroutine at a time reads, and any may
// send.
type rawHTTP2 struct {
	net.Conn
	t testing.TB

	mu      sync.Mutex // guards what sends
	out     bytes.Buffer
	framer  *http2.Framer // writes to out
	block   bytes.Buffer
	encoder *hpack.Encoder

	// The reader's, but for what books guards.
	reader *http2.Framer
	pongs  int

	books   sync.Mutex
	streams map[uint32]*rawStream
	lastID  uint32 // of GOAWAY
	goneAll bool   // GOAWAY has come
	code    http2.ErrCode
	window  int64        // of the connection, for what the server sends
	initial int64        // of a stream
	lowered []rawLowered // with the next acknowledgements of SETTINGS
	grown   int64        // increments of the connection's window, for what the client sends
}

// rawLowered is what streams lose of their windows once the server has acknowledged SETTINGS.
type rawLowered struct {
	by      int64
	streams []*rawStream
}

// rawStream is what has come on a stream.
type rawStream struct {
	status  int
	interim []int
	header  map[string]string
	trailer map[string]string
	body    []byte
	ended   bool // by END_STREAM
	reset   bool // by the server
	code    http2.ErrCode
	head    bool // the answer to HEAD has no body
	window  int64
	grown   int64 // increments of the window for the request's body
}

// String describes the answer.
func (s *rawStream) String() string {
	if s.reset {
		return fmt.Sprintf("%d %s, reset with %v", s.status, s.text(), s.code)
	}
	return fmt.Sprintf("%d %s", s.status, s.text())
}

func (s *rawStream) text() string {
	if len(s.body) > 100 {
		return fmt.Sprintf("%.100q… (%d bytes)", s.body, len(s.body))
	}
	return string(s.body)
}

func newRawHTTP2(t testing.TB, conn net.Conn, settings ...http2.Setting) *rawHTTP2 {
	c := &rawHTTP2{Conn: conn, t: t, streams: make(map[uint32]*rawStream), window: 65535, initial: 65535, lastID: 1<<31 - 1, lowered: make([]rawLowered, 1)}
	c.framer = http2.NewFramer(&c.out, nil)
	c.framer.AllowIllegalWrites = true
	c.encoder = hpack.NewEncoder(&c.block)
	c.reader = http2.NewFramer(nil, conn)
	c.reader.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.reader.SetMaxReadFrameSize(16 << 10)
	c.out.WriteString(http2.ClientPreface)
	for _, s := range settings {
		if s.ID == http2.SettingInitialWindowSize {
			c.initial = int64(s.Val)
		}
	}
	c.framer.WriteSettings(settings...)
	return c
}

// eachRawHTTP2 runs a test over a socket and over a connection in memory.
func eachRawHTTP2(t *testing.T, test func(t *testing.T, serve func(*filo.Server) (s *lifeServer, dial func(...http2.Setting) *rawHTTP2))) {
	for _, memory := range []bool{false, true} {
		t.Run(map[bool]string{false: "socket", true: "memory"}[memory], func(t *testing.T) {
			test(t, func(config *filo.Server) (*lifeServer, func(...http2.Setting) *rawHTTP2) {
				return serveRawHTTP2(t, config, memory)
			})
		})
	}
}

func serveRawHTTP2(t testing.TB, config *filo.Server, memory bool) (*lifeServer, func(...http2.Setting) *rawHTTP2) {
	config.HTTP2.Unencrypted = true
	dialWith := func(settings []http2.Setting, conn net.Conn, err error) *rawHTTP2 {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(lifeBound))
		return newRawHTTP2(t, conn, settings...)
	}
	if memory {
		listener := servertest.NewListener()
		return lifeServe(t, config, listener), func(settings ...http2.Setting) *rawHTTP2 {
			conn, err := listener.Dial()
			return dialWith(settings, conn, err)
		}
	}
	s := lifeServe(t, config)
	return s, func(settings ...http2.Setting) *rawHTTP2 {
		conn, err := net.Dial("tcp", s.addr)
		return dialWith(settings, conn, err)
	}
}

// add renders frames, which send sends.
func (c *rawHTTP2) add(write func(f *http2.Framer)) *rawHTTP2 {
	c.mu.Lock()
	defer c.mu.Unlock()
	write(c.framer)
	return c
}

// request adds the HEADERS of a request. Without fields of its own it is a GET.
func (c *rawHTTP2) request(id uint32, path string, end bool, fields ...string) *rawHTTP2 {
	method := "GET"
	if len(fields) > 0 && fields[0] == ":method" {
		method, fields = fields[1], fields[2:]
	}
	c.books.Lock()
	c.streams[id] = &rawStream{window: c.initial, head: method == "HEAD"}
	c.books.Unlock()
	return c.add(func(f *http2.Framer) {
		c.block.Reset()
		fields = append([]string{":method", method, ":scheme", "http", ":authority", "example.com", ":path", path}, fields...)
		for i := 0; i < len(fields); i += 2 {
			c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndStream: end, EndHeaders: true})
	})
}

func (c *rawHTTP2) data(id uint32, end bool, b []byte) *rawHTTP2 {
	return c.add(func(f *http2.Framer) { f.WriteData(id, end, b) })
}

// open lets the server send n bytes more on a stream, and on all of them.
func (c *rawHTTP2) open(id uint32, n uint32) *rawHTTP2 {
	c.books.Lock()
	if c.window += int64(n); id != 0 {
		c.streams[id].window += int64(n)
	}
	c.books.Unlock()
	return c.add(func(f *http2.Framer) {
		f.WriteWindowUpdate(0, n)
		if id != 0 {
			f.WriteWindowUpdate(id, n)
		}
	})
}

// setWindow changes the window that streams begin with.
func (c *rawHTTP2) setWindow(n int64) *rawHTTP2 {
	c.books.Lock()
	lowered := rawLowered{by: c.initial - n}
	for _, s := range c.streams {
		if lowered.by <= 0 {
			s.window -= lowered.by // the server may use it at once
		} else {
			lowered.streams = append(lowered.streams, s)
		}
	}
	c.initial, c.lowered = n, append(c.lowered, lowered)
	c.books.Unlock()
	return c.add(func(f *http2.Framer) {
		f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(n)})
	})
}

// send sends what was added. An error shows when the client reads.
func (c *rawHTTP2) send() *rawHTTP2 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.WriteTo(c.Conn)
	c.out.Reset()
	return c
}

// take reads a frame, and checks it.
func (c *rawHTTP2) take() error {
	frame, err := c.reader.ReadFrame()
	if err != nil {
		return err
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			c.add(func(f *http2.Framer) { f.WriteSettingsAck() }).send()
			return nil
		}
		c.books.Lock()
		defer c.books.Unlock()
		if len(c.lowered) == 0 {
			return fmt.Errorf("an acknowledgement of SETTINGS that weren't sent")
		}
		for _, s := range c.lowered[0].streams {
			s.window -= c.lowered[0].by
		}
		c.lowered = c.lowered[1:]
		return nil
	case *http2.PingFrame:
		if c.pongs++; !f.IsAck() {
			c.add(func(w *http2.Framer) { w.WritePing(true, f.Data) }).send()
		}
		return nil
	case *http2.GoAwayFrame:
		c.books.Lock()
		defer c.books.Unlock()
		if f.LastStreamID > c.lastID {
			return fmt.Errorf("GOAWAY says that stream %d was the last one, after it said %d", f.LastStreamID, c.lastID)
		}
		c.lastID, c.goneAll, c.code = f.LastStreamID, true, f.ErrCode
		return nil
	}
	c.books.Lock()
	defer c.books.Unlock()
	if update, ok := frame.(*http2.WindowUpdateFrame); ok && update.StreamID == 0 {
		c.grown += int64(update.Increment)
		return nil
	}
	id := frame.Header().StreamID
	s := c.streams[id]
	switch {
	case s == nil:
		return fmt.Errorf("%v: the client hasn't opened the stream", frame)
	case s.reset:
		return fmt.Errorf("%v: the server has reset the stream", frame)
	}
	if err := c.takeOf(s, frame); err != nil {
		return fmt.Errorf("stream %d (%v): %v: %w", id, s, frame, err)
	}
	return nil
}

// takeOf takes a frame of a stream.
func (c *rawHTTP2) takeOf(s *rawStream, frame http2.Frame) error {
	switch f := frame.(type) {
	case *http2.WindowUpdateFrame:
		s.grown += int64(f.Increment)
	case *http2.RSTStreamFrame:
		s.reset, s.code = true, f.ErrCode
	case *http2.MetaHeadersFrame:
		fields := make(map[string]string)
		for _, each := range f.RegularFields() {
			fields[each.Name] += each.Value + "\n"
		}
		status, err := strconv.Atoi(f.PseudoValue("status"))
		switch {
		case s.ended:
			return fmt.Errorf("the answer has ended")
		case s.status != 0 && (err == nil || !f.StreamEnded()):
			return fmt.Errorf("a second head, or trailers that don't end the stream")
		case s.status != 0:
			s.trailer, s.ended = fields, true
		case err != nil:
			return fmt.Errorf("no status")
		case status < 200:
			if s.interim = append(s.interim, status); f.StreamEnded() {
				return fmt.Errorf("an interim answer ends the stream")
			}
			return nil
		default:
			s.status, s.header, s.ended = status, fields, f.StreamEnded()
		}
	case *http2.DataFrame:
		n := int64(f.Length)
		if s.status == 0 || s.ended {
			return fmt.Errorf("DATA before or behind the answer")
		}
		if c.window, s.window = c.window-n, s.window-n; n > 0 && (c.window < 0 || s.window < 0) {
			return fmt.Errorf("DATA beyond the window: %d, %d", c.window, s.window)
		}
		s.body = append(s.body, f.Data()...)
		s.ended = f.StreamEnded()
	default:
		return fmt.Errorf("unexpected")
	}
	if length, ok := s.header["content-length"]; ok && s.ended && !s.head && s.status != 304 {
		if fmt.Sprint(len(s.body), "\n") != length {
			return fmt.Errorf("%d bytes, and Content-Length %s", len(s.body), length)
		}
	}
	return nil
}

// answer reads until a stream has ended.
func (c *rawHTTP2) answer(id uint32) *rawStream {
	c.t.Helper()
	c.books.Lock()
	s := c.streams[id]
	c.books.Unlock()
	for !s.ended && !s.reset {
		if err := c.take(); err != nil {
			c.t.Fatalf("waiting for the answer on stream %d (%v so far): %v", id, s, err)
		}
	}
	return s
}

// wantAnswer reads until a stream has ended, and checks the answer.
func (c *rawHTTP2) wantAnswer(id uint32, want string) {
	c.t.Helper()
	if got := c.answer(id).String(); got != want {
		c.t.Errorf("stream %d: %s, want %s", id, got, want)
	}
}

// wantEnd reads until the connection ends.
func (c *rawHTTP2) wantEnd(code http2.ErrCode) {
	c.t.Helper()
	for {
		if err := c.take(); err == io.EOF {
			break
		} else if err != nil {
			c.t.Fatalf("waiting for the end: %v", err)
		}
	}
	if !c.goneAll || c.code != code {
		c.t.Errorf("the connection ended with GOAWAY %t, %v, want %v", c.goneAll, c.code, code)
	}
}
