package http2conn

import (
	"testing"

	"github.com/filohttp/filo/internal/http2"
)

// A Stream is reused for the next request unless some goroutine may still use it.
func TestStreamIsReused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *Stream)
		reused bool
	}{
		"nobody has it":          {func(*Stream) {}, true},
		"a BodyReader has it":    {func(s *Stream) { s.Lend(false) }, false},
		"the connection has it":  {func(s *Stream) { s.state = http2.Open; s.h.listLocked(s); s.state = http2.HalfClosedLocal }, false},
		"a tunnel has it":        {func(s *Stream) { s.taken = new(Tunnel) }, false},
		"the text of it is long": {func(s *Stream) { s.Text = make([]byte, maxKeptText+1) }, false},
	} {
		h, turn := New(newShared(), silentDriver{}, nil, nil), new(Turn)
		s := &Stream{Request: new(Request)}
		s.open(h, 1)
		s.state = http2.Closed
		h.mu.Lock()
		test.change(s)
		h.mu.Unlock()
		s.EndHandler(turn)
		if got := turn.spare == s; got != test.reused {
			t.Errorf("%s: reused %t, want %t", name, got, test.reused)
		}
	}
}

// The unsent part of an answer is copied if the program or the next request may reuse the body's memory.
func TestReusedBodyIsCopied(t *testing.T) {
	for _, reused := range []bool{true, false} {
		h := New(newShared(), silentDriver{}, nil, nil)
		s := &Stream{Request: new(Request)}
		s.open(h, 1)
		s.sender.Init(s, 1, http2.UnsaidPriority)
		s.state = http2.HalfClosedRemote
		h.mu.Lock()
		body := []byte("content")
		s.sendWholeLocked(&Answer{Status: 200, Body: body, Reused: reused})
		copied := string(s.unsent) == string(body) && &s.unsent[0] != &body[0]
		h.mu.Unlock()
		if copied != reused {
			t.Errorf("a body that is reused (%t) is copied: %t", reused, copied)
		}
	}
}
