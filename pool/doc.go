// Package pool runs functions on a bounded set of reused goroutines, its workers. It is for background work of which
// there may be much: with a limit on how much of it is under way, and a way to wait for its end.
//
//	p, err := pool.NewPool(100)
//	...
//	err = p.Submit(func() { ... })
//	...
//	err = p.ReleaseTimeout(10 * time.Second)
//
// A pool has a capacity. It accepts that many tasks that are not finished yet, and starts them in the order in which it
// has accepted them; whoever submits one more waits until a task has ended, in line with the others who wait. An
// accepted task is run exactly once, also if the pool is released; a refused one is never run.
//
// Workers are started when they are needed. One that has nothing to do is parked, and the one that was parked last is
// used first, since its stack has grown to what the tasks need and is still in the processor's caches. One that wasn't
// used for [Options.ExpiryDuration] ends. A pool in which nothing is idle and nothing runs has no goroutine.
//
// The names and meanings are those of github.com/panjf2000/ants/v2, so that its users need to change the import only;
// docs/POOL.md lists what differs.
package pool
