package http2conn

import (
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/pace"
)

const testGrace = 30 * time.Second

// newShared returns a Shared for connections without a server.
func newShared() *Shared {
	limits := pace.Limits{Grace: testGrace, Rate: 500}
	s := &Shared{
		Limits: Limits{
			Head: http1.Limits{Bytes: 16 << 10, Line: 8000, Fields: 100}, MaxBody: 4 << 20, MaxStreams: 128, AwaitedBody: 16 << 10,
			StreamWindow: http2.MaxReceiveWindow, ConnWindow: http2.MaxReceiveWindow, Glitches: http2.DefaultGlitches,
			Reading: limits, Writing: limits, ReadHeader: 10 * time.Second, Idle: time.Minute, Pause: 2 * time.Second,
		},
		Clock: new(clock.Coarse), Bodies: new(budget.Bodies), Answers: new(budget.Answers),
		Counts: Counts{new(atomic.Uint64), new(atomic.Uint64), new(atomic.Uint64), new(atomic.Uint64), new(atomic.Uint64), new(atomic.Uint64),
			new(atomic.Uint64), new(atomic.Uint64)},
		Draining: new(atomic.Bool), NoReuse: new(atomic.Bool),
		FirstRequest: func(time.Duration) time.Duration { return time.Second },
	}
	s.Bodies.SetLimit(128 << 20)
	s.Answers.SetLimit(128 << 20)
	return s
}

// silentDriver is the driver of a connection whose client sends nothing, and reads everything.
type silentDriver struct{ Driver }

func (silentDriver) Send([]byte) bool   { return false }
func (silentDriver) WakeOwner()         {}
func (silentDriver) Failed(http2.Fault) {}

// discardConn accepts all writes, and has nothing to read.
type discardConn struct {
	net.Conn
	taken chan int // the size of each write
}

func (c *discardConn) Write(b []byte) (int, error) {
	c.taken <- len(b)
	return len(b), nil
}
func (c *discardConn) SetWriteDeadline(time.Time) error { return nil }

// slowFlusher is a driver whose Send returns only when the outbox is empty, as if the goroutine that flushes had to wait for a processor.
type slowFlusher struct {
	Driver
	h *Conn
}

func (d *slowFlusher) Send(b []byte) (kept bool) {
	d.h.Out.Put(b)
	d.h.Out.AwaitEmpty()
	return false
}

// An answer is sent completely even if the socket accepts each part at once, so that Drained is called while a goroutine is still in
// flushLocked.
func TestFlushGoesOn(t *testing.T) {
	sink := &discardConn{taken: make(chan int, 1<<16)}
	d := new(slowFlusher)
	h := New(newShared(), d, nil, nil)
	d.h = h
	h.Out.Open(h, nil, sink, false)
	h.sendWindow = math.MaxInt32
	const size = 4 << 20
	stream := &Stream{Request: new(Request)}
	stream.open(h, 1)
	stream.sender.Init(stream, 1, http2.UnsaidPriority)
	h.mu.Lock()
	h.peer.InitialWindow = math.MaxInt32
	h.counts.Enter(1)
	h.listLocked(stream)
	stream.state = http2.HalfClosedRemote
	stream.unsent, stream.sending = make([]byte, size), sendingRest
	h.mayGoOnLocked(stream)
	h.mu.Unlock()
	h.Flush()
	for left := size; left > 0; {
		select {
		case n := <-sink.taken:
			left -= n
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d bytes were never sent", left, size)
		}
	}
}

// The time that a stream waits for other streams of its connection isn't counted as time that its client has used.
func TestExcusedStreams(t *testing.T) {
	h := New(newShared(), silentDriver{}, nil, nil)
	first, second := &Stream{}, &Stream{}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, stream := range []*Stream{first, second} {
		stream.Request = new(Request)
		stream.open(h, uint32(2*i+1))
		stream.send, stream.unsent = 1<<20, make([]byte, 1<<10)
		stream.sender.Init(stream, stream.id, http2.UnsaidPriority)
		h.schedule.Add(&stream.sender)
	}
	first.Request, second.Request = nil, nil // as in parked streams whose handlers have returned
	h.used = h.shared.Clock.Now()
	soon, late := h.used.Add(testGrace/2), h.used.Add(2*testGrace)
	for _, test := range []struct {
		name    string
		of      *Stream
		window  http2.SendWindow // the connection's window; own is the stream's
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

// If a goroutine is woken just before it waits, it doesn't wait.
func TestWokenBeforeWait(t *testing.T) {
	h := New(newShared(), silentDriver{}, nil, nil)
	s := &Stream{Request: new(Request)}
	s.open(h, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, waiting := range []*chan struct{}{&s.readable, &s.writable} {
		if s.awaitLocked(waiting, 1) {
			t.Error("nobody has woken it, and it was woken")
		}
		s.wakeLocked()
		if !s.awaitLocked(waiting, h.shared.Clock.Exact().Add(10*time.Second)) {
			t.Error("it has missed that it was woken")
		}
	}
}
