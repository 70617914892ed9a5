package outbox

import (
	"os"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/sock"
)

const (
	// DefaultLimit is how many bytes of messages may wait, unless SetLimit was called.
	DefaultLimit = 256 << 10
	// maxOwnRecords is by how many bytes the records that TLS sends by itself may exceed the limit.
	maxOwnRecords = 64 << 10
)

// admits reports whether a message of size bytes may wait in addition to the waiting bytes. A message may always wait if no other does.
func admits(waiting, size, limit int) bool { return waiting == 0 || waiting+size <= limit }

// stall watches how fast the client takes the bytes that wait. A timer checks at intervals how many bytes the client has taken. This
// includes the bytes that have left the system's buffer, since the socket has no room until long after a slow client has begun to take
// bytes. The outbox's lock guards the fields.
//
// A stall exists only while the client is watched.
type stall struct {
	timer    *time.Timer
	pace     pace.Pace  // the client's use of its time since the watch began
	looked   clock.Time // the time of the last check, or of the beginning of the watch
	next     clock.Time // the time of the next check
	until    clock.Time // when the client counts as too slow if it takes no more bytes
	moved    int        // bytes that the socket has taken since the last check
	buffered int        // bytes in the system's buffer at the last check; -1 before the first check
}

// took records that the socket has taken n bytes.
func (s *stall) took(n int) {
	if s != nil {
		s.moved += n
	}
}

// late reports whether the client is too slow. If it isn't, late sets the timer for the next check. buffered is the number of bytes in the
// system's buffer, negative if it isn't known.
func (s *stall) late(limits pace.Limits, now clock.Time, buffered int) bool {
	if s == nil || now < s.next {
		return false // the timer of an earlier watch has fired
	}
	taken := s.moved
	switch {
	case buffered < 0:
	case s.buffered < 0:
		taken = max(taken, 1) // it isn't known how many bytes the client has taken before the first check
	case buffered != s.buffered: // the buffer can hold more than before only if the client has made room
		taken = max(s.moved+s.buffered-buffered, 1)
	}
	s.pace.Add(limits, taken, now.Sub(s.looked))
	if taken > 0 {
		s.until = s.pace.Deadline(now, limits)
	}
	if now >= s.until {
		return true
	}
	s.looked, s.next, s.moved, s.buffered = now, min(s.until, now.Add(limits.Look())), 0, buffered
	s.timer.Reset(s.next.Sub(now))
	return false
}

// watchLocked begins to watch the client, unless the client is watched already or may take any time.
func (o *Outbox) watchLocked() {
	o.mu.AssertHeld()
	if o.stall != nil || o.err != nil {
		return
	}
	if limits := o.owner.Limits(); limits.Grace >= 0 {
		now := o.owner.Now()
		o.stall = &stall{looked: now, next: now.Add(limits.Look()), until: now.Add(limits.Grace), buffered: -1}
		o.stall.timer = time.AfterFunc(limits.Look(), o.checkPace)
	}
}

// endWatchLocked ends the watch.
func (o *Outbox) endWatchLocked() {
	o.mu.AssertHeld()
	if o.stall != nil {
		o.stall.timer.Stop()
		o.stall = nil
	}
}

// checkPace disconnects a client that is too slow.
func (o *Outbox) checkPace() {
	if o.tooSlow() {
		o.owner.Disconnect(os.ErrDeadlineExceeded)
	}
}

func (o *Outbox) tooSlow() bool {
	waits, buffered := o.socket == nil || o.owner.HasMore(), o.buffered()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue.empty() && !waits { // see PumpLater: everything was sent before the socket reported room
		o.endWatchLocked()
		return false
	}
	late := o.err == nil && o.stall.late(o.owner.Limits(), o.owner.Now(), buffered)
	if late {
		o.failLocked(os.ErrDeadlineExceeded)
	}
	return late
}

// buffered returns how many bytes are in the system's buffer for the client; -1 if that isn't known.
func (o *Outbox) buffered() int {
	n, ok := 0, false
	if o.socket != nil {
		n, ok = o.socket.Buffered()
	} else {
		n, ok = sock.Buffered(o.conn)
	}
	if !ok {
		return -1
	}
	return n
}
