package http2conn

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
)

// countingDriver counts what is sent.
type countingDriver struct {
	silentDriver
	writes, bytes int
}

func (d *countingDriver) Send(b []byte) bool {
	d.writes++
	d.bytes += len(b)
	return false
}

// On a connection with many streams, a small part of a streamed answer is sent together with the parts of other handlers that are about to
// write. A large part, and a part that an inline handler writes, is sent at once.
func TestPartsAreSentTogether(t *testing.T) {
	for _, test := range []struct {
		streams, size int
		apart         bool
		writes        int // how many writes were made before the other handler sends
	}{
		{manyStreams, 100, true, 0},
		{manyStreams, 100, false, 2},
		{manyStreams, maxGathered + 1, true, 2},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			d := new(countingDriver)
			h := New(newShared(), d, nil, nil)
			h.sendWindow = math.MaxInt32
			h.peer.InitialWindow = math.MaxInt32
			h.mu.Lock()
			for range test.streams {
				h.counts.Enter(manyStreams)
			}
			h.flushDue = true // another handler is about to send
			h.mu.Unlock()
			until, frames := clock.Time(0), 0
			for id := uint32(1); id <= 3; id += 2 {
				s := &Stream{Request: new(Request)}
				s.open(h, id)
				s.sender.Init(s, id, http2.UnsaidPriority)
				s.state, s.sending = http2.HalfClosedRemote, sendingParts
				if err := s.Write(make([]byte, test.size), true, &Writing{Until: &until, Apart: test.apart}); err != nil {
					t.Fatal(err)
				}
				frames += 9 + test.size
			}
			if d.writes != test.writes {
				t.Errorf("%d writes, want %d", d.writes, test.writes)
			}
			h.Flush()
			if d.writes != max(test.writes, 1) || d.bytes != frames {
				t.Errorf("%d writes of %d bytes, want %d of %d", d.writes, d.bytes, max(test.writes, 1), frames)
			}
		})
	}
}

// While there is no room for answers that wait, a small part is sent from the handler's own memory, even on a connection with many streams.
func TestPartsWithoutRoomAreSent(t *testing.T) {
	const size = 100
	d := new(countingDriver)
	h := New(newShared(), d, nil, nil)
	h.sendWindow = math.MaxInt32
	h.peer.InitialWindow = math.MaxInt32
	answers := h.shared.Answers
	answers.Add(answers.Limit())
	h.mu.Lock()
	for range manyStreams {
		h.counts.Enter(manyStreams)
	}
	h.mu.Unlock()
	s, until := &Stream{Request: new(Request)}, clock.Time(0)
	s.open(h, 1)
	s.sender.Init(s, 1, http2.UnsaidPriority)
	s.state, s.sending = http2.HalfClosedRemote, sendingParts
	written := make(chan error, 1)
	go func() { written <- s.Write(make([]byte, size), true, &Writing{Until: &until, Apart: true}) }()
	select {
	case err := <-written:
		if err != nil || d.bytes != 9+size {
			t.Errorf("%d bytes were sent: %v", d.bytes, err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the handler still writes")
	}
}

// A client that takes a body window by window may do so for any time, as long as it keeps the minimum rate. One that opens its windows byte by
// byte is cut.
func TestWindowsEarnTime(t *testing.T) {
	for _, test := range []struct {
		increment uint32
		every     time.Duration
		late      bool
	}{
		{65535, time.Second, false},
		{65535, 50 * time.Millisecond, false},
		{1000, time.Second, false},
		{1, time.Second, true},
		{100, time.Second, true},
	} {
		t.Run(fmt.Sprint(test.increment, " every ", test.every), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := New(newShared(), new(countingDriver), nil, nil)
				h.sendWindow, h.peer.InitialWindow = 0, 0
				s, until := &Stream{Request: new(Request)}, clock.Time(0)
				s.open(h, 1)
				s.sender.Init(s, 1, http2.UnsaidPriority)
				s.state, s.sending = http2.HalfClosedRemote, sendingParts
				h.mu.Lock()
				h.counts.Enter(1)
				h.mu.Unlock()
				w := &Writing{Until: &until, BeforeWait: func() error { return nil }}
				written := make(chan error, 1)
				left := 2000 * int(test.increment)
				go func() {
					for left > 0 {
						n, err := s.AwaitWindow(w)
						if err == nil {
							err = s.Write(make([]byte, n), true, w)
						}
						if left -= n; err != nil {
							written <- err
							return
						}
					}
					written <- nil
				}()
				for {
					select {
					case err := <-written:
						if (err == ErrLate) != test.late || !test.late && err != nil {
							t.Errorf("with %d bytes left: %v", left, err)
						}
						return
					case <-time.After(test.every):
					}
					h.mu.Lock()
					h.sendWindow.Grow(test.increment)
					s.send.Grow(test.increment)
					h.windowOpenedLocked()
					h.mayGoOnLocked(s)
					h.mu.Unlock()
				}
			})
		})
	}
}
