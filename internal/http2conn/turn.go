package http2conn

import (
	"runtime"
	"sync/atomic"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/race"
)

// This file implements the turns of an HTTP/2 connection: how a worker lends its buffers to the connection, how the connection moves to
// another worker, what the connection waits for between turns, and how it ends. Both drivers use these functions.

// BeginTurn lends the worker's buffers to the connection.
func (h *Conn) BeginTurn(t *Turn) {
	t.owned = h
	if h.in != nil {
		t.In.TakeOver(h.in)
		h.in = nil
	}
}

// Received records that the driver has read n bytes into space.
func (h *Conn) Received(t *Turn, space []byte, n int) {
	if t.In.Received(n); n == len(space) {
		t.In.Enlarge() // more bytes are probably waiting in the socket
	}
	if n == 0 {
		return
	}
	if h.Shed = false; h.silence != nil {
		*h.silence = silence{heard: h.shared.Clock.Now()}
	}
}

// EndTurn returns the buffers to the worker, and saves the input that hasn't been processed.
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

// giveAwayLocked prepares the connection for another worker. The worker that has owned it runs the handler of the turn's stream.
func (h *Conn) giveAwayLocked(t *Turn) {
	h.mu.AssertHeld()
	h.listLocked(t.Stream)
	h.pushLocked(t)
	// The connection keeps the buffer with its input. So the next worker copies nothing, and a handler that waits long holds no buffer.
	in := *t.In
	h.in, *t.In = &in, http1.Input{}
}

// GiveAway prepares the connection for another worker: see giveAwayLocked. Afterwards the caller doesn't own it any more.
func (h *Conn) GiveAway(t *Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giveAwayLocked(t)
	t.owned = nil
}

// Disown allows the monitor to take the connection from its owner while the owner runs the handler of the turn's stream.
func (h *Conn) Disown(t *Turn) { h.inline.Store(t) }

// IsDisowned reports whether the monitor may still take the connection. If it returns false between Disown and Own, the monitor has taken
// the connection, and the caller must call WasTaken.
func (h *Conn) IsDisowned(t *Turn) bool { return h.inline.Load() == t }

// Own takes the connection back after Disown. It returns false if the monitor has taken the connection: then the caller must call WasTaken.
func (h *Conn) Own(t *Turn) bool { return h.inline.CompareAndSwap(t, nil) }

// WasTaken records that the monitor has taken the connection. Once WasTaken returns, the monitor doesn't access the turn any more.
func (h *Conn) WasTaken(t *Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.owned = nil
}

// TakeAway takes the connection, with the input and output that the turn holds for it, from a worker that runs a handler inline. Afterwards
// the caller owns the connection. TakeAway returns the turn, or nil if no handler runs inline. It calls the function taken with mu held, so
// before WasTaken can return.
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
	WaitsNew     Waits = iota // the first bytes of a new connection
	WaitsIdle                 // the next request
	WaitsStreams              // frames while streams are open
	WaitsLeaving              // frames after the first GOAWAY
)

// maxIdleText is the capacity up to which an idle connection keeps the memory for decoded field blocks. Most blocks fit, so the next one needs no
// new memory.
const maxIdleText = 12 << 10

// Wait returns what the connection waits for, and the deadline of the wait. partial says that an incomplete frame was received.
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
	// If TellsActive is set, the owner must wake when the last stream ends, to call Driver.Active(false).
	h.wakeEmpty = h.wakeEmpty || streams > 0 && h.shared.TellsActive
	if streams == 0 {
		h.schedule.Trim()
	}
	deadline = h.deadlineLocked(now)
	h.mu.Unlock()
	h.trimPending()
	h.busySince = 0
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
	if waits == WaitsIdle {
		h.decoder.Trim(maxIdleText)
		if h.active {
			h.setActive(false)
		}
	}
	return waits, deadline
}

// setActive records whether the connection has streams, and reports it to the driver.
func (h *Conn) setActive(active bool) {
	if h.active = active; h.shared.TellsActive {
		h.driver.Active(active)
	}
}

// CloseSoon makes the connection end when its streams have ended. Any goroutine may call it.
func (h *Conn) CloseSoon() {
	if !h.closeAsked.Swap(true) {
		h.WakeOwner()
	}
}

// leaves reports whether the connection must end. When the server shuts down, a connection that hasn't had a request gets some time first
// (FirstRequest): a client whose new connection ends before its first request may give up, as net/http's does.
func (h *Conn) leaves() bool {
	switch {
	case h.life != lifeServing:
		return true
	case h.requests.Load() > 0:
		return h.closeAsked.Load() || h.shared.endsConns()
	case !h.shared.Draining.Load():
		return false
	}
	h.drains = true // without a request there is no parked stream, which would have to be woken
	now := h.shared.Clock.Exact()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaveTime == 0 {
		h.leaveTime = now.Add(h.shared.FirstRequest(now.Sub(h.used)))
	}
	return now >= h.leaveTime
}

// wakers counts the goroutines that are in WakeOwner. The bit wakersOver is set when the connection has ended.
type wakers struct{ atomic.Int32 }

const wakersOver = 1 << 30

// WakeOwner schedules a turn of the connection, unless it is in a turn. After endWaking it does nothing.
func (h *Conn) WakeOwner() {
	defer h.wakers.Add(-1)
	if h.wakers.Add(1)&wakersOver == 0 {
		h.driver.WakeOwner()
	}
}

// endWaking waits until no goroutine is in WakeOwner. After that the lingerer may own the socket. A late wake-up would end the lingerer's
// wait, and the client would lose the last answers.
func (h *Conn) endWaking() {
	for h.wakers.Or(wakersOver); h.wakers.Load() != wakersOver; {
		runtime.Gosched()
	}
}

// MustDrain reports whether the server has begun to shut down and the owner hasn't noticed it yet. A shutdown wakes the connections that
// wait. So an owner that begins to wait must call MustDrain once more after the driver's setWait.
func (h *Conn) MustDrain() bool {
	return !h.drains && h.life != lifeEnding && h.shared.Draining.Load()
}

// LeaveSoon takes the next step in ending a connection, if it is time for that step. It is called for connections for which leaves returns
// true, or whose leaveTime has passed.
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
