package life

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

type listener struct {
	net.Listener
	address string
	closed  bool
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.address} }

func (l *listener) Close() error {
	l.closed = true
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A server drains once, and no longer accepts when its last listener is closed. Its end is reported once.
func TestLife(t *testing.T) {
	var l Life
	l.Init()
	if _, ok := l.Served(); ok || l.Accepts() || l.EndsConns() {
		t.Error("a server that hasn't begun accepts, or ends connections")
	}
	inner := []*listener{{address: "a"}, {address: "b"}, {address: "a"}}
	var all []*net.Listener
	for _, each := range inner {
		outer := net.Listener(each)
		if all = append(all, &outer); !l.Track(&outer) {
			t.Fatal("a listener is refused")
		}
	}
	if address, ok := l.Served(); address != "a b" || !ok || !l.Accepts() {
		t.Errorf("it serves %q, %t", address, ok)
	}
	starts := 0
	start := func() { starts++ }
	if started, again := l.Start(start), l.Start(start); starts != 1 || !started || !again {
		t.Errorf("it was started %d times", starts)
	}
	if !l.DrainingSince().IsZero() {
		t.Error("it drains already")
	}
	ran := make(chan int, 2)
	l.OnShutdown(func() { ran <- 1 })
	rest := clock.Time(time.Hour)
	open, first := l.BeginDraining(rest, 7)
	if _, again := l.BeginDraining(0, 8); len(open) != 3 || !first || again || !l.Draining.Load() || !isClosed(l.DrainBegun) || l.Accepts() {
		t.Errorf("%d listeners are open; first: %t, then %t", len(open), first, again)
	}
	l.OnShutdown(func() { ran <- 2 })
	if got := []int{<-ran, <-ran}; !slices.Contains(got, 1) || !slices.Contains(got, 2) {
		t.Errorf("functions %v were called", got)
	}
	at := func(now clock.Time) func() clock.Time { return func() clock.Time { return now } }
	if l.EndsRest(at(rest-1)) || !l.EndsRest(at(rest)) || !l.EndsConns() {
		t.Error("the rest ends at another time")
	}
	if l.Start(start) || starts != 1 || l.DrainingSince().IsZero() {
		t.Error("it starts while it drains")
	}
	late := net.Listener(&listener{})
	if l.Track(&late) {
		t.Error("a listener is added while the server drains")
	}
	for i, each := range all {
		if isClosed(l.NotAccepting) {
			t.Errorf("with %d listeners it doesn't accept", len(all)-i)
		}
		if l.Untrack(each); !inner[i].closed {
			t.Error("a listener isn't closed")
		}
	}
	if !isClosed(l.NotAccepting) {
		t.Error("without listeners it accepts")
	}
	l.Cut(3, 1, "GET / 1")
	l.Cut(2, 2, "")
	end, ok := l.TakeEnd()
	if want := (End{Address: "a b", Since: l.DrainingSince(), AnsweredBefore: 7, ConnsCut: 3, TasksCut: 2, RequestsCut: "GET / 1"}); !ok || end != want {
		t.Errorf("%+v, %t", end, ok)
	}
	if _, again := l.TakeEnd(); again {
		t.Error("the end is told twice")
	}
}

// When the contexts of requests end, the contexts of handshakes end, too, but not the other way round.
func TestContexts(t *testing.T) {
	var l Life
	l.Init()
	over := errors.New("over")
	l.CancelHandshakes(over)
	if l.Handshaking.Err() == nil || l.Base.Err() != nil {
		t.Error("the wrong context ends")
	}
	l.Init()
	l.CancelBase(over)
	if l.Handshaking.Err() == nil || l.Base.Err() == nil {
		t.Error("a context is left")
	}
}
