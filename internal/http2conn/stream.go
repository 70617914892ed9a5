package http2conn

import (
	"errors"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/outbox"
	"github.com/filohttp/filo/internal/pace"
)

// Stream is a stream of HTTP/2: a request, and what there is of its answer. A quick request that is answered at once is never listed: nobody
// but the owner of the connection knows its stream.
type Stream struct {
	*Request        // nil once the handler of a parked stream has returned
	h        *Conn  // immutable
	id       uint32 // immutable
	Extended bool   // by extended CONNECT: the bytes after the head aren't content. Set by the owner before the handler runs

	// lent says that a BodyReader has the stream, perhaps for longer than the handler: no other request gets it. It is the handler's goroutine's,
	// and doesn't change once a BodyReader waits.
	lent bool

	// Guarded by the connection's mu. Before the stream is listed they are the owner's.
	listed   bool // it is one of the connection's streams
	running  bool // it has a handler
	starved  bool // the outbox of a parked stream has more for it, or its handler waits for an open window
	feeding  bool // it is in the connection's list starving, and may be starved again before it is fed
	borrowed bool // unsent is the buffer of a handler that waits
	fills    bool // the next bytes are put into filling, and not into body
	hasRead  bool // a part of the body was read
	state    http2.State
	sending  sending
	reader   reader
	cut      bodyCut
	awaits   awaits
	phase    parkPhase
	send     http2.SendWindow
	recv     http2.ReceiveWindow
	charged  int32 // see chargeLocked
	content  http2.Content
	sender   http2.Sender[Stream]
	body     http2.BodyQueue
	trailer  *trailerSection // received
	// awaitsSince is when awaits began, or when the client last did something towards it.
	awaitsSince clock.Time
	// readable wakes the goroutine that waits for the body, and writable the one that waits until less of the answer is unsent. Capacity 1,
	// made by the first wait.
	readable, writable chan struct{}
	parked             *outbox.Outbox // set by Park: that of the parked stream
	taken              *Tunnel        // set by Upgrade
	starving           *Stream        // the next one in the connection's list
	readUntil          clock.Time     // the deadline of a BodyReader or of a parked stream for reading, 0 for none; once the request is answered, until when the rest of its body may come
	unsent             []byte         // the bytes of the answer that wait for a window. Never changed, since they may be the program's
	buffer             *unsentBuffer  // that unsent is in; nil if it is elsewhere
	tail               *[]byte        // the field block behind the answer's content; nil for none
	watcher            Watcher
	writePace          pace.Pace // the handler's goroutine's; once the handler has returned, guarded by mu as well
}

// Watcher is told that the client of a stream is gone.
type Watcher interface{ ClientGone() }

// tell tells a watcher that the client is gone, if there is one.
func tell(w Watcher) {
	if w != nil {
		w.ClientGone()
	}
}

// Errors of streams, for the caller to turn into its own.
var (
	ErrReset      = errors.New("filo: the client has reset the stream")
	ErrGivenUp    = errors.New("filo: the client has taken too little of what waited")
	ErrLate       = errors.New("filo: the client is too slow, or the deadline has passed")
	ErrAnswered   = errors.New("filo: the time-out has answered")
	ErrNoRoom     = errors.New("filo: there is no room for the body")
	ErrOver       = errors.New("filo: the handler has returned")
	ErrBodyClosed = errors.New("filo: the body was closed")
)

// Request is what a stream holds for its handler.
type Request struct {
	// Set by the owner before the handler runs, and not changed afterwards.
	Head    http1.RequestHead
	Text    []byte // the memory in which Head's parts lie
	Framing http1.Framing

	// ReadPace is the handler's goroutine's; before the handler runs, the owner's.
	ReadPace pace.Pace

	filling filling // guarded by the connection's mu
}

// filling is the buffer of a reader that waits for its request's body.
type filling struct {
	buffer  []byte
	n       int  // how many bytes it holds
	gathers bool // the wait may last until the buffer is full
}

func (f *filling) isFull() bool { return f.n > 0 && f.n == len(f.buffer) }

// open makes s a new stream.
func (s *Stream) open(h *Conn, id uint32) {
	s.h, s.id = h, id
	s.ReadPace, s.writePace = pace.Pace{}, pace.Pace{}
	s.listed, s.running, s.starved, s.hasRead = false, false, false, false
	s.sending, s.cut, s.awaits = sendingNothing, bodyGoesOn, awaitsNothing
	s.parked, s.taken, s.charged, s.send = nil, nil, 0, 0
	s.trailer, s.tail, s.readUntil = nil, nil, 0
}

// bodyCut is why the server takes no more of a body.
type bodyCut uint8

const (
	bodyGoesOn bodyCut = iota
	bodyLate           // it takes too long: its reader gets a 408, or learns that the timeout has answered (see overdueLocked)
	bodyNoRoom         // there was no room for it
)

