package bench

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// memConn is the client's side and the wire of one connection, as cheap as can be: Read copies prepared
// requests until enough were served, Write counts bytes. It is the same for every server, so what a
// benchmark shows is the server's own work.
//
// Reads and writes may run at the same time (net/http reads ahead), each by one goroutine.
type memConn struct {
	input []byte // Immutable: the requests of one turn, one or a pipelined batch.

	// Read's side.
	off  int // in input
	left int // bytes yet to be given, of this turn and the later ones

	// Write's side.
	written int
	capture *bytes.Buffer // nil in benchmarks

	isClosed atomic.Bool
	closed   chan struct{} // cap 1: gets a value when the server closes the connection
}

func newMemConn() *memConn { return &memConn{closed: make(chan struct{}, 1)} }

// reset makes the conn a new connection that will send n requests, of which input holds a whole turn.
func (c *memConn) reset(s *scenario, n int) {
	c.input, c.off, c.left, c.written = s.input, 0, n*len(s.request), 0
	c.isClosed.Store(false)
}

func (c *memConn) Read(p []byte) (int, error) {
	if c.isClosed.Load() {
		return 0, net.ErrClosed
	}
	if c.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.input[c.off:min(len(c.input), c.off+c.left)])
	c.left -= n
	if c.off += n; c.off == len(c.input) {
		c.off = 0
	}
	return n, nil
}

func (c *memConn) Write(p []byte) (int, error) {
	if c.isClosed.Load() {
		return 0, net.ErrClosed
	}
	c.written += len(p)
	if c.capture != nil {
		c.capture.Write(p)
	}
	return len(p), nil
}

func (c *memConn) Close() error {
	if c.isClosed.Swap(true) {
		return net.ErrClosed
	}
	c.closed <- struct{}{}
	return nil
}

var memAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}

func (c *memConn) LocalAddr() net.Addr              { return memAddr }
func (c *memConn) RemoteAddr() net.Addr             { return memAddr }
func (c *memConn) SetDeadline(time.Time) error      { return nil }
func (c *memConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }

// memListener hands conns to a server that only serves listeners.
type memListener struct {
	conns chan net.Conn
	done  chan struct{}
}

var errListenerClosed = errors.New("listener closed")

func newMemListener() *memListener {
	return &memListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, errListenerClosed
	}
}

func (l *memListener) Close() error   { close(l.done); return nil }
func (l *memListener) Addr() net.Addr { return memAddr }
