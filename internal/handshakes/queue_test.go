package handshakes

import (
	"net/netip"
	"runtime"
	"slices"
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

// A client with many queued handshakes shares its turns with one that comes later. Each client's oldest handshake comes first, until it has
// waited for too long: then those that haven't come first, and the newest of the others.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue{Most: 1, Long: time.Hour}
		first := begin(q, hog, 1)[0]
		if !q.Begin(first, hog) {
			t.Fatal("the first one may not begin")
		}
		many, one := begin(q, hog, 3), begin(q, other, 1)[0]
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
		time.Sleep(patience - time.Second)
		late := append(many[1:], begin(q, hog, 1)...)
		time.Sleep(2 * time.Second) // all but the last one have waited for too long
		inTime := begin(q, hog, 1)
		order := slices.Concat(many[:1], late[len(late)-1:], inTime)
		late = late[:len(late)-1]
		slices.Reverse(late)
		for i, next := range append(order, late...) {
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

// Where too many wait for their clients, the address that has most of them loses the one that has waited for longest.
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

// A handshake whose client has sent its part isn't ousted as long as there is one whose client hasn't.
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
