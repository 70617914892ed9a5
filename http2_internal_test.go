package filo

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/http2conn"
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
