package main

import (
	"fmt"
	"runtime"
	"time"
)

// cell is one combination of task, submitters and capacity.
type cell struct {
	kind       *kind
	submitters int
	capacity   int
}

func (c cell) String() string {
	return fmt.Sprintf("%s, cap %d, submitters %d", c.kind.name, c.capacity, c.submitters)
}

// order is what a process is told to measure.
type order struct {
	Pool       string
	Kind       string
	Submitters int
	Capacity   int
	Loops      int // of spin, per microsecond

	// A run takes Time after a warm-up, or is Total tasks without one. The other is 0.
	Time   time.Duration
	Warmup time.Duration
	Total  int

	SampleEvery int
}

func (c cell) order(p *peer, length time.Duration, loops int) order {
	return order{
		Pool: p.name, Kind: c.kind.name, Submitters: c.submitters, Capacity: c.capacity, Loops: loops,
		Time: c.length(length), Warmup: length / 4, SampleEvery: c.sampleEvery(length),
	}
}

// slots is how many of the tasks can be under way at once.
func (c cell) slots() int {
	if c.kind.sleeps {
		return c.capacity
	}
	return min(c.capacity, runtime.GOMAXPROCS(0))
}

// length returns how long a run is: as asked for, but long enough for a full pool's tasks, or a task of each submitter,
// to be done five times over. In less there would be no share and no wait to speak of. Below 2,000 tasks what the
// process itself needs would show.
func (c cell) length(asked time.Duration) time.Duration {
	const turns, fewest = 5, 2000
	tasks := max(turns*c.submitters, turns*c.capacity, fewest)
	return max(asked, c.kind.lasts*time.Duration(tasks)/time.Duration(c.slots()))
}

// sampleEvery is 64, or 1 if there can be few tasks: their waits make no difference to what they cost then.
func (c cell) sampleEvery(asked time.Duration) int {
	const few = 20_000
	if c.kind.lasts > 0 && int64(c.length(asked)/c.kind.lasts)*int64(c.slots()) < few {
		return 1
	}
	return 64
}
