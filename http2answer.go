package filo

import (
	"sync"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http2"
)

// Fields that most answers have, prepared.
var (
	http2TextPlain = http2.NewLiteral("content-type", textPlain)
	http2TextHTML  = http2.NewLiteral("content-type", textHTML)
	http2JSON      = http2.NewLiteral("content-type", "application/json")
)

// maxInlineBody is the largest body that is copied behind its head in the owner's turn.
const maxInlineBody = 16 << 10

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
