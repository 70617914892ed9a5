package filo

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// isClosing reports whether a worker has given up its place and isn't ready yet.
func (p *poolTest) isClosing() bool {
	p.workerPool.mu.Lock()
	defer p.workerPool.mu.Unlock()
	return p.closing > 0
}

// As many clients as there are places are never refused, whatever is retired meanwhile.
func TestWorkerPlacesNoRefusal(t *testing.T) {
	poolRunReal(t, func(t *testing.T) {
		const most, rounds = 3, 3000
		p := newPoolTest(t, most, time.Millisecond)
		var clients sync.WaitGroup
		for range most {
			clients.Go(func() {
				for range rounds {
					c := newPoolConn()
					closed := make(chan struct{})
					c.onClose = func() { close(closed) }
					c.finish <- outcomeClose
					if !p.Serve(c) {
						t.Error("refused, though a place is free")
						return
					}
					<-closed
					// A place is free at the close, unless as many workers as there may be are closing: not when each client has one.
					for p.isClosing() {
						runtime.Gosched()
					}
					if rand.IntN(100) == 0 {
						time.Sleep(2 * time.Millisecond) // to be retired
					}
				}
			})
		}
		clients.Wait()
		runtime.Gosched()
	})
}

// testLead is something to lead until it may be left.
type testLead struct {
	leads chan *workerChan
	leave chan struct{}
}

func (l *testLead) leadership() *leadership {
	return &leadership{retakes: new(atomic.Uint64), lead: func(w *workerChan) {
		l.leads <- w
		<-l.leave
	}}
}

// Who hands over is an ordinary worker, with the place of the one that leads in its stead.
func TestWorkerPlacesLeaders(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 1, time.Hour)
		c, ready := p.serve(t)
		p.finish(c, outcomeClose) // the only place is that of a ready worker
		test := &testLead{leads: make(chan *workerChan), leave: make(chan struct{})}
		lead := test.leadership()
		p.Lead(lead)
		leader := <-test.leads
		if !p.handOver(leader, lead, false) {
			t.Fatal("the ready worker must lead")
		}
		if next := <-test.leads; next != ready {
			t.Fatal("not the worker that was ready")
		} else if p.handOver(next, lead, false) {
			t.Fatal("the place is taken")
		}
		if taken := p.places.taken.Load(); taken != 1 || p.leading != 1 {
			t.Errorf("%d places are taken, %d lead", taken, p.leading)
		}
		p.retake(lead) // beyond the cap
		<-test.leads
		if p.places.taken.Load() != 2 {
			t.Errorf("%d places are taken", p.places.taken.Load())
		}
		if ready.place = placeServing; leader.occupy() {
			t.Error("both have a place, though there is only one")
		}
		close(test.leave)
		synctest.Wait()
		// Who is beyond the cap ends.
		if taken := p.places.taken.Load(); taken != 1 || len(p.ready) != 1 || p.leading != 0 {
			t.Errorf("%d places are taken, %d are ready, %d lead", taken, len(p.ready), p.leading)
		}
	})
}

