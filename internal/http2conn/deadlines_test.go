package http2conn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
)

// deadlineConn is a connection, with its owner's turn.
type deadlineConn struct {
	*Conn
	t *Turn
}

// await adds a stream with the given kind of wait.
func (c deadlineConn) await(what awaits) *Stream {
	s := &Stream{Request: new(Request)}
	s.open(c.Conn, 1)
	s.sender.Init(s, 1, http2.UnsaidPriority)
	s.Framing = http1.Framing{Length: -1}
	s.expectBody(false, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids.Open(1)
	c.counts.Enter(1)
	c.listLocked(s)
	switch what {
	case awaitsEnd:
		c.sentLocked(s)
	case awaitsWindow:
		s.send = 0
		s.setUnsentLocked(make([]byte, 10), nil, false)
		fallthrough
	default:
		c.setAwaitsLocked(s, what)
	}
	return s
}

// The owner of a connection never calls Look in an endless loop: it handles a deadline that has passed, and the same deadline doesn't pass
// again.
func TestDeadlines(t *testing.T) {
	due := make(map[string]bool)
	for _, test := range []struct {
		name   string
		begin  func(c deadlineConn)
		rounds int // how many pairs of Wait and Look it takes until there is no deadline any more; -1: there always is one
	}{
		{"a client that sends nothing", func(c deadlineConn) { c.prefaced = false }, 1},
		{"SETTINGS that aren't acknowledged", func(c deadlineConn) { c.acks.Sent(c.shared.Clock.Now(), settingsTimeout) }, 1},
		{"a client that doesn't answer PING", func(c deadlineConn) {
			c.silence = &silence{heard: c.shared.Clock.Now()}
		}, 2},
		{"an idle client", func(deadlineConn) {}, 1},
		{"an idle client that must make room", func(c deadlineConn) { c.Shed = true }, 1},
		{"a handler that runs for long", func(c deadlineConn) { c.await(awaitsNothing).running = true }, -1},
		{"and must make room", func(c deadlineConn) { c.await(awaitsNothing).running, c.Shed = true, true }, -1},
		{"a body that doesn't come", func(c deadlineConn) { c.await(awaitsBody) }, 1},
		{"a request that doesn't end", func(c deadlineConn) { c.await(awaitsEnd) }, 2},
		{"a window that isn't opened", func(c deadlineConn) { c.await(awaitsWindow) }, -1},
		{"a window of another stream that isn't opened", func(c deadlineConn) {
			s := c.await(awaitsWindow)
			s.send, c.sendWindow = 1, 1
		}, -1},
		{"a shutdown before the first request", func(c deadlineConn) { c.shared.Draining.Store(true) }, 2},
		{"a shutdown before the preface", func(c deadlineConn) { c.prefaced = false; c.shared.Draining.Store(true) }, 2},
		{"a shutdown", func(c deadlineConn) { c.requests.Store(1); c.shared.Draining.Store(true) }, 1},
		{"a connection that is to end", func(c deadlineConn) { c.requests.Store(1); c.closeAsked.Store(true) }, 1},
		{"keep-alives that are off for a moment", func(c deadlineConn) {
			c.requests.Store(1)
			c.shared.NoReuse.Store(true)
			c.Next(c.t)
			c.shared.NoReuse.Store(false)
		}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := newShared()
				shared.PingInterval = 10 * time.Second
				c := deadlineConn{New(shared, silentDriver{}, nil, nil), &Turn{In: new(http1.Input)}}
				c.acks.Received()
				c.prefaced, c.silence = true, nil
				test.begin(c)
				rounds := 0
				for ; c.Next(c.t) == StepRead && rounds < 10; rounds++ {
					now := shared.Clock.Exact()
					_, deadline := c.Wait(now, false)
					if deadline <= now {
						t.Fatalf("round %d: a wait of %v", rounds, deadline.Sub(now))
					}
					time.Sleep(deadline.Sub(now))
					for _, d := range deadlines() {
						if c.passed(d) {
							due[d.name] = true
						}
					}
					c.Look(c.t, true)
				}
				for _, d := range deadlines() {
					if c.life != lifeEnding && c.passed(d) {
						t.Errorf("%s has no consumer", d.name)
					}
				}
				if test.rounds >= 0 && rounds != test.rounds || test.rounds < 0 && rounds < 10 {
					t.Errorf("%d rounds, want %d", rounds, test.rounds)
				}
			})
		})
	}
	for _, d := range deadlines() {
		if !due[d.name] {
			t.Errorf("nothing here has the deadline %q", d.name)
		}
	}
}

func (c deadlineConn) passed(d connDeadline) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.shared.Clock.Exact()
	return hasPassed(d.at(c.Conn, now), now)
}

// A client that always has input waiting doesn't evade a deadline: the owner acts on it within busyTime, although it never waits.
func TestLookBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newShared()
		c := deadlineConn{New(shared, silentDriver{}, nil, nil), &Turn{In: new(http1.Input)}}
		c.acks.Received()
		c.prefaced, c.silence = true, nil
		s := c.await(awaitsWindow)
		start := shared.Clock.Exact()
		until := s.awaitsUntil()
		c.LookBusy(c.t, start)
		time.Sleep(until.Sub(start) + time.Hour) // the process is paused, and input waits
		if c.LookBusy(c.t, shared.Clock.Exact()); s.state.Over() {
			t.Error("the stream has ended before the input was used")
		}
		until = shared.Clock.Exact()
		for !s.state.Over() {
			now := shared.Clock.Exact()
			if now.Sub(until) > 2*busyTime {
				t.Fatalf("the stream waits for a window after %v, though it should until %v", now.Sub(start), until.Sub(start))
			}
			c.LookBusy(c.t, now)
			time.Sleep(busyTime / 100)
		}
		if now := shared.Clock.Exact(); now < until {
			t.Errorf("the stream has ended after %v, and should after %v", now.Sub(start), until.Sub(start))
		}
	})
}

// The first byte of a frame, again and again, doesn't keep an idle connection open. A head that has begun in time may still arrive.
func TestIdleWithBeginnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newShared()
		c := deadlineConn{New(shared, silentDriver{}, nil, nil), &Turn{In: new(http1.Input)}}
		c.acks.Received()
		c.prefaced, c.silence, c.used = true, nil, shared.Clock.Exact()
		start, pause := c.used, shared.ReadHeader*9/10
		for c.life != lifeEnding {
			now := shared.Clock.Exact()
			if now.Sub(start) > shared.Idle+shared.ReadHeader {
				t.Fatalf("the connection is open after %v", now.Sub(start))
			}
			_, deadline := c.Wait(now, true)
			time.Sleep(min(deadline.Sub(now), pause))
			if shared.Clock.Exact() >= deadline {
				c.Look(c.t, true)
			}
			c.headSince = 0 // the frame is complete, and the next one begins
		}
		if now := shared.Clock.Exact(); now.Sub(start) < shared.Idle {
			t.Errorf("the connection has ended after %v", now.Sub(start))
		}
	})
}
