package pool

import (
	"context"
	"errors"
	"time"
)

// Release closes the pool. Waiting and new submitters get ErrPoolClosed. Accepted tasks still run, but Release doesn't wait for
// them; see Wait.
func (p *core[T]) Release() { p.close() }

// close closes the pool and reports whether it was open. drained is closed when the last task and the last worker have ended.
func (p *core[T]) close() (drained <-chan struct{}, wasOpen bool) {
	p.mu.Lock()
	drained = p.drained
	if p.closed {
		p.mu.Unlock()
		return drained, false
	}
	p.closed = true
	p.stopTickLocked()
	p.refused += uint64(p.waiters.n)
	p.waiters.release(ErrPoolClosed)
	// If tasks are queued, some worker is busy or on its way to the queue, and starts further workers if they are needed.
	retired := p.retireLocked(len(p.parked))
	p.shrinkLocked()
	p.signalLocked()
	p.mu.Unlock()
	retire(retired)
	return drained, true
}

// signalLocked closes drained if the pool is closed and all its tasks and workers have ended.
func (p *core[T]) signalLocked() {
	if p.closed && p.goroutines == 0 && p.accepted == 0 && !p.over {
		p.over = true
		close(p.drained)
	}
}

// ReleaseTimeout closes the pool as Release does, and waits until all tasks, panic handlers and workers have ended. If the
// timeout passes first, it returns ErrTimeout. If the pool was closed before, it returns ErrPoolClosed at once.
func (p *core[T]) ReleaseTimeout(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := p.ReleaseContext(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return ErrTimeout
	}
	return err
}

// ReleaseContext closes the pool as Release does, and waits until all tasks, panic handlers and workers have ended. If ctx is
// done first, it returns ctx.Err(). It doesn't wait if ctx is nil. If the pool was closed before, it returns ErrPoolClosed at
// once.
func (p *core[T]) ReleaseContext(ctx context.Context) error {
	drained, wasOpen := p.close()
	switch {
	case !wasOpen:
		return ErrPoolClosed
	case ctx == nil:
		return nil
	}
	return waitFor(ctx, drained)
}

// Wait waits until the pool is closed and all its tasks, panic handlers and workers have ended. If ctx is done first, it
// returns ctx.Err(). Wait doesn't close the pool.
func (p *core[T]) Wait(ctx context.Context) error {
	p.mu.Lock()
	drained := p.drained
	p.mu.Unlock()
	return waitFor(ctx, drained)
}

// waitFor waits until done is closed or ctx is done. It returns nil if done is closed already, even if ctx is done.
func waitFor(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reboot opens a closed pool again, after all accepted tasks have ended. It has no effect on an open pool. A task must not call
// Reboot on its own pool, since it would wait for itself.
func (p *core[T]) Reboot() {
	p.mu.Lock()
	drained, closed := p.drained, p.closed
	p.mu.Unlock()
	if !closed {
		return
	}
	<-drained
	p.mu.Lock()
	defer p.mu.Unlock()
	// While this goroutine waited, another one may have rebooted the pool, and even released it again.
	if p.drained == drained {
		p.closed, p.over, p.drained = false, false, make(chan struct{})
	}
}
