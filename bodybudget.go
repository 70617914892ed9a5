package filo

import (
	"io"
	"mime/multipart"
	"sync/atomic"

	"github.com/filohttp/filo/internal/http2"
)

// This file bounds the memory of the request bodies that the server holds, by whatever protocol they come: see Server.MaxBufferedBodies.
// First come the buffers of those that handlers read as a whole, then the bodies of HTTP/2 that wait for their handlers.

// DefaultMaxBufferedBodies is the default of Server.MaxBufferedBodies.
const DefaultMaxBufferedBodies = 128 << 20

// errBodiesFull is the error of a body for which there is no room.
var errBodiesFull = &HTTPError{Status: 503, Detail: "too many request bodies at once", Err: ErrBusy}

// bodyBudget counts the bytes of all buffers of request bodies.
type bodyBudget struct {
	limit int64 // negative: none; immutable
	used  atomic.Int64
}

// hasRoom reports whether a request that holds own bytes may take n more. A request that is the only one to hold any may always, so that
// a body over the limit isn't refused for ever.
func (b *bodyBudget) hasRoom(used, own, n int64) bool {
	return b.limit < 0 || used+n <= b.limit || used <= own
}

// take takes n bytes for a request that holds own bytes already, and reports false if they have no room.
func (b *bodyBudget) take(own, n int64) bool {
	for {
		used := b.used.Load()
		if !b.hasRoom(used, own, n) {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// bodyCost is what a buffer that a body is read into counts. Smaller ones belong to the workers, which keep them.
func bodyCost(capacity int) int64 {
	if capacity <= maxKeptBody {
		return 0
	}
	return int64(capacity)
}

// takeRoom counts n more bytes for the current request's body. The error is errBodiesFull.
func (x *exchange) takeRoom(n int64) error {
	if n <= 0 {
		return nil
	}
	b := &x.worker.ctx.Request.body
	if !x.server.bodies.take(x.holding(), n) {
		return x.refuseBody()
	}
	b.charged += n
	return nil
}

// checkRoom returns errBodiesFull if n more bytes of the current request's body would have no room. It takes none: announcing a length
// must cost the others nothing.
func (x *exchange) checkRoom(n int64) error {
	if budget := &x.server.bodies; !budget.hasRoom(budget.used.Load(), x.holding(), n) {
		return x.refuseBody()
	}
	return nil
}

// holding returns how much counts of the current request's body.
func (x *exchange) holding() int64 {
	n := x.worker.ctx.Request.body.charged
	if s, ok := x.wire.(*http2Stream); ok {
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		n += int64(s.charged)
	}
	return n
}

// refuseBody counts the refusal of the current request's body. What comes of it by HTTP/2 is thrown away from now on.
func (x *exchange) refuseBody() error {
	if s, ok := x.wire.(*http2Stream); ok {
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		if s.overrun {
			return errBodiesFull // it is counted
		}
		s.overrun = true
		s.body.Drop()
		s.h.chargeLocked(s, 0)
	}
	x.server.counts.countFullBodies()
	return errBodiesFull
}

// giveRoom gives back n bytes that takeRoom has counted for the current request.
func (x *exchange) giveRoom(n int64) {
	x.server.bodies.used.Add(-n)
	x.worker.ctx.Request.body.charged -= n
}

// growBody returns a buffer with the content of buffer and at least the given capacity. The error is errBodiesFull; buffer is as it was then.
func (x *exchange) growBody(buffer []byte, size int) ([]byte, error) {
	if size <= cap(buffer) {
		return buffer, nil
	}
	if err := x.takeRoom(bodyCost(size) - bodyCost(cap(buffer))); err != nil {
		return buffer, err
	}
	grown := append(largeBuffers.Get(size), buffer...)
	if more := bodyCost(cap(grown)) - bodyCost(size); more > 0 {
		x.giveRoom(-more) // the free list had no smaller one
	}
	x.worker.releaseBuffer(buffer)
	return grown, nil
}

// dropBody gives back a buffer that the current request's body was read into.
func (x *exchange) dropBody(buffer []byte) {
	if cost := bodyCost(cap(buffer)); cost > 0 {
		x.giveRoom(cost)
	}
	x.worker.releaseBuffer(buffer)
}

// formRoom reads the body of a multipart form, and takes room for what the form may keep of that in memory, as it comes. Until the form is
// complete, what goes to a temporary file can't be told from values: then no more counts than the files may take.
type formRoom struct {
	x       *exchange
	body    io.Reader
	most    int64 // what files may take
	read    int64
	counted int64
}

// formStep is how many bytes of a form are counted at a time.
const formStep = maxKeptBody

// Read implements io.Reader.
func (r *formRoom) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if r.read += int64(n); r.read > r.counted+formStep && r.counted < r.most {
		if full := r.count(min(r.read, r.most)); full != nil {
			return 0, full
		}
	}
	return n, err
}

// count makes n the number of bytes that count.
func (r *formRoom) count(n int64) error {
	if n < r.counted {
		r.x.giveRoom(r.counted - n)
	} else if err := r.x.takeRoom(n - r.counted); err != nil {
		return err
	}
	r.counted = n
	return nil
}

// countForm counts what a complete form keeps in memory.
func (r *formRoom) countForm(form *multipart.Form) error {
	values, files := int64(0), int64(0)
	for name, list := range form.Value {
		for _, value := range list {
			values += int64(len(name) + len(value))
		}
	}
	for _, list := range form.File {
		for _, file := range list {
			files += file.Size
		}
	}
	return r.count(bodyCost(int(values + min(files, r.most))))
}

// Bodies that have come by HTTP/2 wait for their handlers in memory: the window of each stream bounds one of them, but a client may have many
// streams and connections. What has no room is thrown away, and its windows of the connection are returned. So nothing that is refused holds
// up a sibling, and a handler that waits for its body never waits for other bodies to be read.

// bodyShare is which part of Server.MaxBufferedBodies one client may use once half of it is used.
const bodyShare = 32

// mayBufferLocked reports whether n more bytes of a body have room.
func (h *http2Conn) mayBufferLocked(n int) bool {
	h.mu.AssertHeld()
	budget := &h.conn.server.bodies
	limit := budget.limit
	if limit < 0 {
		return true
	}
	used := budget.used.Load() + int64(n)
	return used <= limit/2 || used <= limit && h.bodies.Load()+int64(n) <= limit/bodyShare
}

// chargeLocked takes note that the buffer of a stream's body takes so many bytes now.
func (h *http2Conn) chargeLocked(s *http2Stream, size int) {
	h.mu.AssertHeld()
	if delta := int64(size) - int64(s.charged); delta != 0 {
		s.charged = int32(size)
		h.bodies.Add(delta)
		h.conn.server.bodies.used.Add(delta)
	}
}

// keepsUpLocked reports whether n more bytes of a stream's body have room in any case: a goroutine waits for them, or the handler reads the
// body and isn't far behind.
func (s *http2Stream) keepsUpLocked(n int) bool {
	s.h.mu.AssertHeld()
	return s.reading || s.phase == parkResting || s.hasRead && s.body.Len()+n <= maxAwaitedBody
}

// keepLocked keeps a piece of a request's body for its handler. It reports false if there is no room for it.
func (h *http2Conn) keepLocked(s *http2Stream, p []byte) bool {
	h.mu.AssertHeld()
	if len(p) == 0 || s.overrun || !s.running && s.awaits != awaitsBody || s.taken != nil && s.taken.ended {
		return true // nobody reads it
	}
	if !h.mayBufferLocked(len(p)) && !s.keepsUpLocked(len(p)) {
		return false
	}
	s.body.Append(p)
	h.chargeLocked(s, s.body.Size())
	return true
}

// overrunLocked ends a body for which there is no room: by a 503 if its handler runs, and otherwise in a way that lets the client try again.
func (h *http2Conn) overrunLocked(s *http2Stream) (ended *requestContext) {
	h.mu.AssertHeld()
	h.conn.server.counts.countFullBodies()
	if s.running && s.parked == nil && s.taken == nil {
		s.overrun = true
		s.body.Drop()
		h.chargeLocked(s, 0)
		s.wakeLocked()
		return nil
	}
	code := http2.RefusedStream
	if s.parked != nil || s.taken != nil {
		code = http2.EnhanceYourCalm
	}
	return h.breakOffLocked(s, code)
}
