package class

import (
	"github.com/filohttp/filo/internal/clock"
)

// Timer measures the handlers that one worker runs, one after the other, whichever driver serves. Of a quick class it measures one
// call in TimedCalls, of others each: to read the clock twice costs as much as a short handler takes. The zero Timer is ready for
// use.
type Timer struct {
	class *Class
	since clock.Nanos // when the call that is being measured began; 0: none is
	// How many calls of quick classes have begun: of servers' own classes, and of those that handlers have entered. With one count
	// for both, handlers that enter one class each would have the same half of their calls measured for ever.
	begun, entered uint32
}

// Class returns the class of what runs.
func (t *Timer) Class() *Class { return t.class }

// Begin begins the call of a server's handler, whose class is own. A measurement that a panic has left behind is dropped.
func (t *Timer) Begin(own *Class, inline bool) {
	t.Switch(own)
	t.start(&t.begun, inline)
}

// Switch makes k the class of what runs, without measuring it. What is being measured is dropped: End comes before.
func (t *Timer) Switch(k *Class) { t.class, t.since = k, 0 }

// Start begins to measure what runs since Switch, if it is its turn. It says by inline whether that runs where its request was read.
func (t *Timer) Start(inline bool) { t.start(&t.entered, inline) }

func (t *Timer) start(calls *uint32, inline bool) {
	if t.class.Known() {
		if *calls++; *calls%TimedCalls != 0 {
			return
		}
		if inline {
			t.class.Inlined.Add(1)
		}
	}
	t.since = clock.Nanotime()
}

// End ends what Begin or Start has begun.
func (t *Timer) End() {
	if t.since != 0 {
		t.class.Add(clock.Nanotime().Sub(t.since))
		t.since = 0
	}
}

// Trust makes own, the class of the server's handler that runs, a trusted one. The first call isn't measured: it may have made what the
// later ones find, such as a router's tables.
func (t *Timer) Trust(own *Class) {
	if !own.Trusted.Load() {
		own.Trusted.Store(true)
		t.since = 0
	}
}
