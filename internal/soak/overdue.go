package main

import (
	"fmt"
	"time"

	"github.com/filohttp/filo/internal/hooks"
)

const (
	// overdueTime is how long a connection may wait although its input or room is there, if its loop has looked for events that often
	// meanwhile. The first checks would find the event; the others are for a busy machine, where goroutines stand still between two
	// statements. The time is less than a second, after which a read of a body checks by itself whether it has missed input.
	overdueTime, overdueLooks = 700 * time.Millisecond, 40
	// starvedTime is how long such a connection, or a request in the queue while a place is free, may wait in any case: on a busy machine
	// the loop, or the goroutine that has just left a place, may not get to run.
	starvedTime = 20 * time.Second
	// lookTime is the time between two checks of the connections. If the process is stopped for longer, that time counts as one lookTime.
	lookTime = 50 * time.Millisecond
)

// watchOverdue makes the run fail if the server forgets to wake a goroutine or a connection, until ended is closed. A client would hardly
// notice: when most waits time out, they check once more, find the input, and go on. overdue is inside.Overdue for the server.
func (r *run) watchOverdue(overdue func(found func(hooks.OverdueWait)), ended <-chan struct{}) {
	type wait struct {
		hooks.OverdueWait
		lasts time.Duration
	}
	before := map[any]wait{}
	ticker := time.NewTicker(lookTime)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		now := map[any]wait{}
		overdue(func(c hooks.OverdueWait) {
			w := wait{c, 0}
			if last := before[c.Of]; last.What == c.What && last.Progress == c.Progress {
				w.Looks, w.lasts = last.Looks, last.lasts+lookTime
			}
			now[c.Of] = w
			if looks := c.Looks - w.Looks; w.lasts >= starvedTime || w.lasts >= overdueTime && looks >= overdueLooks {
				r.fail(hang(fmt.Errorf("nobody wakes %s, for %v and %d looks of its loop", c.What, w.lasts, looks)))
			}
		})
		before = now
	}
}
