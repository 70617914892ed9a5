package admit

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

func newAdmission(concurrency, queue int, maxWait time.Duration) *Admission {
	a, start := new(Admission), time.Now()
	a.Init(Config{Concurrency: concurrency, Queue: queue, MaxWait: maxWait, Now: func() clock.Time { return clock.Time(time.Since(start)) + 1 }})
	return a
}

// At any time each Place is counted in exactly one kind, no reserved kind exceeds its limit, and a failed Enter changes nothing.
func TestPlaces(t *testing.T) {
	const most = 4
	a := newAdmission(most, 0, 0)
	places := make([]Place, most+MaxQuick+MaxQuickConn+MaxAlways+10)
	for i := range places {
		places[i] = a.NewPlace()
	}
	random := rand.New(rand.NewPCG(1, 2))
	beyond := 0
	for range 50_000 {
		p := &places[random.IntN(len(places))]
		before, full := p.kind, [kinds]bool{}
		for k := range full {
			full[k] = !a.hasRoom(Kind(k))
		}
		switch random.IntN(12) {
		case 0:
			p.Leave()
			if p.kind != None {
				t.Fatal("it has a place after Leave")
			}
		case 1:
			if beyond < 2 {
				if random.IntN(2) == 0 {
					p.EnterBeyond(Ordinary)
				} else {
					a.TakeBeyond()
					p.ReceiveLate()
				}
			}
		case 2:
			ok := p.MayTakeLong()
			if quick := before == Quick || before == QuickConn; ok == (quick && full[Ordinary]) || ok && quick && p.kind != Ordinary {
				t.Fatalf("MayTakeLong in kind %d: %t, now kind %d; full: %v", before, ok, p.kind, full)
			}
		default:
			wanted := Kinds(random.IntN(1 << kinds))
			overLimit := p.late && a.Beyond() > 0 // a place that Enter has taken keeps its kind even while the limit is exceeded
			holds := wanted.has(before) && !overLimit || wanted.has(Quick) && before == QuickConn
			room := false
			for k := None; k < kinds; k++ {
				room = room || wanted.has(k) && !full[k] && !(overLimit && k == Ordinary)
			}
			switch ok := p.Enter(wanted); {
			case ok != (holds || room):
				t.Fatalf("Enter(%b) in kind %d: %t; full: %v", wanted, before, ok, full)
			case (!ok || holds) && p.kind != before:
				t.Fatalf("Enter(%b) has made kind %d of %d", wanted, p.kind, before)
			case ok && !holds && !wanted.has(p.kind):
				t.Fatalf("Enter(%b) has entered kind %d", wanted, p.kind)
			}
		}
		var held [kinds]int
		for i := range places {
			held[places[i].kind]++
		}
		for k := Ordinary; k < kinds; k++ {
			if held[k] != a.Taken(k) || k != Ordinary && int64(held[k]) > a.most[k] {
				t.Fatalf("%d places of kind %d are held, and %d are counted", held[k], k, a.Taken(k))
			}
		}
		beyond = a.Beyond()
	}
	for i := range places {
		places[i].Leave()
	}
	for k := range kinds {
		if n := a.Taken(k); n != 0 {
			t.Errorf("%d places of kind %d are lost", n, k)
		}
	}
}

func (a *Admission) hasRoom(k Kind) bool { return k == None || a.taken[k].Load() < a.most[k] }

// With a Place that belongs to no Admission, as in ServeConn, Enter always succeeds.
func TestPlaceOfNone(t *testing.T) {
	var p Place
	if !p.Enter(Ordinary.Only()) || !p.MayTakeLong() {
		t.Error("refused")
	}
	p.Leave()
}

