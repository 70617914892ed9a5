package filo

import (
	"bytes"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/clock"
)

// poolConn is a connection that is served until the test calls finish, and whose closing the test sees.
type poolConn struct {
	net.Conn
	finish  chan outcome
	onClose func()
	closed  atomic.Int32
}

func newPoolConn() *poolConn { return &poolConn{finish: make(chan outcome, 1)} }

func (c *poolConn) Close() error {
	c.closed.Add(1)
	if c.onClose != nil {
		c.onClose()
	}
	return nil
}

// outcome is how WorkerFunc ends.
type outcome int

const (
	outcomeClose outcome = iota
	outcomeHijack
	outcomePanic
	outcomeGoexit
	outcomes // the number of outcomes
)

// poolTest is a pool whose workers serve each poolConn until the test says how to finish it.
type poolTest struct {
	workerPool
	log    bytes.Buffer
	served *servedConns
}

// servedConns records which worker serves a connection.
type servedConns struct {
	mu sync.Mutex
	by map[net.Conn]*workerChan
}

func (s *servedConns) store(c net.Conn, w *workerChan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[c] = w
}

func (s *servedConns) load(c net.Conn) *workerChan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[c]
}

// newPoolTest starts a pool and its clock. They end with the test, which fails if a goroutine is left.
func newPoolTest(t *testing.T, workers int, maxIdle time.Duration) *poolTest {
	p := &poolTest{served: &servedConns{by: make(map[net.Conn]*workerChan)}}
	p.workerPool = workerPool{
		WorkerFunc:            p.work,
		MaxWorkersCount:       workers,
		MaxIdleWorkerDuration: maxIdle,
		Logger:                slog.New(slog.NewTextHandler(&p.log, nil)),
		clock:                 new(coarseClock),
	}
	p.clock.start(clock.Tick(maxIdle))
	p.init()
	p.Start()
	t.Cleanup(func() {
		p.Stop()
		select {
		case <-p.done():
		case <-time.After(time.Minute):
			t.Error("the pool doesn't end")
		}
		p.clock.Stop()
	})
	return p
}

func (p *poolTest) work(w *workerChan, j *connJob) {
	if w.scratch == nil {
		w.scratch = new(scratch)
	}
	p.served.store(j.conn, w)
	switch <-j.conn.(*poolConn).finish {
	case outcomeHijack:
		j.conn = nil
	case outcomePanic:
		panic("no such record")
	case outcomeGoexit:
		runtime.Goexit()
	}
}

// serve passes a new connection to the pool. It returns nil if the pool has refused the connection.
func (p *poolTest) serve(t *testing.T) (*poolConn, *workerChan) {
	t.Helper()
	c := newPoolConn()
	if !p.Serve(c) {
		return nil, nil
	}
	synctest.Wait()
	w := p.served.load(c)
	if w == nil {
		t.Fatal("a connection was accepted and isn't served")
	}
	return c, w
}

// finish makes the worker that serves c finish in the given way.
func (p *poolTest) finish(c *poolConn, how outcome) {
	c.finish <- how
	synctest.Wait()
}

// expect checks the numbers of running and ready workers, and that the pool's counts agree.
func (p *poolTest) expect(t *testing.T, running, ready int) {
	t.Helper()
	synctest.Wait()
	gotRunning, gotReady, spawned, retired := p.counts()
	if gotRunning != running || gotReady != ready {
		t.Errorf("%d workers run and %d are ready, want %d and %d", gotRunning, gotReady, running, ready)
	}
	p.workerPool.mu.Lock()
	defer p.workerPool.mu.Unlock()
	closing := p.places.Taken(admit.Closing)
	if balance := spawned - retired; balance != uint64(running+ready+closing) {
		t.Errorf("%d were spawned and %d retired, but %d count and %d close", spawned, retired, running+ready, closing)
	}
	background := 0
	if !p.stopped {
		background = 1
	}
	if p.goroutines != running+ready+closing+background {
		t.Errorf("%d goroutines for %d workers, %d closing", p.goroutines, running+ready, closing)
	}
}

