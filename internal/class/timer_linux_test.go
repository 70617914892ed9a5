//go:build !386

package class

import (
	"syscall"
	"testing"
	"time"
)

// One in SampledCalls of a worker's brief calls is sampled, and the samples tell a handler that computes from one that waits, in a system
// call, or for others of its thread.
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
		var timer Timer
		var k Class
		sampled, computed := 0, 0
		const calls = 50 * SampledCalls
		for range calls {
			k.Median.Store(int64(Brief) / 2)
			k.computed.Store(waitWeight)
			timer.Switch(&k)
			if timer.SampleTurn() {
				timer.SampleNext(&k)
			}
			timer.Start(false)
			test.handler()
			timer.End()
			switch balance := k.computed.Load(); {
			case balance > waitWeight:
				computed++
				fallthrough
			case balance < waitWeight:
				sampled++
			}
		}
		if sampled != calls/SampledCalls {
			t.Errorf("%s: %d of %d calls were sampled", test.name, sampled, calls)
		}
		if (computed > sampled/2) != test.computes {
			t.Errorf("%s: %d of %d samples say that it computes", test.name, computed, sampled)
		}
	}
}
