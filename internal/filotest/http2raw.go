package filotest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

// RawHTTP2 is an HTTP/2 client that can send any frames, and checks the server's frames against the protocol's rules. Only one goroutine at a
// time may read, but several may send. T may be nil if no method is called that fails the test.
type RawHTTP2 struct {
	net.Conn
	T testing.TB

	Mu      sync.Mutex // guards the fields up to encoder
	Out     bytes.Buffer
	framer  *http2.Framer // writes to Out
	block   bytes.Buffer
	encoder *hpack.Encoder

	// Only the reading goroutine uses reader and pongs.
	reader *http2.Framer
	pongs  int

	Books   sync.Mutex
	Streams map[uint32]*RawStream
	LastID  uint32 // the last stream ID in GOAWAY
	GoneAll bool   // GOAWAY has arrived
	Code    http2.ErrCode
	window  int64        // the connection's window for DATA from the server
	initial int64        // the initial window of a stream
	Lowered []RawLowered // one element for each of the client's unacknowledged SETTINGS
	Grown   int64        // sum of the server's WINDOW_UPDATE increments for the connection
}

// RawLowered records by how much the windows of streams shrink when the server acknowledges a SETTINGS frame.
type RawLowered struct {
	by      int64
	streams []*RawStream
}

// RawStream records what the server has sent on a stream.
type RawStream struct {
	Status  int
	interim []int
	Header  map[string]string
	Trailer map[string]string
	Body    []byte
	Ended   bool // by END_STREAM
	Reset   bool // by the server
	Code    http2.ErrCode
	head    bool // the answer to HEAD has no body
	window  int64
	Grown   int64 // sum of the server's WINDOW_UPDATE increments for the stream
}

// String describes the answer.
func (s *RawStream) String() string {
	if s.Reset {
		return fmt.Sprintf("%d %s, reset with %v", s.Status, s.text(), s.Code)
	}
	return fmt.Sprintf("%d %s", s.Status, s.text())
}

// Values returns the values of the answer's fields with a name.
func (s *RawStream) Values(name string) []string {
	values := strings.Split(s.Header[strings.ToLower(name)], "\n")
	return values[:len(values)-1] // each ends with a line break
}

func (s *RawStream) text() string {
	if len(s.Body) > 100 {
		return fmt.Sprintf("%.100q… (%d bytes)", s.Body, len(s.Body))
	}
	return string(s.Body)
}

// NewRawHTTP2 returns a client on the connection. The first Send also sends the preface and the settings.
func NewRawHTTP2(t testing.TB, conn net.Conn, settings ...http2.Setting) *RawHTTP2 {
	c := &RawHTTP2{Conn: conn, T: t, Streams: make(map[uint32]*RawStream), window: 65535, initial: 65535, LastID: 1<<31 - 1, Lowered: make([]RawLowered, 1)}
	c.framer = http2.NewFramer(&c.Out, nil)
	c.framer.AllowIllegalWrites = true
	c.encoder = hpack.NewEncoder(&c.block)
	c.reader = http2.NewFramer(nil, conn)
	c.reader.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.reader.SetMaxReadFrameSize(16 << 10)
	c.Out.WriteString(http2.ClientPreface)
	for _, s := range settings {
		if s.ID == http2.SettingInitialWindowSize {
			c.initial = int64(s.Val)
		}
	}
	c.framer.WriteSettings(settings...)
	return c
}

// EachRawHTTP2 runs a test over a socket and over an in-memory connection.
func EachRawHTTP2(t *testing.T, test func(t *testing.T, serve func(*filo.Server) (s *Server, dial func(...http2.Setting) *RawHTTP2))) {
	for _, memory := range []bool{false, true} {
		t.Run(map[bool]string{false: "socket", true: "memory"}[memory], func(t *testing.T) {
			test(t, func(config *filo.Server) (*Server, func(...http2.Setting) *RawHTTP2) {
				return ServeRawHTTP2(t, config, memory)
			})
		})
	}
}