// Who would be released leads in the stead of a worker that was appointed and hasn't come, and that one gets its place.
func TestTakeOver(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		for _, vacated := range []bool{false, true} {
			p := newPoolTest(t, 1, time.Hour)
			test := &testLead{leads: make(chan *workerChan), leave: make(chan struct{})}
			lead := test.leadership()
			p.Lead(lead)
			w := <-test.leads
			// As handOver does, with a worker that has no processor.
			late := &workerChan{pool: &p.workerPool, ch: make(chan job, 1)}
			p.mu.Lock()
			if !p.maySpawnLocked() {
				t.Fatal("no place")
			}
			p.mu.Unlock()
			w.place = placeServing
			late.appoint(lead)
			if vacated {
				w.vacate(1)
			}
			test.leave <- struct{}{}
			if <-test.leads != w {
				t.Fatal("another worker leads")
			}
			if taken := p.places.taken.Load(); taken != 0 || p.leading != 1 || p.goroutines != 2 || p.closing != 1 {
				t.Errorf("%d places are taken, %d lead, %d goroutines, %d closing", taken, p.leading, p.goroutines, p.closing)
			}
			go p.run(late)
			synctest.Wait()
			if taken := p.places.taken.Load(); taken != 1 || p.closing != 0 || len(p.ready) != 1 || p.goroutines != 2 {
				t.Errorf("%d places are taken, %d closing, %d ready, %d goroutines", taken, p.closing, len(p.ready), p.goroutines)
			}
			// One that has come isn't taken for late.
			next := &testLead{leads: make(chan *workerChan), leave: make(chan struct{})}
			if !p.handOver(w, next.leadership(), false) {
				t.Fatal("not handed over")
			}
			if <-next.leads != late {
				t.Fatal("not the ready worker")
			}
			test.leave <- struct{}{}
			synctest.Wait()
			if taken := p.places.taken.Load(); taken != 1 || p.leading != 1 || len(p.ready) != 1 {
				t.Errorf("%d places are taken, %d lead, %d ready", taken, p.leading, len(p.ready))
			}
			close(next.leave)
		}
	})
}

// benchPool has the goroutines of a benchmark work on a pool.
func benchPool(b *testing.B, workers int, work func(wp *workerPool)) {
	wp := &workerPool{MaxWorkersCount: workers, MaxIdleWorkerDuration: time.Hour, clock: new(coarseClock)}
	wp.Start()
	b.Cleanup(wp.Stop)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			work(wp)
		}
	})
}

// What a refusal costs when all places are taken.
func BenchmarkRefusal(b *testing.B) {
	benchPool(b, 0, func(wp *workerPool) {
		if wp.getCh() != nil {
			b.Error("not refused")
		}
	})
}

// What it costs to take a worker off the stack and to put it back when it has given up its place, as for each request that is
// handed off.
func BenchmarkWorkerPlaces(b *testing.B) {
	benchPool(b, 1000, func(wp *workerPool) {
		w := wp.getCh()
		w.place = placeServing
		w.vacate(1000)
		if !wp.release(w) {
			b.Error("not released")
		}
	})
}

// A request that no worker handles counts in one place at a time, as many as may be count there, and in the end none does.
func TestHeldPlaces(t *testing.T) {
	const most = 4
	pool := &workerPool{MaxWorkersCount: most, clock: new(coarseClock)}
	places := make([]heldPlace, most+keptConns+alwaysPlaces+3)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		p := &places[random.IntN(len(places))]
		p.pool = pool
		before := p.kind
		took, want := false, heldNone
		switch random.IntN(8) {
		case 0:
			p.leave()
			took = true
		case 1:
			took, want = p.occupy(), heldOrdinary
		case 2:
			if before != heldAlways {
				took, want = p.join(), heldAlways
			} else {
				took, want = true, heldAlways
			}
		default:
			if before == heldNone {
				took, want = p.keep(), heldKept
			} else {
				took, want = true, before
			}
		}
		if took && p.kind != want || !took && p.kind != before {
			t.Fatalf("took a place: %t; it was of kind %d, and is %d, want %d", took, before, p.kind, want)
		}
		var counts [heldAlways + 1]int64
		for i := range places {
			counts[places[i].kind]++
		}
		ordinary, kept, always := pool.places.taken.Load(), pool.places.kept.Load(), pool.places.always.Load()
		if counts[heldOrdinary] != ordinary || counts[heldKept] != kept || counts[heldAlways] != always ||
			ordinary > most || kept > keptConns || always > alwaysPlaces {
			t.Fatalf("%v are held, %d, %d and %d are counted", counts, ordinary, kept, always)
		}
	}
	for i := range places {
		places[i].pool = pool
		places[i].leave()
	}
	if n := pool.places.taken.Load() + pool.places.kept.Load() + pool.places.always.Load(); n != 0 {
		t.Errorf("%d places are lost", n)
	}
}
