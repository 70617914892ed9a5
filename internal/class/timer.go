package class

import (
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// Timer measures the handlers that one worker runs one after the other, in either driver. It measures every call, but only one in
// TimedCalls calls of a quick class, since two clock readings cost as much as a short handler. The zero Timer is ready for use.
type Timer struct {
	class *Class
	since clock.Nanos // when the measured call began; 0: no call is measured
	// begun and entered count calls that are inline or of quick classes. begun counts those of servers' own classes, entered those of
	// classes that handlers have entered. If each handler enters one class, a single count would always measure the same one of the two
	// kinds of calls.
	begun, entered uint32

	brief    uint32        // counts the calls to SampleTurn
	sampling *Class        // its next call must be sampled; nil: none
	thread   int           // runs the sampled call; 0: no call is sampled
	ran      time.Duration // how long the thread had run when the sampled call began
}

// Class returns the class of the running handler.
func (t *Timer) Class() *Class { return t.class }

// Begin begins the call of a server's handler, whose class is own. It drops a measurement that a panic has left unfinished.
func (t *Timer) Begin(own *Class, inline bool) {
	t.class, t.since, t.thread = own, 0, 0
	t.start(&t.begun, inline)
}

// Switch makes k the current class without measuring it. It drops an unfinished measurement: call End before.
func (t *Timer) Switch(k *Class) { t.class, t.since, t.thread, t.sampling = k, 0, 0, nil }

// SampleTurn is called before each call of a brief class, and reports whether that is the one in SampledCalls to be sampled.
func (t *Timer) SampleTurn() bool {
	t.brief++
	t.sampling = nil
	return t.brief%SampledCalls == 0
}

// SampleNext samples the next call, which is one of k, to find out whether the handler computes or waits. Call it when there is little else
// to do: while a handler waits, its thread may run other goroutines.
func (t *Timer) SampleNext(k *Class) { t.sampling = k }

// DropSample undoes SampleNext.
func (t *Timer) DropSample() { t.sampling = nil }

// Start measures the handler from here on, if its turn has come. inline says that the handler runs where its request was read.
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

// End ends the measurement that Begin or Start began, if any.
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

// Trust marks own as trusted. own is the class of the running server's handler. The first call isn't measured: it may have set up things
// for the later ones, such as a router's tables.
func (t *Timer) Trust(own *Class) {
	if !own.Trusted.Load() {
		own.Trusted.Store(true)
		t.since = 0
	}
}
