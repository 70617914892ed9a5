package http2conn

import (
	"time"

	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
)

// This file implements the deadlines of an HTTP/2 connection: everything that its owner does because time has passed, and not because of
// received bytes.

// connDeadline is a deadline of a connection.
type connDeadline struct {
	name string
	// at returns when the deadline passes, as far as is known now; 0 for never. It is called with mu held.
	at func(h *Conn, now clock.Time) clock.Time
	// act is called, without mu, when the deadline has passed. Afterwards the connection must be ending, or the function at must return 0
	// or a time in the future. Otherwise the owner would call act in an endless loop.
	act func(h *Conn, t *Turn, now clock.Time)
}

// deadlines returns the deadlines of a connection, in the order in which Look checks them.
func deadlines() [6]connDeadline {
	return [...]connDeadline{
		{"settings", (*Conn).settingsUntil, (*Conn).settingsLate},
		{"head", (*Conn).headUntil, (*Conn).headLate},
		{"ping", (*Conn).pingAt, (*Conn).ping},
		{"leave", (*Conn).leaveAt, (*Conn).leaveLate},
		{"idle", (*Conn).idleUntilLocked, (*Conn).idleLate},
		{"streams", (*Conn).awaitUntilLocked, (*Conn).awaitedLate},
	}
}

// deadlineLocked returns when the first deadline passes, 0 for never.
func (h *Conn) deadlineLocked(now clock.Time) (first clock.Time) {
	h.mu.AssertHeld()
	for _, d := range deadlines() {
		first = clock.Earlier(first, d.at(h, now))
	}
	return first
}

// hasPassed reports whether a deadline has passed; 0 never does.
func hasPassed(deadline, now clock.Time) bool { return deadline != 0 && now >= deadline }

// Look is called when no input has arrived. It acts on each deadline that has passed, and reports whether there was one. expired says that
// the deadline of the wait has passed, or that the connection must make room for others (Shed).
func (h *Conn) Look(t *Turn, expired bool) (did bool) {
	if !expired {
		return false
	}
	now := h.shared.Clock.Exact()
	if shed := h.Shed; shed {
		if h.Shed = false; h.OpenStreams() == 0 {
			h.goAway(t, http2.NoError, "idle")
			return true
		}
	}
	for _, d := range deadlines() {
		h.mu.Lock()
		passed := hasPassed(d.at(h, now), now)
		h.mu.Unlock()
		if !passed {
			continue
		}
		if d.act(h, t, now); h.life == lifeEnding {
			return true
		}
		did = true
	}
	return did
}

// busyTime is how often the owner acts on deadlines while input arrives without a pause. It is long, so that input that arrived in time, while the
// process was paused, is used before.
const busyTime = time.Second

// LookBusy is called when a turn has ended although there may be more input. It does what Look does when the connection hasn't waited for
// busyTime, so that a client that always has input waiting can't evade its deadlines.
func (h *Conn) LookBusy(t *Turn, now clock.Time) {
	at := uint32(now/clock.Time(time.Millisecond)) | 1 // 4 bytes in each connection, and never 0; the difference is right after an overflow, too
	switch since := time.Duration(at-h.busySince) * time.Millisecond; {
	case h.busySince == 0, since >= 2*busyTime: // turns end much more often, unless the process was paused
		h.busySince = at
	case since >= busyTime:
		h.busySince = at
		h.Look(t, true)
	}
}

// The acknowledgement of SETTINGS.

func (h *Conn) settingsUntil(clock.Time) clock.Time { return h.acks.Deadline() }

func (h *Conn) settingsLate(t *Turn, _ clock.Time) {
	h.shared.Counts.Settings.Add(1)
	h.fail(t, http2.FaultSettingsTimeout)
}

// The rest of the preface, of a frame or of a field block.

func (h *Conn) headUntil(clock.Time) clock.Time {
	if h.headSince == 0 {
		return 0
	}
	return h.headSince.Deadline(h.shared.ReadHeader)
}

