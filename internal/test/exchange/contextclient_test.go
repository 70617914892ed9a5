package exchange

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// leaving is a client that disconnects while its handler waits for the end of the context.
type leaving struct {
	name, request string
	handler       func(c *filo.Ctx) context.Context // the default is Ctx.Context
	then          func(c *filo.Ctx)                 // called by the handler after the client has disconnected
	atOnce        bool                              // the client disconnects without waiting until the handler has the context
}

// leavings returns the ways in which a client disconnects. Some look like the half-close of a client that waits for its answer.
func leavings() []leaving {
	const get, post = "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", "POST /%d HTTP/1.1\r\nHost: a\r\n"
	readBody := func(c *filo.Ctx) { c.Body() }
	write := func(c *filo.Ctx) {
		w := c.Stream()
		for w.Flush() == nil {
			w.WriteString("some more")
		}
	}
	return []leaving{
		{name: "while the handler waits", request: get},
		{name: "with the request", request: get, atOnce: true},
		{name: "before the context is asked for", request: get, atOnce: true,
			handler: func(c *filo.Ctx) context.Context { time.Sleep(30 * time.Millisecond); return c.Context() }},
		{name: "behind the head", request: get,
			handler: func(c *filo.Ctx) context.Context { ctx := armedContext(c); c.Stream().Flush(); return ctx }},
		{name: "before something is written", request: get,
			then: func(c *filo.Ctx) { w := c.Stream(); w.WriteString("one"); w.Flush() }},
		{name: "before writes fail", request: get, then: write},
		{name: "before writes fail, and then the context is asked for", request: get, atOnce: true,
			handler: func(c *filo.Ctx) context.Context { write(c); return c.Context() }},
		{name: "before a file is sent", request: get, then: func(c *filo.Ctx) {
			if file, err := os.Open(os.Args[0]); err == nil {
				defer file.Close()
				c.Response.Header.Set("Content-Length", "1000000")
				c.Stream().ReadFrom(io.LimitReader(file, 1_000_000))
			}
		}},
		{name: "within a body", request: post + "Content-Length: 3000000\r\n\r\nabc", then: readBody},
		{name: "within a body, and then the context is asked for", request: post + "Content-Length: 3000000\r\n\r\nabc", atOnce: true,
			handler: func(c *filo.Ctx) context.Context { readBody(c); return c.Context() }},
		{name: "within a small body", request: post + "Content-Length: 300\r\n\r\nabc", then: readBody, atOnce: true},
		{name: "within a chunked body", request: post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", then: readBody},
		{name: "behind a body", request: post + "Content-Length: 3\r\n\r\nabc", then: readBody},
		{name: "behind a body that isn't read", request: post + "Content-Length: 3\r\n\r\nabc"},
		{name: "behind other requests", request: get + "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("y", 3000)},
		{name: "behind many other requests", request: get + strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200)},
	}
}

// leavingHost is a server with the handlers of leavings. The path is the index of the handler: "/1" is the second one.
type leavingHost struct {
	driver           filo.Driver
	network, address string
	leavings         []leaving
	asked, left      []chan bool  // by request
	causes           []chan error // by request
}

func newLeavingHost(t *testing.T, driver filo.Driver, network string) *leavingHost {
	h := &leavingHost{driver: driver, network: network, leavings: append(leavings(), leavings()...)}
	for range h.leavings {
		h.asked, h.left = append(h.asked, make(chan bool, 1)), append(h.left, make(chan bool, 1))
		h.causes = append(h.causes, make(chan error, 1))
	}
	kind, address := "tcp", "127.0.0.1:0"
	if network == "unix" {
		kind, address = network, t.TempDir()+"/socket"
	}
	listener, err := net.Listen(kind, address)
	if err != nil {
		t.Fatal(err)
	}
	h.address = listener.Addr().String()
	s := &filo.Server{Driver: driver, Logger: filotest.Quiet, Handler: h.handle}
	if network == "tls" {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}}
		filotest.ServeBy(t, s, func() error { return s.ServeTLS(listener, "", "") })
	} else {
		filotest.ServeBy(t, s, func() error { return s.Serve(listener) })
	}
	return h
}

func (h *leavingHost) handle(c *filo.Ctx) error {
	i, err := strconv.Atoi(c.Path()[1:])
	if err != nil {
		return c.NoContent() // a request after that of the disconnecting client
	}
	ask := h.leavings[i].handler
	if ask == nil {
		ask = (*filo.Ctx).Context
	}
	ctx := ask(c)
	ctx.Done() // from here on, the server watches for the client's end
	h.asked[i] <- true
	if then := h.leavings[i].then; then != nil {
		<-h.left[i]
		then(c)
	}
	select {
	case <-ctx.Done():
	case <-time.After(filotest.Bound):
	}
	h.causes[i] <- context.Cause(ctx)
	return nil
}

// leave runs a client that disconnects, with a TCP reset if reset is true.
func (h *leavingHost) leave(t *testing.T, i int, reset bool) {
	l := h.leavings[i]
	network := h.network
	if network == "tls" {
		network = "tcp"
	}
	socket, err := net.Dial(network, h.address)
	if err != nil {
		t.Error(err)
		return
	}
	conn := socket
	if h.network == "tls" {
		conn = tls.Client(socket, filotest.ClientTLS())
	}
	io.WriteString(conn, strings.Replace(l.request, "%d", strconv.Itoa(i), 1))
	if !l.atOnce {
		<-h.asked[i]
	}
	if tcp, ok := socket.(*net.TCPConn); ok && reset {
		tcp.SetLinger(0)
		conn = socket
	}
	conn.Close()
	h.left[i] <- true
	if l.atOnce && reset {
		return // the request may have been lost with the connection
	}
	if cause := <-h.causes[i]; !errors.Is(cause, filo.ErrClientGone) {
		t.Errorf("driver %v, %s, %s, reset %v: cause %v, want ErrClientGone", h.driver, h.network, l.name, reset, cause)
	}
}

// A handler never waits for ever for a client that has disconnected.
func TestContextOfAClientThatLeaves(t *testing.T) {
	t.Parallel()
	var clients sync.WaitGroup // concurrently, since some take seconds
	for _, driver := range []filo.Driver{filo.DriverBlocking, filo.DriverAuto} {
		for _, network := range []string{"tcp", "unix", "tls"} {
			h := newLeavingHost(t, driver, network)
			for i := range h.leavings {
				clients.Go(func() { h.leave(t, i, i < len(h.leavings)/2) })
			}
		}
	}
	clients.Wait()
}
