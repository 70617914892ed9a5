//go:build race

package filo

import (
	"testing"

	"github.com/filohttp/filo/internal/clock"
)

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
