package filo

import (
	"context"
	"runtime/debug"

	"github.com/filohttp/filo/internal/tasks"
	"github.com/filohttp/filo/pool"
)

// DefaultMaxTasks limits the tasks of Ctx.Go in a server whose Tasks field is nil, waiting tasks included.
const DefaultMaxTasks = 10_000

var (
	errTooManyTasks = Error(503, "too many tasks at once")
	errTasksOver    = Error(503, "the server is shutting down")
)

// Go passes task to the server's task pool (Server.Tasks), which runs it on another goroutine, beside the handler or after it.
// The task's context has the values that the request's context has at the time of the call. It doesn't end with the request or
// its client, but only when Close is called or Shutdown gives up waiting (ErrServerClosed). Shutdown waits for the task. The
// task must not use the Ctx, or anything borrowed from it.
//
// If there are too many tasks, or the server has been shut down, Go returns a 503 error for the handler to return.
func (c *Ctx) Go(task func(context.Context)) error {
	c.check()
	if task == nil {
		return pool.ErrNilTask
	}
	err := c.exchange.server.startTask(c.valuesOnly(), task)
	if err != nil {
		c.Response.Header.Set("Retry-After", retryAfterSeconds)
	}
	return err
}

// startTask starts a task, whose context gets these values.
func (s *Server) startTask(values context.Context, task func(context.Context)) error {
	err := s.tasks.Start(values, task)
	if err == tasks.ErrOver {
		return errTasksOver
	}
	if full, ok := err.(*tasks.Full); ok {
		s.counts.refusals[refusedTasks].Add(1)
		overload := *errTooManyTasks
		overload.Err = full.Err
		return &overload
	}
	return err
}

// initTasks makes the server's tasks ready for use.
func (s *Server) initTasks() {
	var shared tasks.Pool
	if s.Tasks != nil {
		shared = s.Tasks
	}
	s.tasks.Init(shared, func() (tasks.Pool, error) {
		return pool.NewPool(DefaultMaxTasks, pool.WithPanicHandler(func(value any) {
			logPanic(s.logger(), "panic in a task", value, debug.Stack())
		}))
	})
}
