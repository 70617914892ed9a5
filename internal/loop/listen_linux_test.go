//go:build !386

package loop

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// A socket that was taken out of the epoll set is put back, even if the system has no memory for that at first.
func TestListenerIsWatchedAgain(t *testing.T) {
	bell, err := sock.NewEventFD() // stands in for the listening socket
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close(bell)
	set, err := newEpollSet()
	if err != nil {
		t.Fatal(err)
	}
	defer set.close()
	var failures atomic.Uint64
	e := &listenerEntry{
		Listener: &Listener{logger: func() *slog.Logger { return slog.New(slog.DiscardHandler) }, log: sock.AcceptLog{Failures: &failures}},
		loop:     &Loop{epoll: -1}, fd: bell, watched: true,
	}
	e.pause()
	await(t, "a watch to fail", func() bool { return failures.Load() > 0 })
	e.mu.Lock()
	e.loop.epoll = set
	e.mu.Unlock()
	await(t, "the socket to be watched", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.watched
	})
}

// A loop whose bell can't be watched would never be told anything.
func TestParkerNeedsItsWatches(t *testing.T) {
	p := new(parker)
	if err := p.open(-1); err == nil {
		p.close()
		t.Error("a parker was opened whose set watches nothing")
	}
}

// await waits until so returns true.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
