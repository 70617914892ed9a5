//go:build race

package filo

import (
	"testing"
)

// In builds with the race detector, a function whose caller must hold a lock panics if the lock isn't held.
func TestCalledWithoutTheLock(t *testing.T) {
	calls := map[string]func(){
		"connSet":        func() { new(connSet).maybeEmptyLocked() },
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
