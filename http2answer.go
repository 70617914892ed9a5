package filo

import (
	"errors"
	"os"
	"sync"

	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
)

// Fields that most answers have, prepared.
var (
	http2TextPlain = http2.NewLiteral("content-type", textPlain)
	http2TextHTML  = http2.NewLiteral("content-type", textHTML)
	http2JSON      = http2.NewLiteral("content-type", "application/json")
)

// conclude renders or aborts an answer whose handler has returned. mine says that the caller owns the connection.
func (s *http2Exchange) conclude(ctx *Ctx, e ending, mine bool) {
	switch e {
	case endingWhole:
		s.render(ctx, mine)
	case endingAborted:
		s.abort(ctx)
	}
	if ctx.Response.wantsClose() {
		s.h.closeSoon()
	}
}

// abort resets a stream whose answer isn't completed.
func (s *http2Exchange) abort(ctx *Ctx) {
	ctx.Response.resetBody()
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	s.returnedLocked()
	if s.state.Over() {
		return
	}
	h.breakOffLocked(s.http2Stream, http2.InternalError)
}

// render renders a whole answer: in the owner's turn if the handler has run inline, otherwise into the queue.
func (s *http2Exchange) render(ctx *Ctx, mine bool) {
	h, t, r := s.h, &s.scratch.http2.http2Turn, &ctx.Response
	length, size := r.wholeLength(ctx)
	trailer := r.Trailer.Len() > 0 && http1.BodyAllowed(r.status) && !ctx.Request.isHead() && !r.tunnels()
	whole := size == 0 && !trailer
	if !mine {
		h.mu.Lock()
		defer h.mu.Unlock()
		s.returnedLocked()
		if !s.state.Over() {
			h.queue = s.appendHead(h.queue, nil, ctx, length, whole)
			s.sendWholeLocked(ctx, size, trailer)
		}
		return
	}
	if h.mayUpdate {
		h.mu.Lock()
		if h.updateDue {
			s.returnedLocked()
			h.pushLocked(t)
			h.queue = s.appendHead(h.queue, nil, ctx, length, whole)
			s.sendWholeLocked(ctx, size, trailer)
			h.mu.Unlock()
			return
		}
		h.mayUpdate = false
		h.mu.Unlock()
	}
	out := s.appendHead(t.out, &h.encoder, ctx, length, whole)
	t.out = out
	h.mu.Lock()
	defer h.mu.Unlock()
	s.returnedLocked()
	if trailer || size > 0 && (size > maxInlineBody || size > int(min(h.sendWindow, s.windowLocked()))) {
		h.pushLocked(t)
		s.sendWholeLocked(ctx, size, trailer)
		return
	}
	if size > 0 {
		s.sentDataLocked(size, true)
		t.out = http2.AppendData(t.out, s.id, r.bodyBytes(), true)
	}
	if s.state == http2.Open {
		h.pushLocked(t) // RST_STREAM will follow
	}
	h.sentLocked(s.http2Stream)
}

// maxInlineBody is the largest body that is copied behind its head in the owner's turn.
const maxInlineBody = 16 << 10

// sendWholeLocked leaves the body of a whole answer, of size bytes, and its trailer to the queue.
func (s *http2Exchange) sendWholeLocked(ctx *Ctx, size int, trailer bool) {
	s.h.mu.AssertHeld()
	h, r := s.h, &ctx.Response
	if size == 0 && !trailer {
		h.sentLocked(s.http2Stream)
		return
	}
	h.listLocked(s.http2Stream)
	body := r.bodyBytes()
	if r.source == bodyBuffer && size <= maxKeptBody {
		body = append([]byte(nil), body...) // the buffer will be used again
	}
	s.setUnsentLocked(body, nil, false)
	s.http2Stream.complete = true // nothing is appended, so the body may be the program's
	if trailer {
		s.tail = newTail(&r.Trailer)
	}
	h.mayGoOnLocked(s.http2Stream)
}

