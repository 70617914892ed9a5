package flight

import (
	"sync"
	"testing"
	"testing/synctest"
)

// Callers that join during a flight get its value. A caller that joins after the flight begins another one.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		own, first := g.Join([]byte("a"))
		if !first {
			t.Fatal("the first isn't the first")
		}
		var others sync.WaitGroup
		for range 10 {
			others.Go(func() {
				f, first := g.Join([]byte("a"))
				if <-f.Done; first || f != own || f.Value != 42 {
					t.Errorf("joined with first %v, the same flight %v, value %d", first, f == own, f.Value)
				}
			})
		}
		synctest.Wait()
		if another, first := g.Join([]byte("b")); !first || another == own {
			t.Error("another key leads to the same flight")
		}
		own.Value = 42
		own.End()
		others.Wait()

		next, first := g.Join([]byte("a"))
		if !first || next == own || !own.Over() || next.Over() {
			t.Error("the flight goes on after its end")
		}
		own.End()
		if f, first := g.Join([]byte("a")); first || f != next {
			t.Error("a second End has ended the next flight")
		}
	})
}
