package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/syntax"
)

// check is a check with its results.
type check struct {
	health  *Health
	name    string
	run     func(context.Context) error
	options Check

	// last is the result of the last run, nil before the first run has ended.
	last atomic.Pointer[result]

	mu sync.Mutex
	// coming is closed when the run in progress has a result; nil if no run is in progress. Guarded by mu.
	coming chan struct{}
	// hangs says that the function has exceeded its time-out and hasn't returned yet. Guarded by mu.
	hangs bool
}

// result is the result of one run of a check.
type result struct {
	err  error
	at   int64 // the end of the run, as Health.clock returns it
	date time.Time
	took time.Duration
}

// fresh reports whether the last result is still valid. The next run begins after a Period and takes at most Timeout; a second Period allows
// for the wait until fewer than Options.Concurrency checks run.
func (k *check) fresh() bool {
	last := k.last.Load()
	return last != nil && k.health.clock()-last.at <= int64(2*k.options.Period+k.options.Timeout)
}

// refresh starts a run unless one is in progress, and returns a channel that is closed when the run has a result.
func (k *check) refresh() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.coming == nil {
		k.coming = make(chan struct{})
		go k.work()
	}
	return k.coming
}

// work runs the check.
func (k *check) work() {
	k.health.places <- struct{}{}
	start := k.health.clock()
	err := k.call()
	<-k.health.places
	k.record(&result{err: err, at: k.health.clock(), date: time.Now(), took: time.Duration(k.health.clock() - start)})
	if k.health.wanted() {
		time.AfterFunc(k.options.Period, func() {
			if k.health.wanted() {
				k.refresh()
			}
		})
	}
}

// call calls the function and waits at most for its time-out.
func (k *check) call() error {
	k.mu.Lock()
	hung := k.hangs
	k.hangs = true // until the function has returned
	k.mu.Unlock()
	if hung {
		return fmt.Errorf("the previous run of the check hasn't returned, long after its time-out of %v", k.options.Timeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), k.options.Timeout)
	defer cancel()
	returned := make(chan error, 1)
	go func() {
		err := errGoexit // unless the function returns
		defer func() {
			k.mu.Lock()
			k.hangs = false
			k.mu.Unlock()
			returned <- err
		}()
		err = k.protected(ctx)
	}()
	select {
	case err := <-returned:
		return err
	case <-ctx.Done():
		return fmt.Errorf("it took longer than %v", k.options.Timeout)
	}
}

// errGoexit is the error of a check whose function has called runtime.Goexit, such as by FailNow of package testing.
var errGoexit = errors.New("the check has ended its goroutine instead of returning")

// protected calls the function and turns a panic into an error.
func (k *check) protected(ctx context.Context) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
			k.health.logger().Error("health: check panicked", "check", k.name, "panic", syntax.Excerpt(fmt.Sprint(value), syntax.MaxLogged), "stack", string(debug.Stack()))
		}
	}()
	return k.run(ctx)
}

// record makes r the last result, wakes the goroutines that wait for it, and logs a change.
func (k *check) record(r *result) {
	before := k.last.Swap(r)
	k.mu.Lock()
	close(k.coming)
	k.coming = nil
	k.mu.Unlock()
	failed := before != nil && before.err != nil
	switch {
	case r.err != nil && !failed:
		k.health.logger().Warn("health: check fails", slog.String("check", k.name), slog.Any("error", syntax.LoggedError(r.err)))
	case r.err == nil && failed:
		k.health.logger().Info("health: check passes again", slog.String("check", k.name))
	}
}

// state returns the last result, or a result with errUnknown if there is none yet.
func (k *check) state() *result {
	if last := k.last.Load(); last != nil {
		return last
	}
	return &result{err: errUnknown}
}