// poolRun runs a test in a bubble, for both capacities of the workers' channels.
func poolRun(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	poolRunReal(t, func(t *testing.T) { synctest.Test(t, test) })
}

// poolRunReal is like poolRun, for tests that need the network or real time.
func poolRunReal(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for name, processors := range map[string]int{"capacity 0": 1, "capacity 1": 2} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			test(t)
		})
	}
}

// mustPanic fails if f returns.
func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s must panic", what)
		}
	}()
	f()
}

// A channel's capacity is 0 when GOMAXPROCS is 1, else 1. A recycled worker gets the capacity for the current GOMAXPROCS.
func TestWorkerChanCapacity(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var w workerChan
	for _, step := range []struct{ processors, capacity int }{{1, 0}, {2, 1}, {3, 1}, {1, 0}} {
		runtime.GOMAXPROCS(step.processors)
		w.renew()
		if cap(w.ch) != step.capacity {
			t.Errorf("with GOMAXPROCS %d the capacity is %d", step.processors, cap(w.ch))
		}
		before := w.ch
		if w.renew(); w.ch != before {
			t.Error("a channel that suits must be kept")
		}
	}
}

// First in, last out: the worker that was released last serves next.
func TestWorkerPoolOrder(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 10, time.Minute)
		var conns []*poolConn
		var workers []*workerChan
		for range 5 {
			c, w := p.serve(t)
			conns, workers = append(conns, c), append(workers, w)
		}
		for _, c := range conns {
			p.finish(c, outcomeHijack)
		}
		p.expect(t, 0, 5)
		for i := range 5 {
			c, w := p.serve(t)
			if w != workers[4-i] {
				t.Errorf("connection %d isn't served by the worker that was released last", i)
			}
			defer p.finish(c, outcomeHijack)
		}
		p.expect(t, 5, 0)
	})
}

// Exactly MaxWorkersCount connections are served at once.
func TestWorkerPoolCap(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 3, time.Minute)
		var conns []*poolConn
		for range 3 {
			c, _ := p.serve(t)
			conns = append(conns, c)
		}
		for range 2 {
			for range 3 {
				if c, _ := p.serve(t); c != nil {
					t.Fatal("a fourth connection was accepted")
				}
			}
			p.expect(t, 3, 0)
			p.finish(conns[0], outcomeClose)
			p.expect(t, 2, 1)
			c, _ := p.serve(t)
			if c == nil {
				t.Fatal("a connection was refused though a worker was ready")
			}
			conns = append(conns[1:], c)
		}
		for _, c := range conns {
			p.finish(c, outcomeClose)
		}
		p.expect(t, 0, 3)
	})
}

// One connection at a time needs one worker, with one set of buffers.
func TestWorkerPoolReuse(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 10, time.Minute)
		var buffers *scratch
		for range 100 {
			c, w := p.serve(t)
			if buffers == nil {
				buffers = w.scratch
			}
			if w.scratch != buffers {
				t.Fatal("the worker's buffers changed")
			}
			p.finish(c, outcomeClose)
			if closed := c.closed.Load(); closed != 1 {
				t.Fatalf("the connection was closed %d times", closed)
			}
		}
		if _, _, spawned, _ := p.counts(); spawned != 1 {
			t.Errorf("%d workers were spawned", spawned)
		}
	})
}

// The pool doesn't close a hijacked connection.
func TestWorkerPoolHijack(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 1, time.Minute)
		c, _ := p.serve(t)
		p.finish(c, outcomeHijack)
		p.expect(t, 0, 1)
		if c.closed.Load() != 0 {
			t.Error("a hijacked connection was closed")
		}
	})
}

