package outbox

import "slices"

// queue holds the pieces that wait to be sent, in order. The outbox's lock guards it.
//
// bytes is always the size of all pieces together, and messages the size of those that are messages.
type queue struct {
	pieces   []piece
	bytes    int
	messages int
}

// piece is a part of the bytes to send. An empty piece is a mark: when it is the first, everything before it was sent.
type piece struct {
	b       []byte
	wait    *wait // the wait of the goroutine that waits until the piece is sent; nil if there is none
	message bool  // it counts against the limit of messages
	// whole is the memory that Lend has kept, which is released when all of it was sent; release is nil for other pieces.
	whole   []byte
	release func(b []byte)
	// turn marks a piece that consume leaves alone. When it is the first, the turn to send passes to its waiting goroutine.
	turn bool
}

// wait says whether the event that a goroutine waits for has happened.
type wait struct{ done bool }

func (q *queue) empty() bool { return len(q.pieces) == 0 }

func (q *queue) add(p piece) {
	q.pieces = append(q.pieces, p)
	q.bytes += len(p.b)
	if p.message {
		q.messages += len(p.b)
	}
}

// front returns the bytes of the first two pieces: none for a mark or a missing piece.
func (q *queue) front() (first, second []byte) {
	if len(q.pieces) > 0 {
		first = q.pieces[0].b
	}
	if len(q.pieces) > 1 {
		second = q.pieces[1].b
	}
	return first, second
}

// consume takes n sent bytes out of the queue, and the marks behind them. It reports whether a wait has ended.
func (q *queue) consume(n int) (done bool) {
	q.bytes -= n
	for len(q.pieces) > 0 && !q.pieces[0].turn {
		first := &q.pieces[0]
		k := min(n, len(first.b))
		if first.message {
			q.messages -= k
		}
		if first.b = first.b[k:]; len(first.b) > 0 {
			break
		}
		n -= k
		if first.wait != nil {
			first.wait.done, done = true, true
		}
		q.drop()
	}
	return done
}

// atTurn reports whether the first piece is the mark of a goroutine that waits for its turn to send.
func (q *queue) atTurn() bool { return len(q.pieces) > 0 && q.pieces[0].turn }

// takeTurn removes the mark that atTurn has found, and ends the wait of its goroutine.
func (q *queue) takeTurn() {
	q.pieces[0].wait.done = true
	q.drop()
}

// drop removes the first piece. When no piece is left, it also drops the array.
func (q *queue) drop() {
	if first := &q.pieces[0]; first.release != nil {
		first.release(first.whole)
	}
	q.pieces[0] = piece{}
	if q.pieces = q.pieces[1:]; len(q.pieces) == 0 {
		q.pieces = nil
	}
}

// withdraw removes the piece that a goroutine no longer waits for. It returns how many bytes of it haven't been sent.
func (q *queue) withdraw(w *wait) (rest int) {
	i := slices.IndexFunc(q.pieces, func(p piece) bool { return p.wait == w })
	if i < 0 {
		return 0
	}
	rest = len(q.pieces[i].b)
	q.bytes -= rest
	if q.pieces = slices.Delete(q.pieces, i, i+1); len(q.pieces) == 0 {
		q.pieces = nil
	}
	return rest
}

// clear removes all pieces.
func (q *queue) clear() { *q = queue{} }
