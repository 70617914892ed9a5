//go:build !linux

package loop

import (
	"context"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
)

// Loop, Seat, Socket and Group are for Linux: there is no loop here, and nobody leads one.
type (
	Loop   struct{}
	Seat   struct{}
	Socket struct{}
	Group  struct{}
)

// Stop does nothing here.
func (*Group) Stop() {}

// Await does nothing here.
func (*Group) Await(context.Context) error { return nil }

// Counts returns zeros here.
func (*Group) Counts() (c Counts) { return c }

// Waiting returns zeros here.
func (*Group) Waiting() (goroutines, polled int64) { return 0, 0 }

// Leave reports whether the worker may run something that may take long.
func (w *Worker) Leave(*class.Class) bool { return w.owner.MayTakeLong() }

// LeaveFor gives the worker a place of one of these kinds. It returns false if none is free.
func (w *Worker) LeaveFor(_ *class.Class, places admit.Kinds) bool { return w.owner.Enter(places) }

// HoldsLoop returns false here.
func (w *Worker) HoldsLoop() bool { return false }

// Crowded returns false here.
func (w *Worker) Crowded() bool { return false }

// IsAlone returns false here.
func (w *Worker) IsAlone() bool { return false }

// Stay does nothing here.
func (w *Worker) Stay(*class.Class) {}

// Overtaken returns false here.
func (w *Worker) Overtaken() bool { return false }
