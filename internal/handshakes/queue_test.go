package handshakes

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// testConn records the deadlines that wake its owner.
type testConn struct {
	woken  atomic.Bool // by SetReadDeadline
	ousted atomic.Bool // by SetDeadline
	sent   bool        // the client has sent something
}

func (c *testConn) IsSilent() bool { return !c.sent }

func (c *testConn) SetDeadline(t time.Time) error {
	c.ousted.Store(t.Equal(clock.Past))
	return nil
}

func (c *testConn) SetReadDeadline(t time.Time) error {
	c.woken.Store(t.Equal(clock.Past))
	return nil
}

var (
	hog   = netip.MustParseAddr("192.0.2.1")
	other = netip.MustParseAddr("192.0.2.2")
)

// begin calls Begin for n handshakes of a client, and returns their connections.
func begin(q *Queue, client netip.Addr, n int) (conns []*testConn) {
	for range n {
		c := new(testConn)
		q.Begin(c, client)
		conns = append(conns, c)
	}
	return conns
}

// A client with many queued handshakes takes turns with a client that comes later. Each client's oldest handshake begins first. Once a client has
// given up a handshake, its handshakes that have waited for at least half as long as that one begin last, the newest of them first.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue{Most: 1, Long: time.Hour}
		first := begin(q, hog, 1)[0]
		if !q.Begin(first, hog) {
			t.Fatal("the first one may not begin")
		}
		many, one := begin(q, hog, 4), begin(q, other, 1)[0]
		q.End(first)
		if !one.woken.Load() {
			t.Error("the client that has only begun to queue isn't first")
		}
		if !q.Begin(one, other) || one.woken.Load() {
			t.Error("one that was woken may not begin, or its deadline stays")
		}
		q.End(one)
		if !many[0].woken.Load() {
			t.Error("the client's oldest isn't next")
		}
		time.Sleep(4 * time.Second)
		q.End(many[1]) // its client gives up, so those that have waited for 2 s come last
		inTime := begin(q, hog, 2)
		for i, next := range []*testConn{many[0], inTime[0], inTime[1], many[3], many[2]} {
			if !next.woken.Load() {
				t.Errorf("at turn %d another one than expected may begin", i)
			}
			q.End(next)
		}
		if n := q.Used(); n != 0 {
			t.Errorf("%d places are in use in the end", n)
		}
		time.Sleep(2 * time.Hour) // for the queue's timer
	})
}

// Clients give up after different limits. If twice as many handshakes arrive as can be computed, the handshakes that begin are completed in time, so
// hardly any computing is wasted. If the queue was stopped for less than the limit, and then computes faster than handshakes arrive, no handshake
// is lost.
func TestPatience(t *testing.T) {
	for _, limit := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second} {
		t.Run("overload of "+limit.String(), func(t *testing.T) {
			const arrivals = 4000 // in 20 s, in which 2,000 can be computed
			inTime, inVain := patientClients(t, limit, arrivals, 5*time.Millisecond, 0)
			if inTime < arrivals*45/100 || inVain > arrivals/50 {
				t.Errorf("of %d handshakes %d were completed in time, and %d too late", arrivals, inTime, inVain)
			}
		})
		t.Run("a stop before "+limit.String(), func(t *testing.T) {
			const arrivals = 1000
			if inTime, inVain := patientClients(t, limit, arrivals, 20*time.Millisecond, limit*9/10); inTime != arrivals {
				t.Errorf("of %d handshakes %d were completed in time, and %d too late", arrivals, inTime, inVain)
			}
		})
	}
}

// patientClients starts handshakes from one address at intervals. They compute one at a time, for 10 ms each, and their clients give up after the
// duration limit. stopped is how long the queue is blocked before the first handshake may begin. patientClients returns how many handshakes were
// completed before and after that limit.
func patientClients(t *testing.T, limit time.Duration, arrivals int, interval, stopped time.Duration) (inTime, inVain int) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue{Most: 1, Long: time.Hour}
		stop := begin(q, hog, 1)[0]
		var all sync.WaitGroup
		var mu sync.Mutex
		for i := range arrivals {
			all.Go(func() {
				began := time.Now()
				c := &wakingConn{woken: make(chan struct{}, 1)}
				defer q.End(c)
				for !q.Begin(c, hog) {
					select {
					case <-c.woken:
					case <-time.After(limit - time.Since(began)):
						return
					}
				}
				time.Sleep(10 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if time.Since(began) <= limit {
					inTime++
				} else {
					inVain++
				}
			})
			if i == 0 {
				time.AfterFunc(stopped, func() { q.End(stop) })
			}
			time.Sleep(interval)
		}
		all.Wait()
	})
	return inTime, inVain
}

// wakingConn is a testConn whose owner waits to be woken.
type wakingConn struct {
	testConn
	woken chan struct{}
}

func (c *wakingConn) SetReadDeadline(t time.Time) error {
	if t.Equal(clock.Past) {
		c.woken <- struct{}{}
	}
	return nil
}

// If too many handshakes wait for their clients, the address with most of them loses the handshake that has waited for the longest.
func TestOusted(t *testing.T) {
	q := &Queue{Most: 2}
	first := begin(q, other, 1)[0]
	q.Wait(first)
	var waiting []*testConn
	for range 2 {
		c := begin(q, hog, 1)[0]
		q.Wait(c)
		waiting = append(waiting, c)
	}
	if first.ousted.Load() || !waiting[0].ousted.Load() || waiting[1].ousted.Load() {
		t.Errorf("ousted: %t of the other client, %t and %t of the hog's", first.ousted.Load(), waiting[0].ousted.Load(), waiting[1].ousted.Load())
	}
	if q.End(first) || !q.End(waiting[0]) || q.End(waiting[1]) || waiting[0].ousted.Load() {
		t.Error("End doesn't tell what was ousted, or the deadline stays")
	}
	if n := q.Used(); n != 0 {
		t.Errorf("%d places are in use in the end", n)
	}
}

// A handshake whose client has sent its part isn't ousted as long as another handshake waits for a client that hasn't.
func TestOustedIsSilent(t *testing.T) {
	for _, silent := range []int{0, 1, 2, -1} {
		q := &Queue{Most: 3}
		var conns []*testConn
		for i := range 4 {
			c := begin(q, hog, 1)[0]
			c.sent = i != silent
			q.Wait(c)
			conns = append(conns, c)
		}
		want := max(silent, 0) // if none is silent, the one that has waited for the longest
		for i, c := range conns {
			if c.ousted.Load() != (i == want) {
				t.Errorf("%d is silent, %d was ousted: %t", silent, i, c.ousted.Load())
			}
		}
	}
}

// Handshakes that seem to compute for too long, for example because they wait for a function of the program, no longer keep others out.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := new(Queue)
		most := PerProc * runtime.GOMAXPROCS(0)
		held := begin(q, hog, most)
		late := begin(q, other, 1)[0]
		time.Sleep(longHandshake - 1)
		if synctest.Wait(); late.woken.Load() {
			t.Error("it began too early")
		}
		time.Sleep(time.Millisecond)
		if synctest.Wait(); !late.woken.Load() {
			t.Error("it hasn't begun")
		}
		for _, c := range append(held, late) {
			q.End(c)
		}
		if n := q.Used(); n != 0 {
			t.Errorf("%d places are in use in the end", n)
		}
	})
}
