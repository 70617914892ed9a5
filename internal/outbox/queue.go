package outbox

import "slices"

// queue holds the messages that wait to be sent, in order. Its outbox's lock guards it.
//
// bytes is always the size of all pieces together, and messages that of the pieces that are messages.
type queue struct {
	pieces   []piece
	bytes    int
	messages int
}

// piece is a part of what is sent. An empty one is a mark: when it is its turn, all before it has left.
type piece struct {
	b       []byte
	wait    *wait // of the goroutine that waits for it; nil if none does
	message bool  // it counts against the limit of messages
	// turn says that it is a mark which consume leaves alone: whoever reaches it passes the turn to send to the goroutine that waits.
	turn bool
}

// wait is done when what a goroutine waits for has happened.
type wait struct{ done bool }

func (q *queue) empty() bool { return len(q.pieces) == 0 }

func (q *queue) add(p piece) {
	q.pieces = append(q.pieces, p)
	q.bytes += len(p.b)
	if p.message {
		q.messages += len(p.b)
	}
}

// front returns the bytes of the first two pieces: nothing for a mark, or where there is no piece.
func (q *queue) front() (first, second []byte) {
	if len(q.pieces) > 0 {
		first = q.pieces[0].b
	}
	if len(q.pieces) > 1 {
		second = q.pieces[1].b
	}
	return first, second
}

// consume takes n bytes that were sent out of the queue, and the marks behind them. It reports whether a wait is done now.
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

// atTurn reports whether the first piece is a mark of a goroutine that waits for its turn to send.
func (q *queue) atTurn() bool { return len(q.pieces) > 0 && q.pieces[0].turn }

// takeTurn takes the mark out, and ends its goroutine's wait.
func (q *queue) takeTurn() {
	q.pieces[0].wait.done = true
	q.drop()
}

// drop forgets the first piece, and the array with the last one.
func (q *queue) drop() {
	q.pieces[0] = piece{}
	if q.pieces = q.pieces[1:]; len(q.pieces) == 0 {
		q.pieces = nil
	}
}

// withdraw takes out what a goroutine doesn't wait for any more, and returns how much of it hasn't been sent.
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

// clear forgets everything.
func (q *queue) clear() { *q = queue{} }
