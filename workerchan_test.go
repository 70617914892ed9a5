package filo

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/admit"
)

// As long as there are no more clients than places, none is refused, whichever workers are retired at the same time.
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
					// When a connection closes, its place is free, unless the maximum number of workers are closing already. In that case
					// not every client finds a place.
					for p.places.Taken(admit.Closing) > 0 {
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

// testLead is a loop's stand-in: a worker leads it until the test lets the worker leave.
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

// A leader that hands over is an ordinary worker with a place, and a ready worker leads.
func TestWorkerPlacesLeaders(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 1, time.Hour)
		c, ready := p.serve(t)
		p.finish(c, outcomeClose)
		test := &testLead{leads: make(chan *workerChan), leave: make(chan struct{})}
		lead := test.leadership()
		p.Lead(lead)
		leader := <-test.leads
		if !p.handOver(leader, lead, admit.Ordinary.Only()) {
			t.Fatal("the ready worker must lead")
		}
		if next := <-test.leads; next != ready {
			t.Fatal("not the worker that was ready")
		} else if p.handOver(next, lead, admit.Ordinary.Only()) {
			t.Fatal("the place is taken")
		}
		if taken := p.places.Taken(admit.Ordinary); taken != 1 || p.leading != 1 {
			t.Errorf("%d places are taken, %d lead", taken, p.leading)
		}
		p.retake(lead) // beyond the cap
		<-test.leads
		if n := p.places.Taken(admit.Ordinary); n != 2 {
			t.Errorf("%d places are taken", n)
		}
		if ready.LoseLead(); ready.Enter(admit.Ordinary.Only()) || !leader.Enter(admit.Ordinary.Only()) {
			t.Error("the worker beyond the limit is admitted, or the other one isn't")
		}
		close(test.leave)
		synctest.Wait()
		// A worker beyond the cap ends.
		if taken := p.places.Taken(admit.Ordinary); taken != 0 || len(p.ready) != 1 || p.leading != 0 {
			t.Errorf("%d places are taken, %d are ready, %d lead", taken, len(p.ready), p.leading)
		}
	})
}

// A worker that would be released takes the lead from an appointed worker that hasn't started yet. The late worker is released instead.
func TestTakeOver(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		for _, vacated := range []bool{false, true} {
			p := newPoolTest(t, 1, time.Hour)
			test := &testLead{leads: make(chan *workerChan), leave: make(chan struct{})}
			lead := test.leadership()
			p.Lead(lead)
			w := <-test.leads
			// This does the same as handOver, with a worker that has no processor yet.
			late := &workerChan{pool: &p.workerPool, ch: make(chan job, 1)}
			p.mu.Lock()
			p.countSpawnLocked()
			p.mu.Unlock()
			if w.leading = false; !w.Enter(admit.Ordinary.Only()) {
				t.Fatal("no place")
			}
			late.appoint(lead)
			if vacated {
				w.place.Leave()
			}
			test.leave <- struct{}{}
			if <-test.leads != w {
				t.Fatal("another worker leads")
			}
			if taken := p.places.Taken(admit.Ordinary); taken != 0 || p.leading != 1 || p.goroutines != 2 {
				t.Errorf("%d places are taken, %d lead, %d goroutines", taken, p.leading, p.goroutines)
			}
			go p.run(late)
			synctest.Wait()
			if taken := p.places.Taken(admit.Ordinary); taken != 0 || len(p.ready) != 1 || p.goroutines != 2 {
				t.Errorf("%d places are taken, %d ready, %d goroutines", taken, len(p.ready), p.goroutines)
			}
			// A worker that has started doesn't count as late.
			next := &testLead{leads: make(chan *workerChan), leave: make(chan struct{})}
			if !p.handOver(w, next.leadership(), admit.Ordinary.Only()) {
				t.Fatal("not handed over")
			}
			if <-next.leads != late {
				t.Fatal("not the ready worker")
			}
			test.leave <- struct{}{}
			synctest.Wait()
			if taken := p.places.Taken(admit.Ordinary); taken != 0 || p.leading != 1 || len(p.ready) != 1 {
				t.Errorf("%d places are taken, %d lead, %d ready", taken, p.leading, len(p.ready))
			}
			close(next.leave)
		}
	})
}

// benchPool runs a benchmark whose goroutines work on one pool.
func benchPool(b *testing.B, workers int, work func(wp *workerPool)) {
	wp := &workerPool{MaxWorkersCount: workers, MaxIdleWorkerDuration: time.Hour, clock: new(coarseClock)}
	wp.init()
	wp.Start()
	b.Cleanup(wp.Stop)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			work(wp)
		}
	})
}

// BenchmarkRefusal is the cost of a refusal when all places are taken.
func BenchmarkRefusal(b *testing.B) {
	benchPool(b, 0, func(wp *workerPool) {
		if wp.get(admit.Ordinary) != nil {
			b.Error("not refused")
		}
	})
}

// BenchmarkWorkerPlaces is the cost of taking a worker off the stack and of putting it back after it has given up its place, as happens for
// each request that is handed off.
func BenchmarkWorkerPlaces(b *testing.B) {
	benchPool(b, 1000, func(wp *workerPool) {
		w := wp.get(admit.Ordinary)
		w.place.Leave()
		if !wp.release(w) {
			b.Error("not released")
		}
	})
}
