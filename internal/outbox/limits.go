package outbox

import (
	"os"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/pace"
)

const (
	// DefaultLimit is how many bytes of messages may wait, unless SetLimit was called.
	DefaultLimit = 256 << 10
	// maxOwnRecords is how many more bytes may wait of records that TLS sends by itself.
	maxOwnRecords = 64 << 10
)

// admits reports whether size more bytes of a message may wait behind so many. A single message may always wait.
func admits(waiting, size, limit int) bool { return waiting == 0 || waiting+size <= limit }

// stall watches the client while bytes wait for it. The bytes that the socket's buffers took at once may have earned the client much
// time. So in addition to the average rate the client must take something in each grace period. The outbox's lock guards the fields.
//
// There is one only while the client is watched.
type stall struct {
	timer  *time.Timer
	pace   pace.Pace  // since the watch began
	looked clock.Time // the time of the last look, or when the watch began
	moved  int64      // bytes taken until then
}

// took notes that the client has taken n bytes.
func (s *stall) took(n int) {
	if s != nil {
		s.pace.Add(n, 0)
	}
}

// late reports whether the client is too slow. If not, the timer checks again after the next grace period.
func (s *stall) late(limits pace.Limits, now clock.Time) bool {
	if s == nil || now.Sub(s.looked) < limits.Grace {
		return false // a timer of an earlier watch
	}
	s.pace.Add(0, now.Sub(s.looked))
	if moved := s.pace.Moved() - s.moved; moved == 0 || s.pace.Late(limits, moved) {
		return true
	}
	s.moved, s.looked = s.pace.Moved(), now
	s.timer.Reset(limits.Grace)
	return false
}

// watchLocked watches the client, unless it may wait for ever.
func (o *Outbox) watchLocked() {
	o.mu.AssertHeld()
	if o.stall != nil || o.err != nil {
		return
	}
	if grace := o.owner.Limits().Grace; grace >= 0 {
		o.stall = &stall{looked: o.owner.Now(), timer: time.AfterFunc(grace, o.checkPace)}
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
		o.owner.Disconnect()
	}
}

func (o *Outbox) tooSlow() bool {
	waits := o.socket == nil || o.owner.HasMore()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue.empty() && !waits { // see PumpLater: the rest was sent before the socket has said that it has room
		o.endWatchLocked()
		return false
	}
	late := o.err == nil && o.stall.late(o.owner.Limits(), o.owner.Now())
	if late {
		o.failLocked(os.ErrDeadlineExceeded)
	}
	return late
}
