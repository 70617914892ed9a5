package filo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// wakeCounter counts the wake-ups of a connection: read deadlines in the past.
type wakeCounter struct {
	net.Conn
	wakes *atomic.Int32
}

func (c wakeCounter) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(time.Now().Add(-time.Minute)) {
		c.wakes.Add(1)
	}
	return c.Conn.SetReadDeadline(t)
}

type wakeCounterListener struct {
	net.Listener
	wakes *atomic.Int32
}

func (l wakeCounterListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return wakeCounter{c, l.wakes}, nil
}

// A connection of the blocking driver is woken once because the server shuts down. Its last wait isn't woken, since that wait has short
// deadlines of its own.
func TestLastReadIsNotWoken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wakes := new(atomic.Int32)
	s := &Server{Driver: DriverBlocking, IdleGrace: 500 * time.Millisecond, Handler: func(ctx *Ctx) error { return ctx.NoContent() }}
	served := make(chan error, 1)
	go func() { served <- s.Serve(wakeCounterListener{ln, wakes}) }()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, response.Body)
	ctx, cancel := context.WithTimeout(t.Context(), lifeBound)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	<-served
	if n := wakes.Load(); n > 2 {
		t.Errorf("the connection was woken %d times", n)
	}
}
