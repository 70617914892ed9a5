package outbox

import "slices"

// queue holds the pieces that wait to be sent, in order. The outbox's lock guards it.
//
// bytes is always the total size of the pieces, and messages the total size of those that are messages.
type queue struct {
	pieces   []piece
	bytes    int
	messages int
}

// piece is a part of the bytes to send. An empty piece is a mark: when it is the first piece, everything before it was sent.
type piece struct {
	b       []byte
	wait    *wait // the wait of a goroutine for this piece to be sent; nil if no goroutine waits
	message bool  // the piece counts against the limit of messages
	// whole is the slice that Lend has kept. release is called with it when the piece was sent. For other pieces release is nil.
	whole   []byte
	release func(b []byte)
	// turn says that the piece is the mark of a goroutine that waits for its turn to send. consume doesn't remove it: takeTurn does, when
	// the piece is the first.
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

// front returns the bytes of the first two pieces: an empty slice for a mark or a missing piece.
func (q *queue) front() (first, second []byte) {
	if len(q.pieces) > 0 {
		first = q.pieces[0].b
	}
	if len(q.pieces) > 1 {
		second = q.pieces[1].b
	}
	return first, second
}

// consume removes n sent bytes from the queue, and the marks after them. It reports whether a wait has ended.
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

// takeTurn removes the first piece, for which atTurn has returned true, and ends the wait of its goroutine.
func (q *queue) takeTurn() {
	q.pieces[0].wait.done = true
	q.drop()
}

// drop removes the first piece. When no piece is left, it also releases the array.
func (q *queue) drop() {
	if first := &q.pieces[0]; first.release != nil {
		first.release(first.whole)
	}
	q.pieces[0] = piece{}
	if q.pieces = q.pieces[1:]; len(q.pieces) == 0 {
		q.pieces = nil
	}
}

// withdraw removes the piece of a wait that its goroutine gives up. It returns how many bytes of the piece haven't been sent.
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
