package filo

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

const testTick = 10 * time.Millisecond

// checkDate holds line to the wall clock's time, or an earlier one by at most late.
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

func TestClockTick(t *testing.T) {
	for shortest, want := range map[time.Duration]time.Duration{
		0:                      500 * time.Microsecond,
		time.Millisecond:       500 * time.Microsecond,
		100 * time.Millisecond: 5 * time.Millisecond,
		time.Second:            50 * time.Millisecond,
		time.Hour:              100 * time.Millisecond,
	} {
		if tick := clockTick(shortest); tick != want {
			t.Errorf("clockTick(%v) is %v, want %v", shortest, tick, want)
		}
	}
}

// A time is put on the clock's scale however far it is from now.
func TestClockAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse coarseClock
		now, exact := time.Now(), coarse.exact()
		for _, at := range []time.Time{now.AddDate(200, 0, 0), now.AddDate(500, 0, 0), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
			if got := coarse.at(at); got.Sub(exact) < 100*365*24*time.Hour {
				t.Errorf("%v is in %v", at, got.Sub(exact))
			}
		}
		for _, at := range []time.Time{now.Add(-time.Hour), time.Unix(1, 0), time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)} {
			if got := coarse.at(at); got <= stateMask || got > exact {
				t.Errorf("%v is in %v", at, got.Sub(exact))
			}
		}
		if at := coarse.at(now.Add(time.Minute)); at != exact.Add(time.Minute) {
			t.Errorf("a minute from now is in %v", at.Sub(exact))
		}
		if at := coarse.at(time.Time{}); at != 0 {
			t.Errorf("the zero time is %d", at)
		}
	})
}

// A clock that doesn't run is exact: before the start, after the stop.
func TestClockNotRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse coarseClock
		coarse.stop() // does nothing
		check := func(when string) {
			for range 3 {
				time.Sleep(333*time.Millisecond + 7)
				if now, exact := coarse.now(), coarse.exact(); now != exact || now <= 0 {
					t.Errorf("%s: now is %d, exact %d", when, now, exact)
				}
				checkDate(t, coarse.dateLine(), 0)
			}
		}
		check("before start")
		coarse.start(testTick)
		coarse.now()
		coarse.stop()
		select {
		case <-coarse.ended:
		default:
			t.Error("stop must wait for the clock's goroutine")
		}
		coarse.stop() // does nothing
		coarse.tick() // one that was on its way
		check("after stop")
		coarse.start(testTick) // which can be done again
		defer coarse.stop()
		time.Sleep(testTick / 2)
		if coarse.now() == coarse.exact() {
			t.Error("started again, the clock is exact: it doesn't tick")
		}
	})
}

func TestClockStartedTwice(t *testing.T) {
	var coarse coarseClock
	coarse.start(testTick)
	defer coarse.stop()
	defer func() {
		if recover() == nil {
			t.Error("starting a clock that runs must panic")
		}
	}()
	coarse.start(testTick)
}

// While it is read, the clock is at most a tick old, and so is its Date.
func TestClockTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse coarseClock
		coarse.start(testTick)
		defer coarse.stop()
		cached := 0
		for range 1000 {
			time.Sleep(testTick / 3)
			synctest.Wait()
			now, exact := coarse.now(), coarse.exact()
			if now > exact || exact.Sub(now) > testTick {
				t.Fatalf("now is %v behind", exact.Sub(now))
			}
			if now != exact {
				cached++
			}
			checkDate(t, coarse.dateLine(), testTick)
		}
		if cached < 500 {
			t.Errorf("only %d of 1000 times were cached ones", cached)
		}
	})
}

// The line is rendered anew for a new second only.
func TestClockDateRebuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse coarseClock
		coarse.start(testTick)
		defer coarse.stop()
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

// Nobody reads: the clock rests. The next reader gets the right time, and the clock ticks as long as it is read.
func TestClockRests(t *testing.T) {
	readers := map[string]func(t *testing.T, coarse *coarseClock, late time.Duration){
		"now": func(t *testing.T, coarse *coarseClock, late time.Duration) {
			if behind := coarse.exact().Sub(coarse.now()); behind < 0 || behind > late {
				t.Errorf("the time is %v behind", behind)
			}
		},
		"dateLine": func(t *testing.T, coarse *coarseClock, late time.Duration) {
			checkDate(t, coarse.dateLine(), late)
		},
	}
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var coarse coarseClock
				coarse.start(testTick)
				defer coarse.stop()
				for range 3 {
					restAndWake(t, &coarse, func(late time.Duration) { read(t, &coarse, late) })
				}
			})
		})
	}
}

