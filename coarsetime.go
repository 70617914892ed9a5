package filo

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/race"
)

// coarseClock is a cached time and a prepared Date line, for everything that needs no more precision than its tick: idle
// workers, deadlines, answers. Reading it is an atomic load.
//
// It ticks only between start and stop, and only while somebody reads it: after a few ticks without a reader it rests,
// and the next reader takes the exact time and wakes it. So an idle server uses no processor time, and no reader sees a
// time that is more than about a tick old. A clock that doesn't run gives exact times, at the price of a lock and a
// reading of the system's clock. The zero value is a clock that doesn't run.
type coarseClock struct {
	// cached is the time as of the last tick, and 0 when it may not be used: the clock rests or doesn't run. It is stored
	// only under mu, so that it never goes back, and loaded without mu.
	cached clock.Atomic[clock.Time]
	// date is the Date line for the second of cached. It is stored before cached, so a reader that sees a value of cached finds
	// a line that is no older.
	date atomic.Pointer[dateLine]
	// used says that somebody has read the clock since its last tick. Readers store it only if it isn't set. Otherwise its
	// cache line would go back and forth between the processors.
	used atomic.Bool
	// base is the origin of the clock's scale: one second before the clock was first used, so that no time is 0. It is set once, so
	// a clock that is stopped and started again doesn't go back. Each clock has its own, since a synctest bubble has another time.
	base atomic.Pointer[time.Time]

	mu      race.Mutex
	running bool          // guarded by mu
	wake    chan struct{} // ends a rest; capacity 1, one send per rest; guarded by mu
	quit    chan struct{} // closed by stop; guarded by mu
	ended   chan struct{} // closed when the ticker's goroutine has ended; guarded by mu
}

type dateLine struct {
	second int64
	line   []byte // "Date: …\r\n", never changed
	http2  http2.Literal
}

// restAfter is the number of ticks without a reader after which the clock rests.
const restAfter = 10

const (
	minClockTick = 500 * time.Microsecond
	maxClockTick = 100 * time.Millisecond
)

// clockTick returns the tick for a clock with which shortest is the shortest measured duration: a twentieth of it, at least
// 500 µs, at most 100 ms.
func clockTick(shortest time.Duration) time.Duration {
	return min(max(shortest/20, minClockTick), maxClockTick)
}

// start lets the clock tick. It panics if the clock already runs.
func (c *coarseClock) start(tick time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		panic("filo: coarseClock started twice")
	}
	c.running = true
	c.wake, c.quit, c.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	c.refreshLocked()
	go c.run(tick, c.wake, c.quit, c.ended)
}

// stop ends the clock's goroutine and returns when it has ended. It does nothing if the clock doesn't run.
func (c *coarseClock) stop() {
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

// at converts a time to the clock's scale, the zero time to 0. A time beyond the scale becomes the scale's end.
func (c *coarseClock) at(t time.Time) clock.Time {
	if t.IsZero() {
		return 0
	}
	ahead := time.Until(t)
	if ahead > 0 {
		return c.exact().Add(ahead)
	}
	return max(c.exact()+clock.Time(ahead), 1<<stateBits)
}

// exact returns the exact time, for which it reads the system's clock. It is never before a time that now has returned.
func (c *coarseClock) exact() clock.Time { return clock.Time(time.Since(*c.origin())) }

// origin returns base.
func (c *coarseClock) origin() *time.Time {
	if base := c.base.Load(); base != nil {
		return base
	}
	base := time.Now().Add(-time.Second)
	c.base.CompareAndSwap(nil, &base)
	return c.base.Load()
}

// now returns the time as of the last tick.
func (c *coarseClock) now() clock.Time {
	cached := c.cached.Load()
	if cached == 0 {
		return c.slowNow()
	}
	if !c.used.Load() {
		c.used.Store(true)
	}
	return cached
}

// dateLine returns the Date field line with its CRLF, in IMF-fixdate (RFC 9110, section 5.6.7). It is shared: the caller
// copies it and never changes it.
func (c *coarseClock) dateLine() []byte { return c.today().line }

// dateLiteral is dateLine for HTTP/2.
func (c *coarseClock) dateLiteral() *http2.Literal { return &c.today().http2 }

func (c *coarseClock) today() *dateLine {
	if c.cached.Load() == 0 && !c.wakeUp() {
		return newDateLine(time.Now())
	}
	if !c.used.Load() {
		c.used.Store(true)
	}
	return c.date.Load()
}

// slowNow is now for a clock that rests or doesn't run.
func (c *coarseClock) slowNow() clock.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.wakeUpLocked() {
		return c.exact()
	}
	// Not the exact time: after it, the cached time would be a step back.
	return c.cached.Load()
}

// wakeUp ends the clock's rest. It reports whether the clock runs, so that the cached values may be used.
func (c *coarseClock) wakeUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wakeUpLocked()
}

func (c *coarseClock) wakeUpLocked() bool {
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
func (c *coarseClock) run(tick time.Duration, wake <-chan struct{}, quit <-chan struct{}, ended chan<- struct{}) {
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

// tick brings the time up to date.
func (c *coarseClock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		c.refreshLocked()
	}
}

// catchUp brings the time up to date while the clock ticks: a pause of the process leaves it behind.
func (c *coarseClock) catchUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running && c.cached.Load() != 0 {
		c.refreshLocked()
	}
}

// rest marks the time as stale. The next reader wakes the clock.
func (c *coarseClock) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cached.Store(0)
}

// refreshLocked stores the time, and the Date line if its second has changed. It asks the wall clock every time, since that may
// be set forwards or back.
func (c *coarseClock) refreshLocked() {
	c.mu.AssertHeld()
	base, wall := c.origin(), time.Now()
	if date := c.date.Load(); date == nil || date.second != wall.Unix() {
		c.date.Store(newDateLine(wall))
	}
	c.cached.Store(clock.Time(wall.Sub(*base)))
}

func newDateLine(wall time.Time) *dateLine {
	line := append(make([]byte, 0, len("Date: \r\n")+len(timeFormat)), "Date: "...)
	line = wall.UTC().AppendFormat(line, timeFormat)
	literal := http2.NewLiteral("date", string(line[len("Date: "):]))
	return &dateLine{second: wall.Unix(), line: append(line, "\r\n"...), http2: literal}
}
