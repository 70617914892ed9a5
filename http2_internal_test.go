package filo

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/h2test"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/http2conn"

	xhttp2 "golang.org/x/net/http2"
)

func testHTTP2Server(t *testing.T) *Server {
	s := &Server{Logger: slog.New(slog.DiscardHandler), Handler: func(c *Ctx) error { return c.NoContent() }, HTTP2: HTTP2Options{Unencrypted: true}}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// The monitor finds a handler that runs inline, even if it looked just before the handler began.
func TestHTTP2MonitorLooksAgain(t *testing.T) {
	s := testHTTP2Server(t)
	client, conn := net.Pipe()
	c := newConn(s, conn)
	if _, reason := s.conns.add(c); reason != nil {
		t.Fatal(reason)
	}
	w := new(scratch)
	c.attach(w)
	d := c.startHTTP2(w)
	turn := w.beginHTTP2(d.h)
	request := http2.Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + // SETTINGS
		"\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x01a" // a GET
	w.in.Received(copy(w.in.Space(), request))
	step := http2conn.StepNext
	for step == http2conn.StepNext {
		step = d.h.Next(turn)
	}
	if step != http2conn.StepRun {
		t.Fatalf("step %d", step)
	}
	x := &w.http2.exchange
	x.begin(w, c, d)
	d.retake()
	x.disown()
	go io.Copy(io.Discard, client) // the next worker's SETTINGS
	client.Close()
	select {
	case <-d.ended:
	case <-time.After(time.Minute):
		t.Fatal("the connection is still that of a handler which runs")
	}
}

// watchedConn is a server's connection that checks the places when the end of an answer is sent. Only the blocking driver uses it.
type watchedConn struct {
	net.Conn
	sent  bytes.Buffer // what the server has sent after the last whole frame
	check func()
}

func (c *watchedConn) Write(p []byte) (int, error) {
	c.sent.Write(p)
	for c.sent.Len() >= 9 {
		head := c.sent.Bytes()
		size := 9 + int(head[0])<<16 + int(head[1])<<8 + int(head[2])
		if len(head) < size {
			break
		}
		if kind, flags := xhttp2.FrameType(head[3]), xhttp2.Flags(head[4]); (kind == xhttp2.FrameHeaders || kind == xhttp2.FrameData) && flags.Has(xhttp2.FlagDataEndStream) {
			c.check()
		}
		c.sent.Next(size)
	}
	return c.Conn.Write(p)
}

type watchedListener struct {
	net.Listener
	check func()
}

func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: c, check: l.check}, nil
}

// When the end of an answer is sent, its handler's place is free: a client that has its answer and sends again at once is never refused.
func TestPlaceIsFreeBeforeAnswerEnds(t *testing.T) {
	answers := map[string]Handler{
		"/whole": func(c *Ctx) error { return c.Text(200, "whole") },
		"/large": func(c *Ctx) error { return c.Bytes(200, "text/plain", make([]byte, 40<<10)) },
		"/empty": func(c *Ctx) error { return c.NoContent() },
		"/error": func(c *Ctx) error { return Error(418, "") },
		"/parts": func(c *Ctx) error {
			c.Stream().WriteString("one")
			c.Stream().Flush()
			_, err := c.Stream().WriteString("two")
			return err
		},
		"/trailer": func(c *Ctx) error {
			c.Response.Trailer.Set("A", "b")
			_, err := c.Stream().WriteString("parts")
			return err
		},
		"/reader": func(c *Ctx) error {
			c.Response.SetBodyStream(strings.NewReader(strings.Repeat("a", 20<<10)), 20<<10)
			return nil
		},
	}
	var server *Server
	var kept atomic.Int64
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := watchedListener{inner, func() { kept.Add(int64(server.pool.places.Taken(admit.Ordinary))) }}
	server = &Server{Logger: slog.New(slog.DiscardHandler), Concurrency: 1, HTTP2: HTTP2Options{Unencrypted: true},
		Handler: Offload(func(c *Ctx) error { return answers[c.Path()](c) })}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { server.Close(); <-served }()
	conn, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, err := h2test.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	requests := []string{"HEAD /reader", "HEAD /trailer", "HEAD /whole"}
	for path := range answers {
		requests = append(requests, "GET "+path)
	}
	for _, request := range requests {
		method, path, _ := strings.Cut(request, " ")
		for range 200 {
			var pings sync.WaitGroup
			pings.Go(func() {
				for range 2 { // for each, the connection's owner sends whatever is queued
					client.Ping()
				}
			})
			stream := client.Open(true, ":method", method, ":scheme", "http", ":path", path, ":authority", "filo.test")
			status, err := stream.Status()
			if err == nil {
				_, err = io.Copy(io.Discard, stream)
			}
			if pings.Wait(); err != nil || status == 503 {
				t.Fatalf("%s: %d, %v", request, status, err)
			}
		}
		if n := kept.Swap(0); n > 0 {
			t.Errorf("%s: %d places were taken when the answer ended", request, n)
		}
	}
}

// slowCloser is a body whose Close waits.
type slowCloser struct {
	io.Reader
	closing, closed chan struct{}
}

func (c slowCloser) Close() error {
	c.closing <- struct{}{}
	<-c.closed
	return nil
}

// A body's Close is the program's code, and runs in the handler's place. The answer's end is sent after it.
func TestBodyIsClosedInThePlace(t *testing.T) {
	body := slowCloser{strings.NewReader(strings.Repeat("a", 20<<10)), make(chan struct{}), make(chan struct{})}
	s := &Server{Logger: slog.New(slog.DiscardHandler), Concurrency: 1, HTTP2: HTTP2Options{Unencrypted: true}, Handler: Offload(func(c *Ctx) error {
		c.Response.SetBodyStream(body, -1)
		return nil
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	defer func() { s.Close(); <-served }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, err := h2test.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	first := client.Open(true, ":method", "GET", ":scheme", "http", ":path", "/", ":authority", "filo.test")
	<-body.closing
	if status, _, err := client.Get("/"); status != 503 || err != nil {
		t.Errorf("while the body of another answer is being closed: %d, %v", status, err)
	}
	close(body.closed)
	if n, err := io.Copy(io.Discard, first); n != 20<<10 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}