// ServeRawHTTP2 serves on a socket, or in memory. It returns the server and a function that connects a client.
func ServeRawHTTP2(t testing.TB, config *filo.Server, memory bool) (*Server, func(...http2.Setting) *RawHTTP2) {
	config.HTTP2.Unencrypted = true
	dialWith := func(settings []http2.Setting, conn net.Conn, err error) *RawHTTP2 {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(Bound))
		return NewRawHTTP2(t, conn, settings...)
	}
	if memory {
		listener := servertest.NewListener()
		return Serve(t, config, listener), func(settings ...http2.Setting) *RawHTTP2 {
			conn, err := listener.Dial()
			return dialWith(settings, conn, err)
		}
	}
	s := Serve(t, config)
	return s, func(settings ...http2.Setting) *RawHTTP2 {
		conn, err := net.Dial("tcp", s.Addr)
		return dialWith(settings, conn, err)
	}
}

// Add appends the frames that write renders to Out. Send sends them.
func (c *RawHTTP2) Add(write func(f *http2.Framer)) *RawHTTP2 {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	write(c.framer)
	return c
}

// Request adds the HEADERS of a request. The method is GET, unless fields begins with ":method" and another method.
func (c *RawHTTP2) Request(id uint32, path string, end bool, fields ...string) *RawHTTP2 {
	method := "GET"
	if len(fields) > 0 && fields[0] == ":method" {
		method, fields = fields[1], fields[2:]
	}
	c.Books.Lock()
	c.Streams[id] = &RawStream{window: c.initial, head: method == "HEAD"}
	c.Books.Unlock()
	return c.Add(func(f *http2.Framer) {
		c.block.Reset()
		fields = append([]string{":method", method, ":scheme", "http", ":authority", "example.com", ":path", path}, fields...)
		for i := 0; i < len(fields); i += 2 {
			c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndStream: end, EndHeaders: true})
	})
}

// Data adds a DATA frame.
func (c *RawHTTP2) Data(id uint32, end bool, b []byte) *RawHTTP2 {
	return c.Add(func(f *http2.Framer) { f.WriteData(id, end, b) })
}

// Open adds WINDOW_UPDATE frames that let the server send n more bytes on the stream id and on the connection. If id is 0, it opens only the
// connection's window.
func (c *RawHTTP2) Open(id uint32, n uint32) *RawHTTP2 {
	c.Books.Lock()
	c.window += int64(n)
	c.Books.Unlock()
	c.Add(func(f *http2.Framer) { f.WriteWindowUpdate(0, n) })
	if id == 0 {
		return c
	}
	return c.OpenStream(id, n)
}

// OpenStream adds a WINDOW_UPDATE that lets the server send n more bytes on a stream, within the connection's window.
func (c *RawHTTP2) OpenStream(id uint32, n uint32) *RawHTTP2 {
	c.Books.Lock()
	c.Streams[id].window += int64(n)
	c.Books.Unlock()
	return c.Add(func(f *http2.Framer) { f.WriteWindowUpdate(id, n) })
}

// SetWindow adds SETTINGS with another initial window for streams.
func (c *RawHTTP2) SetWindow(n int64) *RawHTTP2 {
	c.Books.Lock()
	lowered := RawLowered{by: c.initial - n}
	for _, s := range c.Streams {
		if lowered.by <= 0 {
			s.window -= lowered.by // the server may use a larger window at once
		} else {
			lowered.streams = append(lowered.streams, s)
		}
	}
	c.initial, c.Lowered = n, append(c.Lowered, lowered)
	c.Books.Unlock()
	return c.Add(func(f *http2.Framer) {
		f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(n)})
	})
}

// Send sends the added frames. It ignores errors, because the next read reports them.
func (c *RawHTTP2) Send() *RawHTTP2 {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Out.WriteTo(c.Conn)
	c.Out.Reset()
	return c
}

