package loop

import (
	"strings"
	"testing"
	"time"
)

// Overdue reports input that has arrived and isn't read although the socket waits for it, and reports progress once it is read.
func TestOverdue(t *testing.T) {
	l := newTestLoop(t, 1)
	s, client := connectedSocket(t, l)
	want := func(what string, read uint64) {
		t.Helper()
		got, progress := s.Overdue()
		for late := time.Now().Add(time.Minute); got != what && time.Now().Before(late); got, progress = s.Overdue() { // the bytes take a moment to arrive
		}
		if got != what || progress[0] != read {
			t.Errorf("%q with %d bytes read, want %q with %d", got, progress[0], what, read)
		}
	}
	want("", 0) // the socket has an owner
	for !s.Release(false) {
	}
	want("", 0)
	client.Write([]byte("five!"))
	want("there is input", 0)
	for s.poll.Load()&pollBusy == 0 {
		l.beginFilling()
		l.poll()
		l.endFilling()
		for e, ok := l.take(); ok; e, ok = l.take() {
			if e.socket != nil {
				e.socket.event(e.events)
			}
		}
	}
	want("", 0) // the owner was woken
	if n, err := s.Read(make([]byte, 10)); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	go s.Read(make([]byte, 10))
	for s.poll.Load()&pollReadParked == 0 {
		time.Sleep(time.Millisecond)
	}
	want("", 5)
	if waiting, polled := l.group.Waiting(); waiting != 1 || polled != 0 {
		t.Errorf("%d goroutines wait, %d sockets are polled", waiting, polled)
	}
	client.Write([]byte("six!!!")) // and no leader polls for events
	want("there is input", 5)
	s.Cut()
	want("", 5)
}

// A socket that waits for room although there is room is overdue, too.
func TestOverdueRoom(t *testing.T) {
	s, _ := connectedSocket(t, newTestLoop(t, 1))
	for !s.Release(true) {
	}
	if what, _ := s.Overdue(); !strings.Contains(what, "room") {
		t.Errorf("%q", what)
	}
	s.Cut()
}
