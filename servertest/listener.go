package servertest

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	network    = "mem"
	serverHost = "filo.test"

	// backlog bounds the connections that were dialed and not yet accepted.
	backlog = 128
)

// A Listener is a net.Listener for in-memory connections.
type Listener struct {
	queue  chan *Conn
	closed chan struct{}
	once   sync.Once
	dials  atomic.Uint64
}

// NewListener returns a listener that accepts the connections of its Dial methods. In a testing/synctest test, call it inside
// the bubble.
func NewListener() *Listener {
	return &Listener{queue: make(chan *Conn, backlog), closed: make(chan struct{})}
}

// Accept waits for the next connection. After Close it returns net.ErrClosed in a *net.OpError. The connection is a *[Conn].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, l.error("accept", net.ErrClosed)
	default:
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, l.error("accept", net.ErrClosed)
	}
}

// Close makes Accept and the Dial methods fail, including blocked ones, and resets the connections that weren't accepted.
// Accepted connections stay open.
func (l *Listener) Close() error {
	err := l.error("close", net.ErrClosed)
	l.once.Do(func() {
		close(l.closed)
		l.resetQueued()
		err = nil
	})
	return err
}

// Addr returns the listener's address, "filo.test:80" in a network named "mem".
func (l *Listener) Addr() net.Addr {
	return address{host: serverHost, port: 80}
}

// Dial connects to the listener. The connection is a *[Conn].
func (l *Listener) Dial() (net.Conn, error) {
	return l.DialContext(context.Background(), network, "")
}

// DialContext connects to the listener, and ignores the network and the address. It fits an http.Transport's DialContext.
func (l *Listener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return l.dial(ctx, address{host: "client.test", port: l.dials.Add(1)})
}

// DialFrom connects to the listener. The server sees remote, such as a *net.TCPAddr, as the client's address.
func (l *Listener) DialFrom(remote net.Addr) (net.Conn, error) {
	return l.dial(context.Background(), remote)
}

func (l *Listener) dial(ctx context.Context, from net.Addr) (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, l.error("dial", syscall.ECONNREFUSED)
	default:
	}
	client, server := newPair(from, l.Addr())
	select {
	case l.queue <- server:
	case <-l.closed:
		return nil, l.error("dial", syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, l.error("dial", context.Cause(ctx))
	}
	select {
	case <-l.closed:
		// Close may have emptied the queue before the connection got into it.
		l.resetQueued()
	default:
	}
	return client, nil
}

func (l *Listener) resetQueued() {
	for {
		select {
		case c := <-l.queue:
			c.Reset()
		default:
			return
		}
	}
}

func (l *Listener) error(op string, err error) error {
	return &net.OpError{Op: op, Net: network, Addr: l.Addr(), Err: err}
}

// An address is the name of one end of a connection; "mem" is its network.
type address struct {
	host string
	port uint64
}

func (address) Network() string { return network }

func (a address) String() string {
	return a.host + ":" + strconv.FormatUint(a.port, 10)
}
