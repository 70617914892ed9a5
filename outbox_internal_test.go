package filo

import (
	"testing"
	"time"
)

// takingNower is a socket that takes as much as it is told to.
type takingNower struct{ takes int }

func (n *takingNower) writeNow(first, second []byte) (int, error) {
	taken := min(n.takes, len(first)+len(second))
	n.takes -= taken
	return taken, nil
}

func (n *takingNower) pumpLater() {}
func (n *takingNower) wakeOwner() {}

// A timer may fire just when its client has taken everything: what was queued since has all of its time.
func TestTimerOfAStallThatIsOver(t *testing.T) {
	s := &Server{WriteTimeout: time.Hour} // which no timer comes to
	s.configure()
	socket := &takingNower{}
	o := &outbox{conn: &conn{server: s}, now: socket, limit: defaultQueueLimit}
	o.progress.L = &o.mu
	message := make([]byte, 100)
	queue := func() {
		t.Helper()
		if err := o.queue(message); err != nil {
			t.Fatal(err)
		}
	}
	queue()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.endPaceLocked()
	}()
	socket.takes = len(message)
	o.pump()
	if o.stall != nil {
		t.Fatal("a client that has taken everything is watched")
	}
	queue()
	if o.stall == nil {
		t.Fatal("a client that has something to take isn't watched")
	}
	if o.tooSlow() || o.err != nil {
		t.Errorf("a client whose time has just begun is too slow: %v", o.err)
	}
	o.looked -= int64(time.Hour) // as if that had passed
	if !o.tooSlow() || o.err == nil {
		t.Error("a client that has taken nothing in its time isn't too slow")
	}
}