// In whatever order goroutines arrive and end, no more places are taken than the limit allows, each goroutine that waits long enough gets a
// place, and no waiter is left in the queue.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, clients, rounds = 3, 20, 30
		a := newAdmission(most, clients, time.Hour)
		var inside, entered atomic.Int64
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				random := rand.New(rand.NewPCG(7, uint64(i)))
				p := a.NewPlace()
				for range rounds {
					if !a.JoinQueue() {
						t.Error("the queue is full")
						return
					}
					gone := make(chan struct{})
					if random.IntN(5) == 0 {
						time.AfterFunc(time.Duration(random.IntN(5))*time.Millisecond, func() { close(gone) })
					}
					ok := a.AwaitPlace(func() bool { return p.Enter(Ordinary.Only()) }, gone, time.Time{})
					if a.LeaveQueue(); !ok {
						continue
					}
					if entered.Add(1); inside.Add(1) > most {
						t.Error("more are inside than the limit")
					}
					time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
					inside.Add(-1)
					p.Leave()
				}
			})
		}
		all.Wait()
		if a.Waiting() != 0 || a.IsAwaited() || a.Taken(Ordinary) != 0 {
			t.Errorf("%d wait, awaited: %t, %d places are taken", a.Waiting(), a.IsAwaited(), a.Taken(Ordinary))
		}
		if n := entered.Load(); n < clients*rounds*3/4 {
			t.Errorf("only %d of %d got in", n, clients*rounds)
		}
	})
}

// A wait ends after MaxWait, or at the given deadline if that is earlier, or at once when the channel left is closed.
func TestAwaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1, 1, time.Second)
		p := a.NewPlace()
		if !p.Enter(Ordinary.Only()) || !a.JoinQueue() {
			t.Fatal("no place for the first")
		}
		if a.JoinQueue() {
			t.Error("two wait where one may")
		}
		other := a.NewPlace()
		enter := func() bool { return other.Enter(Ordinary.Only()) }
		gone := make(chan struct{})
		close(gone)
		for name, test := range map[string]struct {
			left  <-chan struct{}
			until time.Time
			want  time.Duration
		}{
			"MaxWait":      {nil, time.Time{}, time.Second},
			"a later time": {nil, time.Now().Add(time.Hour), time.Second},
			"nobody waits": {gone, time.Time{}, 0},
		} {
			start := time.Now()
			if a.AwaitPlace(enter, test.left, test.until) || time.Since(start) != test.want {
				t.Errorf("%s: the wait took %v, want %v", name, time.Since(start), test.want)
			}
		}
		start := time.Now()
		if a.AwaitPlace(enter, nil, start.Add(time.Millisecond)) || time.Since(start) != time.Millisecond {
			t.Errorf("until a given time the wait took %v", time.Since(start))
		}
		a.LeaveQueue()
		if p.Leave(); !enter() {
			t.Error("the place is lost")
		}
	})
}

// A waiter doesn't miss a place that becomes free just after occupy has found no place.
func TestFreedAfterLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1, 1, time.Hour)
		held, own := a.NewPlace(), a.NewPlace()
		held.Enter(Ordinary.Only())
		a.JoinQueue()
		start := time.Now()
		entered := a.AwaitPlace(func() bool {
			defer held.Leave()
			return own.Enter(Ordinary.Only())
		}, nil, time.Time{})
		a.LeaveQueue()
		if took := time.Since(start); !entered || took > 0 {
			t.Errorf("entered: %t, after %v", entered, took)
		}
	})
}

// If a waiter leaves just when it is woken, another waiter gets the place, and the place is counted once.
func TestLeavesWhenWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tries = 200 // in some tries the waiter has left before it could be woken
		for range tries {
			a := newAdmission(1, 2, time.Hour)
			held := a.NewPlace()
			held.Enter(Ordinary.Only())
			gone := make(chan struct{})
			var entered atomic.Int64
			for _, left := range []chan struct{}{gone, nil} {
				a.JoinQueue()
				go func() {
					defer a.LeaveQueue()
					own := a.NewPlace()
					if a.AwaitPlace(func() bool { return own.Enter(Ordinary.Only()) }, left, time.Time{}) {
						entered.Add(1)
						own.Leave()
					}
				}()
				synctest.Wait()
			}
			close(gone)
			held.Leave()
			synctest.Wait()
			if a.Waiting() > 0 || entered.Load() == 0 || a.Taken(Ordinary) != 0 {
				t.Fatalf("%d wait, %d have entered, %d places are taken", a.Waiting(), entered.Load(), a.Taken(Ordinary))
			}
		}
	})
}
