package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// count sums up the work of all clients of a kind.
type count struct {
	done        atomic.Uint64 // answers that were checked; of clients that don't wait for any, visits
	interrupted atomic.Uint64 // visits, by a shutdown
}

// report prints a line now and then until the function that it returns is called.
func (r *run) report() (stop func()) {
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(r.reporting)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(r.output, "%7s  %s\n", r.elapsed(), r.summary())
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		close(stopped)
		<-ended
	}
}

// summary says what was done until now.
func (r *run) summary() string {
	var b strings.Builder
	var done, interrupted uint64
	for k := range kinds {
		if !r.wanted(k) {
			continue
		}
		n := r.counts[k].done.Load()
		done += n
		interrupted += r.counts[k].interrupted.Load()
		fmt.Fprintf(&b, "%s %d, ", kinds[k].name, n)
	}
	servers, total, longest := r.lives.activity()
	return fmt.Sprintf("%d checked: %s%d interrupted; server %d: handoffs %d, retakes %d, steals %d, workers spawned %d; longest shutdown %v",
		done, b.String(), interrupted, servers, total.handoffs, total.retakes, total.steals, total.workers, longest.Round(time.Millisecond))
}
