//go:build amd64 || arm64

package openloop

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// errBlocked says that the socket has nothing to read now. To crypto/tls it is an error after which one can go on.
var errBlocked error = blockedError{}

type blockedError struct{}

func (blockedError) Error() string   { return "the socket has nothing to read" }
func (blockedError) Timeout() bool   { return true }
func (blockedError) Temporary() bool { return true }

// maxSealed is how much is encrypted before it is sent.
const maxSealed = 64 << 10

// secure is a connection's TLS. During the handshake it belongs to a goroutine, for crypto/tls can't leave off there, and the
// computing would make the loop late. After it it belongs to the loop, reads return errBlocked instead of waiting, and
// writes go to a buffer, since crypto/tls can't go on after one that fails.
type secure struct {
	*tls.Conn
	conn    *conn
	fd      int
	ready   chan struct{} // an event of the handshake; cap 1
	sealed  []byte        // encrypted, to be sent
	offset  int           // what is sent of it
	shaking bool
}

func newSecure(c *conn) *secure {
	s := &secure{conn: c, fd: c.fd, ready: make(chan struct{}, 1), shaking: true}
	s.Conn = tls.Client((*secureTransport)(s), c.loop.options.TLS)
	return s
}

// wake tells the handshake of an event.
func (s *secure) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// handshake runs on its own goroutine and hands the connection back to the loop.
func (s *secure) handshake() {
	err := s.Handshake()
	s.conn.loop.handBack(s.conn, err)
}

// read is sysReceive for TLS.
func (s *secure) read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 {
		return n, nil
	}
	if err == nil {
		return 0, errBlocked
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return 0, err
}

// write is sysSend for TLS: it takes nothing while much waits to be sent.
func (s *secure) write(p []byte) (int, error) {
	if len(s.sealed)-s.offset >= maxSealed {
		if err := s.flush(); err != nil || len(s.sealed) > 0 {
			return 0, err
		}
	}
	n, err := s.Conn.Write(p[:min(len(p), maxSealed)])
	return n, err
}

// flush sends what is encrypted, as far as the socket takes it.
func (s *secure) flush() error {
	for s.offset < len(s.sealed) {
		n, errno := sysSend(s.fd, s.sealed[s.offset:])
		if errno != 0 {
			return blocked(errno)
		}
		s.conn.loop.sent(n)
		s.offset += n
	}
	s.sealed, s.offset = s.sealed[:0], 0
	return nil
}

// secureTransport is what crypto/tls sees.
type secureTransport secure

func (t *secureTransport) Read(p []byte) (int, error) {
	for {
		n, errno := sysReceive(t.fd, p)
		switch {
		case errno == syscall.EAGAIN && t.shaking:
			<-t.ready
		case errno == syscall.EAGAIN:
			return 0, errBlocked
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		default:
			if !t.shaking {
				t.conn.loop.received(n)
			}
			return n, nil
		}
	}
}

func (t *secureTransport) Write(p []byte) (int, error) {
	if !t.shaking {
		t.sealed = append(t.sealed, p...)
		return len(p), nil
	}
	for sent := 0; sent < len(p); {
		n, errno := sysSend(t.fd, p[sent:])
		switch {
		case errno == syscall.EAGAIN:
			<-t.ready
		case errno != 0:
			return sent, errno
		}
		sent += n
	}
	return len(p), nil
}

func (t *secureTransport) Close() error                     { return nil }
func (t *secureTransport) LocalAddr() net.Addr              { return nil }
func (t *secureTransport) RemoteAddr() net.Addr             { return nil }
func (t *secureTransport) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (t *secureTransport) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (t *secureTransport) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
