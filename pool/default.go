package pool

import (
	"context"
	"time"
)

// defaultPool is the package's own pool. It starts no goroutine before its first task.
var defaultPool = func() *Pool {
	p, err := NewPool(DefaultAntsPoolSize)
	if err != nil {
		panic(err)
	}
	return p
}()

// Submit submits task to the package's own pool, whose capacity is so large that Submit in practice never waits for room.
func Submit(task func()) error { return defaultPool.Submit(task) }

// Running returns the number of workers of the package's own pool, or of its accepted tasks if that number is larger.
func Running() int { return defaultPool.Running() }

// Cap returns the capacity of the package's own pool.
func Cap() int { return defaultPool.Cap() }

// Free returns Cap minus Running.
func Free() int { return defaultPool.Free() }

// Release closes the package's own pool.
func Release() { defaultPool.Release() }

// ReleaseTimeout closes the package's own pool and waits until its tasks have ended, or returns ErrTimeout.
func ReleaseTimeout(timeout time.Duration) error { return defaultPool.ReleaseTimeout(timeout) }

// ReleaseContext closes the package's own pool and waits until its tasks have ended or ctx is done.
func ReleaseContext(ctx context.Context) error { return defaultPool.ReleaseContext(ctx) }

// Reboot opens the package's own pool again after a release.
func Reboot() { defaultPool.Reboot() }
