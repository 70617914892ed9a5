package servertest

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// maxBuffered bounds what one direction of a connection holds: a writer whose peer doesn't read
	// blocks after that many bytes, as with a full socket buffer.
	maxBuffered = 64 << 10

	minRing = 1 << 10
)

// errPipe is the error of a Write whose bytes nobody will read. errors.Is finds both io.ErrClosedPipe, as with net.Pipe, and EPIPE, as with
// a socket.
var errPipe error = pipeError{}

type pipeError struct{}

func (pipeError) Error() string { return syscall.EPIPE.Error() }

func (pipeError) Is(target error) bool {
	return target == io.ErrClosedPipe || target == syscall.EPIPE
}

// A stream carries bytes one way: from the Write of one Conn to the Read of its peer.
type stream struct {
	mu      sync.Mutex
	changed sync.Cond // uses mu; signaled when a field below has changed

	ring []byte // len is 0 or a power of two, at most maxBuffered
	head int    // the index of the oldest byte
	used int

	writing      bool // a Write is under way; a second one waits, so that their bytes don't mix
	finished     bool // no byte will follow those in ring
	writerClosed bool // the writing Conn was closed
	readerClosed bool // the reading Conn was closed
	reset        bool // one of the two Conns was reset

	readDeadline  deadline
	writeDeadline deadline
}

// A deadline is the read or the write deadline of a stream, and is guarded by the stream's mu.
//
// The timer may fire early: a server moves its deadline further into the future at every request, and this only stores the new time. The
// timer is set again when it fires early.
type deadline struct {
	at     time.Time // zero: none
	passed bool
	timer  *time.Timer
	fires  time.Time // when timer fires; zero when it isn't running
}

func newStream() *stream {
	s := new(stream)
	s.changed.L = &s.mu
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readerClosed:
			return 0, net.ErrClosed
		case len(p) == 0:
			return 0, nil
		case s.readDeadline.passed:
			return 0, os.ErrDeadlineExceeded
		case s.reset:
			return 0, syscall.ECONNRESET
		case s.used > 0:
			n := s.take(p)
			s.changed.Broadcast()
			return n, nil
		case s.finished:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.writing && s.writeErrLocked() == nil {
		s.changed.Wait()
	}
	if err := s.writeErrLocked(); err != nil {
		return 0, err
	}
	s.writing = true
	n := 0
	var err error
	for n < len(p) && err == nil {
		if m := s.put(p[n:]); m > 0 {
			n += m
			s.changed.Broadcast()
			continue
		}
		s.changed.Wait()
		err = s.writeErrLocked()
	}
	s.writing = false
	s.changed.Broadcast()
	return n, err
}

// waitRead waits until every byte that was written has been read. It returns an error if some bytes never will be.
func (s *stream) waitRead() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.used > 0 {
		if err := s.waitErrLocked(); err != nil {
			return err
		}
		s.changed.Wait()
	}
	return nil
}

// waitErrLocked returns the reason why bytes in the ring will not be read in time.
func (s *stream) waitErrLocked() error {
	switch {
	case s.writerClosed:
		return net.ErrClosed
	case s.writeDeadline.passed:
		return os.ErrDeadlineExceeded
	case s.reset:
		return syscall.ECONNRESET
	case s.readerClosed:
		return errPipe
	}
	return nil
}

func (s *stream) writeErrLocked() error {
	if err := s.waitErrLocked(); err != nil {
		return err
	}
	if s.finished {
		return errPipe
	}
	return nil
}

// take moves the oldest bytes into p.
func (s *stream) take(p []byte) int {
	p = p[:min(len(p), s.used)]
	n := copy(p, s.ring[s.head:])
	copy(p[n:], s.ring)
	s.head = (s.head + len(p)) & (len(s.ring) - 1)
	s.used -= len(p)
	if s.used == 0 {
		s.head = 0 // so that the next bytes need only one copy
	}
	return len(p)
}

// put appends as much of p as fits and returns the number of appended bytes.
func (s *stream) put(p []byte) int {
	if need := min(s.used+len(p), maxBuffered); need > len(s.ring) {
		s.grow(need)
	}
	p = p[:min(len(p), len(s.ring)-s.used)]
	if len(p) == 0 {
		return 0
	}
	tail := (s.head + s.used) & (len(s.ring) - 1)
	n := copy(s.ring[tail:], p)
	copy(s.ring, p[n:])
	s.used += len(p)
	return len(p)
}

func (s *stream) grow(need int) {
	size := max(len(s.ring), minRing)
	for size < need {
		size *= 2
	}
	ring := make([]byte, size)
	n := copy(ring, s.ring[s.head:min(s.head+s.used, len(s.ring))])
	copy(ring[n:], s.ring[:s.used-n])
	s.ring, s.head = ring, 0
}

// finish ends the stream; the bytes in it can still be read.
func (s *stream) finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writerClosed {
		return net.ErrClosed
	}
	s.finished = true
	s.changed.Broadcast()
	return nil
}

// closeWriter ends the stream for the Conn that writes it. With reset, the bytes in it are lost.
func (s *stream) closeWriter(reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writerClosed, s.finished = true, true
	s.closeLocked(&s.writeDeadline, reset)
}

// closeReader ends the stream for the Conn that reads it and reports whether this was the first call.
func (s *stream) closeReader(reset bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readerClosed {
		return false
	}
	s.readerClosed = true
	s.ring, s.head, s.used = nil, 0, 0
	s.closeLocked(&s.readDeadline, reset)
	return true
}

func (s *stream) closeLocked(d *deadline, reset bool) {
	if reset {
		s.reset = true
		s.ring, s.head, s.used = nil, 0, 0
	}
	d.at = time.Time{}
	if d.timer != nil {
		d.timer.Stop()
		d.fires = time.Time{}
	}
	s.changed.Broadcast()
}

// setDeadline sets d, one of s's two deadlines, to t; the zero time is none.
func (s *stream) setDeadline(d *deadline, closed *bool, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *closed {
		return net.ErrClosed
	}
	d.at, d.passed = t, false
	if t.IsZero() {
		return nil
	}
	if !d.fires.IsZero() && !t.Before(d.fires) {
		return nil
	}
	s.checkDeadlineLocked(d)
	return nil
}

func (s *stream) checkDeadlineLocked(d *deadline) {
	wait := time.Until(d.at)
	if wait <= 0 {
		d.passed = true
		s.changed.Broadcast()
		return
	}
	d.fires = d.at
	if d.timer == nil {
		d.timer = time.AfterFunc(wait, func() { s.timerFired(d) })
		return
	}
	d.timer.Reset(wait)
}

func (s *stream) timerFired(d *deadline) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.fires = time.Time{}
	if !d.at.IsZero() {
		s.checkDeadlineLocked(d)
	}
}
