package http2conn

import (
	"math"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/race"
)

// Answer is a final answer, or its head. The stream retains no part of it except Body.
type Answer struct {
	Status  int
	Fields  *field.List
	Trailer *field.List // the fields after the content; nil for none
	Length  int64       // the value of Content-Length; negative: the answer has no such field
	Body    []byte
	Reused  bool           // the caller reuses Body's memory, so the stream must copy it
	Date    *http2.Literal // the Date field, unless Fields has one
}

// Common values of Content-Type, for which prepared literals exist.
const (
	textPlain = "text/plain; charset=utf-8"
	textHTML  = "text/html; charset=utf-8"
	textJSON  = "application/json"
)

var (
	literalPlain = http2.NewLiteral("content-type", textPlain)
	literalHTML  = http2.NewLiteral("content-type", textHTML)
	literalJSON  = http2.NewLiteral("content-type", textJSON)
)

// Answer renders a whole answer. If the handler has run inline, t is the owner's turn, and the answer goes into the turn. Otherwise t is nil,
// and the answer goes into the queue.
func (s *Stream) Answer(t *Turn, a *Answer) {
	h, size := s.h, len(a.Body)
	whole := size == 0 && a.Trailer == nil
	if t == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		s.returnedLocked()
		if !s.state.Over() {
			h.queue = s.appendHead(h.queue, nil, a, whole)
			s.sendWholeLocked(a)
		}
		return
	}
	if h.mayUpdate {
		h.mu.Lock()
		if h.updateDue {
			s.returnedLocked()
			h.pushLocked(t)
			h.queue = s.appendHead(h.queue, nil, a, whole)
			s.sendWholeLocked(a)
			h.mu.Unlock()
			return
		}
		h.mayUpdate = false
		h.mu.Unlock()
	}
	out := s.appendHead(t.out, &h.encoder, a, whole)
	t.out = out
	h.mu.Lock()
	defer h.mu.Unlock()
	s.returnedLocked()
	if size > 0 && (size > MaxInlineBody || size > int(min(h.sendWindow, s.windowLocked()))) || a.Trailer != nil && !hasTail(a.Trailer) {
		h.pushLocked(t)
		s.sendWholeLocked(a)
		return
	}
	if size > 0 {
		s.sentDataLocked(size, true)
		t.out = http2.AppendData(t.out, s.id, a.Body, a.Trailer == nil)
	}
	if a.Trailer != nil {
		start := len(t.out)
		t.out = http2.EndHeaders(appendTail(http2.BeginHeaders(t.out), a.Trailer), start, s.id, true)
	}
	if s.state == http2.Open {
		h.pushLocked(t) // the request hasn't ended: if RST_STREAM is queued later, it must be sent after the answer
	}
	h.sentLocked(s)
}

// MaxInlineBody is the largest body that Answer copies into the owner's turn, between the head and the trailer section.
const MaxInlineBody = 16 << 10

// sendWholeLocked schedules the body of a whole answer and its trailer section, which are framed when the client's windows allow.
func (s *Stream) sendWholeLocked(a *Answer) {
	s.h.mu.AssertHeld()
	h, body := s.h, a.Body
	if len(body) == 0 && a.Trailer == nil {
		h.sentLocked(s)
		return
	}
	h.listLocked(s)
	if a.Reused {
		body = append([]byte(nil), body...)
	}
	s.whole = int32(min(len(body), math.MaxInt32))
	s.setUnsentLocked(body, nil, false)
	race.Enter(&s.sending, sendingRest) // in this state nothing is appended to unsent, which may lie in the program's memory
	if a.Trailer != nil {
		s.tail = newTail(a.Trailer)
	}
	h.mayGoOnLocked(s)
}

// Abort resets a stream whose answer can't be completed.
func (s *Stream) Abort() {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	s.returnedLocked()
	if s.state.Over() {
		return
	}
	h.breakOffLocked(s, http2.InternalError)
}

// Refuse answers an invalid request without calling a handler. head says that the request is a HEAD.
func (s *Stream) Refuse(a *Answer, head bool) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	s.running = true
	if s.state == http2.Open {
		h.listLocked(s) // the rest of the request will still arrive
	}
	s.refuseLocked(a, head)
	h.handlerEndedLocked(s)
}

// Replace sends a as the answer instead of the handler's answer, which hasn't begun.
func (s *Stream) Replace(a *Answer) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.returnedLocked()
	if !s.state.Over() {
		s.refuseLocked(a, false)
	}
}

// AnswerApart sends the answer while the handler still runs. If the handler then reads the rest of the body, Read returns ErrAnswered.
// AnswerApart returns the size of the answer's body.
func (s *Stream) AnswerApart(a *Answer, head bool) (size int64, err error) {
	h := s.h
	h.mu.Lock()
	if s.state.Over() {
		h.mu.Unlock()
		return 0, ErrReset
	}
	size = s.refuseLocked(a, head)
	s.endLateLocked() // the handler may be waiting for the body
	s.wakeLocked()
	h.mu.Unlock()
	h.Flush()
	return size, nil
}

