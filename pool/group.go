package pool

import (
	"context"
	"sync"
)

// Group is a set of functions that a pool calls and that a caller waits for together. The first function that fails cancels the
// others.
type Group struct {
	p      *Pool
	ctx    context.Context
	cancel context.CancelCauseFunc
	slots  chan struct{} // has a value for each function under way; nil without a limit
	all    sync.WaitGroup

	mu     sync.Mutex
	failed bool  // guarded by mu
	err    error // the first error; guarded by mu
}

// NewGroup makes a group whose functions p calls. The returned context is their context. It is done when a function has failed,
// when Wait returns, or when ctx is done; its cause is the first error.
func NewGroup(ctx context.Context, p *Pool) (*Group, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{p: p, ctx: ctx, cancel: cancel}, ctx
}

// SetLimit makes Go wait while n functions of the group are under way. Call SetLimit before Go. Without it only the pool limits
// the functions.
func (g *Group) SetLimit(n int) { g.slots = make(chan struct{}, max(n, 1)) }

// Go submits f to the pool, which calls it with the group's context. Go waits for room. If the group has failed or its context
// is done, f isn't called. If the pool refuses a function, the group fails.
//
// A task that waits for a group whose functions run in the task's own pool occupies a place that these functions may need, so it
// can deadlock.
func (g *Group) Go(f func(context.Context) error) {
	if g.slots != nil {
		select {
		case g.slots <- struct{}{}:
		case <-g.ctx.Done():
			g.fail(g.ctx.Err())
			return
		}
	}
	g.all.Add(1)
	if f == nil {
		g.end(g.p.refuseNil())
		return
	}
	if err := g.p.SubmitContext(g.ctx, func() { g.call(f) }); err != nil {
		g.end(err)
	}
}

func (g *Group) call(f func(context.Context) error) {
	var err error
	defer func() { g.end(err) }()
	settle(&err, func() error {
		if err := g.ctx.Err(); err != nil {
			return err
		}
		return f(g.ctx)
	})
}

// end is called once for each function that Go has counted.
func (g *Group) end(err error) {
	if err != nil {
		g.fail(err)
	}
	if g.slots != nil {
		<-g.slots
	}
	g.all.Done()
}

// fail records the first error.
func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.failed {
		g.failed, g.err = true, err
		g.cancel(err)
	}
}

// Wait waits until all functions have ended, and returns the first error: an error that a function returned, a *PanicError for
// a panic, or the reason why a function wasn't called.
func (g *Group) Wait() error {
	g.all.Wait()
	g.cancel(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}
