package redisfilo_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// link is a network between clients and a Redis. A test can make it slow or silent, or make it lose a reply.
type link struct {
	listener net.Listener
	server   string // the path of Redis's socket

	mu     sync.Mutex
	delay  time.Duration // in each direction
	open   chan struct{} // this channel is closed while bytes may pass
	losing bool          // the next reply is lost, with its connection
}

// newLink returns a link that adds no delay.
func newLink(t testing.TB, server string) *link {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, server: server, open: make(chan struct{})}
	close(l.open)
	t.Cleanup(func() {
		listener.Close()
		l.silence(false)
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(client)
		}
	}()
	return l
}

// client returns a client with a maximum number of connections.
func (l *link) client(t testing.TB, size int) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: l.listener.Addr().String(), ContextTimeoutEnabled: true, PoolSize: size})
	t.Cleanup(func() { client.Close() })
	return client
}

// slow makes each round trip take d longer.
func (l *link) slow(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d / 2
}

// silence stops all bytes on the link, or lets them pass again.
func (l *link) silence(silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
		if silent {
			l.open = make(chan struct{})
		}
	default:
		if !silent {
			close(l.open)
		}
	}
}

// lose loses the next reply.
func (l *link) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losing = true
}

func (l *link) loses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	losing := l.losing
	l.losing = false
	return losing
}

func (l *link) serve(client net.Conn) {
	server, err := net.Dial("unix", l.server)
	if err != nil {
		client.Close()
		return
	}
	go l.pass(server, client, func() bool { return false })
	l.pass(client, server, l.loses)
}

// pass copies bytes from one connection to the other, after the link's delay. It closes both connections when one has ended.
func (l *link) pass(to, from net.Conn, loses func() bool) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces, ended := make(chan piece, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		defer from.Close()
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			l.mu.Lock()
			open := l.open
			l.mu.Unlock()
			<-open
			if loses() {
				return
			}
			if _, err := to.Write(p.bytes); err != nil {
				return
			}
		}
	}()
	defer close(pieces)
	for {
		b := make([]byte, 16<<10)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		l.mu.Lock()
		due := time.Now().Add(l.delay)
		l.mu.Unlock()
		select {
		case pieces <- piece{b[:n], due}:
		case <-ended:
			return
		}
	}
}
