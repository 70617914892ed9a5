package http2

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// A BodyQueue returns the bytes that were appended, whatever the sizes of the pieces, and however far the reader is behind. It takes little
// more memory than the unread bytes.
func TestBodyQueue(t *testing.T) {
	for _, behind := range []int{0, 1000, 15 << 10, 64 << 10, 1 << 20} {
		const total = 4 << 20
		var q BodyQueue
		random := rand.New(rand.NewPCG(1, uint64(behind)))
		content := make([]byte, total)
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		piece := make([]byte, 40<<10)
		for body := range 2 {
			sent, got := 0, 0
			for got < total {
				n := min(1+random.IntN(16<<10), total-sent)
				q.Append(content[sent : sent+n])
				sent += n
				for sent-got > behind || sent == total && got < total {
					n := q.Read(piece[:1+random.IntN(len(piece))])
					if n == 0 || !bytes.Equal(piece[:n], content[got:got+n]) {
						t.Fatalf("%d behind: %d bytes from %d on aren't those that came", behind, n, got)
					}
					got += n
				}
				if q.Len() != sent-got {
					t.Fatalf("%d behind: Len is %d, want %d", behind, q.Len(), sent-got)
				}
				if most := 2*q.Len() + 3*maxShortBody; q.Size() > most {
					t.Fatalf("%d behind: %d unread bytes take %d", behind, q.Len(), q.Size())
				}
			}
			if q.Read(piece) != 0 {
				t.Errorf("body %d goes on behind its end", body)
			}
			q.Append(content[:20<<10])
			q.Reset()
			if q.Len() != 0 || q.Read(piece) != 0 {
				t.Errorf("after Reset the body has %d bytes", q.Len())
			}
		}
		if q.Drop(); q.Size() != 0 {
			t.Errorf("after Drop it takes %d bytes", q.Size())
		}
	}
}

// Whole returns a body only if it is contiguous.
func TestBodyQueueWhole(t *testing.T) {
	var q BodyQueue
	if b, ok := q.Whole(); !ok || len(b) != 0 {
		t.Errorf("an empty one is lent as %q, %v", b, ok)
	}
	q.Append([]byte("abc"))
	q.Read(make([]byte, 1))
	if b, ok := q.Whole(); !ok || string(b) != "bc" || q.Len() != 0 {
		t.Errorf("lent %q, %v, %d left", b, ok, q.Len())
	}
	q.Reset()
	q.Append(make([]byte, maxShortBody))
	q.Append([]byte("x"))
	if _, ok := q.Whole(); ok || q.Len() != maxShortBody+1 {
		t.Errorf("lent, %d left", q.Len())
	}
}
