package clock

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/race"
)

// Coarse is a clock that caches the time, for uses that need no more precision than its tick: idle workers, deadlines, the Date line. Reading the
// clock is an atomic load.
//
// The clock ticks only between Start and Stop, and only while it is read. After a few ticks without a reader the clock rests. The next reader takes
// the exact time and wakes the clock. So an idle server uses no processor time, and no reader sees a time that is more than about a tick old. A clock
// that doesn't run returns exact times, which costs a lock and a read of the system's clock. The zero value is a clock that doesn't run.
type Coarse struct {
	// cached is the time as of the last tick. It is 0 while the clock rests or doesn't run. It is stored
	// only under mu, so that it never goes back, and loaded without mu.
	cached Atomic[Time]
	// used says that somebody has read the clock since its last tick. Readers store it only if it isn't set. Otherwise its
	// cache line would go back and forth between the processors.
	used atomic.Bool
	// base is the origin of the clock's scale: one second before the clock was first used, so that no time is 0. It is set once, so
	// a clock that is stopped and started again doesn't go back. Each clock has its own origin, since the time in a synctest bubble differs from the
	// time outside.
	base atomic.Pointer[time.Time]

	mu        race.Mutex[race.OfClock]
	running   bool                 // guarded by mu
	refreshed func(wall time.Time) // see Start; guarded by mu
	wake      chan struct{}        // ends a rest; capacity 1, one send per rest; guarded by mu
	quit      chan struct{}        // closed by Stop; guarded by mu
	ended     chan struct{}        // closed when the ticker's goroutine has ended; guarded by mu
}

// restAfter is the number of ticks without a reader after which the clock rests.
const restAfter = 10

// MinTick and MaxTick limit what Tick returns.
const (
	MinTick = 500 * time.Microsecond
	MaxTick = 100 * time.Millisecond
)

// Tick returns the tick for a clock; shortest is the shortest duration that the clock measures. The tick is 1/20 of this duration, but at least
// 500 µs and at most 100 ms.
func Tick(shortest time.Duration) time.Duration {
	return min(max(shortest/20, MinTick), MaxTick)
}

// Start starts the clock's ticks. It panics if the clock already runs. refreshed is called with the wall clock's time whenever the cached time
// is about to be updated, one call at a time.
func (c *Coarse) Start(tick time.Duration, refreshed func(wall time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		panic("filo: a coarse clock was started twice")
	}
	c.running, c.refreshed = true, refreshed
	c.wake, c.quit, c.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	c.refreshLocked()
	go c.run(tick, c.wake, c.quit, c.ended)
}

// Stop ends the clock's goroutine and returns when it has ended. It does nothing if the clock doesn't run.
func (c *Coarse) Stop() {
	c.mu.Lock()
	if c.running {
		c.running = false
		c.cached.Store(0)
		close(c.quit)
	}
	ended := c.ended
	c.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// At converts a time to the clock's scale, the zero time to 0. A time beyond the scale becomes the scale's end.
func (c *Coarse) At(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	ahead := time.Until(t)
	if ahead > 0 {
		return c.Exact().Add(ahead)
	}
	return max(c.Exact()+Time(ahead), Earliest)
}

// Exact returns the exact time, for which it reads the system's clock. It is never before a time that Now has returned.
func (c *Coarse) Exact() Time { return Time(time.Since(*c.origin())) }

// origin returns base.
func (c *Coarse) origin() *time.Time {
	if base := c.base.Load(); base != nil {
		return base
	}
	base := time.Now().Add(-time.Second)
	c.base.CompareAndSwap(nil, &base)
	return c.base.Load()
}

// Now returns the time as of the last tick.
func (c *Coarse) Now() Time {
	cached := c.cached.Load()
	if cached == 0 {
		return c.slowNow()
	}
	if !c.used.Load() {
		c.used.Store(true)
	}
	return cached
}

// Ticks reports whether the clock runs. If it does, the last call of refreshed was at most about a tick ago. Like Now, it wakes a clock
// that rests.
func (c *Coarse) Ticks() bool {
	if c.cached.Load() == 0 {
		return c.wakeUp()
	}
	if !c.used.Load() {
		c.used.Store(true)
	}
	return true
}

// slowNow is Now for a clock that rests or doesn't run.
func (c *Coarse) slowNow() Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.wakeUpLocked() {
		return c.Exact()
	}
	// The exact time isn't returned, because the cached time that the next reader gets may be earlier.
	return c.cached.Load()
}

// wakeUp ends the clock's rest. It reports whether the clock runs, which means that the cached values are valid.
func (c *Coarse) wakeUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wakeUpLocked()
}

func (c *Coarse) wakeUpLocked() bool {
	c.mu.AssertHeld()
	if !c.running {
		return false
	}
	c.used.Store(true)
	if c.cached.Load() == 0 {
		// The first reader refreshes the time itself, so that no reader waits for the ticker's goroutine.
		c.refreshLocked()
		c.wake <- struct{}{}
	}
	return true
}

// run ticks until quit is closed.
func (c *Coarse) run(tick time.Duration, wake <-chan struct{}, quit <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for unused := 0; ; {
		select {
		case <-ticker.C:
		case <-quit:
			return
		}
		unused++
		if c.used.Swap(false) {
			unused = 0
		}
		if unused < restAfter {
			c.tick()
			continue
		}
		unused = 0
		ticker.Stop()
		c.rest()
		select {
		case <-wake:
		case <-quit:
			return
		}
		ticker.Reset(tick)
	}
}

// tick updates the time.
func (c *Coarse) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		c.refreshLocked()
	}
}

// CatchUp updates the cached time of a clock that ticks. It is called after a pause of the process, when the cached time is stale.
func (c *Coarse) CatchUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running && c.cached.Load() != 0 {
		c.refreshLocked()
	}
}

// rest marks the time as stale. The next reader wakes the clock.
func (c *Coarse) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cached.Store(0)
}

// refreshLocked stores the time. It reads the wall clock every time, because somebody may set the wall clock forwards or backwards. A
// reader that sees the new time must also see the data that refreshed has derived from it.
func (c *Coarse) refreshLocked() {
	c.mu.AssertHeld()
	base, wall := c.origin(), time.Now()
	c.refreshed(wall)
	c.cached.Store(Time(wall.Sub(*base)))
}
