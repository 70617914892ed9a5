package main

import (
	"fmt"
	"time"

	"github.com/filohttp/filo/internal/hooks"
)

const (
	// A wait is overdue if a connection that has input or room to write waits for overdueTime, and its loop has checked for events
	// overdueLooks times in that time. Usually the loop's first check finds the event. The later checks are for a busy machine, where a
	// goroutine may stand still between two statements. The time is less than a second, because after a second a read of a body checks by
	// itself whether it has missed input.
	overdueTime, overdueLooks = 700 * time.Millisecond, 40
	// starvedTime is how long such a connection may wait at most, however often its loop has checked for events. It is also the limit for a
	// request in the queue while another handler could run. It is long because, on a busy machine, the loop or the goroutine that must wake
	// the request might not get to run.
	starvedTime = 20 * time.Second
	// lookTime is the time between two checks by watchOverdue. If the process is stopped for longer, the stop counts as one lookTime.
	lookTime = 50 * time.Millisecond
)

// watchOverdue makes the run fail if the server forgets to wake a goroutine or a connection, until ended is closed. A client would hardly
// notice: most waits check once more when they time out, find the input, and go on. overdue calls inside.Overdue for the server.
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
