package filo

import (
	"context"
	"testing"

	"github.com/filohttp/filo/internal/race"
)

// The server's part of a task that is accepted allocates nothing.
func TestTaskAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	s := &Server{Handler: func(*Ctx) error { return nil }}
	defer s.Close()
	s.configure()
	ran := make(chan struct{})
	task := func(context.Context) { ran <- struct{}{} }
	allocations := func(start func(context.Context, func(context.Context)) error) float64 {
		return testing.AllocsPerRun(500, func() {
			if err := start(context.Background(), task); err != nil {
				t.Fatal(err)
			}
			<-ran
		})
	}
	if server, tasks := allocations(s.startTask), allocations(s.tasks.Start); server > tasks {
		t.Errorf("a task takes %v allocations, and %v without the server", server, tasks)
	}
}