// A worker is kept for MaxIdleWorkerDuration, and gone after 1.25 times as long, whenever it was released.
func TestWorkerPoolExpiry(t *testing.T) {
	for _, maxIdle := range []time.Duration{10 * time.Millisecond, time.Second, 10 * time.Second} {
		t.Run(maxIdle.String(), func(t *testing.T) {
			poolRun(t, func(t *testing.T) {
				p := newPoolTest(t, 100, maxIdle)
				for round := range 3 {
					released := make(map[*workerChan]time.Time)
					var conns []*poolConn
					for range 50 {
						c, _ := p.serve(t)
						conns = append(conns, c)
					}
					for _, c := range conns {
						time.Sleep(rand.N(maxIdle / 20))
						p.finish(c, outcomeClose)
						released[p.served.load(c)] = time.Now()
					}
					p.checkExpiry(t, released, maxIdle)
					p.expect(t, 0, 0)
					if !p.resting || p.workerPool.ready != nil {
						t.Error("the cleaner must rest when no worker is ready")
					}
					time.Sleep(time.Duration(round) * 7 * maxIdle)
				}
			})
		})
	}
}

// checkExpiry waits until all workers have gone, and checks when each of them did.
func (p *poolTest) checkExpiry(t *testing.T, released map[*workerChan]time.Time, maxIdle time.Duration) {
	t.Helper()
	tick := clock.Tick(maxIdle)
	for len(released) > 0 {
		time.Sleep(tick / 2)
		synctest.Wait()
		p.workerPool.mu.Lock()
		ready := slices.Clone(p.ready)
		p.workerPool.mu.Unlock()
		for w, since := range released {
			idle := time.Since(since)
			if !slices.Contains(ready, w) {
				delete(released, w)
				// The time of the last use is known to within a tick.
				if idle < maxIdle-tick {
					t.Errorf("a worker was retired after %v", idle)
				}
			} else if idle > maxIdle*5/4 {
				t.Fatalf("a worker is still ready after %v", idle)
			}
		}
	}
}

// The hot worker stays while the cold ones go.
func TestWorkerPoolHotWorkerStays(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		const maxIdle = time.Second
		p := newPoolTest(t, 10, maxIdle)
		var conns []*poolConn
		for range 5 {
			c, _ := p.serve(t)
			conns = append(conns, c)
		}
		hot := p.served.load(conns[4])
		for _, c := range conns {
			p.finish(c, outcomeClose)
		}
		p.expect(t, 0, 5)
		for range 20 {
			time.Sleep(maxIdle / 4)
			c, w := p.serve(t)
			if w != hot {
				t.Fatal("another worker was taken")
			}
			p.finish(c, outcomeClose)
		}
		p.expect(t, 0, 1)
	})
}

// clean retires the workers that have been idle for MaxIdleWorkerDuration, counts them, and returns when it must be called again.
func TestWorkerPoolClean(t *testing.T) {
	const maxIdle = time.Second
	for name, test := range map[string]struct {
		idle []time.Duration // of the ready workers, the coldest first
		kept int
		wait time.Duration
	}{
		"none":             {nil, 0, 0},
		"one, fresh":       {[]time.Duration{0}, 1, 1100 * time.Millisecond},
		"one, nearly due":  {[]time.Duration{999 * time.Millisecond}, 1, 101 * time.Millisecond},
		"one, just due":    {[]time.Duration{time.Second}, 0, 0},
		"all due":          {[]time.Duration{5 * time.Second, 2 * time.Second, 2 * time.Second}, 0, 0},
		"one of two":       {[]time.Duration{time.Second, 500 * time.Millisecond}, 1, 600 * time.Millisecond},
		"three of four":    {[]time.Duration{4 * time.Second, 3 * time.Second, 2 * time.Second, 0}, 1, 1100 * time.Millisecond},
		"one of four":      {[]time.Duration{time.Second, 300 * time.Millisecond, 200 * time.Millisecond, 0}, 3, 800 * time.Millisecond},
		"none of the same": {[]time.Duration{1, 1, 1}, 3, 1100*time.Millisecond - 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wp := workerPool{MaxIdleWorkerDuration: maxIdle, clock: new(coarseClock)}
				now := wp.clock.Exact()
				var all []*workerChan
				for _, idle := range test.idle {
					all = append(all, &workerChan{ch: make(chan job, 1), lastUse: now - clock.Time(idle)})
				}
				wp.ready = slices.Clone(all)
				room := wp.ready
				var expired []*workerChan
				if wait := wp.clean(&expired); wait != test.wait {
					t.Errorf("wait %v, want %v", wait, test.wait)
				}
				gone := len(all) - test.kept
				if !slices.Equal(wp.ready, all[gone:]) || wp.retired != uint64(gone) {
					t.Errorf("%d are left, %d retired", len(wp.ready), wp.retired)
				}
				for _, w := range slices.Concat(room[test.kept:], expired[:cap(expired)]) {
					if w != nil {
						t.Error("a retired worker is still held")
					}
				}
				for i, w := range all {
					if told := len(w.ch) == 1; told != (i < gone) {
						t.Errorf("worker %d was told to end: %v", i, told)
					}
				}
				if wp.resting != (test.kept == 0) {
					t.Errorf("resting is %v", wp.resting)
				}
			})
		})
	}
}

