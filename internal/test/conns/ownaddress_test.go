package conns

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// A shyListener's connections block in RemoteAddr until the test releases them, and only the first call returns.
type shyListener struct {
	net.Listener
	accepted chan *shyConn
}

type shyConn struct {
	net.Conn
	tell chan struct{}
	gone chan struct{}
}

func (l *shyListener) Accept() (net.Conn, error) {
	netConn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &shyConn{Conn: netConn, tell: make(chan struct{}, 1), gone: make(chan struct{})}
	l.accepted <- c
	return c, nil
}

func (c *shyConn) RemoteAddr() net.Addr {
	select {
	case <-c.tell:
	case <-c.gone:
	}
	return c.Conn.RemoteAddr()
}

// The RemoteAddr of a program's own net.Conn may block. The server calls it only once, and nothing but this connection waits for it.
func TestAddressesOfStrangers(t *testing.T) {
	shy := &shyListener{Listener: filotest.Listen(t, "tcp", "127.0.0.1:0"), accepted: make(chan *shyConn, 10)}
	s := filotest.Serve(t, &filo.Server{
		Handler:  func(c *filo.Ctx) error { return c.Text(200, c.RemoteAddr().String()) },
		MaxConns: 2, Logger: slog.New(slog.DiscardHandler),
	}, shy)
	var all []*shyConn
	var requests sync.WaitGroup
	t.Cleanup(func() {
		for _, c := range all {
			close(c.gone) // so that a server that calls RemoteAddr a second time doesn't block for ever
		}
		requests.Wait()
	})
	accepted := func() *shyConn {
		c := <-shy.accepted
		all = append(all, c)
		return c
	}
	get := func() {
		requests.Go(func() {
			transport := &http.Transport{DisableKeepAlives: true}
			response, err := (&http.Client{Transport: transport}).Get("http://" + s.Addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if address, _ := io.ReadAll(response.Body); response.StatusCode != 200 || len(address) == 0 {
				t.Errorf("%d %q", response.StatusCode, address)
			}
		})
	}
	get()
	first := accepted()
	get()
	second := accepted()

	// While both calls of RemoteAddr block, functions that examine all connections don't wait, and the server doesn't call RemoteAddr of a
	// refused connection.
	filotest.Await(t, "two connections of nobody", func() bool {
		clients := s.Clients()
		return len(clients) == 1 && !clients[0].Address.IsValid() && clients[0].Conns == 2
	})
	s.Running()
	refused := s.Dial(t)
	refused.Get("/")
	accepted()
	refused.Want(503, "Service Unavailable: too many connections\n", true)

	second.tell <- struct{}{}
	filotest.Await(t, "the second connection's end", func() bool { return s.Stats().ConnsOpen == 1 })
	first.tell <- struct{}{}
	filotest.Await(t, "the end of both, and their client", func() bool {
		return slices.ContainsFunc(s.Clients(), func(c filo.Client) bool {
			return c.Address.IsLoopback() && c.Conns == 0 && c.ConnsEnded == 2 && c.Requests == 2
		})
	})
}

// A movingConn returns another address each time.
type movingConn struct {
	net.Conn
	asked atomic.Uint32
}

func (c *movingConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(c.asked.Add(1))), Port: 1}
}

type movingListener struct{ net.Listener }

func (l movingListener) Accept() (net.Conn, error) {
	netConn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &movingConn{Conn: netConn}, nil
}

// MaxConnsPerIP counts a connection by the first address that its RemoteAddr has returned. A refusal is counted for this address.
func TestStrangerThatMoves(t *testing.T) {
	s := filotest.Serve(t, &filo.Server{
		Handler:       func(c *filo.Ctx) error { return c.Text(200, c.RemoteAddr().String()) },
		MaxConnsPerIP: 1, Logger: slog.New(slog.DiscardHandler),
	}, movingListener{filotest.Listen(t, "tcp", "127.0.0.1:0")})
	for range 2 {
		one := s.Dial(t)
		one.Get("/")
		one.Want(200, "192.0.2.1:1", false)
		other := s.Dial(t)
		other.Get("/")
		other.Want(429, "Too Many Requests: too many connections from this address\n", true)
		one.Close()
		filotest.Await(t, "the end of the connections", func() bool { return s.Stats().ConnsOpen == 0 })
	}
	if clients := s.Clients(); len(clients) != 1 || clients[0].Address.String() != "192.0.2.1" || clients[0].Refusals != 2 {
		t.Errorf("clients: %+v", clients)
	}
}
