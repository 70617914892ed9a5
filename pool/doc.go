// Package pool runs functions on a bounded set of reused goroutines, the workers. Use it for background work: it limits how
// many tasks run at once, and can wait until all have ended.
//
//	p, err := pool.NewPool(100)
//	...
//	err = p.Submit(func() { ... })
//	...
//	err = p.ReleaseTimeout(10 * time.Second)
//
// A pool has a capacity, which bounds the accepted tasks that are not finished. The pool starts tasks in the order in which it
// accepted them. When the pool is full, submitters wait in line until a task ends. The pool runs an accepted task exactly once,
// even if the pool is released. It never runs a refused task.
//
// The pool starts workers on demand. A worker without a task is parked. The worker that was parked last is used first, since
// its stack has grown to the size that the tasks need and is still in the processor's caches. A worker that wasn't used for
// [Options.ExpiryDuration] ends. An idle pool without parked workers has no goroutine.
//
// Names and meanings are the same as in github.com/panjf2000/ants/v2, so users of ants change only the import; docs/internals/POOL.md
// lists the differences.
package pool
