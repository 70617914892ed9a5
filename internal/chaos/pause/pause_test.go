package pause

import (
	"strings"
	"testing"
	"time"
)

// Step moves the wall clock that Now returns, and not the monotonic clock.
func TestStep(t *testing.T) {
	before := Now()
	Step(time.Hour)
	defer Step(-time.Hour)
	after := Now()
	if by := after.Sub(before); by < 0 || by > time.Minute {
		t.Errorf("the monotonic clock went by %v", by)
	}
	if by := after.Round(0).Sub(before.Round(0)); by < 59*time.Minute || by > 61*time.Minute {
		t.Errorf("the wall clock went by %v", by)
	}
}

// With a seed, At pauses at some sites and not at others. With the same seed, it pauses at the same visits. Report names the sites that have
// paused.
func TestAt(t *testing.T) {
	defer func() { on, seed = false, 0 }()
	paused := func(s uint64) (n int, sites map[uint32]bool) {
		on, seed, sites = true, s, map[uint32]bool{}
		for i := range visits {
			visits[i].Store(0)
		}
		last.n = 0
		for site := range uint32(1000) {
			for range 10 {
				At(site)
			}
		}
		for i := range last.n {
			sites[last.pauses[i].site] = true
		}
		return last.n, sites
	}
	n, first := paused(7)
	if n < 20 || n > 200 || len(first) > 1000/3 {
		t.Errorf("%d pauses at %d sites", n, len(first))
	}
	if again, _ := paused(7); again != n {
		t.Errorf("%d pauses, then %d by the same seed", n, again)
	}
	if other, second := paused(8); other == n && len(second) == len(first) {
		t.Error("another seed does the same")
	}
	if got := Report("no such goroutine"); strings.Count(got, "\n") == 0 || !strings.Contains(got, "goroutine ") {
		t.Errorf("report %q", got)
	}
}
