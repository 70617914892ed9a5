package outbox

import (
	"os"
	"time"
)

// waits describes the goroutines that wait until their bytes have left, and their deadline. The outbox's lock guards the fields.
//
// timer is set only while goroutines wait and there is a deadline.
type waits struct {
	deadline time.Time // the zero time: none
	count    int
	timer    *time.Timer // wakes them at the deadline
}

func (w *waits) expired() bool { return !w.deadline.IsZero() && !time.Now().Before(w.deadline) }

func (w *waits) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// awaitLocked waits until so returns true. It returns false if that can't happen any more, or the deadline has passed.
func (o *Outbox) awaitLocked(so func() bool) bool {
	o.mu.AssertHeld()
	o.waits.count++
	if o.socket != nil && !so() {
		o.mu.Unlock()
		o.socket.LeaveTurn()
		o.mu.Lock()
	}
	for !so() && o.err == nil && !o.waits.expired() {
		if o.waits.timer == nil && !o.waits.deadline.IsZero() {
			o.waits.timer = time.AfterFunc(time.Until(o.waits.deadline), o.deadlineCame)
		}
		o.progress.Wait()
	}
	if o.waits.count--; o.waits.count == 0 {
		o.waits.stopTimer()
	}
	return so()
}

// deadlineCame makes the waiting goroutines check the deadline.
func (o *Outbox) deadlineCame() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits.timer = nil
	o.progress.Broadcast()
}

// SetDeadline sets the deadline of Write and AwaitSent, also for calls that are waiting. The zero time means none.
func (o *Outbox) SetDeadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits.deadline = t
	o.waits.stopTimer()
	if o.waits.count > 0 {
		o.progress.Broadcast() // the waiting goroutines set the timer
	}
	if o.turn.direct {
		return o.conn.SetWriteDeadline(t)
	}
	return nil
}

// Expired reports whether the deadline has passed.
func (o *Outbox) Expired() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waits.expired()
}

// AwaitSent waits until everything has left that was put before. Nothing can be withdrawn: after its deadline the outbox fails.
func (o *Outbox) AwaitSent() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := &wait{done: o.queue.empty()}
	if !w.done {
		o.queue.add(piece{wait: w})
	}
	if !o.awaitLocked(func() bool { return w.done }) {
		o.failLocked(os.ErrDeadlineExceeded)
	}
	return o.err
}
