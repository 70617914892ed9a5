package class

import (
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// Timer measures the handlers that one worker runs one after the other, in either driver. Of all calls of classes that are known to be quick,
// it measures one in TimedCalls, since two clock readings cost as much as a short handler. It measures every call of any other class. The zero
// Timer is ready for use.
type Timer struct {
	class *Class
	since clock.Nanos // when the call that is being measured began; 0: no call is being measured
	// begun and entered count calls that are inline or of quick classes. begun counts the calls of servers' own classes, and entered those of
	// classes that handlers have entered. If each handler enters one class, the two kinds of calls alternate. With a single count, every
	// TimedCalls-th call would then be of the same kind.
	begun, entered uint32

	brief    uint32        // how often SampleTurn was called
	sampling *Class        // the class whose next call must be sampled; nil: none
	thread   int           // the thread that runs the sampled call; 0: no call is being sampled
	ran      time.Duration // how long the thread had run when the sampled call began
}

// Class returns the class of the running handler.
func (t *Timer) Class() *Class { return t.class }

// Begin begins a call of a server's handler, whose class is own. It discards a measurement that a panic has left unfinished.
func (t *Timer) Begin(own *Class, inline bool) {
	t.class, t.since, t.thread = own, 0, 0
	t.start(&t.begun, inline)
}

// Switch makes k the current class without measuring it. It discards an unfinished measurement, so End must be called before.
func (t *Timer) Switch(k *Class) { t.class, t.since, t.thread, t.sampling = k, 0, 0, nil }

// SampleTurn is called before each call of a brief class. It returns true for one in SampledCalls calls, which should be sampled.
func (t *Timer) SampleTurn() bool {
	t.brief++
	t.sampling = nil
	return t.brief%SampledCalls == 0
}

// SampleNext makes the Timer sample the next call, which is of class k, to find out whether the handler computes or waits. It should be
// called only when there is little else to do: otherwise, while the handler waits, its thread may run other goroutines, and the handler
// seems to compute.
func (t *Timer) SampleNext(k *Class) { t.sampling = k }

// DropSample undoes SampleNext.
func (t *Timer) DropSample() { t.sampling = nil }

// Start begins to measure the handler, if this call is one that must be measured. inline says that the handler runs in the worker that
// has read its request.
func (t *Timer) Start(inline bool) { t.start(&t.entered, inline) }

func (t *Timer) start(calls *uint32, inline bool) {
	known := t.class.Known()
	if known || inline {
		*calls++
		switch turn := *calls%TimedCalls == 0; {
		case turn && inline:
			t.class.Inlined.Add(1)
		case !turn && known:
			return
		}
	}
	if t.since = clock.Nanotime(); t.sampling == t.class {
		t.sampling = nil
		t.thread, t.ran = threadTime()
	}
}

// End ends the measurement that Begin or Start has begun, if there is one.
func (t *Timer) End() {
	if t.since == 0 {
		return
	}
	took := clock.Nanotime().Sub(t.since)
	t.class.Add(took)
	t.since = 0
	if t.thread != 0 {
		thread, ran := threadTime()
		t.class.AddSample(thread == t.thread && ran-t.ran >= took-took/4)
		t.thread = 0
	}
}

// Trust marks own, the class of the running server's handler, as trusted. It drops the measurement of the first call, since that call may
// have built data for later calls, such as a router's tables.
func (t *Timer) Trust(own *Class) {
	if !own.Trusted.Load() {
		own.Trusted.Store(true)
		t.since = 0
	}
}
