//go:build !linux

package loop

import (
	"context"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
)

// Loop, Seat, Socket and Group are implemented on Linux only. On other systems there are no loops, so no worker leads one.
type (
	Loop   struct{}
	Seat   struct{}
	Socket struct{}
	Group  struct{}
)

// Stop does nothing on this system.
func (*Group) Stop() {}

// Await does nothing on this system.
func (*Group) Await(context.Context) error { return nil }

// Counts returns zeros on this system.
func (*Group) Counts() (c Counts) { return c }

// Waiting returns zeros on this system.
func (*Group) Waiting() (goroutines, polled int64) { return 0, 0 }

// Leave reports whether the worker may go on with a handler that turns out to take long.
func (w *Worker) Leave(*class.Class) bool { return w.owner.MayTakeLong() }

// LeaveFor gives the worker a place of one of the given kinds. It returns false if no such place is free.
func (w *Worker) LeaveFor(_ *class.Class, places admit.Kinds) bool { return w.owner.Enter(places) }

// HoldsLoop returns false on this system.
func (w *Worker) HoldsLoop() bool { return false }

// Crowded returns false on this system.
func (w *Worker) Crowded() bool { return false }

// IsAlone returns false on this system.
func (w *Worker) IsAlone() bool { return false }

// Stay does nothing on this system.
func (w *Worker) Stay(*class.Class) {}

// Overtaken returns false on this system.
func (w *Worker) Overtaken() bool { return false }
