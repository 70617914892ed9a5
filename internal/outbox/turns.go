package outbox

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// maxPaced is the maximum number of bytes of one write that may block. If it were larger, a slow client that takes bytes might seem to take
// none for too long.
const maxPaced = 16 << 10

// turn serializes the goroutines that write if there is no Socket: only the holder of the turn writes. The outbox's lock guards the fields.
//
// Pieces are in the queue only while a goroutine holds the turn. A goroutine that runs send writes the pieces for which no goroutine waits.
// A goroutine in Write waits for the turn, and then writes its own bytes.
type turn struct {
	taken  bool
	direct bool // a goroutine in Write holds the turn
}

// send writes the waiting pieces, up to the mark of the next goroutine that waits for its turn. The calling goroutine holds the turn.
func (o *Outbox) send() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.conn.SetWriteDeadline(time.Time{})
	for !o.queue.empty() && !o.queue.atTurn() && o.err == nil {
		first, _ := o.queue.front()
		n, err := o.writeLocked(first[:min(len(first), maxPaced)])
		if o.err != nil {
			break
		}
		if o.consumeLocked(n); err != nil {
			o.breakLocked(err)
		}
		if o.queue.empty() {
			o.mu.Unlock()
			o.owner.Drained()
			o.mu.Lock()
		}
	}
	o.passOnLocked()
}

// errExited is the error of a connection whose Write has ended the goroutine.
var errExited = errors.New("filo: the connection's Write has ended its goroutine")

// writeLocked writes b to conn. It releases mu meanwhile. The calling goroutine holds the turn. A panic of conn's Write, which may be the program's
// code, becomes an error, since nobody recovers the panics of the goroutine that runs send.
func (o *Outbox) writeLocked(b []byte) (n int, err error) {
	o.mu.AssertHeld()
	returned := false
	o.mu.Unlock()
	defer func() {
		value := recover()
		o.mu.Lock()
		switch {
		case value != nil:
			err = fmt.Errorf("filo: panic in the connection's Write: %v", value)
		case !returned: // after a Goexit the caller doesn't go on
			o.breakLocked(errExited)
			o.passOnLocked()
		}
	}()
	n, err = o.conn.Write(b)
	returned = true
	return n, err
}

// passOnLocked ends the caller's turn. If the first piece is the mark of a waiting goroutine, that goroutine gets the turn. If it is another
// piece, passOnLocked passes the turn to a new goroutine that runs send.
func (o *Outbox) passOnLocked() {
	o.mu.AssertHeld()
	switch {
	case o.err != nil || o.queue.empty():
		o.turn.taken = false
		o.endWatchLocked()
	case o.queue.atTurn():
		o.queue.takeTurn()
	default:
		go o.send()
	}
	o.wakeLocked()
}

// takeTurnLocked waits until everything that was queued before was sent. Then the caller holds the turn until passOnLocked.
func (o *Outbox) takeTurnLocked() error {
	o.mu.AssertHeld()
	w := &wait{done: !o.turn.taken}
	if o.turn.taken {
		o.queue.add(piece{wait: w, turn: true})
	}
	o.turn.taken = true
	o.awaitLocked(func() bool { return w.done || o.ending })
	err := o.unusableLocked()
	if err == nil && o.deadline.passed() {
		err = os.ErrDeadlineExceeded
	}
	switch {
	case err == nil:
		return nil
	case w.done:
		o.passOnLocked()
	default:
		o.queue.withdraw(w)
	}
	return err
}

// writeInTurn is Write without a Socket.
func (o *Outbox) writeInTurn(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.takeTurnLocked(); err != nil {
		return 0, err
	}
	o.turn.direct = true
	o.conn.SetWriteDeadline(o.deadline.time())
	o.watchLocked()
	n, err := 0, error(nil)
	for n < len(b) && err == nil {
		var moved int
		moved, err = o.writeLocked(b[n:min(len(b), n+maxPaced)])
		n += moved
		o.stall.took(moved)
	}
	o.turn.direct = false
	switch {
	case err == nil || o.err != nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		o.brokenLocked(n)
	default:
		o.breakLocked(err)
	}
	o.passOnLocked()
	return n, err
}
