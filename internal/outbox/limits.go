package outbox

import (
	"os"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/pace"
)

const (
	// DefaultLimit is how many bytes of messages may wait unless SetLimit says otherwise.
	DefaultLimit = 256 << 10
	// maxOwnRecords is how much more may wait of what TLS has to say by itself.
	maxOwnRecords = 64 << 10
)

// admits reports whether size more bytes may wait, of a message, where so many wait already. One message always may.
func admits(waiting, size, limit int) bool { return waiting == 0 || waiting+size <= limit }

// stall watches a client while something waits for it. What a socket's buffers take at once may have earned the client much time, so
// the client must take something in each grace period as well as keep up the rate. It has no lock of its own: it is guarded by its
// outbox's.
//
// timer is set if and only if the client is watched.
type stall struct {
	timer  *time.Timer
	pace   pace.Pace  // since the watch began
	looked clock.Time // when the last look was, or the watch began
	moved  int64      // by then
}

// begin begins to watch: check is called on a goroutine of its own after the first grace period.
func (s *stall) begin(grace time.Duration, now clock.Time, check func()) {
	*s = stall{looked: now, timer: time.AfterFunc(grace, check)}
}

// took takes note that the client has taken n bytes.
func (s *stall) took(n int) { s.pace.Add(n, 0) }

// end ends the watch.
func (s *stall) end() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// late reports whether the client is too slow. If not, there is another look after the next grace period.
func (s *stall) late(limits pace.Limits, now clock.Time) bool {
	if s.timer == nil || now.Sub(s.looked) < limits.Grace {
		return false // the timer of a watch that is over
	}
	s.pace.Add(0, now.Sub(s.looked))
	if moved := s.pace.Moved() - s.moved; moved == 0 || s.pace.Late(limits, moved) {
		return true
	}
	s.moved, s.looked = s.pace.Moved(), now
	s.timer.Reset(limits.Grace)
	return false
}

// watchLocked has the client watched, if there is a limit.
func (o *Outbox) watchLocked() {
	o.mu.AssertHeld()
	if o.stall.timer != nil || o.err != nil {
		return
	}
	if grace := o.owner.Limits().Grace; grace >= 0 {
		o.stall.begin(grace, o.owner.Now(), o.checkPace)
	}
}

// checkPace disconnects a client that is too slow.
func (o *Outbox) checkPace() {
	if o.tooSlow() {
		o.owner.Disconnect()
	}
}

func (o *Outbox) tooSlow() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	late := o.err == nil && o.stall.late(o.owner.Limits(), o.owner.Now())
	if late {
		o.failLocked(os.ErrDeadlineExceeded)
	}
	return late
}
