package outbox

import (
	"os"
	"sync"
	"time"
)

// deadline is the deadline of the goroutines that wait until their bytes are sent. The outbox's lock guards the fields.
type deadline struct {
	at    time.Time
	timer *time.Timer // wakes the waiting goroutines at the deadline; nil if no goroutine waits
}

func (d *deadline) passed() bool { return d != nil && !time.Now().Before(d.at) }

// time returns the deadline, or the zero time if there is none.
func (d *deadline) time() time.Time {
	if d == nil {
		return time.Time{}
	}
	return d.at
}

func (d *deadline) stopTimer() {
	if d != nil && d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// waitLocked waits for the next call of wakeLocked.
func (o *Outbox) waitLocked() {
	o.mu.AssertHeld()
	if o.progress == nil {
		o.progress = sync.NewCond(&o.mu)
	}
	o.progress.Wait()
}

// wakeLocked wakes the waiting goroutines.
func (o *Outbox) wakeLocked() {
	o.mu.AssertHeld()
	if o.progress != nil {
		o.progress.Broadcast()
	}
}

// awaitLocked waits until condition returns true. It returns false if condition can't become true any more, or the deadline has passed.
func (o *Outbox) awaitLocked(condition func() bool) bool {
	o.mu.AssertHeld()
	o.waiting++
	if o.socket != nil && !condition() {
		o.mu.Unlock()
		o.socket.LeaveTurn()
		o.mu.Lock()
	}
	for !condition() && o.err == nil && !o.deadline.passed() {
		if d := o.deadline; d != nil && d.timer == nil {
			d.timer = time.AfterFunc(time.Until(d.at), o.deadlineCame)
		}
		o.waitLocked()
	}
	if o.waiting--; o.waiting == 0 {
		o.deadline.stopTimer()
	}
	return condition()
}

// deadlineCame is called by the timer, and makes the waiting goroutines check the deadline.
func (o *Outbox) deadlineCame() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deadline != nil {
		o.deadline.timer = nil
	}
	o.wakeLocked()
}

// SetDeadline sets the deadline for Write and AwaitSent, including calls that are already waiting. The zero time means no deadline.
func (o *Outbox) SetDeadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deadline.stopTimer()
	if t.IsZero() {
		o.deadline = nil
	} else {
		o.deadline = &deadline{at: t}
	}
	if o.waiting > 0 {
		o.wakeLocked() // the waiting goroutines set the timer
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
	return o.deadline.passed()
}

// AwaitSent waits until everything that was queued before is sent. If the deadline passes first, the outbox fails, since queued bytes can't
// be withdrawn.
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
