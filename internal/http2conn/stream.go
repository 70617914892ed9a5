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

// Stream is an HTTP/2 stream: a request, and its answer as far as it exists. The stream of a quick request that is answered at once is never
// listed, so only the connection's owner knows it.
type Stream struct {
	*Request        // nil once the handler of a parked stream has returned
	h        *Conn  // immutable
	id       uint32 // immutable
	Extended bool   // an extended CONNECT request: the bytes after the head aren't content. Set by the owner before the handler runs

	lent bool // a BodyReader may use the stream after the handler has returned, so no other request reuses it; only the handler's goroutine accesses lent

	// The connection's mu guards the following fields. Before the stream is listed, only the owner uses them.
	listed   bool // the stream is in Conn.streams
	running  bool // from StepRun or Refuse until returnedLocked
	starved  bool // the outbox of the parked stream has more bytes to send, or the handler waits for an open window
	feeding  bool // the stream is in the list Conn.starving; it may become starved again before feedLocked serves the list
	borrowed bool // unsent is a slice of the buffer of a handler that waits in Write
	fills    bool // the reader waits, and the next bytes are copied to filling, not to body
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
	whole    int32 // the size of the body that unsent is the rest of, which stays in memory until all of it is sent; 0 if unsent isn't such a rest
	content  http2.Content
	sender   http2.Sender[Stream]
	body     http2.BodyQueue
	trailer  *trailerSection // received
	// awaitsSince is when the wait of awaits began, or the client's last progress since then.
	awaitsSince clock.Time
	// readable wakes the goroutine that waits for the body. writable wakes the goroutine that waits until fewer bytes of the answer are
	// unsent. Each has capacity 1, and is made when a goroutine first waits on it.
	readable, writable chan struct{}
	parked             *outbox.Outbox // the outbox of the parked stream; set by Park
	taken              *Tunnel        // set by Take
	starving           *Stream        // the next stream in the list Conn.starving
	readUntil          clock.Time     // the read deadline of a BodyReader or a parked stream, 0 for none; after the answer, the deadline of the rest of the body
	unsent             []byte         // the bytes of the answer that wait for a window. They are never modified, since they may lie in the program's memory
	buffer             *unsentBuffer  // the buffer that holds unsent; nil if it is elsewhere
	tail               *[]byte        // the field block after the answer's content; nil for none
	watcher            Watcher
	writePace          pace.Pace // used by the handler's goroutine; once the handler has returned, guarded by mu
}

// Watcher is notified when the client of a stream is gone.
type Watcher interface{ ClientGone() }

// tell notifies a watcher, which may be nil, that the client is gone.
func tell(w Watcher) {
	if w != nil {
		w.ClientGone()
	}
}

// Errors of streams, which the caller turns into errors for the program.
var (
	ErrReset      = errors.New("filo: the client has reset the stream")
	ErrGivenUp    = errors.New("filo: the client has taken too little of what waited")
	ErrLate       = errors.New("filo: the client is too slow, or the deadline has passed")
	ErrAnswered   = errors.New("filo: the time-out has answered")
	ErrNoRoom     = errors.New("filo: there is no room for the body")
	ErrOver       = errors.New("filo: the handler has returned")
	ErrBodyClosed = errors.New("filo: the body was closed")
)

// Request holds the parts of a stream that only its handler needs.
type Request struct {
	// Set by the owner before the handler runs, and not changed afterwards.
	Head    http1.RequestHead
	Text    []byte // the memory in which Head's parts lie
	Framing http1.Framing

	// ReadPace belongs to the connection's owner, and from the handler's start on to the handler's goroutine.
	ReadPace pace.Pace

	filling filling // guarded by the connection's mu
}

// filling is the buffer of a goroutine that waits for a request's body.
type filling struct {
	buffer  []byte
	n       int  // how many bytes buffer holds
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

// bodyCut says why the server accepts no more bytes of a body.
type bodyCut uint8

const (
	bodyGoesOn bodyCut = iota
	bodyLate           // the body takes too long: Read returns an error that leads to a 408, or says that the time-out has answered (see overdueLocked)
	bodyNoRoom         // there was no room for the body
)

// endLateLocked ends a body that takes too long, unless it has ended already.
func (s *Stream) endLateLocked() {
	s.h.mu.AssertHeld()
	s.cut = max(s.cut, bodyLate)
}

// hasEndedLocked reports whether the request was received completely.
func (s *Stream) hasEndedLocked() bool {
	s.h.mu.AssertHeld()
	return s.state == http2.HalfClosedRemote
}

// restTime is how long a client may take, after its whole answer was sent, to end its request or to send some more of it. Until then the
// server doesn't reset the stream, since a client that is still sending may treat a reset as a failure: curl 7.88 loses an answer if a reset
// arrives together with it, even while curl waits for a 100. The time is limited, since a client may never end its request, as in a
// bidirectional call.
const restTime = time.Second

// longestRestTime limits the time for a client that goes on sending: see takeRestLocked.
const longestRestTime = 10 * time.Second

// maxRest is how many bytes the server receives of a request that was answered before its end. A lingering connection has the same limit.
const maxRest = 64 << 20

// windowDeadline returns the time by which the client must open its window again. since is when the client last opened it.
func (s *Stream) windowDeadline(since clock.Time) clock.Time {
	shared := s.h.shared
	return s.writePace.Deadline(since, shared.Answers.Limits(shared.Writing))
}

// isExcusedLocked reports whether a stream whose windowDeadline has passed waits for other streams, which go first, and not for a window of
// the client. In that case it gives the stream more time. A slow client is still noticed: the outbox checks how fast it takes the other
// streams' bytes, and the deadline of the next stream in the schedule checks how fast it opens the connection's window.
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

// wakeLocked wakes the goroutines that wait for the stream: a reader, a writer, and the one that serves a parked stream.
func (s *Stream) wakeLocked() {
	s.h.mu.AssertHeld()
	wake(s.readable)
	wake(s.writable)
	if s.parked != nil {
		s.wakeParkedLocked()
	}
}

// wake wakes the goroutine that waits on a channel, which is nil before the first wait.
func wake(waiting chan struct{}) {
	select {
	case waiting <- struct{}{}:
	default:
	}
}

// longestWait is the longest wait for which a timer is started. Some programs express "no deadline" by a deadline that is farther away;
// their waits need no timer.
const longestWait = 365 * 24 * time.Hour

// awaitLocked waits on readable or writable, or until the deadline, 0 for none. It releases mu while it waits. It returns false if the
// deadline has passed.
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

// Watch makes the connection notify w when the client is gone, until Unwatch is called. It returns true if the client is already gone.
func (s *Stream) Watch(w Watcher) (gone bool) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.watcher = w
	return s.sending == sendingLost
}

// Unwatch undoes Watch.
func (s *Stream) Unwatch() {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.watcher = nil
}

// EndHandler records that the handler has returned, and drops the request. The caller has rendered or queued the answer before. After
// EndHandler the caller must not use the stream, since t may reuse it for another request. Only a parked stream still belongs to the caller: EndHandler
// returns its outbox, otherwise nil.
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
	if !s.lent && (listed || parked != nil || taken) {
		s.Request = nil // the stream may wait long for its client, and needs less memory without it
	}
	h.mu.Unlock()
	if parked == nil && !taken && !listed && !s.lent && t.spare == nil && cap(s.Text) <= maxKeptText {
		s.body.Reset()
		t.spare = s
	}
	return parked
}

// maxKeptText is the capacity up to which the memory for a head's text is kept for the next request.
const maxKeptText = 16 << 10
