package loop

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
)

// fakeWorkers implements Workers without a pool: Lead and Retake send a new worker to the channel leaders.
type fakeWorkers struct {
	Workers
	leaders    chan *Worker
	noMore     bool // MayRetake returns false
	serving    int
	handedOver int // calls of HandOver
}

func (f *fakeWorkers) Lead(*Seat)         { f.leaders <- newFakeWorker() }
func (f *fakeWorkers) Retake()            { f.leaders <- newFakeWorker() }
func (f *fakeWorkers) MayRetake(int) bool { return !f.noMore }
func (f *fakeWorkers) Serving() int       { return f.serving }
func (f *fakeWorkers) HandOver(*Worker, admit.Kinds) bool {
	f.handedOver++
	return true
}

// fakeOwner implements Owner without a pool.
type fakeOwner struct {
	lost    bool
	entered admit.Kinds
}

func newFakeWorker() *Worker {
	w := new(Worker)
	w.Own(new(fakeOwner))
	return w
}

func (o *fakeOwner) MayTakeLong() bool            { return true }
func (o *fakeOwner) Losing(*Socket, *class.Class) {}
func (o *fakeOwner) LoseLead()                    { o.lost = true }
func (o *fakeOwner) Enter(places admit.Kinds) bool {
	o.entered = places
	return true
}

// seatIn makes the only seat of a group's only loop, which has no epoll set.
func seatIn(g *Group, workers Workers) *Seat {
	l := &Loop{group: g}
	s := newSeat(l, workers)
	l.seats, l.roster.awake = []*Seat{s}, 1
	g.loops, g.seats = []*Loop{l}, l.seats
	return s
}

// A leader loses its seat if its turn doesn't end, even in a loop that has little to do, and even after the ticks had stopped.
func TestMonitor(t *testing.T) {
	workers := &fakeWorkers{leaders: make(chan *Worker, 1)}
	g := &Group{draining: new(atomic.Bool)}
	l, err := newLoop(g, []Workers{workers})
	if err != nil {
		t.Fatal(err)
	}
	s := l.seats[0]
	s.leader.Store(newFakeWorker())
	g.monitors.Add(1)
	go l.monitor.run(l, &g.monitors)
	defer func() {
		l.closeFiles()
		g.monitors.Wait()
	}()
	for round := range uint64(4) {
		s.resting.Store(true)
		l.sleeping.Store(true)
		for deadline := time.Now().Add(time.Minute); !l.monitor.idle.Load(); time.Sleep(monitorTick) {
			if time.Now().After(deadline) {
				t.Fatal("the ticks don't end")
			}
		}
		l.sleeping.Store(false)
		l.monitor.woken(round%2 == 0)
		s.resting.Store(false)
		s.word.Add(1) // the turn begins
		select {
		case w := <-workers.leaders:
			s.leader.Store(w)
		case <-time.After(time.Minute):
			t.Fatal("nobody has taken the seat away")
		}
		if word := s.word.Load(); word != (round+1)<<32 || l.retakes.Load() != round+1 {
			t.Fatalf("the word is %#x, after %d retakes", word, l.retakes.Load())
		}
		if l.monitor.idle.Load() {
			t.Fatal("there are no ticks, and a leader is awake")
		}
	}
}

// A worker that has lost its seat to the monitor notices that when it wants to leave the seat. Then it enters a place of a kind that it
// wants, but hands over no seat.
func TestPlaceOfAnOvertakenLeader(t *testing.T) {
	workers, w := new(fakeWorkers), newFakeWorker()
	w.seat, w.word = seatIn(new(Group), workers), 1
	w.seat.word.Store(1 << 32) // the monitor has taken the seat
	owner := w.Owner().(*fakeOwner)
	if ok := w.LeaveFor(nil, admit.Quick.Only()); !ok || !owner.lost || owner.entered != admit.Quick.Only() || w.Leads() || workers.handedOver > 0 {
		t.Errorf("left: %v, %+v, leads: %v, handed over %d times", ok, owner, w.Leads(), workers.handedOver)
	}
}

// While the server serves, Workers.MayRetake decides whether a leader may lose its seat even if the cap is then exceeded. During a shutdown
// every leader may lose its seat.
func TestTakeAway(t *testing.T) {
	for _, test := range []struct {
		noMore, draining, want bool
	}{{false, false, true}, {true, false, false}, {true, true, true}} {
		w, g := newFakeWorker(), &Group{draining: new(atomic.Bool)}
		g.draining.Store(test.draining)
		s := seatIn(g, &fakeWorkers{noMore: test.noMore})
		s.leader.Store(w)
		s.word.Store(1)
		if got := s.takeAway(1) == w; got != test.want {
			t.Errorf("no more retakes: %v, draining: %v: taken away: %v", test.noMore, test.draining, got)
		}
	}
}