// appendHead renders the head of a final answer. e is the connection's encoder, or nil if dst is the connection's queue. In that case mu is
// held.
func (s *Stream) appendHead(dst []byte, e *http2.Encoder, a *Answer, endStream bool) []byte {
	start := len(dst)
	dst = http2.BeginHeaders(dst)
	dst = s.beginBlock(dst, e)
	dst = http2.AppendStatus(dst, a.Status)
	dst = s.appendFields(dst, e, a.Fields, a.Date)
	if a.Length >= 0 {
		dst = http2.AppendNumber(dst, field.ContentLength, a.Length)
	}
	if a.Trailer != nil && !endStream {
		dst = appendTrailerNames(dst, a.Trailer)
	}
	return http2.EndHeaders(dst, start, s.id, endStream)
}

// appendFields appends the fields of a final answer, adds Server and Date, and leaves out the fields that HTTP/2 forbids or that describe
// the framing.
func (s *Stream) appendFields(dst []byte, e *http2.Encoder, list *field.List, date *http2.Literal) []byte {
	name := s.h.shared.Server
	for i := range list.Len() {
		id := list.ID(i)
		switch id {
		case field.Connection, field.ProxyConnection, field.Upgrade, field.TE:
			continue
		case field.Server:
			name = nil
		case field.Date:
			if date = nil; len(list.Value(i)) == 0 {
				continue
			}
		case field.ContentType:
			if l := preparedType(list.Value(i)); l != nil {
				dst = appendLiteral(dst, e, l)
				continue
			}
		}
		if id.InFinal() {
			dst = http2.AppendField(dst, id, list.Name(i), list.Value(i))
		}
	}
	if name != nil {
		dst = appendLiteral(dst, e, name)
	}
	if date != nil {
		dst = appendLiteral(dst, e, date)
	}
	return dst
}

// beginBlock begins a field block. If an update of HPACK's table is due, the block begins with it.
func (s *Stream) beginBlock(dst []byte, e *http2.Encoder) []byte {
	if h := s.h; e == nil && h.updateDue {
		h.mu.AssertHeld()
		h.updateDue = false
		return h.encoder.Begin(dst)
	}
	return dst
}

// appendLiteral appends a prepared field. If e isn't nil, the field may be encoded as an index into e's table.
func appendLiteral(dst []byte, e *http2.Encoder, l *http2.Literal) []byte {
	if e == nil {
		return l.Append(dst)
	}
	return e.Append(dst, l)
}

// preparedType returns the prepared Content-Type field for a common value, or nil.
func preparedType(value []byte) *http2.Literal {
	switch string(value) {
	case textPlain:
		return &literalPlain
	case textHTML:
		return &literalHTML
	case textJSON:
		return &literalJSON
	}
	return nil
}

// appendTrailerNames appends the field Trailer, which announces the trailer section.
func appendTrailerNames(dst []byte, trailer *field.List) []byte {
	var room [64]byte
	names := room[:0]
	for i := range trailer.Len() {
		if !trailer.ID(i).InTrailer() {
			continue
		}
		if len(names) > 0 {
			names = append(names, ", "...)
		}
		names = append(names, trailer.Name(i)...)
	}
	if len(names) == 0 {
		return dst
	}
	return http2.AppendField(dst, field.Trailer, nil, names)
}

// newTail renders the trailer section, and returns nil if there is none.
func newTail(list *field.List) *[]byte {
	if !hasTail(list) {
		return nil
	}
	block := appendTail(make([]byte, 0, usualTail), list)
	return &block
}

// usualTail is the size of most trailer sections, in bytes: gRPC's status, and a little metadata.
const usualTail = 64

// hasTail reports whether the list has a field that is allowed in a trailer section.
func hasTail(list *field.List) bool {
	for i := range list.Len() {
		if list.ID(i).InTrailer() {
			return true
		}
	}
	return false
}

// appendTail appends the fields of the list that are allowed in a trailer section.
func appendTail(dst []byte, list *field.List) []byte {
	for i := range list.Len() {
		if list.ID(i).InTrailer() {
			dst = http2.AppendField(dst, list.ID(i), list.Name(i), list.Value(i))
		}
	}
	return dst
}

// Inform sends an interim answer.
func (s *Stream) Inform(status int, fields *field.List) error {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.state.Over() {
		return ErrReset
	}
	s.informLocked(status, fields)
	h.flushLocked(nil)
	return nil
}

// informLocked renders an interim answer into the queue. list is nil for a 100 that the server sends without the handler.
func (s *Stream) informLocked(status int, list *field.List) {
	s.h.mu.AssertHeld()
	h := s.h
	start := len(h.queue)
	h.queue = s.beginBlock(http2.BeginHeaders(h.queue), nil)
	h.queue = http2.AppendStatus(h.queue, status)
	if list != nil {
		for i := range list.Len() {
			if id := list.ID(i); id.InInterim() && id != field.Upgrade {
				h.queue = http2.AppendField(h.queue, id, list.Name(i), list.Value(i))
			}
		}
	}
	h.queue = http2.EndHeaders(h.queue, start, s.id, false)
}

// refuseLocked sends an answer that no handler has made, such as an error. It returns the size of the body.
func (s *Stream) refuseLocked(a *Answer, head bool) (size int64) {
	s.h.mu.AssertHeld()
	h := s.h
	h.queue = s.appendHead(h.queue, nil, a, head)
	if head {
		h.sentLocked(s)
		return 0
	}
	h.listLocked(s)
	s.setUnsentLocked(a.Body, nil, false)
	race.Enter(&s.sending, sendingRest)
	h.mayGoOnLocked(s)
	return int64(len(a.Body))
}
