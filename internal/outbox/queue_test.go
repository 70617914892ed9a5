package outbox

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// check checks the queue's invariants.
func (q *queue) check(t *testing.T) {
	t.Helper()
	size, messages := 0, 0
	for _, p := range q.pieces {
		size += len(p.b)
		if p.message {
			messages += len(p.b)
		}
	}
	if size != q.bytes || messages != q.messages {
		t.Fatalf("the books say %d and %d bytes, there are %d and %d", q.bytes, q.messages, size, messages)
	}
	if q.empty() && q.pieces != nil {
		t.Fatal("an empty queue keeps its array")
	}
}

// Whatever is added, sent and withdrawn, bytes are sent in order, and the sizes are correct. A wait ends when all bytes up to the end of its
// piece were sent, and not before.
func TestQueue(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(7, seed))
		var q queue
		var want, got []byte // want: the bytes that were added and not withdrawn; got: the bytes that were sent
		var waits []*wait
		ends := make(map[*wait]int) // the offset in want at which a wait's piece ends
		for range 300 {
			switch random.IntN(5) {
			case 0, 1:
				p := piece{b: make([]byte, random.IntN(20)), message: random.IntN(2) == 0}
				for i := range p.b {
					p.b[i] = byte(random.Uint32())
				}
				want = append(want, p.b...)
				if !p.message {
					p.wait = new(wait)
					waits = append(waits, p.wait)
					ends[p.wait] = len(want)
				}
				q.add(p)
			case 2, 3:
				first, second := q.front()
				n := random.IntN(len(first) + len(second) + 1)
				got = append(got, append(bytes.Clone(first), second...)[:n]...)
				done := q.consume(n)
				some := false
				for i := 0; i < len(waits); i++ {
					if waits[i].done {
						if some = true; ends[waits[i]] > len(got) {
							t.Fatal("a wait is done before its time")
						}
						waits = append(waits[:i], waits[i+1:]...)
						i--
					}
				}
				if done != some {
					t.Fatalf("consume says %t of waits that are done", done)
				}
			case 4:
				if len(waits) == 0 {
					continue
				}
				i := random.IntN(len(waits))
				end := ends[waits[i]]
				rest := q.withdraw(waits[i])
				want = append(want[:end-rest:end-rest], want[end:]...)
				for w, at := range ends {
					if at >= end {
						ends[w] = at - rest
					}
				}
				if again := q.withdraw(waits[i]); again != 0 {
					t.Fatalf("%d bytes were withdrawn twice", again)
				}
				waits = append(waits[:i], waits[i+1:]...)
			}
			q.check(t)
			if !bytes.Equal(got, want[:len(got)]) || len(got)+q.bytes != len(want) {
				t.Fatalf("seed %d: %d bytes were sent, others or too many", seed, len(got))
			}
		}
		for !q.empty() {
			first, second := q.front()
			got = append(append(got, first...), second...)
			q.consume(len(first) + len(second))
			q.check(t)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("seed %d: %d bytes were sent, others or too many", seed, len(got))
		}
		for _, w := range waits {
			if !w.done {
				t.Fatal("a wait isn't done though all has left")
			}
		}
	}
}

// consume stops at the mark of a goroutine that waits for its turn: only takeTurn removes the mark.
func TestQueueTurn(t *testing.T) {
	var q queue
	w := new(wait)
	q.add(piece{b: []byte("before")})
	q.add(piece{wait: w, turn: true})
	q.add(piece{b: []byte("after")})
	if q.atTurn() {
		t.Error("it is the turn of a goroutine before which something waits")
	}
	if q.consume(len("before")) || w.done || !q.atTurn() {
		t.Error("the turn isn't the next, or has been taken")
	}
	if q.takeTurn(); !w.done || q.atTurn() || q.bytes != len("after") {
		t.Errorf("after the turn: done %t, %d bytes wait", w.done, q.bytes)
	}
}
