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
	// maxOwnRecords is how many more bytes may wait for records that TLS sends by itself.
	maxOwnRecords = 64 << 10
)

// admits reports whether size more bytes of a message may wait in addition to those that wait already. A single message may always wait.
func admits(waiting, size, limit int) bool { return waiting == 0 || waiting+size <= limit }

// stall watches the client while bytes wait for it. Now and then it checks how many bytes the client has taken. It counts the bytes taken
// from the system's buffer, too, because the socket has no room again until long after a slow client has begun to take them. The outbox's
// lock guards the fields.
//
// It exists only while the client is watched.
type stall struct {
	timer    *time.Timer
	pace     pace.Pace  // since the watch began
	looked   clock.Time // the time of the last check, or when the watch began
	next     clock.Time // the time of the next check
	until    clock.Time // when the client counts as too slow if it takes no more bytes
	moved    int        // bytes that the socket has taken since the last check
	buffered int        // in the system's buffer at the last check; -1 before the first
}

// took records that the socket has taken n bytes.
func (s *stall) took(n int) {
	if s != nil {
		s.moved += n
	}
}

// late reports whether the client is too slow. If not, it sets the timer for another check. buffered is the number of bytes in the system's
// buffer, negative if unknown.
func (s *stall) late(limits pace.Limits, now clock.Time, buffered int) bool {
	if s == nil || now < s.next {
		return false // a timer of an earlier watch
	}
	taken := s.moved
	switch {
	case buffered < 0:
	case s.buffered < 0:
		taken = max(taken, 1) // the bytes taken before the first check are unknown
	case buffered != s.buffered: // more is in the buffer if the client has made room
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

// watchLocked watches the client, unless the client may take as long as it wants.
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
	if o.queue.empty() && !waits { // see PumpLater: the rest was sent before the socket has said that it has room
		o.endWatchLocked()
		return false
	}
	late := o.err == nil && o.stall.late(o.owner.Limits(), o.owner.Now(), buffered)
	if late {
		o.failLocked(os.ErrDeadlineExceeded)
	}
	return late
}

// buffered returns how many bytes the system keeps for the client; -1 if that isn't known.
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
