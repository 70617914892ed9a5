package loop

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// A leader naps if it expects an event soon and all running handlers wait for their clients. Otherwise it waits in the parker.
func TestNap(t *testing.T) {
	later := clock.Nanotime() + clock.Nanos(time.Hour)
	for _, test := range []struct {
		name             string
		napper           napper
		serving, waiting int
		event, want      bool
	}{
		{"an event", napper{until: later}, 0, 0, true, true},
		{"no event", napper{until: later}, 0, 0, false, false},
		{"handlers that wait for their clients", napper{until: later}, 2, 2, true, true},
		{"a handler that waits for something else", napper{until: later}, 2, 1, true, false},
		{"long waits", napper{until: later, mean: time.Millisecond}, 0, 0, true, false},
		{"naps for long", napper{until: 1}, 0, 0, true, false},
		{"a new leader", napper{until: later}, 0, 0, true, false},
		{"too few processors", napper{}, 0, 0, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := &Group{draining: new(atomic.Bool)}
			l, err := newLoop(g, []Workers{&fakeWorkers{serving: test.serving}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.closeFiles()
			g.waiting.Store(int64(test.waiting))
			l.napper = test.napper
			l.poll() // adding the bell to the set may count as an event
			if test.event {
				l.parker.ring()
			}
			l.seats[0].appointed = test.name == "a new leader"
			if got := l.napper.nap(l, l.seats[0]); got != test.want {
				t.Errorf("nap returned %v", got)
			}
			if test.want && !l.napper.ready {
				t.Error("no other thread was made to look after the poller")
			}
		})
	}
}

// When waits become long on average, leaders stop napping. When waits become short, they nap again.
func TestNapMean(t *testing.T) {
	var n napper
	n.count(time.Hour)
	if n.mean > maxNapMean {
		t.Errorf("one long wait: mean %v", n.mean)
	}
	for range 10 {
		n.count(time.Hour)
	}
	if n.mean <= maxNapMean || n.mean > time.Millisecond {
		t.Errorf("long waits: mean %v", n.mean)
	}
	for range 10 {
		n.count(10 * time.Microsecond)
	}
	if n.mean > maxNapMean {
		t.Errorf("short waits: mean %v", n.mean)
	}
}
