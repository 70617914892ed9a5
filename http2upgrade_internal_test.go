package filo

import (
	"bytes"
	"testing"
)

// A body whose reader is always a little behind takes no more memory than a few times what is unread.
func TestHTTP2BodyKeepsItsPlace(t *testing.T) {
	h := newHTTP2(newConn(new(Server), nil), nil)
	s := &http2Stream{http2Request: new(http2Request)}
	s.open(h, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	const piece, behind = 1000, 10
	var got [piece]byte
	for i := range 1000 {
		s.appendBodyLocked(bytes.Repeat([]byte{byte(i)}, piece))
		if i < behind {
			continue
		}
		if n, _ := s.takeLocked(got[:]); n != piece || got != [piece]byte(bytes.Repeat([]byte{byte(i - behind)}, piece)) {
			t.Fatalf("piece %d: %d bytes, %d", i-behind, n, got[0])
		}
	}
	if cap(s.body) > 10*behind*piece {
		t.Errorf("%d bytes hold %d", cap(s.body), len(s.body)-int(s.read))
	}
}
