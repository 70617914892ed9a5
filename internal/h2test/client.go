// Package h2test is an HTTP/2 client for tests. It sends any frames, even invalid ones, and its streams are net.Conns.
package h2test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Client is the client's side of a connection. Several goroutines may use it at once.
type Client struct {
	conn net.Conn

	writing sync.Mutex // serializes the writing of frames; locked before mu
	framer  *http2.Framer
	block   bytes.Buffer   // guarded by writing
	encoder *hpack.Encoder // guarded by writing
	last    uint32         // the last stream; guarded by writing

	mu       sync.Mutex
	changed  sync.Cond // uses mu; broadcasts that a field below has changed
	settings map[http2.SettingID]uint32
	initial  int64 // the server's initial window of a stream
	window   int64 // the connection's
	streams  map[uint32]*Stream
	pings    int
	goneAway bool
	err      error // the error that has ended the connection
}

// Stream is a stream of a Client. It implements net.Conn.
type Stream struct {
	ID     uint32
	client *Client

	// The client's mu guards the fields below.
	fields                []hpack.HeaderField // of the answer's head; nil until the head has arrived
	received              []byte
	ended                 bool // the server has ended its side
	window                int64
	finished              bool  // this client has ended its side
	err                   error // the stream was reset, by either side
	readUntil, writeUntil time.Time
}

// ResetError is the error of a stream that the server has reset.
type ResetError struct{ Code http2.ErrCode }

// Error implements error.
func (e *ResetError) Error() string {
	return fmt.Sprintf("the server has reset the stream: %v", e.Code)
}

// New sends the preface and these settings on a connection, and waits for the server's settings.
func New(conn net.Conn, settings ...http2.Setting) (*Client, error) {
	c := &Client{conn: conn, framer: http2.NewFramer(conn, conn), initial: 65535, window: 65535,
		settings: make(map[http2.SettingID]uint32), streams: make(map[uint32]*Stream)}
	c.changed.L = &c.mu
	c.encoder = hpack.NewEncoder(&c.block)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.framer.AllowIllegalWrites = true
	// An in-memory connection has no buffer, so the client must read while it writes.
	sent := make(chan error, 1)
	c.writing.Lock()
	go func() {
		defer c.writing.Unlock()
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			sent <- err
			return
		}
		sent <- c.framer.WriteSettings(settings...)
	}()
	go c.read()
	if err := <-sent; err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.settings) == 0 && c.err == nil {
		c.changed.Wait()
	}
	return c, c.err
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// read reads and handles frames until the connection ends.
func (c *Client) read() {
	for {
		f, err := c.framer.ReadFrame()
		var ofStream http2.StreamError
		if err != nil && !errors.As(err, &ofStream) {
			c.mu.Lock()
			c.err = err
			c.changed.Broadcast()
			c.mu.Unlock()
			return
		}
		if err == nil {
			c.take(f)
		}
	}
}

func (c *Client) take(f http2.Frame) {
	answer := c.takeLocked(f)
	if answer == nil {
		return
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	answer()
}

// takeLocked handles a frame, and returns a function that sends the reply to the frame.
func (c *Client) takeLocked(f http2.Frame) (answer func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed.Broadcast()
	s := c.streams[f.Header().StreamID]
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		f.ForeachSetting(func(setting http2.Setting) error {
			c.settings[setting.ID] = setting.Val
			if setting.ID == http2.SettingInitialWindowSize {
				for _, s := range c.streams {
					s.window += int64(setting.Val) - c.initial
				}
				c.initial = int64(setting.Val)
			}
			return nil
		})
		return func() { c.framer.WriteSettingsAck() }
	case *http2.PingFrame:
		if f.IsAck() {
			c.pings++
			return nil
		}
		data := f.Data
		return func() { c.framer.WritePing(true, data) }
	case *http2.GoAwayFrame:
		c.goneAway = true
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			c.window += int64(f.Increment)
		} else if s != nil {
			s.window += int64(f.Increment)
		}
	case *http2.MetaHeadersFrame:
		if s != nil {
			if s.fields == nil {
				s.fields = f.Fields
			}
			s.ended = s.ended || f.StreamEnded()
		}
	case *http2.DataFrame:
		if s != nil {
			s.received = append(s.received, f.Data()...)
			s.ended = s.ended || f.StreamEnded()
		}
		if n := f.Length; n > 0 {
			return func() { c.framer.WriteWindowUpdate(0, n) }
		}
	case *http2.RSTStreamFrame:
		if s != nil && s.err == nil {
			s.err = &ResetError{f.ErrCode}
		}
	}
	return nil
}

// Setting returns the server's value of a setting. ok is false if the server hasn't sent the setting.
func (c *Client) Setting(id http2.SettingID) (value uint32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, ok = c.settings[id]
	return value, ok
}

// Ping sends a PING, and waits for its answer or the end of the connection.
func (c *Client) Ping() error {
	c.mu.Lock()
	before := c.pings
	c.mu.Unlock()
	c.writing.Lock()
	c.framer.WritePing(false, [8]byte{})
	c.writing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pings == before && c.err == nil {
		c.changed.Wait()
	}
	if c.pings != before {
		return nil
	}
	return c.err
}

// AwaitGoAway waits for GOAWAY, or the end of the connection, and reports whether GOAWAY has arrived.
func (c *Client) AwaitGoAway() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.goneAway && c.err == nil {
		c.changed.Wait()
	}
	return c.goneAway
}

