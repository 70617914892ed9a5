//go:build race

package filo

import (
	"testing"

	"github.com/filohttp/filo/internal/clock"
)

// A connection goes on only to what may follow, in builds with the race detector.
func TestConnNext(t *testing.T) {
	panics := func(next func()) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		next()
		return
	}
	for from := range readingNext {
		for to := range readingNext {
			c := &conn{reading: reading(from)}
			may := to == from && to != int(readingRest) || from == int(readingHead) || from == int(readingRest) && to != from
			if panics(func() { c.setReading(reading(to)) }) == may {
				t.Errorf("reading %d after %d: %v", to, from, !may)
			}
		}
	}
	for from := range closingNext {
		for to := range closingNext {
			c := &conn{closing: closing(from)}
			may := to == from || from == int(closingPlain) || from == int(closingLinger) && to != int(closingUnserved)
			if panics(func() { c.setClosing(closing(to)) }) == may {
				t.Errorf("closing %d after %d: %v", to, from, !may)
			}
		}
	}
}

// A function whose caller must hold a lock panics without it, in builds with the race detector.
func TestCalledWithoutTheLock(t *testing.T) {
	calls := map[string]func(){
		"connSet":        func() { new(connSet).setDueLocked(0, clock.Time(1)) },
		"handlerTimeout": func() { new(handlerTimeout).isOverLocked() },
		"workerPool":     func() { new(workerPool).countSpawnLocked() },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it goes on without the lock")
				}
			}()
			call()
		})
	}
}
