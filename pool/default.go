package pool

import (
	"context"
	"time"
)

// defaultPool is the package's own pool. It has no goroutine before its first task.
var defaultPool = func() *Pool {
	p, err := NewPool(DefaultAntsPoolSize)
	if err != nil {
		panic(err)
	}
	return p
}()

// Submit has task run by the package's own pool, which never waits in practice.
func Submit(task func()) error { return defaultPool.Submit(task) }

// Running returns how many workers the package's own pool has, or how many accepted tasks if those are more.
func Running() int { return defaultPool.Running() }

// Cap returns the capacity of the package's own pool.
func Cap() int { return defaultPool.Cap() }

// Free returns Cap less Running.
func Free() int { return defaultPool.Free() }

// Release closes the package's own pool.
func Release() { defaultPool.Release() }

// ReleaseTimeout closes the package's own pool and waits until its tasks have ended, or returns ErrTimeout.
func ReleaseTimeout(timeout time.Duration) error { return defaultPool.ReleaseTimeout(timeout) }

// ReleaseContext closes the package's own pool and waits until its tasks have ended, or ctx is done.
func ReleaseContext(ctx context.Context) error { return defaultPool.ReleaseContext(ctx) }

// Reboot opens the package's own pool again, if it was released.
func Reboot() { defaultPool.Reboot() }