// The stack stays sorted by the last use, as clean's search needs it, although workers that are released at the same time may have read the
// clock in another order.
func TestWorkerPoolSorted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPoolTest(t, 2, time.Minute)
		one, _ := p.serve(t)
		two, _ := p.serve(t)
		p.finish(one, outcomeClose)
		p.ready[0].lastUse = p.clock.Exact().Add(time.Second)
		p.finish(two, outcomeClose)
		if p.ready[1].lastUse < p.ready[0].lastUse {
			t.Error("a hotter worker has an older last use")
		}
	})
}

// While fewer workers than the cap are busy, no connection is refused, not even while retired workers haven't ended yet.
func TestWorkerPoolNoRefusalDuringClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 3
		p := newPoolTest(t, workers, time.Hour)
		// There are as many workers as the cap allows. They have been idle for long, and can't receive from their channels.
		held := make([]*workerChan, workers)
		for i := range held {
			held[i] = &workerChan{pool: &p.workerPool, ch: make(chan job), lastUse: 1}
		}
		time.Sleep(2 * time.Hour)
		p.workerPool.mu.Lock()
		p.ready, p.goroutines, p.spawned = slices.Clone(held), 1+workers, workers
		p.workerPool.mu.Unlock()
		cleaned := make(chan struct{})
		go func() {
			defer close(cleaned)
			var expired []*workerChan
			p.clean(&expired)
		}()
		synctest.Wait()
		for i := range workers {
			c, _ := p.serve(t)
			if c == nil {
				t.Fatalf("with %d busy of %d, a connection was refused during a clean", i, workers)
			}
			defer p.finish(c, outcomeClose)
		}
		if p.Serve(newPoolConn()) {
			t.Error("a connection over the cap was accepted during a clean")
		}
		for _, w := range held {
			<-w.ch
			p.end(w, true)
		}
		<-cleaned
		p.expect(t, workers, 0)
	})
}

// Stop retires the ready workers and the cleaner at once, and lets the busy ones finish.
func TestWorkerPoolStop(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 10, time.Hour)
		var conns []*poolConn
		for range 5 {
			c, _ := p.serve(t)
			conns = append(conns, c)
		}
		for _, c := range conns[:3] {
			p.finish(c, outcomeClose)
		}
		p.expect(t, 2, 3)
		done := p.done()
		p.Stop()
		p.expect(t, 2, 0)
		p.Stop() // does nothing
		c := newPoolConn()
		if p.Serve(c) {
			t.Error("a stopped pool accepted a connection")
		}
		if c.closed.Load() != 0 {
			t.Error("a refused connection is the caller's to close")
		}
		for i, how := range []outcome{outcomeClose, outcomeGoexit} {
			select {
			case <-done:
				t.Errorf("done with %d busy workers", 2-i)
			default:
			}
			p.finish(conns[3+i], how)
			if closed := conns[3+i].closed.Load(); closed != 1 {
				t.Errorf("a connection that was busy at the stop was closed %d times", closed)
			}
		}
		p.expect(t, 0, 0)
		select {
		case <-done:
		default:
			t.Error("not done with nothing left")
		}
		<-p.done() // done also works after the end
		mustPanic(t, "Start after Stop", p.Start)
	})
}

func TestWorkerPoolStartStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wp := workerPool{MaxWorkersCount: 1, clock: new(coarseClock)}
		if wp.Serve(newPoolConn()) {
			t.Error("a pool that wasn't started accepted a connection")
		}
		done := wp.done()
		wp.Stop()
		<-done
		mustPanic(t, "Start after Stop", wp.Start)

		wp2 := workerPool{clock: new(coarseClock)}
		wp2.Start()
		mustPanic(t, "a second Start", wp2.Start)
		if wp2.MaxIdleWorkerDuration != DefaultMaxIdleWorkerDuration || wp2.Logger == nil {
			t.Error("Start must fill in the defaults")
		}
		wp2.Stop()
		<-wp2.done()
	})
}

// A panic ends the connection, but not the worker.
func TestWorkerPoolPanic(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 1, time.Minute)
		for range 3 {
			c, w := p.serve(t)
			p.finish(c, outcomePanic)
			p.expect(t, 0, 1)
			if closed := c.closed.Load(); closed != 1 {
				t.Errorf("the connection was closed %d times", closed)
			}
			if w.scratch != nil {
				t.Error("buffers that may be in any state were kept")
			}
			for _, part := range []string{"level=ERROR", `value="no such record"`, "stack=", "poolTest).work"} {
				if !strings.Contains(p.log.String(), part) {
					t.Errorf("the log has no %q: %s", part, p.log.String())
				}
			}
			p.log.Reset()
		}
		if _, _, spawned, _ := p.counts(); spawned != 1 {
			t.Errorf("the worker didn't outlive its panics: %d were spawned", spawned)
		}
	})
}

// A handler that ends its goroutine takes the worker with it, and nothing else.
func TestWorkerPoolGoexit(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 2, time.Minute)
		for i := range 5 {
			c, _ := p.serve(t)
			if c == nil {
				t.Fatalf("refused after %d ended goroutines", i)
			}
			freeAtClose := false
			c.onClose = func() { freeAtClose = p.places.Taken(admit.Ordinary) == 0 }
			p.finish(c, outcomeGoexit)
			p.expect(t, 0, 0)
			if closed := c.closed.Load(); closed != 1 || !freeAtClose {
				t.Errorf("closed %d times, the place was free: %v", closed, freeAtClose)
			}
		}
	})
}

// A connection's Close that panics or ends the goroutine does no more harm than WorkerFunc.
func TestWorkerPoolBadClose(t *testing.T) {
	for name, test := range map[string]struct {
		bad   func()
		ready int
	}{
		"panic":  {func() { panic("no such socket") }, 1},
		"Goexit": {runtime.Goexit, 0},
	} {
		for how, name := range map[outcome]string{outcomeClose: name + " at the end", outcomeGoexit: name + " after Goexit"} {
			t.Run(name, func(t *testing.T) {
				poolRun(t, func(t *testing.T) {
					p := newPoolTest(t, 1, time.Minute)
					c, _ := p.serve(t)
					c.onClose = test.bad
					p.finish(c, how)
					ready := test.ready
					if how == outcomeGoexit {
						ready = 0
					}
					p.expect(t, 0, ready)
					if c.closed.Load() != 1 {
						t.Errorf("closed %d times", c.closed.Load())
					}
					if again, _ := p.serve(t); again == nil {
						t.Error("refused afterwards")
					} else {
						p.finish(again, outcomeClose)
					}
				})
			})
		}
	}
}

