//go:build linux && !386

package filo

import (
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A leader that has to wait for a processor, for however long, loses its loop when the turn that it begins then doesn't end. The
// monitor rests when the leaders do.
func TestMonitorAwaitsLeaders(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTests(t, 1, 2, time.Hour)[0]
		leads, leave := make(chan *loopWorker), make(chan struct{})
		g := new(loopGroup)
		l := &loop{group: g, pool: &p.workerPool}
		l.leadership.lead = func(w *workerChan) {
			leads <- &w.loopWorker
			if <-leave; l.leader.Load() != &w.loopWorker {
				w.retaken()
			}
		}
		g.loops = []*loop{l}
		p.Lead(&l.leadership)
		l.leader.Store(<-leads)
		m := &g.monitor
		m.start(g)
		defer func() {
			close(m.quit)
			<-m.ended
			close(leave)
		}()
		for round := range uint64(3) {
			time.Sleep(10 * monitorRest * monitorTick) // no processor
			l.word.Add(1)                              // a turn
			select {
			case w := <-leads:
				l.leader.Store(w)
			case <-time.After(time.Minute):
				t.Fatal("nobody has taken the loop away")
			}
			if word := l.word.Load(); word != (round+1)<<32 || l.retakes.Load() != round+1 {
				t.Fatalf("the word is %#x, after %d retakes", word, l.retakes.Load())
			}
			l.resting.Store(true)
			time.Sleep(10 * monitorRest * monitorTick)
			if synctest.Wait(); !m.resting.Load() {
				t.Fatal("the monitor doesn't rest")
			}
			l.resting.Store(false)
			m.wakeUp()
		}
	})
}

// A worker that has lost its loop to the monitor gets one of the kept places all the same, and no other: or else it would run what may
// take its time beyond the cap.
func TestKeptPlaceOfAnOvertakenLeader(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTests(t, 1, 1, time.Hour)[0]
		p.places.keptMost = 1
		l := &loop{group: new(loopGroup), pool: &p.workerPool}
		w := newWorker(&p.workerPool)
		w.place, w.loop, w.word = placeLeading, l, 1
		l.word.Store(1 << 32) // the monitor was quicker
		p.places.taken.add(2, 0)
		if ok := w.leaveKept(); !ok || !w.kept || w.place != placeClosing || p.places.taken.Load() != 1 {
			t.Errorf("left: %v, kept: %v, place %d, %d taken", ok, w.kept, w.place, p.places.taken.Load())
		}
		if w.mayRun() {
			t.Error("it runs what may take its time, though another worker has the place")
		}
	})
}

// A Concurrency that is meant to be no limit is none for what may be taken away.
func TestTakeAwayWithoutALimit(t *testing.T) {
	w, g := new(loopWorker), &loopGroup{draining: new(atomic.Bool)}
	l := &loop{group: g, pool: &workerPool{MaxWorkersCount: math.MaxInt, places: new(workerPlaces)}}
	g.loops = []*loop{l}
	l.leader.Store(w)
	l.word.Store(1)
	if l.takeAway(1) != w {
		t.Error("a loop can't be taken away")
	}
}
