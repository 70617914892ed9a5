package filo

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/http2"
)

func testHTTP2Server(t *testing.T) *Server {
	s := &Server{Logger: slog.New(slog.DiscardHandler), Handler: func(c *Ctx) error { return c.NoContent() }, HTTP2: HTTP2Options{Unencrypted: true}}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// The monitor finds a handler that runs inline also if it has looked once just before that.
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
	w.beginHTTP2(d.h)
	stream := &http2Stream{http2Request: new(http2Request)}
	stream.open(d.h, 1)
	stream.state, stream.running = http2.HalfClosedRemote, true
	w.http2.stream = stream
	x := &w.http2.exchange
	x.begin(w, c, d)
	d.retake()
	x.disown()
	for begin := time.Now(); d.h.inline.Load() != nil; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the connection is still that of a handler which runs")
		}
	}
	go io.Copy(io.Discard, client) // the next worker's SETTINGS
	client.Close()
	<-d.ended
}