// The worker's place is free before the client can see the close.
func TestWorkerPoolPlaceFreeAtClose(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 1, time.Minute)
		c, _ := p.serve(t)
		for range 10 {
			next := newPoolConn()
			accepted := false
			c.onClose = func() { accepted = p.Serve(next) }
			p.finish(c, outcomeClose)
			if !accepted {
				t.Fatal("a connection was refused with nothing running but a close")
			}
			p.expect(t, 1, 0)
			c = next
		}
		p.finish(c, outcomeClose)
		p.expect(t, 0, 1)
	})
}

// The place is free with real sockets, too: a client that sees the close and reconnects isn't refused.
func TestWorkerPoolPlaceFreeAtCloseTCP(t *testing.T) {
	poolRunReal(t, func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := newPoolTest(t, 1, time.Minute)
		p.WorkerFunc = func(*workerChan, *connJob) {}
		var refused atomic.Int32
		accepted := make(chan struct{})
		go func() {
			defer close(accepted)
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				if !p.Serve(c) {
					refused.Add(1)
					c.Close()
				}
			}
		}()
		for range 300 {
			c, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(c); err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
		listener.Close()
		<-accepted
		if n := refused.Load(); n > 0 {
			t.Errorf("%d connections were refused with nothing running", n)
		}
	})
}

// If a close takes long, neither Serve nor the next connection waits for it. Once the connection is closed, the worker is ready again if
// there is a place.
func TestWorkerPoolSlowClose(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 2, time.Minute)
		slow, worker := p.serve(t)
		closing := make(chan struct{})
		slow.onClose = func() { <-closing }
		p.finish(slow, outcomeClose)
		p.expect(t, 0, 0)
		one, w := p.serve(t)
		if w == worker {
			t.Fatal("a connection waits for another one's close")
		}
		two, _ := p.serve(t)
		if two == nil {
			t.Fatal("a place was taken by a close")
		}
		close(closing)
		p.expect(t, 2, 0) // no place for the third worker
		p.finish(one, outcomeClose)
		p.finish(two, outcomeClose)
		p.expect(t, 0, 2)

		slow, _ = p.serve(t)
		closing = make(chan struct{})
		slow.onClose = func() { <-closing }
		p.finish(slow, outcomeClose)
		p.expect(t, 0, 1)
		close(closing)
		p.expect(t, 0, 2)
	})
}

// Clients that delay their close can't pile up workers: as many workers may be closing as may serve, and any further worker keeps its place
// while it closes.
func TestWorkerPoolSlowCloseLimit(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		const workers = 3
		p := newPoolTest(t, workers, time.Minute)
		closing := make(chan struct{})
		for accepted := range 10 {
			c, _ := p.serve(t)
			if c == nil {
				if accepted != 2*workers {
					t.Errorf("%d closing connections were accepted", accepted)
				}
				break
			}
			c.onClose = func() { <-closing }
			p.finish(c, outcomeClose)
		}
		p.expect(t, workers, 0)
		close(closing)
		p.expect(t, 0, workers)
	})
}

// Workers that are serving or closing a connection when the pool is stopped end, in whatever order.
func TestWorkerPoolStopWhileClosing(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTest(t, 2, time.Minute)
		c, _ := p.serve(t)
		closing := make(chan struct{})
		c.onClose = func() { <-closing }
		p.finish(c, outcomeClose)
		p.Stop()
		p.expect(t, 0, 0)
		select {
		case <-p.done():
			t.Error("done while a worker closes")
		default:
		}
		close(closing)
		<-p.done()
		p.expect(t, 0, 0)
	})
}