// endLateLocked ends a body that takes too long, unless it has ended already.
func (s *Stream) endLateLocked() {
	s.h.mu.AssertHeld()
	s.cut = max(s.cut, bodyLate)
}

// hasEndedLocked reports whether the request has come as a whole.
func (s *Stream) hasEndedLocked() bool {
	s.h.mu.AssertHeld()
	return s.state == http2.HalfClosedRemote
}

// restTime is how long a client that has its whole answer may take to end its request, or to send some more of it. Until then the client
// isn't told to stop, since a client that is still sending may treat a reset as a failure: curl 7.88 loses an answer if a reset comes with
// it, even while curl waits for a 100. A client that waits for something else, as the client of a call in both directions may, never ends
// its request.
const restTime = time.Second

// After longestRestTime a client that goes on sending gets no further time: see takeRestLocked.
const longestRestTime = 10 * time.Second

// maxRest is how many bytes are taken of a request that was answered before its end, as many as of a connection that lingers.
const maxRest = 64 << 20

// windowDeadline returns until when a client that has last opened its window at the given time may wait before opening it again.
func (s *Stream) windowDeadline(since clock.Time) clock.Time {
	shared := s.h.shared
	return s.writePace.Deadline(since, shared.Answers.Limits(shared.Writing))
}

// isExcusedLocked reports whether a stream whose windowDeadline has passed waits for other streams, which go first, and not for a window of
// the client. Then the stream gets more time. The client is still watched: the outbox checks how it takes the other streams' bytes, and the
// deadline of the stream whose turn it is checks how it opens the connection's window.
func (s *Stream) isExcusedLocked(now clock.Time) bool {
	s.h.mu.AssertHeld()
	h := s.h
	switch {
	case h.IsCrowded() || s.send > 0 && h.sendWindow > 0:
	case s.send <= 0 || h.schedule.Empty() || h.schedule.Next() == s:
		return false
	default:
		if deadline := h.used.Deadline(h.shared.Writing.Grace); deadline != 0 && now >= deadline {
			return false
		}
	}
	s.awaitsSince = now
	s.writePace.Add(h.shared.Writing, 0, -time.Second)
	return true
}

// wakeLocked wakes the goroutine that waits.
func (s *Stream) wakeLocked() {
	s.h.mu.AssertHeld()
	wake(s.readable)
	wake(s.writable)
	if s.parked != nil {
		s.wakeParkedLocked()
	}
}

// wake wakes the goroutine that waits on a channel, which is nil if none has waited yet.
func wake(waiting chan struct{}) {
	select {
	case waiting <- struct{}{}:
	default:
	}
}

// longestWait is the longest wait that a timer ends. Programs that want none set a deadline that is farther away: it costs each wait nothing.
const longestWait = 365 * 24 * time.Hour

// awaitLocked waits on readable or writable, or until the deadline, 0 for none. mu isn't held meanwhile. It reports false after the deadline.
func (s *Stream) awaitLocked(waiting *chan struct{}, deadline clock.Time) bool {
	s.h.mu.AssertHeld()
	h := s.h
	if *waiting == nil {
		*waiting = make(chan struct{}, 1)
	}
	woken := *waiting
	h.mu.Unlock()
	defer h.mu.Lock()
	var wait time.Duration
	if deadline != 0 {
		wait = deadline.Sub(h.shared.Clock.Exact())
	}
	switch {
	case deadline == 0 || wait > longestWait:
		<-woken
		return true
	case wait <= 0:
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-woken:
		return true
	case <-timer.C:
		return false
	}
}

// Watch makes the connection tell the watcher when the client is gone, until Unwatch. It reports whether the client is gone already.
func (s *Stream) Watch(w Watcher) (gone bool) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.watcher = w
	return s.sending == sendingLost
}

// Unwatch ends the watch that Watch has begun.
func (s *Stream) Unwatch() {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.watcher = nil
}

// EndHandler records that the handler has returned, and forgets the request. The answer is on its way. Afterwards the stream doesn't belong
// to the caller any more, and the turn may use it for another request. Only a parked stream still belongs to the caller: EndHandler returns
// its outbox, otherwise nil.
func (s *Stream) EndHandler(t *Turn) (parked *outbox.Outbox) {
	h := s.h
	h.mu.Lock()
	parked, taken := s.parked, s.taken != nil
	if taken {
		s.taken.returned = true
	}
	if parked == nil && !s.takenLocked() {
		h.handlerEndedLocked(s)
	}
	listed := s.listed
	if waits := listed && !s.lent; waits || parked != nil || taken {
		s.Request = nil // the stream may wait long for its client
	}
	h.mu.Unlock()
	if parked == nil && !taken && !listed && !s.lent && t.spare == nil && cap(s.Text) <= maxKeptText {
		s.body.Reset()
		t.spare = s
	}
	return parked
}

// maxKeptText is the size of the largest memory for the text of a head that is kept for the next request.
const maxKeptText = 16 << 10
