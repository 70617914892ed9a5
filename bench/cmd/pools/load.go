package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// load is what a pool is given to do: submitters that each submit one task after the other.
type load struct {
	task       func()
	submitters int

	// Either of these ends it; the other is 0.
	time  time.Duration
	total int // of tasks

	// sampleEvery is how many tasks there are to one whose wait is measured.
	sampleEvery int
	waits       waits
	samples     sync.Pool // of *sample
}

// outcome is what has become of a load.
type outcome struct {
	tasks int
	wall  time.Duration // from the first submission to the end of the last task
	cpu   time.Duration

	// allocated is how many bytes were, without the submitters themselves.
	allocated uint64

	// fairness is the smallest number of a submitter's tasks that were done when the time was over, by the largest. It is
	// negative for one submitter, and for a load that is ended by its number of tasks, of which each gets the same.
	fairness float64
}

// submitter is one of a load's submitters. The padding keeps their counts in different cache lines.
type submitter struct {
	_      [64]byte
	load   *load
	number int
	quota  int // of tasks; negative is any number
	task   func()
	ended  *sync.WaitGroup

	// balance counts the tasks that have ended and, when all are submitted, is less by their number: it is 0 then when the
	// last has ended, and never before, for it is raised before it is compared.
	balance atomic.Int64

	submitted int
	err       error
	_         [64]byte
}

// drive puts the load on a pool and returns when all tasks have ended.
func (l *load) drive(submit func(func()) error) (outcome, error) {
	var stop atomic.Bool
	var ended sync.WaitGroup
	begin := make(chan struct{})
	submitters := make([]*submitter, l.submitters)
	for i := range submitters {
		s := l.newSubmitter(i, &ended)
		submitters[i] = s
		ended.Add(1)
		go func() {
			<-begin
			s.run(submit, &stop)
		}()
	}

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	close(begin)
	fairness := -1.0
	if l.total == 0 {
		time.Sleep(l.time)
		fairness = shares(submitters)
		stop.Store(true)
	}
	ended.Wait()
	o := outcome{wall: time.Since(start), cpu: cpuTime() - cpu, fairness: fairness}
	runtime.ReadMemStats(&after)
	o.allocated = after.TotalAlloc - before.TotalAlloc

	for _, s := range submitters {
		if s.err != nil {
			return o, fmt.Errorf("a task was refused: %w", s.err)
		}
		o.tasks += s.submitted
	}
	return o, nil
}

func (l *load) newSubmitter(number int, ended *sync.WaitGroup) *submitter {
	s := &submitter{load: l, number: number, quota: l.quota(number), ended: ended}
	s.task = func() {
		l.task()
		s.account(1)
	}
	return s
}

// quota shares out the total number of tasks. The first submitters get the remainder.
func (l *load) quota(submitter int) int {
	if l.total == 0 {
		return -1
	}
	quota := l.total / l.submitters
	if submitter < l.total%l.submitters {
		quota++
	}
	return quota
}

// shares returns the smallest number of tasks done by the largest. All submitters are still at it.
func shares(submitters []*submitter) float64 {
	if len(submitters) < 2 {
		return -1
	}
	smallest, largest := submitters[0].balance.Load(), int64(0)
	for _, s := range submitters {
		done := s.balance.Load()
		smallest, largest = min(smallest, done), max(largest, done)
	}
	if largest == 0 {
		return 0
	}
	return float64(smallest) / float64(largest)
}

func (s *submitter) run(submit func(func()) error, stop *atomic.Bool) {
	for s.submitted != s.quota && !stop.Load() {
		task := s.task
		// Each submitter begins at another place in the cycle, so that also a few tasks of each give samples.
		if (s.submitted+s.number)%s.load.sampleEvery == 0 {
			task = s.load.sample(s)
		}
		if s.err = submit(task); s.err != nil {
			break
		}
		s.submitted++
	}
	s.account(-s.submitted)
}

func (s *submitter) account(n int) {
	if s.balance.Add(int64(n)) == 0 {
		s.ended.Done()
	}
}

// sample is a task whose wait is measured. It is used again, so that the bytes per task are the pool's.
type sample struct {
	submitter *submitter
	submitted time.Time
	run       func()
}

func (l *load) sample(s *submitter) func() {
	sampled, _ := l.samples.Get().(*sample)
	if sampled == nil {
		sampled = &sample{}
		sampled.run = sampled.measure
	}
	sampled.submitter = s
	sampled.submitted = time.Now()
	return sampled.run
}

func (sampled *sample) measure() {
	s := sampled.submitter
	s.load.waits.add(time.Since(sampled.submitted))
	s.load.samples.Put(sampled)
	s.task()
}
