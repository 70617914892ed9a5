package pool

import (
	"errors"
	"fmt"
)

var (
	// ErrLackPoolFunc is returned when a pool is made without the function that it should call.
	ErrLackPoolFunc = errors.New("pool: no function to call")

	// ErrInvalidPoolExpiry is returned for a negative ExpiryDuration.
	ErrInvalidPoolExpiry = errors.New("pool: negative expiry duration, must be at least 0")

	// ErrPoolClosed is returned to submitters that call after the pool's release or are still waiting for room at the release,
	// and for a second release.
	ErrPoolClosed = errors.New("pool: closed")

	// ErrPoolOverload is returned when the pool has no room for a task, and the task must not wait or too many wait already.
	ErrPoolOverload = errors.New("pool: full, and waiting isn't allowed or too many wait already")

	// ErrNilTask is returned for a task that is a nil function.
	ErrNilTask = errors.New("pool: task is nil")

	// ErrInvalidPreAllocSize is returned when a pool without a limit should preallocate.
	ErrInvalidPreAllocSize = errors.New("pool: no capacity given, must be at least 1 to allocate in advance")

	// ErrInvalidGrowth is returned for a Growth with invalid values, or without a QueueSize or a capacity.
	ErrInvalidGrowth = errors.New("pool: growth needs a step of at least 1, a queue, and 0 <= low < high <= 1")

	// ErrTimeout is returned by ReleaseTimeout if tasks still run when the timeout passes.
	ErrTimeout = errors.New("pool: timed out waiting for tasks to end")

	// ErrInvalidPoolIndex is returned for an index outside of the MultiPool's pools.
	ErrInvalidPoolIndex = errors.New("pool: index out of range, must be at least 0 and less than the number of pools")

	// ErrInvalidLoadBalancingStrategy is returned for a strategy that is neither RoundRobin nor LeastTasks.
	ErrInvalidLoadBalancingStrategy = errors.New("pool: unknown load balancing strategy, must be RoundRobin or LeastTasks")

	// ErrInvalidMultiPoolSize is returned for a MultiPool of less than one pool.
	ErrInvalidMultiPoolSize = errors.New("pool: invalid number of pools, must be at least 1")
)

// PanicError is the error that a [Future], a [Group] or [Map] returns for a function that panicked.
type PanicError struct {
	// Value is the value that the function passed to panic.
	Value any
	// Stack is the stack of the goroutine at the time of the panic, as debug.Stack formats it.
	Stack []byte
}

// Error returns the value as text, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("pool: panic in a task: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
