package filo

import (
	"sync/atomic"
	"testing"

	"github.com/filohttp/filo/internal/http2"
)

// A buffer doesn't grow because its handler is always a little behind.
func TestHTTP2BodyBuffer(t *testing.T) {
	server := new(Server)
	server.configure()
	h := &http2Conn{conn: newConn(server, nil), bodies: new(atomic.Int64)}
	s := &http2Stream{h: h, state: http2.Open, running: true}
	s.recv.Open(http2.DefaultWindow)
	h.mu.Lock()
	defer h.mu.Unlock()
	piece, got := make([]byte, 1000), make([]byte, 1000)
	for i := range 1000 {
		s.recv.Receive(len(piece))
		piece[0] = byte(i)
		if !h.keepLocked(s, piece) {
			t.Fatal("no room")
		}
		if i == 0 {
			continue
		}
		if n, _ := s.takeLocked(got); n != len(got) || got[0] != byte(i-1) {
			t.Fatalf("piece %d: %d bytes, the first one %d", i, n, got[0])
		}
	}
	size := s.body.Size()
	if size > 8<<10 {
		t.Errorf("2,000 bytes take %d", size)
	}
	if charged := server.bodies.used.Load(); charged != int64(size) || charged != h.bodies.Load() {
		t.Errorf("%d bytes are charged, and %d to the client, for %d", charged, h.bodies.Load(), size)
	}
}
