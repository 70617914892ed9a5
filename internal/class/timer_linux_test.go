package class

import (
	"syscall"
	"testing"
	"time"
)

// One in SampledCalls of a worker's brief calls is sampled. The samples distinguish a handler that computes from one that waits, in a
// system call or for another goroutine.
func TestTimerSamples(t *testing.T) {
	spin := func() {
		for begin := time.Now(); time.Since(begin) < 100*time.Microsecond; {
		}
	}
	wait := func() {
		for left := (syscall.Timespec{Nsec: 50_000}); syscall.Nanosleep(&left, &left) == syscall.EINTR; {
		}
	}
	for _, test := range []struct {
		name     string
		handler  func()
		computes bool
	}{
		{"computes", spin, true},
		{"waits", wait, false},
		{"waits for a goroutine", func() { time.Sleep(50 * time.Microsecond) }, false},
		{"computes, and waits about as long", func() { spin(); wait() }, false},
	} {
		// Try several times: if another process takes the processor from a handler that computes, the sample looks as if the handler waited.
		var sampled, computed int
		for range 20 {
			if sampled, computed = sample(test.handler); (computed > sampled/2) == test.computes {
				break
			}
		}
		if sampled != sampledCalls {
			t.Errorf("%s: %d calls were sampled, want %d", test.name, sampled, sampledCalls)
		}
		if (computed > sampled/2) != test.computes {
			t.Errorf("%s: %d of %d samples say that it computes", test.name, computed, sampled)
		}
	}
}

// sampledCalls is how many calls the function sample must sample.
const sampledCalls = 50

// sample calls a handler of a brief class, and returns how many calls were sampled, and how many samples say that the handler computes.
func sample(handler func()) (sampled, computed int) {
	var timer Timer
	var k Class
	for range sampledCalls * SampledCalls {
		k.Median.Store(int64(Brief) / 2)
		k.computed.Store(waitWeight)
		timer.Switch(&k)
		if timer.SampleTurn() {
			timer.SampleNext(&k)
		}
		timer.Start(false)
		handler()
		timer.End()
		switch balance := k.computed.Load(); {
		case balance > waitWeight:
			computed++
			fallthrough
		case balance < waitWeight:
			sampled++
		}
	}
	return sampled, computed
}