// appendHead renders the head of a final answer: by the connection's encoder, or without one into the queue, with mu held.
func (s *http2Exchange) appendHead(dst []byte, e *http2.Encoder, ctx *Ctx, length int64, endStream bool) []byte {
	r := &ctx.Response
	start := len(dst)
	dst = http2.BeginHeaders(dst)
	dst = s.beginBlock(dst, e)
	dst = http2.AppendStatus(dst, r.status)
	dst = s.appendFields(dst, e, &r.Header.list)
	if length >= 0 {
		dst = http2.AppendNumber(dst, field.ContentLength, length)
	}
	if r.Trailer.Len() > 0 && !endStream && !r.tunnels() {
		dst = appendTrailerNames(dst, &r.Trailer)
	}
	return http2.EndHeaders(dst, start, s.id, endStream)
}

// appendFields appends the fields of a final answer, with the server's own, and without those about its framing.
func (s *http2Stream) appendFields(dst []byte, e *http2.Encoder, list *field.List) []byte {
	name, date := s.h.conn.server.config.http2.name, true
	for i := range list.Len() {
		id := list.ID(i)
		switch id {
		case field.Connection, field.ProxyConnection, field.Upgrade, field.TE:
			continue
		case field.Server:
			name = nil
		case field.Date:
			if date = false; len(list.Value(i)) == 0 {
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
	if date {
		dst = appendLiteral(dst, e, s.h.conn.server.clock.dateLiteral())
	}
	return dst
}

// beginBlock begins a field block, with an update of the table if one is due.
func (s *http2Stream) beginBlock(dst []byte, e *http2.Encoder) []byte {
	if h := s.h; e == nil && h.updateDue {
		h.mu.AssertHeld()
		h.updateDue = false
		return h.encoder.Begin(dst)
	}
	return dst
}

// appendLiteral appends a prepared field: by the encoder's table, or without one.
func appendLiteral(dst []byte, e *http2.Encoder, l *http2.Literal) []byte {
	if e == nil {
		return l.Append(dst)
	}
	return e.Append(dst, l)
}

// preparedType returns the prepared field for a common Content-Type, or nil.
func preparedType(value []byte) *http2.Literal {
	switch string(value) {
	case textPlain:
		return &http2TextPlain
	case textHTML:
		return &http2TextHTML
	case "application/json":
		return &http2JSON
	}
	return nil
}

// appendTrailerNames appends the field that announces what follows the body.
func appendTrailerNames(dst []byte, trailer *Header) []byte {
	var names []byte
	for i := range trailer.list.Len() {
		if !trailer.list.ID(i).InTrailer() {
			continue
		}
		if names != nil {
			names = append(names, ", "...)
		}
		names = append(names, trailer.list.Name(i)...)
	}
	if names == nil {
		return dst
	}
	return http2.AppendField(dst, field.Trailer, nil, names)
}

// newTail renders the fields behind a body, nil for none.
func newTail(trailer *Header) *[]byte {
	var block []byte
	list := &trailer.list
	for i := range list.Len() {
		if list.ID(i).InTrailer() {
			block = http2.AppendField(block, list.ID(i), list.Name(i), list.Value(i))
		}
	}
	if block == nil {
		return nil
	}
	return &block
}

// inform implements wire.
func (s *http2Exchange) inform(status int, header *Header) error {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.state.Over() {
		return errStreamReset
	}
	s.informLocked(status, header)
	h.flushLocked(nil)
	return nil
}

// informLocked renders an interim answer into the queue. The header is nil for a 100 of the server's own.
func (s *http2Stream) informLocked(status int, header *Header) {
	s.h.mu.AssertHeld()
	h := s.h
	start := len(h.queue)
	h.queue = s.beginBlock(http2.BeginHeaders(h.queue), nil)
	h.queue = http2.AppendStatus(h.queue, status)
	if header != nil {
		for i := range header.list.Len() {
			if id := header.list.ID(i); id.InInterim() && id != field.Upgrade {
				h.queue = http2.AppendField(h.queue, id, header.list.Name(i), header.list.Value(i))
			}
		}
	}
	h.queue = http2.EndHeaders(h.queue, start, s.id, false)
}

// head implements wire.
func (s *http2Exchange) head(ctx *Ctx, length int64) {
	h, r := s.h, &ctx.Response
	switch {
	case !http1.BodyAllowed(r.status):
		length = r.bareLength(length)
	case r.tunnels():
		length = noLength
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.headSent = true
	if s.state.Over() {
		return
	}
	// Nothing follows the head, but a body that is still coming may have a reader.
	whole := ctx.stream.discard && s.hasEndedLocked()
	h.queue = s.appendHead(h.queue, nil, ctx, length, whole)
	if whole {
		h.sentLocked(s.http2Stream)
	}
}

// data implements wire.
func (s *http2Exchange) data(p []byte, flush bool) error {
	h := s.h
	if until := s.scratch.ctx.writeUntil; until != 0 && s.server.clock.Exact() >= until {
		s.failed = true
		s.server.counts.timeouts.write.Add(1)
		return errDeadline
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(p) > 0 && !s.state.Over() {
		h.listLocked(s.http2Stream)
		room := s.keepsLocked() - len(s.unsent)
		if len(s.unsent) == 0 && (flush || room < len(p)) {
			return s.lendLocked(p)
		}
		if room <= 0 {
			if err := s.awaitRoomLocked(); err != nil {
				return err
			}
			continue
		}
		n := min(room, len(p))
		s.keepLocked(p[:n])
		p = p[n:]
		h.mayGoOnLocked(s.http2Stream)
		if len(p) > 0 {
			h.flushLocked(nil)
		}
	}
	if flush && !s.gone {
		h.flushLocked(nil)
	}
	return s.reachedLocked()
}

// lendLocked is data for a stream with nothing that waits: what the client takes at once is framed from p itself. The rest is copied as soon
// as it may wait without the handler.
func (s *http2Exchange) lendLocked(p []byte) error {
	s.h.mu.AssertHeld()
	h := s.h
	s.setUnsentLocked(p[:len(p):len(p)], nil, true)
	h.mayGoOnLocked(s.http2Stream)
	h.flushLocked(nil)
	if len(s.unsent) > s.keepsLocked() {
		if err := s.awaitRoomLocked(); err != nil {
			s.dropUnsentLocked()
			h.schedule.Remove(&s.sender)
			return err
		}
	}
	rest := s.unsent
	s.dropUnsentLocked()
	if !s.state.Over() {
		s.keepLocked(rest)
	}
	return s.reachedLocked()
}

// unsentBuffer holds what waits of a streamed answer, when that is more than maxSmallUnsent.
type unsentBuffer [maxStreamUnsent]byte

const maxSmallUnsent = 32 << 10

var unsentBuffers = sync.Pool{New: func() any { return new(unsentBuffer) }}

// keepLocked adds a copy of p to what waits, which isn't more than maxStreamUnsent with it. What fillLocked has framed of that isn't looked
// at any more, so the buffer's beginning can be used again.
func (s *http2Stream) keepLocked(p []byte) {
	s.h.mu.AssertHeld()
	unsent, buffer := s.unsent, s.buffer
	if n := len(unsent) + len(p); n > cap(unsent) && n > maxSmallUnsent {
		if buffer == nil {
			buffer = unsentBuffers.Get().(*unsentBuffer)
		}
		unsent = append(buffer[:0], unsent...)
	}
	s.setUnsentLocked(append(unsent, p...), buffer, false)
}

// dropUnsentLocked forgets what waits.
func (s *http2Stream) dropUnsentLocked() {
	s.h.mu.AssertHeld()
	if buffer := s.buffer; buffer != nil {
		defer unsentBuffers.Put(buffer)
	}
	s.setUnsentLocked(nil, nil, false)
}

// reachedLocked returns an error if the client can't be reached any more.
func (s *http2Exchange) reachedLocked() error {
	s.h.mu.AssertHeld()
	if !s.gone {
		return nil
	}
	s.lose()
	if errors.Is(s.h.out.Err(), os.ErrDeadlineExceeded) {
		return errDeadline // the connection was given up, since its client has taken too little of what waited
	}
	return errStreamReset
}

// lose records that the client can't be reached.
func (s *http2Exchange) lose() { s.failed, s.lost = true, true }

// awaitRoomLocked waits until half of what may wait of the answer without the handler waits.
func (s *http2Exchange) awaitRoomLocked() error {
	s.h.mu.AssertHeld()
	return s.awaitClientLocked(func() bool { return len(s.unsent) <= s.keepsLocked()/2 })
}

// awaitClientLocked waits until the client has taken so much, or opened its windows so far, that the handler is ready to go on.
func (s *http2Exchange) awaitClientLocked(ready func() bool) error {
	s.h.mu.AssertHeld()
	h := s.h
	h.flushLocked(nil)
	if s.gone || ready() {
		return nil
	}
	h.mu.Unlock()
	err := s.leave()
	h.mu.Lock()
	if err != nil {
		return err
	}
	answers := &s.server.answers
	answers.Wait(1)
	defer answers.Wait(-1)
	for start, before := s.server.clock.Now(), len(s.unsent); !s.gone && !ready(); {
		until := func() clock.Time {
			if own := s.scratch.ctx.writeUntil; own != 0 {
				return own
			}
			return s.windowDeadline(start)
		}
		// The budget may become crowded meanwhile, and the deadline an earlier one.
		ok := s.awaitLocked(&s.writable, earliest(until(), s.server.clock.Exact().Deadline(budget.CrowdedGrace(s.server.config.writing.Grace))))
		now, moved := s.server.clock.Exact(), before-len(s.unsent)
		if !ok && moved == 0 {
			switch deadline := until(); {
			case deadline == 0 || now < deadline:
				continue
			case s.scratch.ctx.writeUntil != 0 || !s.isExcusedLocked(now):
				s.writePace.Add(s.server.config.writing, 0, now.Sub(start))
				s.failed = true
				s.server.counts.timeouts.write.Add(1)
				return errDeadline
			}
		} else {
			s.writePace.Add(s.server.config.writing, moved, now.Sub(start))
		}
		start, before = now, len(s.unsent)
	}
	return nil
}

// endStream implements wire.
func (s *http2Exchange) endStream(trailer *Header) {
	h := s.h
	h.mu.Lock()
	defer h.mu.Unlock()
	s.returnedLocked()
	if s.state.Over() || s.state == http2.HalfClosedLocal {
		return
	}
	h.listLocked(s.http2Stream)
	s.http2Stream.complete = true
	if !s.scratch.ctx.Response.tunnels() { // in a tunnel only DATA may follow (RFC 9113, section 8.5)
		s.tail = newTail(trailer)
	}
	h.mayGoOnLocked(s.http2Stream)
}

// answerApart implements wire.
func (s *http2Exchange) answerApart(e *HTTPError, fields *field.List, head bool) (size int64, err error) {
	h := s.h
	h.mu.Lock()
	if s.state.Over() {
		h.mu.Unlock()
		return 0, errStreamReset
	}
	size = s.refuseLocked(e, fields, head)
	s.late = true // the handler may wait for the body
	s.wakeLocked()
	h.mu.Unlock()
	h.flush()
	return size, nil
}

// refuseLocked answers without a handler, or in its place. It returns the size of the body.
func (s *http2Stream) refuseLocked(e *HTTPError, fields *field.List, head bool) (size int64) {
	s.h.mu.AssertHeld()
	h, body := s.h, refusalText(e)
	start := len(h.queue)
	dst := s.beginBlock(http2.BeginHeaders(h.queue), nil)
	dst = http2.AppendStatus(dst, e.Status)
	dst = s.appendFields(dst, nil, fields)
	dst = http2.AppendNumber(dst, field.ContentLength, int64(len(body)))
	h.queue = http2.EndHeaders(dst, start, s.id, head)
	if head {
		h.sentLocked(s)
		return 0
	}
	h.listLocked(s)
	s.setUnsentLocked([]byte(body), nil, false)
	s.complete = true
	h.mayGoOnLocked(s)
	return int64(len(body))
}
