package pool

import (
	"context"
	"sync"
)

// keys holds the tasks given to SubmitKeyed that wait for an earlier task with the same key. The zero keys is ready for use.
type keys struct {
	mu sync.Mutex
	// behind has an entry for each key with a queued or running task: the tasks with that key that must wait for it. Guarded by
	// mu.
	behind map[any][]func()
}

// SubmitKeyed is like Submit, but runs tasks with the same key one after another, in the order in which they were accepted. While a task waits
// for an earlier task with its key, it occupies a place in the pool, but no worker. The key must be comparable.
func (p *Pool) SubmitKeyed(key any, task func()) error {
	if task == nil {
		return p.refuseNil()
	}
	if !equal(key, key) {
		return p.submit(task) // a NaN doesn't equal itself, so a map would never find it again
	}
	p.core.mu.Lock()
	if err := p.submitSlowly(context.Background(), nil, true); err != nil {
		return err
	}
	p.keys.mu.Lock()
	if behind, active := p.keys.behind[key]; active {
		p.keys.behind[key] = append(behind, task)
		p.keys.mu.Unlock()
		return nil
	}
	if p.keys.behind == nil {
		p.keys.behind = make(map[any][]func())
	}
	p.keys.behind[key] = nil
	p.keys.mu.Unlock()
	p.queueReserved(p.keyed(key, task))
	return nil
}

// keyed returns a function that runs a task and then queues the next task with its key.
func (p *Pool) keyed(key any, task func()) func() {
	return func() {
		defer p.nextOf(key) // deferred, so that it runs even if the task panics
		task()
	}
}

func (p *Pool) nextOf(key any) {
	p.keys.mu.Lock()
	behind := p.keys.behind[key]
	if len(behind) == 0 {
		delete(p.keys.behind, key)
		p.keys.mu.Unlock()
		return
	}
	next := behind[0]
	behind[0] = nil
	p.keys.behind[key] = behind[1:]
	p.keys.mu.Unlock()
	p.queueReserved(p.keyed(key, next))
}

// equal compares two keys. It panics if they aren't comparable.
func equal(a, b any) bool { return a == b }
