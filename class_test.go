package filo

import (
	"errors"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/class"
)

// Each call of a class that isn't quick is timed, including the first one. In a quick class, one of class.TimedCalls calls is timed. Whether
// or not a call is timed, the handler runs, and its error is returned.
func TestClassTimes(t *testing.T) {
	failure := errors.New("failure")
	calls, slow := 0, true
	s := &Server{Handler: func(c *Ctx) error {
		calls++
		if slow {
			time.Sleep(time.Millisecond) // so that the estimate shows whether the call was timed
		}
		return failure
	}}
	c := &exchange{server: s, scratch: &scratch{}}
	run := func() {
		if err := c.call(&Ctx{}); err != failure {
			t.Fatalf("the call returned %v", err)
		}
	}
	run()
	if s.classes.handler.Median.Load() < int64(time.Millisecond) {
		t.Errorf("after the first call the estimate is %v", time.Duration(s.classes.handler.Median.Load()))
	}
	slow = false
	quickAfter := 1
	for ; !s.classes.handler.IsQuick() && quickAfter < 1000; quickAfter++ {
		run()
	}
	// The estimate has to move by dozens of steps: if only one call in TimedCalls were timed, that would take thousands of calls.
	if quickAfter > 3*class.TimedCalls {
		t.Errorf("the class became quick after %d calls, so not each of them was timed", quickAfter)
	}
	timed := 0
	for range 10 * class.TimedCalls {
		s.classes.handler.Median.Store(5000)
		if run(); s.classes.handler.Median.Load() != 5000 {
			timed++
		}
	}
	if timed != 10 {
		t.Errorf("%d of %d calls of a quick class were timed", timed, 10*class.TimedCalls)
	}
	if want := quickAfter + 10*class.TimedCalls; calls != want {
		t.Errorf("%d calls, want %d", calls, want)
	}
}
