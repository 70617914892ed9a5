package filo

import (
	"runtime"
	"sync/atomic"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
)

// This file has the turns of a connection of HTTP/2 in both drivers: how it is lent a worker's buffers and given to another worker, what it
// waits for between its turns, and how it ends.

// beginTurn lends the worker's buffers to the connection.
func (h *http2Conn) beginTurn(t *http2Turn) {
	t.owned = h
	if h.in != nil {
		t.In.TakeOver(h.in)
		h.in = nil
	}
}

// received records that n bytes have come, into this space.
func (h *http2Conn) received(t *http2Turn, space []byte, n int) {
	if t.In.Received(n); n == len(space) {
		t.In.Enlarge() // more is probably there
	}
	if n > 0 {
		h.Shed = false
	}
	if n > 0 && h.silence != nil {
		*h.silence = http2Silence{heard: h.shared.Clock.Now()}
	}
}

// endTurn returns the buffers to the worker, and keeps what hasn't been taken of the input.
func (h *http2Conn) endTurn(t *http2Turn) {
	h.wakePutOff(t)
	t.owned = nil
	if unread := t.In.Unread(); len(unread) > 0 {
		h.saveInput(unread)
	}
	t.In.Reset()
}

func (h *http2Conn) saveInput(unread []byte) {
	h.in = new(http1.Input)
	h.in.Save(unread)
}

// giveAwayLocked prepares the connection for another worker, while the one that has had it runs the handler of the turn's stream.
func (h *http2Conn) giveAwayLocked(t *http2Turn) {
	h.mu.AssertHeld()
	h.listLocked(t.Stream)
	h.pushLocked(t)
	// The buffer goes along: the next worker copies nothing, and the handler may wait long.
	in := *t.In
	h.in, *t.In = &in, http1.Input{}
}

// giveAway is giveAwayLocked for the owner. From then on the connection is another worker's.
func (h *http2Conn) giveAway(t *http2Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giveAwayLocked(t)
	t.owned = nil
}

// disown lets the monitor take the connection from its owner, which runs the handler of the turn's stream.
func (h *http2Conn) disown(t *http2Turn) { h.inline.Store(t) }

// own ends what disown has begun. It reports false if the monitor has taken the connection: then wasTaken follows.
func (h *http2Conn) own(t *http2Turn) bool { return h.inline.CompareAndSwap(t, nil) }

// wasTaken records that the monitor has taken the connection. Once wasTaken returns, the monitor has left the turn alone.
func (h *http2Conn) wasTaken(t *http2Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.owned = nil
}

// takeAway takes the connection, and its parts that the turn holds, from a worker that runs a handler inline. Then the connection is the
// caller's. takeAway returns the turn, or nil if no handler runs inline. It calls taken before the worker can notice, with mu held.
func (h *http2Conn) takeAway(taken func(t *http2Turn)) *http2Turn {
	t := h.inline.Load()
	if t == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.inline.CompareAndSwap(t, nil) {
		return nil
	}
	h.giveAwayLocked(t)
	taken(t)
	return t
}

// http2Waits is what a connection waits for.
type http2Waits uint8

const (
	http2New     http2Waits = iota // the first bytes
	http2Idle                      // the next request
	http2Streams                   // frames, while there are streams
	http2Leaving                   // frames after the first GOAWAY
)

// wait returns what the connection waits for, and until when at most. partial says that a part of a frame has come.
func (h *http2Conn) wait(now clock.Time, partial bool) (waits http2Waits, deadline clock.Time) {
	switch {
	case h.prefaced && !partial && !h.reader.InBlock():
		h.headSince = 0
	case h.headSince == 0:
		h.headSince = now
	}
	h.mu.Lock()
	streams := h.counts.Streams()
	h.wakeAwaiting = true
	// ConnState must be told that the connection is idle. Here the owner learns of streams that end before the wait.
	h.wakeEmpty = h.wakeEmpty || streams > 0 && h.shared.TellsActive
	if streams == 0 {
		h.schedule.Trim()
	}
	deadline = h.deadlineLocked(now)
	h.mu.Unlock()
	h.trimPending()
	switch {
	case h.goneAway != goneNowhere && (streams == 0 || h.drains):
		waits = http2Leaving
	case streams > 0:
		waits = http2Streams
	case h.requests.Load() == 0 && !h.prefaced:
		waits = http2New
	default:
		waits = http2Idle
	}
	if waits == http2Idle && h.active {
		h.setActive(false)
	}
	return waits, deadline
}

// setActive records whether the connection has streams.
func (h *http2Conn) setActive(active bool) {
	if h.active = active; h.shared.TellsActive {
		h.driver.Active(active)
	}
}

// closeSoon ends the connection when its streams have ended. Any goroutine may call it.
func (h *http2Conn) closeSoon() {
	if !h.closeAsked.Swap(true) {
		h.wakeOwner()
	}
}

// leaves reports whether the connection must end. A connection without a request isn't told to end as soon as the server shuts down: a
// client whose new connection ends before its first request may give up, as net/http's does.
func (h *http2Conn) leaves() bool {
	switch {
	case h.goneAway != goneNowhere:
		return true
	case h.requests.Load() > 0:
		return h.closeAsked.Load() || h.shared.endsConns()
	case !h.shared.Draining.Load():
		return false
	}
	h.drains = true // no stream is parked, which would have to know
	now := h.shared.Clock.Exact()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaveTime == 0 {
		h.leaveTime = now.Add(h.shared.FirstRequest(now.Sub(h.used)))
	}
	return now >= h.leaveTime
}

// wakers counts the goroutines that wake the owner, and says whether the connection has ended.
type wakers struct{ atomic.Int32 }

const wakersOver = 1 << 30

// wakeOwner makes the owner have a turn, if nobody has one, until endWaking was called.
func (h *http2Conn) wakeOwner() {
	defer h.wakers.Add(-1)
	if h.wakers.Add(1)&wakersOver == 0 {
		h.driver.WakeOwner()
	}
}

// endWaking returns when nobody wakes the owner any more. A late wake-up would end the wait of the lingerer, which has the socket then: its
// client would lose the last answers.
func (h *http2Conn) endWaking() {
	for h.wakers.Or(wakersOver); h.wakers.Load() != wakersOver; {
		runtime.Gosched()
	}
}

// mustDrain reports whether the server has begun to shut down, and the owner doesn't know it yet. Shutdown wakes the connections that wait.
// So an owner that begins to wait must look once more after setWait.
func (h *http2Conn) mustDrain() bool {
	return !h.drains && !h.ending && h.shared.Draining.Load()
}

// leaveSoon takes the next step towards the end of a connection whose server shuts down, or that has had enough requests, if it is due.
func (h *http2Conn) leaveSoon(t *http2Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mustDrain() {
		h.drains = true
		h.wakeParkedLocked()
	}
	if h.goneAway == goneNowhere {
		h.goneAway, h.leaveTime, h.pinged = goneSoon, h.shared.Clock.Exact().Add(goAwayTime), true
		t.out = http2.AppendGoAway(t.out, 1<<31-1, http2.NoError, "")
		t.out = http2.AppendPing(t.out, 0, [8]byte{})
	}
	if h.goneAway == goneSoon && (!h.pinged || h.shared.Clock.Exact() >= h.leaveTime) {
		h.goneAway, h.leaveTime, h.lastServed = goneForGood, 0, h.ids.Last()
		t.out = http2.AppendGoAway(t.out, h.lastServed, http2.NoError, "")
	}
	if h.goneAway == goneForGood {
		h.ending = h.ending || h.counts.Streams() == 0
		h.wakeEmpty = !h.ending
	}
}