// Serve may race with Stop: each connection is either refused and untouched, or served and closed once.
func TestWorkerPoolStopRace(t *testing.T) {
	poolRunReal(t, func(t *testing.T) {
		for range 100 {
			p := newPoolTest(t, 4, 10*time.Millisecond)
			var served atomic.Int32
			p.WorkerFunc = func(*workerChan, *connJob) { served.Add(1) }
			var accepted, refused [3][]*poolConn
			var clients sync.WaitGroup
			for i := range accepted {
				clients.Go(func() {
					for range 50 {
						c := newPoolConn()
						if p.Serve(c) {
							accepted[i] = append(accepted[i], c)
						} else {
							refused[i] = append(refused[i], c)
							runtime.Gosched()
						}
					}
				})
			}
			for range rand.N(50) {
				runtime.Gosched()
			}
			p.Stop()
			clients.Wait()
			select {
			case <-p.done():
			case <-time.After(lifeBound):
				t.Fatal("the pool doesn't end")
			}
			all := slices.Concat(accepted[:]...)
			for _, c := range all {
				if c.closed.Load() != 1 {
					t.Fatalf("an accepted connection was closed %d times", c.closed.Load())
				}
			}
			if int(served.Load()) != len(all) {
				t.Fatalf("%d of %d accepted connections were served", served.Load(), len(all))
			}
			for _, c := range slices.Concat(refused[:]...) {
				if c.closed.Load() != 0 {
					t.Fatal("a refused connection was closed")
				}
			}
			if running, ready, spawned, retired := p.counts(); running != 0 || ready != 0 || spawned != retired {
				t.Fatalf("in the end %d run, %d are ready, %d spawned, %d retired", running, ready, spawned, retired)
			}
		}
	})
}

func TestWorkerPoolAllocations(t *testing.T) {
	poolRunReal(t, func(t *testing.T) {
		p := newPoolTest(t, 1, time.Minute)
		p.WorkerFunc = func(_ *workerChan, j *connJob) { j.conn = nil }
		c := newPoolConn()
		if n := testing.AllocsPerRun(1000, func() { serveSoon(&p.workerPool, c) }); n != 0 {
			t.Errorf("serving a connection allocates %v times", n)
		}
	})
}

// serveSoon calls Serve until the pool accepts.
func serveSoon(wp *workerPool, c net.Conn) {
	for !wp.Serve(c) {
		runtime.Gosched()
	}
}

// poolModel is the model with which the pool is compared: a stack, a set, and a cap.
type poolModel struct {
	p     *poolTest
	cap   int
	ready []*workerChan // the coldest first
	since map[*workerChan]time.Time
	busy  []*poolConn
}

// serve passes a connection to the pool, and checks which worker serves it.
func (m *poolModel) serve(t *testing.T) {
	t.Helper()
	c, w := m.p.serve(t)
	if refuse := len(m.busy) == m.cap; refuse != (c == nil) {
		t.Fatalf("%d of %d busy, %d ready, refused: %v", len(m.busy), m.cap, len(m.ready), c == nil)
	}
	if c == nil {
		return
	}
	if top := len(m.ready) - 1; top >= 0 {
		if w != m.ready[top] {
			t.Fatal("not the worker at the top of the stack")
		}
		m.ready = m.ready[:top]
	}
	for _, other := range m.busy {
		if m.p.served.load(other) == w {
			t.Fatal("a busy worker got a second connection")
		}
	}
	m.busy = append(m.busy, c)
}

// finish ends a random connection in a random way.
func (m *poolModel) finish(t *testing.T, random *rand.Rand, stopped bool) {
	t.Helper()
	if len(m.busy) == 0 {
		return
	}
	i := random.IntN(len(m.busy))
	c, how := m.busy[i], outcome(random.IntN(int(outcomes)))
	m.busy = slices.Delete(m.busy, i, i+1)
	m.p.finish(c, how)
	want := int32(1)
	if how == outcomeHijack {
		want = 0
	}
	if closed := c.closed.Load(); closed != want {
		t.Fatalf("after outcome %d the connection was closed %d times", how, closed)
	}
	if how != outcomeGoexit && !stopped {
		w := m.p.served.load(c)
		m.ready, m.since[w] = append(m.ready, w), time.Now()
	}
}

