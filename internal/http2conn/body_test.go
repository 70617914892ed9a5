package http2conn

import (
	"sync/atomic"
	"testing"

	"github.com/filohttp/filo/internal/http2"
)

// A body's buffer stays small even if the handler that reads the body is always a little behind.
func TestBodyBuffer(t *testing.T) {
	h := &Conn{shared: newShared(), bodies: new(atomic.Int64)}
	s := &Stream{h: h, state: http2.Open, running: true}
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
	if charged := h.shared.Bodies.Used(); charged != int64(size) || charged != h.bodies.Load() {
		t.Errorf("%d bytes are charged, and %d to the client, for %d", charged, h.bodies.Load(), size)
	}
}

// Bytes that arrive while a reader waits are copied to the reader's own buffer, which takes no memory of the server. Bytes that don't fit there
// are queued for the reader. The reader is woken only when the input is used up or, if it wants all of the body, when its buffer is full.
func TestBodyFill(t *testing.T) {
	for _, gathers := range []bool{false, true} {
		h := &Conn{shared: newShared(), bodies: new(atomic.Int64)}
		turn := new(Turn)
		into := make([]byte, 10)
		request := &Request{filling: filling{buffer: into, gathers: gathers}}
		filling := &request.filling
		s := &Stream{Request: request, h: h, id: 1, state: http2.Open, running: true, reader: readerWaits, readable: make(chan struct{}, 1), fills: true}
		s.recv.Open(http2.DefaultWindow)
		h.streams.Add(1, s)
		come := func(piece string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			filled := s.fillLocked([]byte(piece))
			if !h.keepLocked(s, []byte(piece[filled:])) {
				t.Fatal("no room")
			}
			h.wakeLaterLocked(turn, s)
		}
		come("abcd")
		come("efg")
		if len(s.readable) > 0 || s.body.Size() > 0 || h.shared.Bodies.Used() > 0 {
			t.Errorf("gathers %t: woken %d times, the queue takes %d bytes", gathers, len(s.readable), s.body.Size())
		}
		h.WakePutOff(turn)
		if woken := len(s.readable) > 0; woken == gathers {
			t.Errorf("gathers %t: when the input is used up, the reader was woken: %t", gathers, woken)
		}
		if come("hijklmn"); len(s.readable) != 1 {
			t.Errorf("gathers %t: a full buffer wakes nobody", gathers)
		}
		h.mu.Lock()
		rest := make([]byte, 10)
		n, _ := s.takeLocked(rest)
		h.mu.Unlock()
		if filling.n != 10 || string(into) != "abcdefghij" || string(rest[:n]) != "klmn" {
			t.Errorf("gathers %t: %d bytes %q, then %q", gathers, filling.n, into, rest[:n])
		}
	}
}
