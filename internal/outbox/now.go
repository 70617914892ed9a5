package outbox

import "os"

// maxPump is how many bytes of a queue are sent at a time, since the leader has other connections to serve.
const maxPump = 256 << 10

// Socket writes to a connection in a loop without waiting. An outbox calls WriteNow and PumpLater with its lock held, and the other
// methods without it.
type Socket interface {
	// WriteNow writes as many bytes of first and second as the socket has room for, with one system call. If n is 0, the Socket calls Pump
	// when it has room.
	WriteNow(first, second []byte) (n int, err error)
	// PumpLater makes the Socket call Pump when it has room, or soon if it already has.
	PumpLater()
	// LeaveTurn is called before a goroutine waits. If a leader runs the function of the parked connection, perhaps on this goroutine,
	// LeaveTurn gives the loop to another worker, so that the loop doesn't wait, too.
	LeaveTurn()
	// Buffered returns how many of the written bytes the client hasn't taken yet, if that is known. It is called without the lock.
	Buffered() (n int, ok bool)
	// WakeOwner makes the connection's owner check the outbox.
	WakeOwner()
}

// sendNowLocked sends as much of b as the socket has room for, unless other pieces wait, and returns the rest.
func (o *Outbox) sendNowLocked(b []byte) (rest []byte) {
	o.mu.AssertHeld()
	for sent := 0; len(b) > 0 && o.queue.empty() && o.err == nil; {
		n, err := o.socket.WriteNow(b, nil)
		if err != nil {
			o.breakLocked(err)
		}
		if b = b[n:]; n == 0 {
			break
		}
		o.stall.took(n)
		if sent += n; sent >= maxPump && len(b) > 0 {
			o.socket.PumpLater()
			break
		}
	}
	return b
}

// Pump sends more of the waiting pieces to the Socket.
func (o *Outbox) Pump() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue.empty() {
		o.endWatchLocked() // see PumpLater
	}
	for sent := 0; !o.queue.empty() && o.err == nil; {
		first, second := o.queue.front()
		if len(first) == 0 {
			o.consumeLocked(0) // a mark: all bytes before it were sent
			continue
		}
		n, err := o.socket.WriteNow(first, second)
		if err != nil {
			o.breakLocked(err)
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

// writeNow is Write for a Socket.
func (o *Outbox) writeNow(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch err := o.unusableLocked(); {
	case err != nil:
		return 0, err
	case o.deadline.passed():
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
		o.endWatchLocked()
		o.tellOwnerLocked()
	}
	o.brokenLocked(n)
	return n, os.ErrDeadlineExceeded
}

// tellOwnerLocked wakes the owner if it waits to close the connection, since no bytes are left to be sent.
func (o *Outbox) tellOwnerLocked() {
	o.mu.AssertHeld()
	if o.ending && o.socket != nil {
		go o.socket.WakeOwner()
	}
}

// PumpLater makes the Socket call Pump when it has room, or soon if it already has. Until then the client is watched as if bytes waited in
// the queue. PumpLater returns false if there is no Socket, or if nothing can be sent any more.
func (o *Outbox) PumpLater() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.socket == nil || o.err != nil {
		return false
	}
	o.socket.PumpLater()
	o.watchLocked()
	return true
}
