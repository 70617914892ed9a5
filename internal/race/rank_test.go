//go:build race && (amd64 || arm64)

package race

import (
	"strings"
	"sync"
	"testing"
)

// panicOf returns the message with which f panics, or "" if f doesn't panic.
func panicOf(f func()) (message string) {
	defer func() {
		if value := recover(); value != nil {
			message = value.(string)
		}
	}()
	f()
	return ""
}

// A goroutine must take locks in the order of their ranks, and never two of the same rank.
func TestRanks(t *testing.T) {
	var conns Mutex[OfConns]
	var loop, otherLoop Mutex[OfLoop]
	var outbox, stream, unranked Mutex[OfLeaf]
	stream.SetRank(OfStream{})
	unranked.SetRank(Unranked{})
	nested := func(outer, inner sync.Locker) func() {
		return func() {
			outer.Lock()
			defer outer.Unlock()
			inner.Lock()
			inner.Unlock()
		}
	}
	for _, test := range []struct {
		what         string
		outer, inner sync.Locker
		allowed      bool
	}{
		{"in order", &conns, &loop, true},
		{"in the other order", &loop, &conns, false},
		{"two of one rank", &loop, &otherLoop, false},
		{"a rank of its own", &stream, &outbox, true},
		{"a rank of its own, in the other order", &outbox, &stream, false},
		{"under a lock without a rank", &unranked, &conns, true},
		{"a lock without a rank", &outbox, &unranked, true},
	} {
		message := panicOf(nested(test.outer, test.inner))
		if allowed := message == ""; allowed != test.allowed {
			t.Errorf("%s: %q", test.what, message)
		}
		// The panic has left no lock recorded.
		if message := panicOf(nested(&stream, &conns)); message != "" {
			t.Errorf("after %s: %q", test.what, message)
		}
	}
	// A goroutine may take locks of the same rank one after the other, and the locks of other goroutines don't matter.
	loop.Lock()
	done := make(chan string)
	go func() { done <- panicOf(nested(&conns, &otherLoop)) }()
	if message := <-done; message != "" {
		t.Errorf("by another goroutine: %q", message)
	}
	if !conns.TryLock() { // TryLock can't wait, so it may ignore the order
		t.Error("TryLock fails")
	}
	conns.Unlock()
	loop.Unlock()
	if message := panicOf(loop.Unlock); !strings.Contains(message, "hasn't locked") {
		t.Errorf("unlocked twice: %q", message)
	}
}
