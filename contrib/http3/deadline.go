package http3filo

import (
	"sync"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// deadline limits the waits of one direction of a stream. With a deadline of its own, QUIC's stream would read the clock for each packet and start
// a timer for each wait. So the stream has none until a wait must end. The timer that ends the wait is rarely set: a later limit leaves it alone,
// and it is set again when it fires.
type deadline struct {
	clock *clock.Coarse
	set   func(time.Time) error // sets the stream's deadline

	mu    sync.Mutex
	until clock.Time  // what the handler has set, or 0; guarded by mu
	due   clock.Time  // when the latest wait must end, or 0; guarded by mu
	isSet bool        // the stream has a deadline; guarded by mu
	timer *time.Timer // calls ring; guarded by mu
	rings clock.Time  // when the timer fires, or 0; guarded by mu
}

// begin begins a wait that must end when due comes, or when the handler's own deadline does. 0 is no limit.
func (d *deadline) begin(due, now clock.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.due = due
	d.applyLocked(now)
}

// setUntil sets the handler's own deadline, for this wait and later ones.
func (d *deadline) setUntil(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = d.clock.At(at)
	d.applyLocked(d.clock.Exact())
}

// isPastUntil reports whether the handler's own deadline has passed.
func (d *deadline) isPastUntil() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.until != 0 && d.until <= d.clock.Exact()
}

// setNow sets the stream's deadline until the next wait begins.
func (d *deadline) setNow(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set(at)
	d.isSet = true
}

// stop ends the timer, which would keep the request's memory.
func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.due, d.until = 0, 0; d.timer != nil {
		d.timer.Stop()
	}
}

func (d *deadline) ring() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rings = 0
	d.applyLocked(d.clock.Exact())
}

// applyLocked sets the stream's deadline if a limit has passed. Otherwise the timer fires when the next limit comes, or earlier.
func (d *deadline) applyLocked(now clock.Time) {
	at := d.due
	if d.until != 0 && (at == 0 || d.until < at) {
		at = d.until
	}
	ends := at != 0 && at <= now
	switch {
	case ends:
		d.set(clock.Past)
	case d.isSet:
		d.set(time.Time{})
	}
	d.isSet = ends
	if ends || at == 0 || d.rings != 0 && d.rings <= at {
		return
	}
	d.rings = at
	if d.timer == nil {
		d.timer = time.AfterFunc(at.Sub(now), d.ring)
	} else {
		d.timer.Reset(at.Sub(now))
	}
}
