package kit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// ErrEnded says that the only connection of a net/http client has ended. If Dial opened a new connection instead, net/http would repeat the
// request there, and the server's mistake would remain unnoticed.
var ErrEnded = errors.New("the connection takes no requests any more")

// OnlyConn is the only connection of a net/http client. It records the result of the last Read, which may show why the client has stopped
// using the connection.
type OnlyConn struct {
	net.Conn
	dialed atomic.Bool
	ended  chan struct{} // closed when a read has failed, or the client has closed the connection
	end    sync.Once
	mu     sync.Mutex
	last   string // guarded by mu
}

// NewOnlyConn wraps a connection that will be a client's only one.
func NewOnlyConn(c net.Conn) *OnlyConn { return &OnlyConn{Conn: c, ended: make(chan struct{})} }

// Dial returns the connection at the first call. A later call waits until the connection has ended, and fails. net/http's client dials again
// when simultaneous requests don't yet find the new connection. While Dial waits, the client finds that connection for these requests, too.
func (l *OnlyConn) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if l.dialed.CompareAndSwap(false, true) {
		return l, nil
	}
	select {
	case <-l.ended:
		return nil, fmt.Errorf("%w after %s", ErrEnded, l)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *OnlyConn) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.mu.Lock()
	l.last = fmt.Sprintf("%x, %v", p[max(0, n-64):n], err)
	l.mu.Unlock()
	if err != nil {
		l.end.Do(func() { close(l.ended) })
	}
	return n, err
}

// Close implements net.Conn.
func (l *OnlyConn) Close() error {
	l.end.Do(func() { close(l.ended) })
	return l.Conn.Close()
}

func (l *OnlyConn) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return "reading " + l.last
}
