package filo

import (
	"sync"
	"sync/atomic"
	"time"
)

// coarseClock is one cached time, and a ready-made Date line, for everything that needs no better than its tick: idle
// workers, deadlines, answers. Reading it is an atomic load.
//
// It ticks only while a server runs and somebody reads it: after a few ticks without a reader it rests, and the next
// reader gets the exact time and wakes it. So an idle server uses no processor, and no reader sees a time that is more than about a tick old.
type coarseClock struct {
	cached atomic.Int64             // nanoseconds since base; 0 while the clock rests or doesn't run
	date   atomic.Pointer[dateLine] // nil as long as cached is 0
	read   atomic.Bool              // somebody has read since the last tick

	mu      sync.Mutex
	wake    chan struct{} // nil while the clock doesn't run; guarded by mu
	stopped chan struct{} // closed when the ticker has ended; guarded by mu
}

type dateLine struct {
	second int64
	line   []byte // "Date: …\r\n", never changed
}

// idleTicks is after how many ticks without a reader the clock rests.
const idleTicks = 10

// clockTick returns the tick that suits the shortest duration that is measured with the clock.
func clockTick(shortest time.Duration) time.Duration {
	return min(max(shortest/20, 500*time.Microsecond), 100*time.Millisecond)
}

// processStart is the base of the clocks, so that the times of one that was stopped and started again don't go back.
var processStart = time.Now().Add(-time.Second)

// start lets the clock run.
func (c *coarseClock) start(tick time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake, c.stopped = make(chan struct{}, 1), make(chan struct{})
	go c.run(tick, c.wake, c.stopped)
}

// stop ends the clock. Reading it goes on giving the right time, at the price of a system's clock.
func (c *coarseClock) stop() {
	c.mu.Lock()
	wake, stopped := c.wake, c.stopped
	c.wake = nil
	c.mu.Unlock()
	if wake != nil {
		close(wake)
		<-stopped
	}
}

// exact returns the time in nanoseconds, on the scale of now.
func (c *coarseClock) exact() int64 { return int64(time.Since(processStart)) }

// now returns the time in nanoseconds, always over 0, as of the last tick.
func (c *coarseClock) now() int64 {
	cached := c.cached.Load()
	if cached == 0 {
		return c.wakeUp()
	}
	if !c.read.Load() {
		c.read.Store(true)
	}
	return cached
}

// dateLine returns the Date line with its CRLF. It must not be changed.
func (c *coarseClock) dateLine() []byte {
	if date := c.date.Load(); date != nil {
		if !c.read.Load() {
			c.read.Store(true)
		}
		return date.line
	}
	c.wakeUp()
	return newDateLine(time.Now()).line
}

// wakeUp ends the clock's rest, and returns the exact time.
func (c *coarseClock) wakeUp() int64 {
	c.read.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wake != nil {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return c.exact()
}

// run ticks until wake is closed.
func (c *coarseClock) run(tick time.Duration, wake, stopped chan struct{}) {
	defer close(stopped)
	timer := time.NewTicker(tick)
	defer timer.Stop()
	defer c.rest()
	for idle := 0; ; {
		select {
		case <-timer.C:
		case _, running := <-wake:
			if !running {
				return
			}
		}
		if c.read.Swap(false) {
			idle = 0
		} else {
			idle++
		}
		if idle < idleTicks {
			c.tick()
			continue
		}
		timer.Stop()
		c.rest()
		if _, running := <-wake; !running {
			return
		}
		timer.Reset(tick)
		idle = 0
		c.tick()
	}
}

func (c *coarseClock) tick() {
	wall := time.Now()
	if date := c.date.Load(); date == nil || date.second != wall.Unix() {
		c.date.Store(newDateLine(wall))
	}
	c.cached.Store(c.exact())
}

func (c *coarseClock) rest() {
	c.cached.Store(0)
	c.date.Store(nil)
}

func newDateLine(wall time.Time) *dateLine {
	line := append(make([]byte, 0, len("Date: \r\n")+len(timeFormat)), "Date: "...)
	line = wall.UTC().AppendFormat(line, timeFormat)
	return &dateLine{second: wall.Unix(), line: append(line, "\r\n"...)}
}
