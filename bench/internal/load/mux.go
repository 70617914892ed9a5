package load

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"
)

// mux is an HTTP/2 connection. For each of its simultaneous streams, the loop has a conn without a socket.
type mux struct {
	conn    *conn // the socket
	block   []byte
	in, out []byte
	next    uint32 // the next stream
	streams map[uint32]*conn
	fields  *hpack.Decoder
	status  string // of the header block that was decoded last
}

// openMux opens a connection for the row's number of streams. The flow-control windows are so large that they never need an update.
func (l *loop) openMux() error {
	m := &mux{conn: &conn{loop: l, index: len(l.muxes), fd: -1}, next: 1, streams: map[uint32]*conn{}}
	m.fields = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			m.status = f.Value
		}
	})
	encoder := hpack.NewEncoder(appender{&m.block})
	scheme := "http"
	if l.Row.TLS {
		scheme = "https"
	}
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", scheme}, {":authority", l.host}, {":path", l.Row.Requests[0].Target}} {
		encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: f[0] == ":authority"}) // not indexed, so every request can send this block
	}
	l.muxes = append(l.muxes, m)
	if err := m.conn.open(); err != nil {
		return err
	}
	framer := http2.NewFramer(appender{&m.out}, nil)
	m.out = append(m.out, http2.ClientPreface...)
	framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	framer.WriteWindowUpdate(0, 1<<30)
	for range l.Row.Streams {
		c := &conn{loop: l, fd: -1, mux: m}
		l.conns = append(l.conns, c)
		l.free <- c
	}
	m.conn.out = m.out
	return m.conn.flush()
}

// appender is an io.Writer that appends to a slice.
type appender struct{ b *[]byte }

// Write implements io.Writer.
func (a appender) Write(p []byte) (int, error) {
	*a.b = append(*a.b, p...)
	return len(p), nil
}

// send starts to send a request for c, on the next stream.
func (m *mux) send(c *conn, due int64) error {
	c.asked++
	c.due, c.busy, c.answer = due, true, answer{}
	c.loop.busy++
	m.streams[m.next] = c
	const endStreamAndHeaders = 0x5
	err := m.frame(http2.FrameHeaders, endStreamAndHeaders, m.next, m.block)
	m.next += 2
	return err
}

// frame queues a frame after the bytes that the socket hasn't accepted yet, and sends what it can.
func (m *mux) frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) error {
	m.out = append(m.out[:0], m.conn.out...)
	m.out = binary.BigEndian.AppendUint32(m.out, uint32(len(payload))<<8|uint32(kind))
	m.out = binary.BigEndian.AppendUint32(append(m.out, byte(flags)), stream)
	m.out = append(m.out, payload...)
	m.conn.out = m.out
	return m.conn.flush()
}

// ready handles an event of the socket.
func (m *mux) ready(events uint32) error {
	if err := m.conn.flush(); err != nil {
		return err
	}
	for events&^unix.EPOLLOUT != 0 {
		buffer := m.conn.loop.buffer
		n, err := m.conn.io.Read(buffer)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the server ends the connection: %w", err)
		}
		m.in = append(m.in, buffer[:n]...)
		rest := m.in
		for len(rest) >= 9 && len(rest) >= 9+int(binary.BigEndian.Uint32(rest)>>8) {
			end := 9 + int(binary.BigEndian.Uint32(rest)>>8)
			if err := m.take(http2.FrameType(rest[3]), http2.Flags(rest[4]), binary.BigEndian.Uint32(rest[5:]), rest[9:end]); err != nil {
				return err
			}
			rest = rest[end:]
		}
		m.in = m.in[:copy(m.in, rest)]
	}
	return nil
}

// take handles a frame from the server.
func (m *mux) take(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) error {
	c, want := m.streams[stream], m.conn.loop.Row.Requests[0].Want.Body
	switch kind {
	case http2.FrameSettings, http2.FramePing:
		if flags.Has(http2.FlagSettingsAck) { // PING's ACK flag has the same value
			return nil
		}
		if kind == http2.FrameSettings {
			payload = nil
		}
		return m.frame(kind, http2.FlagSettingsAck, 0, payload)
	case http2.FrameWindowUpdate:
		return nil
	case http2.FrameHeaders:
		if _, err := m.fields.Write(payload); err != nil || c == nil || m.status != "200" || !flags.Has(http2.FlagHeadersEndHeaders) {
			return fmt.Errorf("stream %d is answered with status %q, %v", stream, m.status, err)
		}
	case http2.FrameData:
		if c == nil {
			return fmt.Errorf("DATA for stream %d, which isn't open", stream)
		}
		if _, err := c.answer.is(want, payload); err != nil {
			return err
		}
	default:
		return fmt.Errorf("the server sends %v for stream %d: %.100q", kind, stream, payload)
	}
	if flags.Has(http2.FlagDataEndStream) { // HEADERS' END_STREAM flag has the same value
		if c.answer.matched != len(want) {
			return fmt.Errorf("the answer ends after %d of %d bytes", c.answer.matched, len(want))
		}
		delete(m.streams, stream)
		c.answered()
	}
	return nil
}
