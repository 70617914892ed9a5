package filo

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const testTick = 10 * time.Millisecond

// checkDate fails unless line has the wall clock's time, or a time that is earlier by no more than late.
func checkDate(t *testing.T, line []byte, late time.Duration) {
	t.Helper()
	text, ok := strings.CutPrefix(string(line), "Date: ")
	text, terminated := strings.CutSuffix(text, "\r\n")
	date, err := time.Parse(http.TimeFormat, text)
	if !ok || !terminated || err != nil {
		t.Fatalf("%q isn't a Date line: %v", line, err)
	}
	now := time.Now()
	if date.After(now) || date.Before(now.Add(-late).Truncate(time.Second)) {
		t.Errorf("at %v the line is %q", now.UTC(), line)
	}
}

// The line has the current time while the clock runs, after the clock has rested, and while it doesn't run.
func TestClockDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse coarseClock
		check := func(late time.Duration) {
			for range 3 {
				time.Sleep(333*time.Millisecond + 7)
				checkDate(t, coarse.dateLine(), late)
			}
		}
		check(0)
		coarse.start(testTick)
		for range 3 {
			time.Sleep(time.Hour + 333*time.Millisecond)
			checkDate(t, coarse.dateLine(), 0)
			for range 1000 {
				time.Sleep(testTick / 3)
				synctest.Wait()
				checkDate(t, coarse.dateLine(), testTick)
			}
		}
		coarse.Stop()
		check(0)
	})
}

// The line is rendered again only when a new second has begun.
func TestClockDateRebuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse coarseClock
		coarse.start(testTick)
		defer coarse.Stop()
		seen := make(map[*byte]bool)
		for start := time.Now(); time.Since(start) < 3*time.Second-testTick; time.Sleep(testTick / 2) {
			synctest.Wait()
			line := coarse.dateLine()
			checkDate(t, line, testTick)
			seen[&line[0]] = true
		}
		if len(seen) != 3 {
			t.Errorf("%d lines were made in three seconds", len(seen))
		}
	})
}

func TestClockDateAllocations(t *testing.T) {
	var coarse coarseClock
	coarse.start(testTick)
	defer coarse.Stop()
	buffer := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(1000, func() { buffer = append(buffer[:0], coarse.dateLine()...) }); n != 0 {
		t.Errorf("dateLine allocates %v times", n)
	}
}

func BenchmarkClockDate(b *testing.B) {
	var coarse coarseClock
	coarse.start(100 * time.Millisecond)
	defer coarse.Stop()
	for b.Loop() {
		coarse.dateLine()
	}
}
