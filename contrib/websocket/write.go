package websocket

import (
	"errors"
	"fmt"
	"net"
	"time"
	"unicode/utf8"

	"github.com/filohttp/filo"
)

var (
	errType = errors.New("websocket: the type of a message must be Text or Binary")
	errText = errors.New("websocket: a text message isn't UTF-8")
)

const (
	// corkSize is how many bytes are gathered before they are sent.
	corkSize = 16 << 10
	// corkTime is the maximum time that gathered bytes wait while OnMessage runs.
	corkTime = time.Millisecond
	// copySize is the length up to which a message on a connection opened by Accept is copied into one buffer with its header. A longer
	// message is sent without a copy.
	copySize = 16 << 10
)

// Values of Conn.busy, which tells whether the holder of Conn.mu may hold it for long.
const (
	notBusy    = iota
	busyFrame  // waits for the client to read a frame; all earlier frames were passed on
	busyBehind // waits for the client to read earlier frames, since the queue is full
)

// Write sends a message. While the client is slow, Write waits for at most WriteTimeout; then the connection ends. On a connection opened by
// Serve, Write may return before all bytes have been sent; the rest is queued: see MaxQueuedBytes. When several messages have arrived
// together, the answers to them are gathered, for at most a millisecond, and sent together.
//
// A text must be UTF-8. The caller may reuse the message when Write returns.
func (c *Conn) Write(kind MessageType, message []byte) error {
	if err := checkMessage(kind, message); err != nil {
		return err
	}
	if c.stream != nil {
		c.stream.writing.Lock()
		defer c.stream.writing.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closedError(); err != nil {
		return err
	}
	frame := getBuffer()
	defer putBuffer(frame)
	deflated, ok := c.deflateLocked(frame, kind, message)
	switch {
	case ok:
		return c.sendLocked(deflated)
	case c.stream != nil && len(message) > copySize:
		return c.sendApartLocked(appendHeader(frame.b, bitFin|byte(kind), len(message)), message)
	}
	frame.b = append(appendHeader(frame.b, bitFin|byte(kind), len(message)), message...)
	return c.sendLocked(frame.b)
}

func checkMessage(kind MessageType, message []byte) error {
	switch {
	case kind != Text && kind != Binary:
		return errType
	case kind == Text && !utf8.Valid(message):
		return errText
	}
	return nil
}

// deflateLocked renders the frame of a message, compressed if that makes it shorter.
func (c *Conn) deflateLocked(dst *buffer, kind MessageType, message []byte) (frame []byte, ok bool) {
	if !c.deflate.on || len(message) < c.options.CompressionMinimum || len(message) > c.deflate.longest() {
		return nil, false
	}
	var dictionary []byte
	if c.deflate.sendContext {
		dictionary = c.contexts.sent
	}
	if frame, ok = appendDeflatedFrame(dst, kind, message, dictionary); ok {
		c.sentDeflatedLocked(message)
	}
	return frame, ok
}

// sentDeflatedLocked records a compressed message that was sent, so that later messages may refer to it.
func (c *Conn) sentDeflatedLocked(message []byte) {
	if c.deflate.sendContext {
		c.contexts.sent = remember(c.contexts.sent, message, deflateDictionary)
	}
}

// appendDeflatedFrame renders the frame of a message, compressed. It reports false, and leaves dst empty, if that doesn't make the message
// shorter.
func appendDeflatedFrame(dst *buffer, kind MessageType, message, dictionary []byte) (frame []byte, ok bool) {
	var room [maxServerHeader]byte
	dst.b = append(dst.b[:0], room[:]...)
	appendDeflated(dst, message, dictionary)
	length := len(dst.b) - len(room)
	if length >= len(message) {
		dst.b = dst.b[:0]
		return nil, false
	}
	header := appendHeader(room[:0], bitFin|bitRSV1|byte(kind), length)
	frame = dst.b[maxServerHeader-len(header):]
	copy(frame, header)
	return frame, true
}

// Ping sends a ping. The package pings silent clients itself: see PingInterval.
func (c *Conn) Ping() error { return c.sendControl(opPing, nil) }

// sendControl sends a control frame.
func (c *Conn) sendControl(opcode byte, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closedError(); err != nil {
		return err
	}
	var room [2 + maxControl]byte
	return c.sendLocked(append(appendHeader(room[:0], bitFin|opcode, len(payload)), payload...))
}

// sendLocked sends frames.
func (c *Conn) sendLocked(b []byte) error {
	switch {
	case c.stream != nil:
		c.setWriteDeadline()
		_, err := c.net.Write(b)
		return c.sentLocked(err)
	case !c.corked:
		return c.writeLocked(b, busyFrame)
	}
	if c.out == nil {
		c.out = getBuffer()
		c.late = time.AfterFunc(corkTime, c.flush)
	}
	if c.out.b = append(c.out.b, b...); len(c.out.b) < corkSize {
		return nil
	}
	return c.flushLocked()
}

// sendApartLocked sends a frame of a connection opened by Accept without copying its payload.
func (c *Conn) sendApartLocked(header, payload []byte) error {
	c.setWriteDeadline()
	buffers := net.Buffers{header, payload}
	_, err := buffers.WriteTo(c.net)
	return c.sentLocked(err)
}

// sendLastLocked sends a close frame. On a connection opened by Serve, it waits for the client only if wait is true, because the connection
// is closed afterwards.
func (c *Conn) sendLastLocked(b []byte, wait bool) {
	if c.stream != nil {
		c.sendLocked(b)
		return
	}
	if c.out != nil {
		b = append(c.out.b, b...)
	}
	if wait {
		c.writeLocked(b, busyBehind)
	} else {
		c.parked.Queue(filo.NewPreparedMessage(b)) // if the queue is full, the client doesn't get the frame
	}
	c.emptyLocked()
}

// writeLocked sends on a connection opened by Serve, and waits for the client if necessary.
func (c *Conn) writeLocked(b []byte, busy int32) error {
	c.setWriteDeadline()
	c.busy.Store(busy)
	_, err := c.parked.Write(b)
	c.busy.Store(notBusy)
	return c.sentLocked(err)
}

func (c *Conn) setWriteDeadline() {
	if timeout := c.options.WriteTimeout; timeout > 0 {
		c.net.SetWriteDeadline(time.Now().Add(timeout))
	}
}

// sentLocked ends the connection if a write has failed, since nobody knows how much of the frame was sent.
func (c *Conn) sentLocked(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("websocket: writing: %w", err)
	c.over(err)
	return err
}

// cork makes written frames wait for further frames. It is called when more messages have already arrived.
func (c *Conn) cork() {
	if !c.corked { // only this goroutine changes corked
		c.mu.Lock()
		c.corked = true
		c.mu.Unlock()
	}
}

// uncork sends the frames that have waited. Later frames are sent at once.
func (c *Conn) uncork() {
	if c.corked {
		c.mu.Lock()
		c.corked = false
		c.flushLocked()
		c.mu.Unlock()
	}
}

// flush sends the gathered bytes.
func (c *Conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushLocked()
}

func (c *Conn) flushLocked() error {
	if c.out == nil {
		return nil
	}
	err := c.parked.Queue(filo.NewPreparedMessage(c.out.b))
	if errors.Is(err, filo.ErrQueueFull) {
		err = c.writeLocked(c.out.b, busyBehind)
	}
	c.emptyLocked()
	return err
}

// emptyLocked returns the buffer of gathered bytes to its pool.
func (c *Conn) emptyLocked() {
	if c.out != nil {
		c.late.Stop()
		putBuffer(c.out)
		c.out, c.late = nil, nil
	}
}