// Open sends the head of a request on a new stream. fields alternates names and values, and begins with the pseudo-header fields.
func (c *Client) Open(endStream bool, fields ...string) *Stream {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.last = max(c.last+2, 1) | 1
	s := &Stream{ID: c.last, client: c, finished: endStream}
	c.mu.Lock()
	s.window = c.initial
	c.streams[s.ID] = s
	c.mu.Unlock()
	c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.ID, BlockFragment: c.encodeLocked(fields), EndHeaders: true, EndStream: endStream})
	return s
}

func (c *Client) encodeLocked(fields []string) []byte {
	c.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return c.block.Bytes()
}

// Connect requests a protocol with extended CONNECT.
func (c *Client) Connect(protocol, path string, fields ...string) *Stream {
	return c.Open(false, append([]string{":method", "CONNECT", ":protocol", protocol, ":scheme", "http", ":path", path, ":authority", "filo.test"}, fields...)...)
}

// Get sends a GET request, and waits for the whole answer.
func (c *Client) Get(path string) (status int, body string, err error) {
	s := c.Open(true, ":method", "GET", ":scheme", "http", ":path", path, ":authority", "filo.test")
	if status, err = s.Status(); err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(s)
	return status, string(b), err
}

// Status waits for the head of the answer, and returns the status. The error is a ResetError if the server resets the stream instead.
func (s *Stream) Status() (int, error) {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for s.fields == nil && s.err == nil && c.err == nil {
		c.changed.Wait()
	}
	if s.fields == nil {
		return 0, errors.Join(s.err, c.err)
	}
	return strconv.Atoi(s.field(":status"))
}

// Field returns the value of a field in the answer's head. Call it after Status.
func (s *Stream) Field(name string) string {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return s.field(name)
}

func (s *Stream) field(name string) string {
	for _, f := range s.fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// awaitLocked waits until so returns true. It fails at the deadline until, or when the stream or the connection ends.
func (s *Stream) awaitLocked(until *time.Time, so func() bool) error {
	c := s.client
	for {
		switch {
		case !until.IsZero() && !time.Now().Before(*until):
			return os.ErrDeadlineExceeded
		case so():
			return nil
		case s.err != nil:
			return s.err
		case c.err != nil:
			return c.err
		}
		if until.IsZero() {
			c.changed.Wait()
			continue
		}
		timer := time.AfterFunc(time.Until(*until), c.wake)
		c.changed.Wait()
		timer.Stop()
	}
}

func (c *Client) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed.Broadcast()
}

// Read implements net.Conn. It opens the stream's window again by the number of bytes read.
func (s *Stream) Read(p []byte) (int, error) {
	c := s.client
	c.mu.Lock()
	err := s.awaitLocked(&s.readUntil, func() bool { return len(s.received) > 0 || s.ended })
	n := 0
	if err == nil {
		n = copy(p, s.received)
		s.received = s.received[n:]
	}
	ended := s.ended
	c.mu.Unlock()
	switch {
	case err != nil:
		return 0, err
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	case n > 0 && !ended:
		c.writing.Lock()
		defer c.writing.Unlock()
		c.framer.WriteWindowUpdate(s.ID, uint32(n))
	}
	return n, nil
}

// Write implements net.Conn.
func (s *Stream) Write(p []byte) (written int, err error) {
	c := s.client
	for written < len(p) {
		c.mu.Lock()
		if err = s.awaitLocked(&s.writeUntil, func() bool { return s.finished || s.window > 0 && c.window > 0 }); err == nil && s.finished {
			err = net.ErrClosed
		} else if err == nil {
			err = s.err
		}
		n := 0
		if err == nil {
			n = int(min(s.window, c.window, 16<<10, int64(len(p)-written)))
			s.window -= int64(n)
			c.window -= int64(n)
		}
		c.mu.Unlock()
		if err != nil {
			return written, err
		}
		if err := s.Send(p[written:written+n], false); err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// Send sends DATA without regard to the windows and the state of the stream.
func (s *Stream) Send(p []byte, endStream bool) error {
	s.client.writing.Lock()
	defer s.client.writing.Unlock()
	return s.client.framer.WriteData(s.ID, endStream, p)
}

// CloseWrite ends the client's side of the stream.
func (s *Stream) CloseWrite() error {
	s.client.mu.Lock()
	finished := s.finished || s.err != nil
	s.finished = true
	s.client.changed.Broadcast()
	s.client.mu.Unlock()
	if finished {
		return net.ErrClosed
	}
	return s.Send(nil, true)
}

// Close ends the client's side of the stream if it hasn't ended yet, and discards the rest of the answer.
func (s *Stream) Close() error {
	err := s.CloseWrite()
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	if s.err == nil {
		s.err = net.ErrClosed
	}
	s.received, s.ended = nil, false
	s.client.changed.Broadcast()
	return err
}

// Reset resets the stream, unless both sides have ended.
func (s *Stream) Reset(code http2.ErrCode) error {
	c := s.client
	c.mu.Lock()
	over := s.err != nil || s.finished && s.ended
	if s.err == nil {
		s.err = net.ErrClosed
	}
	c.changed.Broadcast()
	c.mu.Unlock()
	if over {
		return nil
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.framer.WriteRSTStream(s.ID, code)
}

// LocalAddr implements net.Conn.
func (s *Stream) LocalAddr() net.Addr { return s.client.conn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (s *Stream) RemoteAddr() net.Addr { return s.client.conn.RemoteAddr() }

// SetDeadline implements net.Conn.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.setDeadline(&s.readUntil, t) }

// SetWriteDeadline implements net.Conn.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.setDeadline(&s.writeUntil, t) }

func (s *Stream) setDeadline(until *time.Time, t time.Time) error {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	*until = t
	s.client.changed.Broadcast()
	return nil
}
