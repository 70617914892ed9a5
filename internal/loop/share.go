//go:build linux

package loop

import (
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/sock"
)

const (
	// shareTime is how long a busy leader measures its share of the processor before it evaluates the share.
	shareTime = 5 * time.Millisecond
	// If the leader's thread hasn't run for more than lostShare percent of the measured time, the leader lacks a processor of its own.
	lostShare = 20
)

// share measures a leader's share of its processor: the part of the elapsed time in which its thread has run. It measures only while the
// leader is busy without a break.
type share struct {
	thread int           // the thread that ran the leader at begin; 0: not measuring
	wall   clock.Nanos   // when begin was called
	cpu    time.Duration // the thread's running time at that moment
	took   time.Duration // the time that was measured from begin to end, summed up
	lost   time.Duration // part of took in which the thread didn't run
}

// begin begins to measure the calling thread.
func (s *share) begin() {
	s.wall = clock.Nanotime()
	s.thread, s.cpu = sock.ThreadTime()
}

// end adds the time since begin. If another thread runs the leader now, the share is unknown, and end adds nothing.
func (s *share) end() {
	if s.thread == 0 {
		return
	}
	took := clock.Nanotime().Sub(s.wall)
	if thread, cpu := sock.ThreadTime(); thread == s.thread {
		s.took += took
		s.lost += max(took-(cpu-s.cpu), 0)
	}
	s.thread = 0
}

// over reports whether enough was measured and, if so, whether the leader had to share its processor.
func (s *share) over() (over, shared bool) {
	if s.took < shareTime {
		return false, false
	}
	shared = s.lost > s.took*lostShare/100
	s.took, s.lost = 0, 0
	return true, shared
}
