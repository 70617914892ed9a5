package http2conn

import (
	"runtime"
	"sync/atomic"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/race"
)

// This file has the turns of a connection of HTTP/2 in both drivers: how it is lent a worker's buffers and given to another worker, what it
// waits for between its turns, and how it ends.

// BeginTurn lends the worker's buffers to the connection.
func (h *Conn) BeginTurn(t *Turn) {
	t.owned = h
	if h.in != nil {
		t.In.TakeOver(h.in)
		h.in = nil
	}
}

// Received records that n bytes were received into space.
func (h *Conn) Received(t *Turn, space []byte, n int) {
	if t.In.Received(n); n == len(space) {
		t.In.Enlarge() // more is probably there
	}
	if n == 0 {
		return
	}
	if h.Shed = false; h.silence != nil {
		*h.silence = silence{heard: h.shared.Clock.Now()}
	}
}

// EndTurn returns the buffers to the worker, and keeps the input that hasn't been taken.
func (h *Conn) EndTurn(t *Turn) {
	h.WakePutOff(t)
	t.owned = nil
	if unread := t.In.Unread(); len(unread) > 0 {
		h.saveInput(unread)
	}
	t.In.Reset()
}

func (h *Conn) saveInput(unread []byte) {
	h.in = new(http1.Input)
	h.in.Save(unread)
}

// giveAwayLocked prepares the connection for another worker, while its present worker runs the handler of the turn's stream.
func (h *Conn) giveAwayLocked(t *Turn) {
	h.mu.AssertHeld()
	h.listLocked(t.Stream)
	h.pushLocked(t)
	// The buffer goes along: the next worker copies nothing, and the handler may wait long.
	in := *t.In
	h.in, *t.In = &in, http1.Input{}
}

// GiveAway is giveAwayLocked for the owner. From then on the connection is another worker's.
func (h *Conn) GiveAway(t *Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giveAwayLocked(t)
	t.owned = nil
}

// Disown lets the monitor take the connection from its owner, which runs the handler of the turn's stream.
func (h *Conn) Disown(t *Turn) { h.inline.Store(t) }

// IsDisowned reports whether the monitor may still take the connection. If it returns false between Disown and Own, the monitor has taken the
// connection, and WasTaken follows.
func (h *Conn) IsDisowned(t *Turn) bool { return h.inline.Load() == t }

// Own takes the connection back after Disown. It reports false if the monitor has taken it: then WasTaken follows.
func (h *Conn) Own(t *Turn) bool { return h.inline.CompareAndSwap(t, nil) }

// WasTaken records that the monitor has taken the connection. Once WasTaken returns, the monitor has left the turn alone.
func (h *Conn) WasTaken(t *Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.owned = nil
}

// TakeAway takes the connection, and its parts that the turn holds, from a worker that runs a handler inline. Then the connection is the
// caller's. TakeAway returns the turn, or nil if no handler runs inline. It calls taken before the worker can notice, with mu held.
func (h *Conn) TakeAway(taken func(t *Turn)) *Turn {
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

// Waits is what a connection waits for.
type Waits uint8

const (
	WaitsNew     Waits = iota // the first bytes
	WaitsIdle                 // the next request
	WaitsStreams              // frames, while there are streams
	WaitsLeaving              // frames after the first GOAWAY
)

// Wait returns what the connection waits for, and until when at most. partial says that a part of a frame has come.
func (h *Conn) Wait(now clock.Time, partial bool) (waits Waits, deadline clock.Time) {
	switch {
	case h.prefaced && !partial && !h.reader.InBlock():
		h.headSince = 0
	case h.headSince == 0:
		h.headSince = now
	}
	h.mu.Lock()
	streams := h.counts.Streams()
	h.wakeAwaiting = true
	// Driver.Active must be told that the connection is idle. Here the owner learns of streams that end before the wait.
	h.wakeEmpty = h.wakeEmpty || streams > 0 && h.shared.TellsActive
	if streams == 0 {
		h.schedule.Trim()
	}
	deadline = h.deadlineLocked(now)
	h.mu.Unlock()
	h.trimPending()
	switch {
	case h.life != lifeServing && (streams == 0 || h.drains):
		waits = WaitsLeaving
	case streams > 0:
		waits = WaitsStreams
	case h.requests.Load() == 0 && !h.prefaced:
		waits = WaitsNew
	default:
		waits = WaitsIdle
	}
	if waits == WaitsIdle && h.active {
		h.setActive(false)
	}
	return waits, deadline
}

// setActive records whether the connection has streams.
func (h *Conn) setActive(active bool) {
	if h.active = active; h.shared.TellsActive {
		h.driver.Active(active)
	}
}

// CloseSoon ends the connection when its streams have ended. Any goroutine may call it.
func (h *Conn) CloseSoon() {
	if !h.closeAsked.Swap(true) {
		h.WakeOwner()
	}
}

// leaves reports whether the connection must end. A connection without a request isn't told to end as soon as the server shuts down: a
// client whose new connection ends before its first request may give up, as net/http's does.
func (h *Conn) leaves() bool {
	switch {
	case h.life != lifeServing:
		return true
	case h.requests.Load() > 0:
		return h.closeAsked.Load() || h.shared.endsConns()
	case !h.shared.Draining.Load():
		return false
	}
	h.drains = true // no stream is parked: a parked one would have to know
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

// WakeOwner gives the connection a turn, unless it has one now. After endWaking it does nothing.
func (h *Conn) WakeOwner() {
	defer h.wakers.Add(-1)
	if h.wakers.Add(1)&wakersOver == 0 {
		h.driver.WakeOwner()
	}
}

// endWaking waits until nobody wakes the owner any more. A late wake-up would end the wait of the lingerer, which has the socket then: its
// client would lose the last answers.
func (h *Conn) endWaking() {
	for h.wakers.Or(wakersOver); h.wakers.Load() != wakersOver; {
		runtime.Gosched()
	}
}

// MustDrain reports whether the server has begun to shut down, and the owner doesn't know it yet. Shutdown wakes the connections that wait.
// So an owner that begins to wait must look once more after setWait.
func (h *Conn) MustDrain() bool {
	return !h.drains && h.life != lifeEnding && h.shared.Draining.Load()
}

// LeaveSoon takes the next step towards the end of a connection whose server shuts down, or that has had enough requests, if it is due.
func (h *Conn) LeaveSoon(t *Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.MustDrain() {
		h.drains = true
		h.wakeParkedLocked()
	}
	if h.life == lifeServing {
		race.Enter(&h.life, lifeLeaving)
		h.leaveTime = h.shared.Clock.Exact().Add(goAwayTime)
		t.out = http2.AppendGoAway(t.out, 1<<31-1, http2.NoError, "")
		t.out = http2.AppendPing(t.out, 0, [8]byte{})
	}
	if h.life == lifeAnswered || h.life == lifeLeaving && h.shared.Clock.Exact() >= h.leaveTime {
		race.Enter(&h.life, lifeLast)
		h.leaveTime, h.lastServed = 0, h.ids.Last()
		t.out = http2.AppendGoAway(t.out, h.lastServed, http2.NoError, "")
	}
	if h.life == lifeLast {
		if h.wakeEmpty = h.counts.Streams() > 0; !h.wakeEmpty {
			race.Enter(&h.life, lifeEnding)
		}
	}
}
