package clock

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const testTick = 10 * time.Millisecond

// tested is a clock, with the wall time of its last refresh.
type tested struct {
	Coarse
	wall atomic.Pointer[time.Time]
}

func (c *tested) start(tick time.Duration) {
	c.Start(tick, func(wall time.Time) { c.wall.Store(&wall) })
}

// checkRefreshed fails unless the last refresh had the current wall time, or one that is earlier by at most the duration late. running says
// whether the clock must run.
func (c *tested) checkRefreshed(t *testing.T, running bool, late time.Duration) {
	t.Helper()
	if c.Ticks() != running {
		t.Errorf("the clock ticks: %t", !running)
	}
	if !running {
		return
	}
	if wall := *c.wall.Load(); wall.After(time.Now()) || time.Since(wall) > late {
		t.Errorf("the clock was refreshed %v ago", time.Since(wall))
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
		if tick := Tick(shortest); tick != want {
			t.Errorf("Tick(%v) is %v, want %v", shortest, tick, want)
		}
	}
}

// A time is converted to the clock's scale, however far it is from now.
func TestClockAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse tested
		now, exact := time.Now(), coarse.Exact()
		for _, at := range []time.Time{now.AddDate(200, 0, 0), now.AddDate(500, 0, 0), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
			if got := coarse.At(at); got.Sub(exact) < 100*365*24*time.Hour {
				t.Errorf("%v is in %v", at, got.Sub(exact))
			}
		}
		for _, at := range []time.Time{now.Add(-time.Hour), time.Unix(1, 0), time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)} {
			if got := coarse.At(at); got <= Earliest-1 || got > exact {
				t.Errorf("%v is in %v", at, got.Sub(exact))
			}
		}
		if at := coarse.At(now.Add(time.Minute)); at != exact.Add(time.Minute) {
			t.Errorf("a minute from now is in %v", at.Sub(exact))
		}
		if at := coarse.At(time.Time{}); at != 0 {
			t.Errorf("the zero time is %d", at)
		}
	})
}

// A clock that doesn't run is exact: before Start and after Stop.
func TestClockNotRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse tested
		coarse.Stop() // does nothing
		check := func(when string) {
			for range 3 {
				time.Sleep(333*time.Millisecond + 7)
				if now, exact := coarse.Now(), coarse.Exact(); now != exact || now <= 0 {
					t.Errorf("%s: now is %d, exact %d", when, now, exact)
				}
				coarse.checkRefreshed(t, false, 0)
			}
		}
		check("before start")
		coarse.start(testTick)
		coarse.Now()
		coarse.Stop()
		select {
		case <-coarse.ended:
		default:
			t.Error("stop must wait for the clock's goroutine")
		}
		coarse.Stop() // does nothing
		coarse.tick() // a tick that was already in progress
		check("after stop")
		coarse.start(testTick) // the clock can be started again
		defer coarse.Stop()
		time.Sleep(testTick / 2)
		if coarse.Now() == coarse.Exact() {
			t.Error("started again, the clock is exact: it doesn't tick")
		}
	})
}

func TestClockStartedTwice(t *testing.T) {
	var coarse tested
	coarse.start(testTick)
	defer coarse.Stop()
	defer func() {
		if recover() == nil {
			t.Error("starting a clock that runs must panic")
		}
	}()
	coarse.start(testTick)
}

// While it is read, the clock is at most a tick old, and the wall time of its last refresh is at most a tick old, too.
func TestClockTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse tested
		coarse.start(testTick)
		defer coarse.Stop()
		cached := 0
		for range 1000 {
			time.Sleep(testTick / 3)
			synctest.Wait()
			now, exact := coarse.Now(), coarse.Exact()
			if now > exact || exact.Sub(now) > testTick {
				t.Fatalf("now is %v behind", exact.Sub(now))
			}
			if now != exact {
				cached++
			}
			coarse.checkRefreshed(t, true, testTick)
		}
		if cached < 500 {
			t.Errorf("only %d of 1000 times were cached ones", cached)
		}
	})
}

// While nothing reads the clock, it rests. The next reader gets the right time, and the clock ticks as long as it is read.
func TestClockRests(t *testing.T) {
	readers := map[string]func(t *testing.T, coarse *tested, late time.Duration){
		"now": func(t *testing.T, coarse *tested, late time.Duration) {
			if behind := coarse.Exact().Sub(coarse.Now()); behind < 0 || behind > late {
				t.Errorf("the time is %v behind", behind)
			}
		},
		"Ticks": func(t *testing.T, coarse *tested, late time.Duration) {
			coarse.checkRefreshed(t, true, late)
		},
	}
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var coarse tested
				coarse.start(testTick)
				defer coarse.Stop()
				for range 3 {
					restAndWake(t, &coarse, func(late time.Duration) { read(t, &coarse, late) })
				}
			})
		})
	}
}

// restAndWake lets the clock come to rest, wakes it by calling read, and keeps it awake. The argument of read is how far the time may be behind.
func restAndWake(t *testing.T, coarse *tested, read func(late time.Duration)) {
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

// The goroutine of a clock that is stopped while it rests ends, too. Otherwise synctest would report it.
func TestClockStoppedAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse tested
		coarse.start(testTick)
		time.Sleep(100 * testTick)
		coarse.Stop()
	})
}

// Readers come and go, so that the clock often rests. The clock never goes back, and is never more than a tick behind.
func TestClockConcurrentReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var coarse tested
		coarse.start(testTick)
		var rests atomic.Int64
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				last := Time(0)
				for range 2000 {
					time.Sleep(rand.N(60 * testTick))
					if coarse.cached.Load() == 0 {
						rests.Add(1)
					}
					before := coarse.Exact()
					for range 3 {
						now := coarse.Now()
						if now < last {
							t.Errorf("the clock went back by %v", last.Sub(now))
						}
						if before.Sub(now) > testTick {
							t.Errorf("the clock is %v behind", before.Sub(now))
						}
						last = now
						coarse.checkRefreshed(t, true, testTick)
					}
				}
			})
		}
		readers.Wait()
		coarse.Stop()
		if rests.Load() < 100 {
			t.Errorf("the clock rested %d times: the test shows nothing", rests.Load())
		}
	})
}

// In real time, the clock is started and stopped while readers read it. The time that they read neither goes back nor jumps far ahead.
func TestClockMonotonic(t *testing.T) {
	var coarse tested
	var ended atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for last := Time(1); !ended.Load(); {
				now := coarse.Now()
				if exact := coarse.Exact(); now < last || now > exact {
					t.Errorf("now is %d after %d, exact is %d", now, last, exact)
					return
				}
				last = now
				coarse.Ticks()
			}
		})
	}
	for range 20 {
		coarse.start(MinTick)
		time.Sleep(time.Duration(rand.N(1000)) * time.Microsecond)
		coarse.Stop()
	}
	ended.Store(true)
	readers.Wait()
}

func TestClockAllocations(t *testing.T) {
	var coarse tested
	coarse.start(testTick)
	defer coarse.Stop()
	if n := testing.AllocsPerRun(1000, func() { _ = coarse.Now() }); n != 0 {
		t.Errorf("now allocates %v times", n)
	}
}

func BenchmarkClock(b *testing.B) {
	var coarse tested
	coarse.start(MaxTick)
	defer coarse.Stop()
	b.Run("now", func(b *testing.B) {
		for b.Loop() {
			coarse.Now()
		}
	})
	b.Run("now, parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				coarse.Now()
			}
		})
	})
	b.Run("exact", func(b *testing.B) {
		for b.Loop() {
			coarse.Exact()
		}
	})
}