// Take reads a frame, and checks it.
func (c *RawHTTP2) Take() error {
	frame, err := c.reader.ReadFrame()
	if err != nil {
		return err
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			c.Add(func(f *http2.Framer) { f.WriteSettingsAck() }).Send()
			return nil
		}
		c.Books.Lock()
		defer c.Books.Unlock()
		if len(c.Lowered) == 0 {
			return fmt.Errorf("an acknowledgement of SETTINGS that weren't sent")
		}
		for _, s := range c.Lowered[0].streams {
			s.window -= c.Lowered[0].by
		}
		c.Lowered = c.Lowered[1:]
		return nil
	case *http2.PingFrame:
		if c.pongs++; !f.IsAck() {
			c.Add(func(w *http2.Framer) { w.WritePing(true, f.Data) }).Send()
		}
		return nil
	case *http2.GoAwayFrame:
		c.Books.Lock()
		defer c.Books.Unlock()
		if f.LastStreamID > c.LastID {
			return fmt.Errorf("GOAWAY says that stream %d was the last one, after it said %d", f.LastStreamID, c.LastID)
		}
		c.LastID, c.GoneAll, c.Code = f.LastStreamID, true, f.ErrCode
		return nil
	}
	c.Books.Lock()
	defer c.Books.Unlock()
	if update, ok := frame.(*http2.WindowUpdateFrame); ok && update.StreamID == 0 {
		c.Grown += int64(update.Increment)
		return nil
	}
	id := frame.Header().StreamID
	s := c.Streams[id]
	switch {
	case s == nil:
		return fmt.Errorf("%v: the client hasn't opened the stream", frame)
	case s.Reset:
		return fmt.Errorf("%v: the server has reset the stream", frame)
	}
	if err := c.takeOf(s, frame); err != nil {
		return fmt.Errorf("stream %d (%v): %v: %w", id, s, frame, err)
	}
	return nil
}

// takeOf checks and records a frame on a stream.
func (c *RawHTTP2) takeOf(s *RawStream, frame http2.Frame) error {
	switch f := frame.(type) {
	case *http2.WindowUpdateFrame:
		s.Grown += int64(f.Increment)
	case *http2.RSTStreamFrame:
		s.Reset, s.Code = true, f.ErrCode
	case *http2.MetaHeadersFrame:
		fields := make(map[string]string)
		for _, each := range f.RegularFields() {
			fields[each.Name] += each.Value + "\n"
		}
		status, err := strconv.Atoi(f.PseudoValue("status"))
		switch {
		case s.Ended:
			return fmt.Errorf("the answer has ended")
		case s.Status != 0 && (err == nil || !f.StreamEnded()):
			return fmt.Errorf("a second head, or trailers that don't end the stream")
		case s.Status != 0:
			s.Trailer, s.Ended = fields, true
		case err != nil:
			return fmt.Errorf("no status")
		case status < 200:
			if s.interim = append(s.interim, status); f.StreamEnded() {
				return fmt.Errorf("an interim answer ends the stream")
			}
			return nil
		default:
			s.Status, s.Header, s.Ended = status, fields, f.StreamEnded()
		}
	case *http2.DataFrame:
		n := int64(f.Length)
		if s.Status == 0 || s.Ended {
			return fmt.Errorf("DATA before or behind the answer")
		}
		if c.window, s.window = c.window-n, s.window-n; n > 0 && (c.window < 0 || s.window < 0) {
			return fmt.Errorf("DATA beyond the window: %d, %d", c.window, s.window)
		}
		s.Body = append(s.Body, f.Data()...)
		s.Ended = f.StreamEnded()
	default:
		return fmt.Errorf("unexpected")
	}
	if length, ok := s.Header["content-length"]; ok && s.Ended && !s.head && s.Status != 304 {
		if fmt.Sprint(len(s.Body), "\n") != length {
			return fmt.Errorf("%d bytes, and Content-Length %s", len(s.Body), length)
		}
	}
	return nil
}

// Answer reads frames until a stream has ended.
func (c *RawHTTP2) Answer(id uint32) *RawStream {
	c.T.Helper()
	c.Books.Lock()
	s := c.Streams[id]
	c.Books.Unlock()
	for !s.Ended && !s.Reset {
		if err := c.Take(); err != nil {
			c.T.Fatalf("waiting for the answer on stream %d (%v so far): %v", id, s, err)
		}
	}
	return s
}

// WantAnswer reads frames until a stream has ended, and checks the answer.
func (c *RawHTTP2) WantAnswer(id uint32, want string) {
	c.T.Helper()
	if got := c.Answer(id).String(); got != want {
		c.T.Errorf("stream %d: %s, want %s", id, got, want)
	}
}

// WantEnd reads until the connection ends. The server must have sent GOAWAY with the code.
func (c *RawHTTP2) WantEnd(code http2.ErrCode) {
	c.T.Helper()
	for {
		if err := c.Take(); err == io.EOF {
			break
		} else if err != nil {
			c.T.Fatalf("waiting for the end: %v", err)
		}
	}
	if !c.GoneAll || c.Code != code {
		c.T.Errorf("the connection ended with GOAWAY %t, %v, want %v", c.GoneAll, c.Code, code)
	}
}
