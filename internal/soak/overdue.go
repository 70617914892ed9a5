package main

import (
	"fmt"
	"time"

	"github.com/filohttp/filo/internal/hooks"
)

const (
	// overdueTime is how long a connection may have what it waits for, if its loop has looked for events so often meanwhile. One of the first
	// looks finds its event; the others are for a busy machine, where goroutines stand still between two statements. The time is less than a
	// second, after which a read of a body looks by itself whether it has missed something.
	overdueTime, overdueLooks = 700 * time.Millisecond, 40
	// starvedTime is how long it may have that in any case: a busy machine doesn't let the loop run.
	starvedTime = 20 * time.Second
	// lookTime is the time between two looks at the connections. If the process is stopped for longer, that counts as one.
	lookTime = 50 * time.Millisecond
)

// watchOverdue makes the run fail if the server forgets to wake a connection's owner, until ended is closed. A client would hardly notice: most
// waits end once more when their time is over, find what has come, and go on. overdue is inside.Overdue for the server.
func (r *run) watchOverdue(overdue func(found func(hooks.OverdueConn)), ended <-chan struct{}) {
	type wait struct {
		hooks.OverdueConn
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
		overdue(func(c hooks.OverdueConn) {
			w := wait{c, 0}
			if last := before[c.Conn]; last.What == c.What && last.Progress == c.Progress {
				w.Looks, w.lasts = last.Looks, last.lasts+lookTime
			}
			now[c.Conn] = w
			if looks := c.Looks - w.Looks; w.lasts >= starvedTime || w.lasts >= overdueTime && looks >= overdueLooks {
				r.fail(hang(fmt.Errorf("nobody wakes the owner of the connection of %s, for %v and %d looks of its loop", c.What, w.lasts, looks)))
			}
		})
		before = now
	}
}
