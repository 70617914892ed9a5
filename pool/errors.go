package pool

import (
	"errors"
	"fmt"
)

var (
	// ErrLackPoolFunc is returned for a pool that is made without the function that it is to call.
	ErrLackPoolFunc = errors.New("pool: no function to call")

	// ErrInvalidPoolExpiry is returned for a negative ExpiryDuration.
	ErrInvalidPoolExpiry = errors.New("pool: negative expiry duration, must be at least 0")

	// ErrPoolClosed is returned for a task that comes after the pool's release, or waits when it comes, and for a
	// release after the first.
	ErrPoolClosed = errors.New("pool: closed")

	// ErrPoolOverload is returned for a task for which there is no room, if it may not wait or too many wait already.
	ErrPoolOverload = errors.New("pool: full, and waiting isn't allowed or too many wait already")

	// ErrNilTask is returned for a task that is a nil function.
	ErrNilTask = errors.New("pool: task is nil")

	// ErrInvalidPreAllocSize is returned for a pool without a limit that is to allocate in advance.
	ErrInvalidPreAllocSize = errors.New("pool: no capacity given, must be at least 1 to allocate in advance")

	// ErrInvalidGrowth is returned for options by which the number of workers can't follow the fill of the queue.
	ErrInvalidGrowth = errors.New("pool: growth needs a step of at least 1, a queue, and 0 <= low < high <= 1")

	// ErrTimeout is returned by ReleaseTimeout if the time is over before the last task is.
	ErrTimeout = errors.New("pool: timed out waiting for tasks to end")

	// ErrInvalidPoolIndex is returned for an index that isn't that of a MultiPool's pool.
	ErrInvalidPoolIndex = errors.New("pool: index out of range, must be at least 0 and less than the number of pools")

	// ErrInvalidLoadBalancingStrategy is returned for a strategy that is neither RoundRobin nor LeastTasks.
	ErrInvalidLoadBalancingStrategy = errors.New("pool: unknown load balancing strategy, must be RoundRobin or LeastTasks")

	// ErrInvalidMultiPoolSize is returned for a MultiPool of less than one pool.
	ErrInvalidMultiPoolSize = errors.New("pool: invalid number of pools, must be at least 1")
)

// PanicError is how a panic of a function comes back from a [Future], a [Group] or [Map].
type PanicError struct {
	// Value is what the function has called panic with.
	Value any
	// Stack is the stack of the goroutine at that time, as debug.Stack formats it.
	Stack []byte
}

// Error returns the value in text, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("pool: panic in a task: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
