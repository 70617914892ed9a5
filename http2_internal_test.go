package filo

import (
	"io"
	"log/slog"
	"math"
	"net"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
)

// discardConn takes all that is written, and has nothing to read.
type discardConn struct {
	net.Conn
	taken chan int // how much came at a time
}

func (c *discardConn) Write(b []byte) (int, error) {
	c.taken <- len(b)
	return len(b), nil
}
func (c *discardConn) SetWriteDeadline(time.Time) error { return nil }

// slowFlusher is a driver whose sends return when all has been sent, as if the goroutine that flushes had to wait for a processor.
type slowFlusher struct {
	http2Driver
	h *http2Conn
}

func (d *slowFlusher) send(b []byte) (kept bool) {
	d.h.out.Put(b)
	d.h.out.AwaitEmpty()
	return false
}

func testHTTP2Server(t *testing.T) *Server {
	s := &Server{Logger: slog.New(slog.DiscardHandler), Handler: func(c *Ctx) error { return c.NoContent() }, HTTP2: HTTP2Options{Unencrypted: true}}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// An answer goes on to its end although its connection takes each part before the flusher looks again, and Drained finds the flusher at work.
func TestHTTP2FlushGoesOn(t *testing.T) {
	s := testHTTP2Server(t)
	sink := &discardConn{taken: make(chan int, 1<<16)}
	c, d := newConn(s, sink), new(slowFlusher)
	h := newHTTP2(c, d)
	d.h = h
	h.out.Open(h, nil, sink, false)
	h.sendWindow = math.MaxInt32
	const size = 4 << 20
	stream := &http2Stream{http2Request: new(http2Request)}
	stream.open(h, 1)
	stream.sender.Init(stream, 1, http2.UnsaidPriority)
	h.mu.Lock()
	h.peer.InitialWindow = math.MaxInt32
	h.counts.Enter(1)
	h.listLocked(stream)
	stream.state = http2.HalfClosedRemote
	stream.unsent, stream.complete = make([]byte, size), true
	h.mayGoOnLocked(stream)
	h.mu.Unlock()
	h.flush()
	for left := size; left > 0; {
		select {
		case n := <-sink.taken:
			left -= n
		case <-time.After(10 * time.Second):
			t.Fatalf("%d of %d bytes were never sent", left, size)
		}
	}
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

// The time that a stream waits for others on its connection is not its client's.
func TestHTTP2ExcusedStreams(t *testing.T) {
	s := testHTTP2Server(t)
	h := newHTTP2(newConn(s, &discardConn{}), new(slowFlusher))
	first, second := &http2Stream{}, &http2Stream{}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, stream := range []*http2Stream{first, second} {
		stream.http2Request = new(http2Request)
		stream.open(h, uint32(2*i+1))
		stream.send, stream.unsent = 1<<20, make([]byte, 1<<10)
		stream.sender.Init(stream, stream.id, http2.UnsaidPriority)
		h.schedule.Add(&stream.sender)
	}
	first.http2Request, second.http2Request = nil, nil // as those of parked streams whose handlers have returned
	h.used = s.clock.Now()
	soon, late := h.used.Add(DefaultWriteTimeout/2), h.used.Add(2*DefaultWriteTimeout)
	for _, test := range []struct {
		name    string
		of      *http2Stream
		window  http2.SendWindow // the connection's
		own     http2.SendWindow
		now     clock.Time
		excused bool
	}{
		{"its turn, and no window for the connection", first, 0, 1, soon, false},
		{"another stream's turn", second, 0, 1, soon, true},
		{"another stream's turn, but no window of its own", second, 0, 0, soon, false},
		{"another stream's turn, and no window for that either", second, 0, 1, late, false},
		{"windows for both, which the outbox has no room for", first, 1, 1, late, true},
		{"the connection's window is open, but not its own", first, 1, 0, soon, false},
	} {
		h.sendWindow, test.of.send, test.of.awaitsSince = test.window, test.own, h.used
		if got := test.of.isExcusedLocked(test.now); got != test.excused || (test.of.awaitsSince == test.now) != got {
			t.Errorf("%s: excused %v, want %v", test.name, got, test.excused)
		}
	}
}
