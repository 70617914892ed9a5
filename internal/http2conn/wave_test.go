package http2conn

import (
	"io"
	"math"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2"
)

// sendingDriver tells how much is sent.
type sendingDriver struct {
	silentDriver
	sent chan int
}

func (d *sendingDriver) Send(b []byte) bool {
	d.sent <- len(b)
	return false
}

// waveOf returns a connection whose owner has just woken the readers of n streams. The owner has rendered the bytes out.
func waveOf(n int, out []byte) (h *Conn, streams []*Stream, sent chan int) {
	d := &sendingDriver{sent: make(chan int, 10)}
	h = New(newShared(), d, nil, nil)
	h.queue = nil
	h.sendWindow, h.peer.InitialWindow = math.MaxInt32, math.MaxInt32
	turn := &Turn{out: out}
	for i := range n {
		s := &Stream{Request: new(Request)}
		s.open(h, uint32(2*i+1))
		s.sender.Init(s, s.id, http2.UnsaidPriority)
		s.running, s.state, s.sending, s.reader, s.readable = true, http2.HalfClosedRemote, sendingParts, readerWaits, make(chan struct{}, 1)
		s.Lend(false)
		h.mu.Lock()
		h.counts.Enter(n)
		h.listLocked(s)
		h.wakeLaterLocked(turn, s)
		h.mu.Unlock()
		streams = append(streams, s)
	}
	h.WakePutOff(turn)
	for _, s := range streams {
		<-s.readable
		s.reader = readerAway
	}
	h.FlushTurn(turn)
	return h, streams, d.sent
}

// Answers of handlers that were woken together are sent together, with what the owner has rendered meanwhile.
func TestWave(t *testing.T) {
	const size, frame = 100, 9 + 100
	until := clock.Time(0)
	answer := func(s *Stream) {
		if err := s.Write(make([]byte, size), true, &Writing{Until: &until, Apart: true}); err != nil {
			t.Error(err)
		}
	}
	for _, test := range []struct {
		name string
		end  func(h *Conn, s *Stream) // what the second stream does after the answer of the first
		want int
	}{
		{"it answers", func(_ *Conn, s *Stream) { answer(s) }, 1 + 2*frame},
		{"it reads", func(_ *Conn, s *Stream) {
			if _, err := s.Read(make([]byte, 1), &Reading{Until: &until}); err != io.EOF {
				t.Error(err)
			}
		}, 1 + frame},
		{"its handler returns", func(h *Conn, s *Stream) {
			s.EndHandler(new(Turn))
			h.FlushSoon()
		}, 1 + frame},
		{"it does nothing", func(*Conn, *Stream) {}, 1 + frame},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, streams, sent := waveOf(2, []byte{0})
			h.mu.Lock()
			if h.wave.awaited != 2 || len(h.queue) != 1 {
				t.Errorf("%d readers are awaited, and %d bytes wait", h.wave.awaited, len(h.queue))
			}
			h.mu.Unlock()
			answer(streams[0])
			test.end(h, streams[1])
			for got := 0; got < test.want; { // the time may be over before the end
				select {
				case n := <-sent:
					got += n
				case <-time.After(10 * time.Second):
					t.Fatalf("%d bytes of %d were sent", got, test.want)
				}
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.wave.awaited != 0 || h.wave.waits {
				t.Errorf("%d readers are awaited, output waits: %t", h.wave.awaited, h.wave.waits)
			}
		})
	}
}

// Nothing is put off for a reader that has left the wave, for much output, and at the end of the connection.
func TestWaveIsNotAwaited(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(h *Conn, s *Stream)
		puts   bool
	}{
		{"one is awaited", func(*Conn, *Stream) {}, true},
		{"its stream is reset", func(h *Conn, s *Stream) { h.breakOffLocked(s, http2.Cancel) }, false},
		{"much waits", func(h *Conn, _ *Stream) { h.queue = make([]byte, maxWave+1) }, false},
		{"the connection ends", func(h *Conn, _ *Stream) { h.life = lifeEnding }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, streams, _ := waveOf(1, nil)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.queue = make([]byte, 1)
			test.change(h, streams[0])
			if got := h.putOffLocked(); got != test.puts {
				t.Errorf("output is put off: %t", got)
			}
			h.wave.stop()
		})
	}
}

// An answer that the owner has rendered doesn't wait for readers.
func TestWaveHoldsUpNoAnswer(t *testing.T) {
	for _, answers := range []bool{false, true} {
		h, _, sent := waveOf(1, nil)
		h.FlushTurn(&Turn{out: []byte{0}, answers: answers})
		if (len(sent) > 0) != answers {
			t.Errorf("answers: %t, %d writes", answers, len(sent))
		}
		h.mu.Lock()
		h.wave.stop()
		h.mu.Unlock()
	}
}