// restAndWake lets the clock fall to rest, wakes it with read, which is told how late the time may be, and keeps it awake.
func restAndWake(t *testing.T, coarse *coarseClock, read func(late time.Duration)) {
	t.Helper()
	time.Sleep((restAfter + 1) * testTick)
	for range 3 {
		synctest.Wait()
		if coarse.cached.Load() != 0 {
			t.Fatal("a clock that nobody has read for 11 ticks must rest, and go on resting")
		}
		time.Sleep(time.Hour + 333*time.Millisecond)
	}
	read(0)
	for range 3 * restAfter {
		time.Sleep(testTick / 2)
		synctest.Wait()
		if coarse.cached.Load() == 0 {
			t.Fatal("a clock that is read must not rest")
		}
		read(testTick)
	}
}

// A clock that is stopped while it rests ends too (synctest would find its goroutine).
func TestClockStoppedAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse coarseClock
		coarse.start(testTick)
		time.Sleep(100 * testTick)
		coarse.stop()
	})
}

// Readers that come and go, so that the clock often rests, never see it go back, and never more than a tick late.
func TestClockConcurrentReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse coarseClock
		coarse.start(testTick)
		var rests atomic.Int64
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				last := clock.Time(0)
				for range 2000 {
					time.Sleep(rand.N(60 * testTick))
					if coarse.cached.Load() == 0 {
						rests.Add(1)
					}
					before := coarse.exact()
					for range 3 {
						now := coarse.now()
						if now < last {
							t.Errorf("the clock went back by %v", last.Sub(now))
						}
						if before.Sub(now) > testTick {
							t.Errorf("the clock is %v behind", before.Sub(now))
						}
						last = now
						checkDate(t, coarse.dateLine(), testTick)
					}
				}
			})
		}
		readers.Wait()
		coarse.stop()
		if rests.Load() < 100 {
			t.Errorf("the clock rested %d times: the test shows nothing", rests.Load())
		}
	})
}

// With real time: starts and stops beside readers, which see neither a step back nor an end of the world.
func TestClockMonotonic(t *testing.T) {
	var coarse coarseClock
	var ended atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for last := clock.Time(1); !ended.Load(); {
				now := coarse.now()
				if exact := coarse.exact(); now < last || now > exact {
					t.Errorf("now is %d after %d, exact is %d", now, last, exact)
					return
				}
				last = now
				if line := coarse.dateLine(); len(line) != len("Date: \r\n")+len(timeFormat) {
					t.Errorf("the line is %q", line)
				}
			}
		})
	}
	for range 20 {
		coarse.start(minClockTick)
		time.Sleep(time.Duration(rand.N(1000)) * time.Microsecond)
		coarse.stop()
	}
	ended.Store(true)
	readers.Wait()
}

func TestClockAllocations(t *testing.T) {
	var coarse coarseClock
	coarse.start(testTick)
	defer coarse.stop()
	buffer := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(1000, func() { _ = coarse.now() }); n != 0 {
		t.Errorf("now allocates %v times", n)
	}
	if n := testing.AllocsPerRun(1000, func() { buffer = append(buffer[:0], coarse.dateLine()...) }); n != 0 {
		t.Errorf("dateLine allocates %v times", n)
	}
}

func BenchmarkClock(b *testing.B) {
	var coarse coarseClock
	coarse.start(maxClockTick)
	defer coarse.stop()
	b.Run("now", func(b *testing.B) {
		for b.Loop() {
			coarse.now()
		}
	})
	b.Run("now, parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				coarse.now()
			}
		})
	})
	b.Run("dateLine", func(b *testing.B) {
		for b.Loop() {
			coarse.dateLine()
		}
	})
	b.Run("exact", func(b *testing.B) {
		for b.Loop() {
			coarse.exact()
		}
	})
}
