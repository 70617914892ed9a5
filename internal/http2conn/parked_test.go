package http2conn

import (
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/outbox"
	"github.com/filohttp/filo/internal/pace"
)

// servedOwner is the owner of a parked stream's outbox. Its Serve sends to the channel served.
type servedOwner struct{ served chan struct{} }

func (servedOwner) Limits() pace.Limits { return pace.Limits{} }
func (servedOwner) Now() clock.Time     { return 0 }
func (servedOwner) HasMore() bool       { return false }
func (servedOwner) Drained()            {}
func (servedOwner) Disconnect(error)    {}
func (o servedOwner) Serve()            { o.served <- struct{}{} }

// If an event occurs between the last check of the goroutine that serves a parked stream and its call of Rest, the goroutine keeps the
// stream. If events occur later, a single new goroutine serves the stream.
func TestParkedStreamRests(t *testing.T) {
	for _, test := range []struct {
		name          string
		event         func(h *Conn, s *Stream)
		rests, sends  bool // the results of Rest(false) and of Rest(true)
		servedLater   bool // after the event a goroutine serves a resting stream
		servedSending bool // as servedLater, for a stream that only waits for its outbox
	}{
		{"nothing", func(*Conn, *Stream) {}, true, true, false, false},
		{"Wake", func(_ *Conn, s *Stream) { (*StreamConn)(s).Wake() }, false, false, true, true},
		{"data", func(h *Conn, s *Stream) { s.body.Append([]byte("data")); s.wakeLocked() }, false, false, true, true},
		{"data that nobody was woken for yet", func(h *Conn, s *Stream) { s.body.Append([]byte("data")) }, false, true, false, false},
		{"a shutdown", func(h *Conn, s *Stream) { h.shared.Draining.Store(true); h.wakeParkedLocked() }, false, true, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, sends := range []bool{false, true} {
				for _, before := range []bool{true, false} {
					h := New(newShared(), silentDriver{}, nil, nil)
					owner, out := servedOwner{make(chan struct{}, 2)}, new(outbox.Outbox)
					s := deadlineConn{h, nil}.await(awaitsNothing)
					s.running, s.state = true, http2.HalfClosedRemote
					out.Open(owner, (*StreamConn)(s), nil, false)
					out.OnStream()
					if err := s.Park(out); err != nil {
						t.Fatal(err)
					}
					happen := func() {
						if test.name != "Wake" {
							h.mu.Lock()
							defer h.mu.Unlock()
						}
						test.event(h, s)
					}
					if before {
						happen()
						want := test.rests
						if sends {
							want = test.sends
						}
						if got := (*StreamConn)(s).Rest(sends); got != want {
							t.Errorf("sends %t: after the event Rest returns %t", sends, got)
						}
						continue
					}
					if !(*StreamConn)(s).Rest(sends) {
						t.Fatalf("sends %t: the stream doesn't rest", sends)
					}
					happen()
					want := test.servedLater
					if sends {
						want = test.servedSending
					}
					if want {
						select {
						case <-owner.served:
						case <-time.After(time.Minute):
							t.Errorf("sends %t: nobody serves the stream", sends)
						}
						happen() // Rest returns false because of this event
					}
					h.mu.Lock()
					rests := s.restsLocked()
					h.mu.Unlock()
					if rests == want || len(owner.served) > 0 {
						t.Errorf("sends %t: after the event the stream rests: %t", sends, rests)
					}
				}
			}
		})
	}
}
