package websocket

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// streamBuffer is the initial size of the read buffer of a connection opened by Accept. While much data of a message arrives, the buffer
	// grows to streamBufferMax. Between messages, when the client may be silent for long, it has the initial size again.
	streamBuffer    = 4 << 10
	streamBufferMax = 32 << 10
)

var errServed = errors.New("websocket: Read and Reader work only on connections of Accept: Serve calls OnMessage")

// stream holds the state that only connections opened by Accept have.
type stream struct {
	conn    *Conn
	forget  func()     // removes the connection from openConns
	writing sync.Mutex // held for a whole message; locked before Conn.mu

	reading sync.Mutex     // guards the fields below
	in      incoming       // of the current message
	buffer  []byte         // bytes that were read but not yet parsed: buffer[r:w]
	r, w    int            //
	until   time.Duration  // the deadline of a read; 0 for none
	message *messageReader // the message that Reader has begun; nil if there is none, or it has ended
	err     error          // why nothing more arrives
}

// newStream makes a stream, with the bytes that were received after the handshake.
func newStream(c *Conn, received []byte) *stream {
	s := &stream{conn: c, buffer: make([]byte, max(streamBuffer, len(received)))}
	s.w = copy(s.buffer, received)
	s.in.reset(c)
	return s
}

// Read returns the next message, which the caller owns. Read also answers pings and the client's close frame, so the owner of a connection
// opened by Accept must call it continually. After either side has closed the connection, every call returns the same *CloseError.
func (c *Conn) Read() (kind MessageType, message []byte, err error) {
	s := c.stream
	if s == nil {
		return 0, nil, errServed
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	if err := s.begin(); err != nil {
		return 0, nil, err
	}
	for {
		e, piece, err := s.next()
		if err != nil {
			return 0, nil, err
		}
		message, complete, err := s.in.gather(c, e, piece)
		if err != nil {
			return 0, nil, s.fail(err)
		}
		if complete {
			kind, message = s.in.kind, bytes.Clone(message)
			s.endMessage()
			return kind, message, nil
		}
	}
}

// endMessage ends the current message.
func (s *stream) endMessage() {
	s.in.release()
	s.in.since = now()
	s.message = nil
}

// begin begins to read a message. If the message has already begun to arrive, its ReadTimeout counts from now, since the client may have been
// waiting for the application.
func (s *stream) begin() error {
	if s.message != nil {
		s.in.since = now() // the rest of a message that is skipped has ReadTimeout from here on, too
	}
	err := s.skipRest()
	s.in.since = now()
	return err
}

// skipRest discards the rest of a message that Reader has begun. Even the rest of a compressed message is decompressed, since later messages
// may refer to it.
func (s *stream) skipRest() error {
	var scratch [512]byte
	for s.message != nil && s.err == nil {
		if inflate := s.message.inflate; inflate != nil {
			inflate.readLocked(scratch[:])
		} else {
			s.message.readLocked(scratch[:])
		}
	}
	return s.err
}

// next returns the next piece of a message, which is lent until the next call. It handles control frames.
func (s *stream) next() (event, []byte, error) {
	c := s.conn
	for s.err == nil {
		used, e, payload, err := s.in.next(s.buffer[s.r:s.w])
		s.r += used
		switch {
		case err != nil:
		case e == eventNone:
			err = s.fill()
		case e == eventData || e == eventEnd:
			if c.current() == stateOpen {
				return e, payload, nil
			}
			if e == eventEnd {
				s.endMessage()
			}
		default:
			err = c.control(e, payload)
		}
		if err != nil {
			return eventNone, nil, s.fail(err)
		}
	}
	return eventNone, nil, s.err
}

// fail ends the connection. If the client has caused the error, fail first gives it time to read the close frame.
func (s *stream) fail(err error) error {
	c := s.conn
	s.in.release()
	if failed, ok := errors.AsType[*CloseError](err); ok && failed.Local && c.sendClose(failed, failed, stateFailed) {
		s.linger()
	}
	c.over(err)
	s.err = c.cause // the cause doesn't change any more
	return s.err
}

// linger ends the sending side of the connection, and discards input until the client ends its side too, for at most lingerTime.
func (s *stream) linger() {
	if half, ok := s.conn.net.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	s.conn.net.SetReadDeadline(time.Now().Add(lingerTime))
	for err := error(nil); err == nil; {
		_, err = s.conn.net.Read(s.buffer)
	}
}

// fill reads more bytes into the buffer. The caller has used all bytes that were in it.
func (s *stream) fill() error {
	c := s.conn
	switch size := len(s.buffer); {
	case s.in.atRest():
		if size > streamBuffer {
			s.buffer = make([]byte, streamBuffer)
		}
	case s.w == size && size < streamBufferMax:
		s.buffer = make([]byte, min(2*size, streamBufferMax))
	}
	s.r, s.w = 0, 0
	for {
		if s.in.atRest() {
			s.in.since = 0
		}
		s.setDeadline()
		n, err := c.net.Read(s.buffer)
		switch {
		case n > 0:
			s.w = n
			c.heard, c.pinged = now(), 0
			if s.in.since == 0 {
				s.in.since = c.heard
			}
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return endError(err)
		}
		s.until = -1 // the deadline must be set again
		at := now()
		if s.in.since != 0 && c.options.ReadTimeout > 0 && at >= s.in.since+c.options.ReadTimeout {
			return errSlow
		}
		if err := c.lookSilence(at); err != nil {
			return err
		}
	}
}

// setDeadline sets the deadline of the next read. An earlier deadline that is already set isn't changed: checking the time when it expires
// costs less than setting a deadline for each read.
func (s *stream) setDeadline() {
	c := s.conn
	at := c.nextSilence()
	if s.in.since != 0 && c.options.ReadTimeout > 0 {
		if slow := s.in.since + c.options.ReadTimeout; at == 0 || slow < at {
			at = slow
		}
	}
	if at == s.until || s.until > 0 && s.until < at {
		return
	}
	if s.until = at; at == 0 {
		c.net.SetReadDeadline(time.Time{})
	} else {
		c.net.SetReadDeadline(epoch.Add(at))
	}
}

// awaitClose reads until the client has answered a close frame. If the client doesn't answer, a timer closes the connection. The rest of the
// current message is discarded, so its reader must fail: it belongs to another goroutine, which would take that for the message's end.
func (s *stream) awaitClose() error {
	s.reading.Lock()
	defer s.reading.Unlock()
	if m := s.message; m != nil {
		m.piece, m.failed = nil, s.conn.closedError()
		if m.last {
			s.endMessage()
		}
		s.message = nil
	}
	for s.err == nil {
		s.next()
	}
	s.conn.over(s.err)
	if _, ok := errors.AsType[*CloseError](s.err); ok {
		return nil
	}
	return s.err
}

// Reader returns the next message as a stream, for a message that is too large for memory. Read it to its end, io.EOF, or abandon it: the
// next call to Read or Reader skips the rest. Options.MaxMessageBytes applies.
func (c *Conn) Reader() (MessageType, io.Reader, error) {
	s := c.stream
	if s == nil {
		return 0, nil, errServed
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	if err := s.begin(); err != nil {
		return 0, nil, err
	}
	e, piece, err := s.next()
	if err != nil {
		return 0, nil, err
	}
	m := &messageReader{stream: s, piece: piece, last: e == eventEnd}
	s.message = m
	if s.in.compressed {
		m.inflate = newInflateReader(m)
		return s.in.kind, m.inflate, nil
	}
	return s.in.kind, m, nil
}

// messageReader reads the payload of a message. Its fields are guarded by stream.reading.
type messageReader struct {
	stream  *stream
	piece   []byte
	last    bool           // no further piece follows
	inflate *inflateReader // decompresses the message; nil if it isn't compressed
	failed  error
}

// atEnd reports whether the message has no more bytes.
func (m *messageReader) atEnd() bool { return m.last && len(m.piece) == 0 }

// Read implements io.Reader.
func (m *messageReader) Read(p []byte) (int, error) {
	m.stream.reading.Lock()
	defer m.stream.reading.Unlock()
	return m.readLocked(p)
}

func (m *messageReader) readLocked(p []byte) (n int, err error) {
	s := m.stream
	if s.message != m {
		return 0, m.endLocked()
	}
	for len(m.piece) == 0 && !m.last {
		e, piece, err := s.next()
		if err != nil {
			m.failed = err
			return 0, err
		}
		m.piece, m.last = piece, e == eventEnd
	}
	n = copy(p, m.piece)
	m.piece = m.piece[n:]
	if s.in.compressed {
		if n == 0 && len(p) > 0 {
			return 0, io.EOF
		}
		return n, nil
	}
	if s.in.kind == Text && (!s.in.text.valid(p[:n]) || m.atEnd() && !s.in.text.complete()) {
		m.failed = s.fail(errBadText)
		return 0, m.failed
	}
	if m.atEnd() {
		s.endMessage()
		if n == 0 {
			return 0, io.EOF
		}
	}
	return n, nil
}

// endLocked returns the error for a message that isn't the current one any more.
func (m *messageReader) endLocked() error {
	if m.failed != nil {
		return m.failed
	}
	return io.EOF
}