func (h *Conn) headLate(t *Turn, _ clock.Time) {
	h.shared.Counts.Head.Add(1)
	h.goAway(t, http2.ProtocolError, "the request head took too long to arrive")
}

// The silence of a client: the server sends a PING, which the client must answer.

// pingTimeout is how long the answer to a PING may take.
const pingTimeout = 15 * time.Second

func (h *Conn) pingAt(clock.Time) clock.Time {
	switch q := h.silence; {
	case q == nil:
		return 0
	case q.asked != 0:
		return q.asked.Add(pingTimeout)
	default:
		return q.heard.Add(h.shared.PingInterval)
	}
}

func (h *Conn) ping(t *Turn, now clock.Time) {
	if h.silence.asked != 0 {
		h.shared.Counts.Ping.Add(1)
		h.goAway(t, http2.NoError, "the client has vanished")
		return
	}
	h.silence.asked = now
	t.out = http2.AppendPing(t.out, 0, [8]byte{})
}

// The next step of LeaveSoon.

// goAwayTime is how long the client may take to answer the PING that follows the first GOAWAY.
const goAwayTime = 100 * time.Millisecond

func (h *Conn) leaveAt(clock.Time) clock.Time { return h.leaveTime }

func (h *Conn) leaveLate(t *Turn, _ clock.Time) { h.LeaveSoon(t) }

// The next request.

// idleUntilLocked returns when a connection without streams has been idle for too long. While there are streams, it returns a time in the
// future at which the owner checks again, since the owner might not be woken when they end. An incomplete frame or field block that began in
// time may be the next request: it has the time that headUntil gives it.
func (h *Conn) idleUntilLocked(now clock.Time) clock.Time {
	h.mu.AssertHeld()
	if h.counts.Streams() > 0 {
		return now.Deadline(h.shared.Idle)
	}
	until := h.used.Deadline(h.shared.Idle)
	if until == 0 || !h.prefaced || h.headSince == 0 || h.headSince >= until {
		return until
	}
	if head := h.headUntil(now); head != 0 {
		return max(until, head)
	}
	return now.Deadline(h.shared.Idle)
}

func (h *Conn) idleLate(t *Turn, _ clock.Time) {
	h.shared.Counts.Idle.Add(1)
	h.goAway(t, http2.NoError, "idle")
}

// Streams without a running handler that wait for their client.

func (h *Conn) awaitUntilLocked(now clock.Time) (first clock.Time) {
	h.mu.AssertHeld()
	if h.awaiting == 0 {
		return 0
	}
	for s := range h.streams.All {
		first = clock.Earlier(first, s.awaitsUntil())
		if s.awaits == awaitsWindow { // if the budget of answers becomes crowded during the wait, the deadline becomes earlier
			first = clock.Earlier(first, now.Deadline(budget.CrowdedGrace(h.shared.Writing.Grace)))
		}
	}
	return first
}

// awaitsUntil returns the deadline of the stream's wait: see awaits. It returns 0 if the wait has no deadline, or if the stream doesn't wait.
func (s *Stream) awaitsUntil() clock.Time {
	switch s.awaits {
	case awaitsBody:
		return s.ReadPace.Deadline(s.awaitsSince, s.h.shared.Reading)
	case awaitsEnd:
		return s.awaitsSince.Add(restTime)
	case awaitsWindow:
		return s.windowDeadline(s.awaitsSince)
	}
	return 0
}

func (h *Conn) awaitedLate(_ *Turn, now clock.Time) {
	counts := &h.shared.Counts
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams.All {
		if !hasPassed(s.awaitsUntil(), now) {
			continue
		}
		switch s.awaits {
		case awaitsBody:
			s.endLateLocked() // the handler runs, and its read returns the error
			h.leaveUndecided(s)
		case awaitsEnd:
			counts.Body.Add(1)
			h.breakOffLocked(s, http2.NoError) // the answer is complete; if a time-out has sent it, the handler may still be reading
		case awaitsWindow:
			if s.isExcusedLocked(now) {
				continue
			}
			counts.Write.Add(1)
			h.breakOffLocked(s, http2.Cancel)
		}
	}
}
