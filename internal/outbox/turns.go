package outbox

import (
	"errors"
	"os"
	"time"
)

// maxPaced is the maximum number of bytes of one call where writes wait: a slow client must often show that it has taken some.
const maxPaced = 16 << 10

// turn orders the goroutines that write where there is no Socket: only the holder of the turn writes. The outbox's lock guards the
// fields.
//
// Pieces are in the queue only while a goroutine holds the turn. A goroutine that is started for the purpose writes the pieces that
// nobody waits for. A goroutine in Write waits for the turn, and then writes itself.
type turn struct {
	taken  bool
	direct bool // a goroutine in Write holds the turn
}

// send writes the waiting pieces, up to the next goroutine that waits for its turn. The goroutine of send holds the turn.
func (o *Outbox) send() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.conn.SetWriteDeadline(time.Time{})
	for !o.queue.empty() && !o.queue.atTurn() && o.err == nil {
		first, _ := o.queue.front()
		o.mu.Unlock()
		n, err := o.conn.Write(first[:min(len(first), maxPaced)])
		o.mu.Lock()
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

// passOnLocked ends the caller's turn. The turn goes to the goroutine that waits for it next, or to one that is started for waiting
// pieces.
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

// takeTurnLocked waits until everything queued before was sent. Then the caller has the turn, until passOnLocked.
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
		o.mu.Unlock()
		var moved int
		moved, err = o.conn.Write(b[n:min(len(b), n+maxPaced)])
		o.mu.Lock()
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
