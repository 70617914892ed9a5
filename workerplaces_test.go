package filo

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// newPoolTests starts pools that share their places.
func newPoolTests(t *testing.T, pools, workers int, maxIdle time.Duration) []*poolTest {
	places, served := new(workerPlaces), &servedConns{by: make(map[net.Conn]*workerChan)}
	var tests []*poolTest
	for range pools {
		p := newPoolTestSharing(t, workers, maxIdle, places, served)
		places.pools = append(places.pools, &p.workerPool)
		tests = append(tests, p)
	}
	return tests
}

// Pools that share their places are each a stack of its own, spawn under the common cap, and at the cap lend each other the
// workers that are ready.
func TestWorkerPlacesModel(t *testing.T) {
	type busyConn struct {
		on *poolTest
		c  *poolConn
		w  *workerChan
	}
	poolRun(t, func(t *testing.T) {
		for range 5 {
			seed := uint64(os.Getpid())<<32 | uint64(rand.Uint32())
			t.Logf("seed %#x", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			most := 1 + random.IntN(10)
			pools := newPoolTests(t, 1+random.IntN(4), most, time.Hour)
			ready := make(map[*workerPool][]*workerChan)
			var busy []busyConn
			for range 500 {
				p := pools[random.IntN(len(pools))]
				if random.IntN(100) < 55 {
					lender, idle := &p.workerPool, 0
					for _, other := range pools {
						idle += len(ready[&other.workerPool])
					}
					for i := 0; len(ready[lender]) == 0 && i < len(pools) && len(busy)+idle == most; i++ {
						lender = &pools[i].workerPool
					}
					c, w := p.serve(t)
					if refuse := len(busy) == most; refuse != (c == nil) {
						t.Fatalf("%d of %d busy, %d ready, refused: %v", len(busy), most, idle, c == nil)
					}
					if c == nil {
						continue
					}
					if stack := ready[lender]; len(stack) > 0 {
						if w != stack[len(stack)-1] {
							t.Fatal("not the worker at the top of the stack")
						}
						ready[lender] = stack[:len(stack)-1]
					} else if w.pool != &p.workerPool {
						t.Fatal("another pool has spawned")
					}
					busy = append(busy, busyConn{p, c, w})
				} else if len(busy) > 0 {
					i := random.IntN(len(busy))
					b := busy[i]
					busy = slices.Delete(busy, i, i+1)
					how := outcome(random.IntN(int(outcomes)))
					b.on.finish(b.c, how)
					if how != outcomeGoexit {
						ready[b.w.pool] = append(ready[b.w.pool], b.w)
					}
				}
				onStacks := 0
				for _, stack := range ready {
					onStacks += len(stack)
				}
				if word := pools[0].places.taken.word.Load(); word/readyPlace != int64(onStacks) {
					t.Fatalf("%d workers are counted as ready, %d are", word/readyPlace, onStacks)
				}
				for _, p := range pools {
					p.mu.Lock()
					got := slices.Clone(p.ready)
					p.mu.Unlock()
					if want := ready[&p.workerPool]; !slices.Equal(got, want) {
						t.Fatalf("%d workers are ready, or in another order than the %d of the model", len(got), len(want))
					}
				}
			}
			for _, b := range busy {
				b.on.finish(b.c, outcomeClose)
			}
			for _, p := range pools {
				p.Stop()
			}
			for _, p := range pools {
				<-p.done()
			}
			if taken := pools[0].places.taken.word.Load(); taken != 0 {
				t.Fatalf("%#x places are taken in the end", taken)
			}
		}
	})
}

// isClosing reports whether a worker has given up its place and isn't ready yet.
func (p *poolTest) isClosing() bool {
	p.workerPool.mu.Lock()
	defer p.workerPool.mu.Unlock()
	return p.closing > 0
}

// As many clients as there are places are never refused, whichever pools they come to, and whatever is retired meanwhile.
func TestWorkerPlacesNoRefusal(t *testing.T) {
	poolRunReal(t, func(t *testing.T) {
		const most, rounds = 3, 3000
		pools := newPoolTests(t, 3, most, time.Millisecond)
		var clients sync.WaitGroup
		for range most {
			clients.Go(func() {
				for range rounds {
					p := pools[rand.IntN(len(pools))]
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
					for slices.ContainsFunc(pools, (*poolTest).isClosing) {
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

// A refusal waits for no other pool: under overload there are many.
func TestWorkerPlacesRefusalTakesNoLock(t *testing.T) {
	poolRunReal(t, func(t *testing.T) {
		pools := newPoolTests(t, 2, 0, time.Hour)
		refused := make(chan bool)
		pools[1].workerPool.mu.Lock()
		go func() { refused <- pools[0].getCh() == nil }()
		select {
		case so := <-refused:
			if !so {
				t.Error("there is no place")
			}
		case <-time.After(lifeBound):
			t.Error("the refusal waits for the lock of another pool")
		}
		pools[1].workerPool.mu.Unlock()
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

// A leader's place passes between pools: who hands over is an ordinary worker of its own pool, with the place of the one
// that leads in its stead.
func TestWorkerPlacesLeaders(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		pools := newPoolTests(t, 2, 1, time.Hour)
		a, b := pools[0], pools[1]
		c, lent := a.serve(t)
		a.finish(c, outcomeClose) // the only place is that of a ready worker of a's
		test := &testLead{leads: make(chan *workerChan), leave: make(chan struct{})}
		lead := test.leadership()
		b.Lead(lead)
		leader := <-test.leads
		if !b.handOver(leader, lead, false) {
			t.Fatal("the other pool's worker must lead")
		}
		if next := <-test.leads; next != lent {
			t.Fatal("not the worker that was ready")
		} else if b.handOver(next, lead, false) {
			t.Fatal("the place is taken")
		}
		if taken := a.places.taken.Load(); taken != 1 || a.leading != 1 || b.leading != 0 {
			t.Errorf("%d places are taken, %d and %d lead", taken, a.leading, b.leading)
		}
		b.retake(lent, lead) // beyond the cap
		last := <-test.leads
		if last.pool != &b.workerPool || a.places.taken.Load() != 2 {
			t.Errorf("%d places are taken", a.places.taken.Load())
		}
		if lent.place = placeServing; leader.occupy() {
			t.Error("both have a place, though there is only one")
		}
		close(test.leave)
		synctest.Wait()
		// Who is beyond the cap ends.
		if taken := a.places.taken.Load(); taken != 1 || len(a.ready)+len(b.ready) != 1 || a.leading+b.leading != 0 {
			t.Errorf("%d places are taken, %d and %d are ready, %d lead", taken, len(a.ready), len(b.ready), a.leading+b.leading)
		}
	})
}

// Who would be released leads in the stead of a worker that was appointed and hasn't come, and that one gets its place.
func TestTakeOver(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		for pools := range 2 {
			for _, vacated := range []bool{false, true} {
				tests := newPoolTests(t, 1+pools, 1, time.Hour)
				a, b := tests[0], tests[pools]
				test := &testLead{leads: make(chan *workerChan), leave: make(chan struct{})}
				lead := test.leadership()
				a.Lead(lead)
				w := <-test.leads
				// As handOver does, with a worker of b's that has no processor.
				late := &workerChan{pool: &b.workerPool, ch: make(chan job, 1)}
				b.mu.Lock()
				if !b.maySpawnLocked() {
					t.Fatal("no place")
				}
				b.mu.Unlock()
				a.countLeaders(-1)
				b.countLeaders(+1)
				w.place = placeServing
				late.appoint(lead)
				if vacated {
					w.vacate(1)
				}
				test.leave <- struct{}{}
				if <-test.leads != w {
					t.Fatal("another worker leads")
				}
				if taken := a.places.taken.Load(); taken != 0 || a.leading != 1 || a.goroutines != 1+1-pools || b.closing != 1 {
					t.Errorf("%d places are taken, %d lead, %d goroutines, %d closing", taken, a.leading, a.goroutines, b.closing)
				}
				go b.run(late)
				synctest.Wait()
				if taken := a.places.taken.Load(); taken != 1 || b.closing != 0 || len(b.ready) != 1 || b.goroutines != 2 {
					t.Errorf("%d places are taken, %d closing, %d ready, %d goroutines", taken, b.closing, len(b.ready), b.goroutines)
				}
				// One that has come isn't taken for late.
				next := &testLead{leads: make(chan *workerChan), leave: make(chan struct{})}
				if !a.handOver(w, next.leadership(), false) {
					t.Fatal("not handed over")
				}
				if <-next.leads != late {
					t.Fatal("not the ready worker")
				}
				test.leave <- struct{}{}
				synctest.Wait()
				if taken := a.places.taken.Load(); taken != 1 || b.leading != 1 || len(a.ready) != 1 {
					t.Errorf("%d places are taken, %d lead, %d ready", taken, b.leading, len(a.ready))
				}
				close(next.leave)
			}
		}
	})
}

// benchPools has each of the goroutines of a benchmark work on a pool of its own, of several that share their places.
func benchPools(b *testing.B, pools, workers int, work func(wp *workerPool)) {
	places := new(workerPlaces)
	for range pools {
		wp := &workerPool{MaxWorkersCount: workers, MaxIdleWorkerDuration: time.Hour, clock: new(coarseClock), places: places}
		wp.Start()
		b.Cleanup(wp.Stop)
		places.pools = append(places.pools, wp)
	}
	var next atomic.Uint32
	b.RunParallel(func(pb *testing.PB) {
		wp := places.pools[int(next.Add(1))%pools]
		for pb.Next() {
			work(wp)
		}
	})
}

// What a refusal costs when all places are taken, beside those of other loops.
func BenchmarkRefusal(b *testing.B) {
	for _, pools := range []int{1, 2, 8, 64} {
		b.Run(fmt.Sprint(pools, " pools"), func(b *testing.B) {
			benchPools(b, pools, 0, func(wp *workerPool) {
				if wp.getCh() != nil {
					b.Error("not refused")
				}
			})
		})
	}
}

// What it costs to take a worker off the stack and to put it back when it has given up its place, as for each request that is
// handed off.
func BenchmarkWorkerPlaces(b *testing.B) {
	for _, pools := range []int{1, 2} {
		b.Run(fmt.Sprint(pools, " pools"), func(b *testing.B) {
			benchPools(b, pools, 1000, func(wp *workerPool) {
				w := wp.getCh()
				w.place = placeServing
				w.vacate(1000)
				if !wp.release(w) {
					b.Error("not released")
				}
			})
		})
	}
}
