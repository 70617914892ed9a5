package http2conn

import "time"

// This file lets answers of handlers that were woken together leave together. In protocols in which client and server talk at the same time,
// such as gRPC, a client sends messages of several streams at once, and waits for an answer to each. A write costs more than most of these
// answers.

// wave is a group of readers that the owner has woken. While one of them may be about to answer, small output of the connection is put off, for
// waveTime at most. The connection's mu guards it.
type wave struct {
	timer   *time.Timer // nil until needed
	waits   bool        // output was put off; the timer runs
	awaited int32       // readers that have neither answered nor begun to wait again since: see Stream.awaited
}

const (
	// waveTime is how long output may be put off.
	waveTime = 100 * time.Microsecond
	// maxWave is how many bytes of output may be put off.
	maxWave = 16 << 10
)

// isAwaited reports whether a reader may be about to answer.
func (w *wave) isAwaited() bool { return w != nil && w.awaited > 0 }

// stop records that what was put off is sent now.
func (w *wave) stop() {
	if w != nil && w.waits {
		w.waits = false
		w.timer.Stop()
	}
}

// joinWaveLocked records that the stream's reader is about to be woken. Only a BodyReader is awaited: other handlers read all of a body before
// they answer.
func (s *Stream) joinWaveLocked() {
	s.h.mu.AssertHeld()
	h := s.h
	if s.reader != readerWaits || !s.lent || s.awaited {
		return
	}
	if h.wave == nil {
		h.wave = new(wave)
	}
	s.awaited = true
	h.wave.awaited++
}

// leaveWaveLocked records that the stream's reader isn't awaited any more. It reports whether it was.
func (s *Stream) leaveWaveLocked() bool {
	s.h.mu.AssertHeld()
	if !s.awaited {
		return false
	}
	s.awaited = false
	s.h.wave.awaited--
	return true
}

// endWaveLocked sends what was put off, unless other readers are awaited.
func (h *Conn) endWaveLocked() {
	h.mu.AssertHeld()
	if w := h.wave; w != nil && w.waits && w.awaited == 0 {
		h.flushLocked(nil)
	}
}

// putOffLocked puts the output off if a reader may be about to answer. Otherwise it reports false.
func (h *Conn) putOffLocked() bool {
	h.mu.AssertHeld()
	w := h.wave
	switch {
	case !w.isAwaited() || len(h.queue) > maxWave || h.life == lifeEnding:
		return false
	case w.waits || len(h.queue) == 0 && h.schedule.Empty():
		return true
	case w.timer == nil:
		w.timer = time.AfterFunc(waveTime, h.waveLate)
	default:
		w.timer.Reset(waveTime)
	}
	w.waits = true
	return true
}

// waveLate sends what was put off. Readers that haven't answered by now aren't awaited any more.
func (h *Conn) waveLate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.wave.waits {
		return
	}
	h.wave.waits = false
	for s := range h.streams.All {
		s.leaveWaveLocked()
	}
	h.flushLocked(nil)
}
