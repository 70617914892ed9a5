package http3filo

import (
	"sync"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// deadline limits how long reads or writes of a stream wait. A deadline of the QUIC stream itself would make quic-go read the clock for each packet
// and start a timer for each wait. So deadline uses a timer of its own, and sets the stream's deadline only when a wait must end. The timer is
// rarely set: if the limit moves to a later time, the timer stays, and is set again when it fires.
type deadline struct {
	clock *clock.Coarse
	set   func(time.Time) error // sets the stream's deadline

	mu    sync.Mutex
	until clock.Time  // the deadline that the handler has set, or 0; guarded by mu
	due   clock.Time  // when the latest wait must end, or 0; guarded by mu
	isSet bool        // the stream has a deadline; guarded by mu
	timer *time.Timer // calls ring; guarded by mu
	rings clock.Time  // when the timer fires, or 0; guarded by mu
}

// begin begins a wait that must end at due or at the handler's own deadline, whichever is earlier. A due of 0 is no limit.
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

// stop stops the timer, which would otherwise keep the request's memory.
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

// applyLocked sets the stream's deadline if a limit has passed. Otherwise it makes sure that the timer fires not later than the next limit.
func (d *deadline) applyLocked(now clock.Time) {
	at := clock.Earlier(d.due, d.until)
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
