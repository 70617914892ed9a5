package outbox

import "os"

// maxPump is how much of a queue is sent at a time: a leader does it for one connection of many.
const maxPump = 256 << 10

// Socket writes to a connection in a loop, without waiting. An outbox calls WriteNow and PumpLater only with its lock held, the others
// without.
type Socket interface {
	// WriteNow writes what the socket takes of the two with one call, 0 for nothing: then Pump is called when it takes more.
	WriteNow(first, second []byte) (n int, err error)
	// PumpLater has Pump called once the socket takes more, or now if it does.
	PumpLater()
	// LeaveTurn gives the loop away in whose turn the connection's function runs, if it does: the goroutine that is about to wait
	// may be the one that it runs on.
	LeaveTurn()
	// WakeOwner has the connection's owner look at the outbox.
	WakeOwner()
}

// sendNowLocked sends of b what the socket takes, unless something waits, and returns the rest.
func (o *Outbox) sendNowLocked(b []byte) (rest []byte) {
	o.mu.AssertHeld()
	for sent := 0; len(b) > 0 && o.queue.empty() && o.err == nil; {
		n, err := o.socket.WriteNow(b, nil)
		if err != nil {
			o.failLocked(err)
		}
		if b = b[n:]; n == 0 {
			break
		}
		if sent += n; sent >= maxPump && len(b) > 0 {
			o.socket.PumpLater()
			break
		}
	}
	return b
}

// Pump goes on with what waits, for a Socket.
func (o *Outbox) Pump() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for sent := 0; !o.queue.empty() && o.err == nil; {
		first, second := o.queue.front()
		if len(first) == 0 {
			o.consumeLocked(0) // a mark behind what a goroutine waits for
			continue
		}
		n, err := o.socket.WriteNow(first, second)
		if err != nil {
			o.failLocked(err)
			return
		}
		if o.consumeLocked(n); n == 0 {
			return
		}
		if sent += n; sent >= maxPump {
			o.socket.PumpLater()
			return
		}
	}
}

// writeNow is Write with a Socket.
func (o *Outbox) writeNow(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch err := o.unusableLocked(); {
	case err != nil:
		return 0, err
	case o.waits.expired():
		return 0, os.ErrDeadlineExceeded
	}
	w := new(wait)
	o.putLocked(piece{b: b, wait: w}, false)
	if o.awaitLocked(func() bool { return w.done }) {
		return len(b), nil
	}
	if o.err != nil {
		return 0, o.err
	}
	n := len(b) - o.queue.withdraw(w)
	if o.queue.empty() {
		o.stall.end()
		o.tellOwnerLocked()
	}
	o.brokenLocked(n)
	return n, os.ErrDeadlineExceeded
}

// tellOwnerLocked tells an owner who waits for that, to close the connection, that nothing is left to be sent.
func (o *Outbox) tellOwnerLocked() {
	o.mu.AssertHeld()
	if o.ending && o.socket != nil {
		go o.socket.WakeOwner()
	}
}
