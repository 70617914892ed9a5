package bench

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// memConn is the server's end of a connection to a simulated client. It is as cheap as possible: Read copies prepared requests, up to a given number,
// and Write counts bytes. All servers use the same memConn, so a benchmark shows the server's own work.
//
// Reads and writes may run at the same time (net/http reads ahead), each by one goroutine.
type memConn struct {
	input []byte // Immutable: the requests of one turn, that is, one request or a pipelined batch.

	// Read's side.
	off  int // in input
	left int // how many bytes Read must still return, in this turn and later ones

	// Write's side.
	written int
	capture *bytes.Buffer // nil in benchmarks

	isClosed atomic.Bool
	closed   chan struct{} // capacity 1; receives a value when the server closes the connection
}

func newMemConn() *memConn { return &memConn{closed: make(chan struct{}, 1)} }

// reset makes c a new connection whose client sends n requests. input has the requests of one turn.
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

// memListener passes connections to a server that can only serve listeners.
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