// check removes from the model's stack the workers that the cleaner must have retired, and those that it may have retired, and compares the
// stacks.
func (m *poolModel) check(t *testing.T) {
	t.Helper()
	synctest.Wait()
	m.p.workerPool.mu.Lock()
	ready := slices.Clone(m.p.ready)
	m.p.workerPool.mu.Unlock()
	maxIdle := m.p.MaxIdleWorkerDuration
	if n := len(m.ready) - len(ready); n > 0 {
		for _, w := range m.ready[:n] {
			if idle := time.Since(m.since[w]); idle < maxIdle-clock.Tick(maxIdle) {
				t.Fatalf("a worker was retired after %v", idle)
			}
		}
		m.ready = m.ready[n:]
	}
	if !slices.Equal(m.ready, ready) {
		t.Fatalf("%d workers are ready, or in another order than the %d of the model", len(ready), len(m.ready))
	}
	for _, w := range ready {
		if idle := time.Since(m.since[w]); idle > maxIdle*5/4 {
			t.Fatalf("a worker is ready after %v", idle)
		}
	}
	m.p.expect(t, len(m.busy), len(m.ready))
}

// Random connections, ends, pauses and a stop have the same effect on the pool as on the model.
func TestWorkerPoolModel(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		for range 5 {
			seed := uint64(os.Getpid())<<32 | uint64(rand.Uint32())
			t.Logf("seed %#x", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			const maxIdle = time.Second
			p := newPoolTest(t, 1+random.IntN(12), maxIdle)
			m := &poolModel{p: p, cap: p.MaxWorkersCount, since: make(map[*workerChan]time.Time)}
			// The likelihood of serving rather than finishing drifts, so that the pool is now full, now empty.
			likely := 50
			for range 500 {
				switch choice := random.IntN(110); {
				case choice >= 100:
					time.Sleep(time.Duration(random.Int64N(int64(maxIdle * 3 / 2))))
					likely = 20 + random.IntN(60)
				case choice < likely:
					m.serve(t)
				default:
					m.finish(t, random, false)
				}
				time.Sleep(time.Duration(random.Int64N(int64(maxIdle / 100))))
				m.check(t)
			}
			p.Stop()
			m.ready = nil
			m.check(t)
			for len(m.busy) > 0 {
				if p.Serve(newPoolConn()) {
					t.Fatal("accepted after Stop")
				}
				m.finish(t, random, true)
				m.check(t)
			}
			<-p.done()
		}
	})
}

func BenchmarkWorkerPoolServe(b *testing.B) {
	for name, c := range map[string]net.Conn{"socket": new(net.TCPConn), "other": &poolConn{}} {
		wp := workerPool{
			WorkerFunc:      func(*workerChan, *connJob) {},
			MaxWorkersCount: 1000,
			clock:           new(coarseClock),
		}
		wp.clock.start(clock.MaxTick)
		wp.Start()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				serveSoon(&wp, c)
			}
		})
		b.Run(name+", parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					serveSoon(&wp, c)
				}
			})
		})
		wp.Stop()
		<-wp.done()
		wp.clock.Stop()
	}
}

// BenchmarkWorkerPoolRelease is the cost of a cycle when another one has just ended: the worker is hot, and nobody waits.
func BenchmarkWorkerPoolRelease(b *testing.B) {
	wp := workerPool{started: true, MaxWorkersCount: 1, clock: new(coarseClock)}
	wp.init()
	wp.clock.start(clock.MaxTick)
	defer wp.clock.Stop()
	w := wp.get(admit.Ordinary)
	for b.Loop() {
		wp.release(w)
		w = wp.get(admit.Ordinary)
	}
}

// counts returns the pool's part of Stats.
func (p *poolTest) counts() (running, ready int, spawned, retired uint64) {
	var st Stats
	p.stats(&st)
	return st.WorkersRunning, st.WorkersReady, st.WorkersSpawned, st.WorkersRetired
}

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
