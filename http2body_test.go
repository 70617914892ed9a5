package filo

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/filohttp/filo/internal/http2"
)

// A handler that is always a little behind its client doesn't make the memory of what it has read pile up.
func TestHTTP2BodyOfASlowReader(t *testing.T) {
	const window, total = 64 << 10, 4 << 20
	h := new(http2Conn)
	s := &http2Stream{h: h, state: http2.HalfClosedRemote} // then nothing is credited
	h.mu.Lock()
	defer h.mu.Unlock()
	random := rand.New(rand.NewPCG(1, 2))
	var sent, got []byte
	piece := make([]byte, 16<<10)
	for len(sent) < total {
		n := 1 + random.IntN(min(len(piece), window-(len(sent)-len(got))))
		for i := range piece[:n] {
			piece[i] = byte(random.Uint32())
		}
		s.appendBodyLocked(piece[:n])
		sent = append(sent, piece[:n]...)
		if left := len(sent) - len(got); left > 1 {
			n, _ := s.takeLocked(piece[:1+random.IntN(min(left-1, len(piece)))])
			got = append(got, piece[:n]...)
		}
		if cap(s.body) > 4*window {
			t.Fatalf("after %d bytes, with %d unread, the buffer has %d", len(sent), len(sent)-len(got), cap(s.body))
		}
	}
	if !bytes.Equal(got, sent[:len(got)]) {
		t.Error("the body isn't read as it came")
	}
}
