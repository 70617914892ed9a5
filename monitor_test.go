//go:build linux && !386

package filo

import (
	"testing"
	"testing/synctest"
	"time"
)

// A leader that has to wait for a processor, for however long, loses its loop when the turn that it begins then doesn't end. The
// monitor rests when the leaders do.
func TestMonitorAwaitsLeaders(t *testing.T) {
	poolRun(t, func(t *testing.T) {
		p := newPoolTests(t, 1, 2, time.Hour)[0]
		leads, leave := make(chan *workerChan), make(chan struct{})
		s := new(Server)
		l := &loop{server: s, pool: &p.workerPool}
		l.leadership.lead = func(w *workerChan) {
			leads <- w
			if <-leave; l.leader.Load() != w {
				w.retaken()
			}
		}
		s.loops = []*loop{l}
		p.Lead(&l.leadership)
		l.leader.Store(<-leads)
		m := &s.monitor
		m.start(s)
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
