package filo

import (
	"io"
	"mime/multipart"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
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

// bodyRoom is the room that a request's body takes up. Only the handler's goroutine uses it, except bytes.
type bodyRoom struct {
	bytes atomic.Int64 // none is left when the body was cut off for others
	waits bool         // silentBodies has it
}

// release takes n bytes off, or what is left, and returns how much that was.
func (r *bodyRoom) release(n int64) int64 {
	for {
		bytes := r.bytes.Load()
		n = min(n, bytes)
		if r.bytes.CompareAndSwap(bytes, bytes-n) {
			return n
		}
	}
}

// takeRoom counts n more bytes for the current request's body. The error is errBodiesFull.
func (x *exchange) takeRoom(n int64) error {
	if n <= 0 {
		return nil
	}
	for !x.server.bodies.take(x.holding(), n) {
		if !x.server.cutSilentBody() {
			return x.refuseBody()
		}
	}
	x.worker.ctx.room.bytes.Add(n)
	return nil
}

// checkRoom returns errBodiesFull if n more bytes of the current request's body would have no room. It takes none: announcing a length
// must cost the others nothing.
func (x *exchange) checkRoom(n int64) error {
	for budget := &x.server.bodies; !budget.hasRoom(budget.used.Load(), x.holding(), n); {
		if !x.server.cutSilentBody() {
			return x.refuseBody()
		}
	}
	return nil
}

// holding returns how much counts of the current request's body.
func (x *exchange) holding() int64 {
	n := x.worker.ctx.room.bytes.Load()
	if s, ok := x.wire.(*http2Stream); ok {
		s.h.mu.Lock()
		defer s.h.mu.Unlock()
		n += int64(s.charged)
	}
	return n
}

// refuseBody counts the refusal of the current request's body. What comes of it by HTTP/2 is thrown away from now on.
func (x *exchange) refuseBody() error {
	if s, ok := x.wire.(*http2Stream); ok && !s.overrunBody() {
		return errBodiesFull // it is counted
	}
	x.server.refusedRequest(refusedBufferedBodies, x.wire.remote())
	return errBodiesFull
}

// overrunBody makes the stream throw its body away. It reports false if it does already.
func (s *http2Stream) overrunBody() bool {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.overrun {
		return false
	}
	s.overrun = true
	s.body.Drop()
	s.h.chargeLocked(s, 0)
	return true
}

// giveRoom gives back n bytes that takeRoom has counted for the current request, unless they were given to others.
func (x *exchange) giveRoom(n int64) {
	x.server.bodies.used.Add(-x.worker.ctx.room.release(n))
}

// silentBodies are the bodies that take up room while their handlers wait for the next byte. Where there is no room, the one whose client has been
// silent for the longest is cut off. So clients that send nearly all of their bodies, and then nothing, don't shut out others until ReadTimeout.
// There are no more of them than have room, each with more than 64 KB.
type silentBodies struct {
	mu   sync.Mutex // taken before the locks of connections
	all  map[*bodyRoom]silentBody
	next clock.Time // not before then they are searched again, after a search that has found none
}

// silentBody is a body whose client is silent.
type silentBody struct {
	wire  interface{ cutBody(room *bodyRoom) bool } // reports false if the wait is over
	since clock.Time
}

const (
	// silentTime is how long a client must have sent nothing.
	silentTime = time.Second
	// silentRest is the time between two searches that find none.
	silentRest = 5 * time.Millisecond
)

// begin records since when the handler of a body waits, if the body takes up room. end follows.
func (r *silentBodies) begin(room *bodyRoom, body silentBody) {
	if room.bytes.Load() == 0 || room.waits {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[*bodyRoom]silentBody)
	}
	r.all[room], room.waits = body, true
}

func (r *silentBodies) end(room *bodyRoom) {
	if !room.waits {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, room)
	room.waits = false
}

// cutSilentBody makes room by the end of a body whose client is silent. It reports false if there is none. The caller holds no connection's lock.
func (s *Server) cutSilentBody() bool {
	r, now := &s.silence, s.clock.Exact()
	r.mu.Lock()
	defer r.mu.Unlock()
	if now < r.next {
		return false
	}
	for {
		var first *bodyRoom
		for room, body := range r.all {
			if now.Sub(body.since) >= silentTime && (first == nil || body.since < r.all[first].since) {
				first = room
			}
		}
		if first == nil {
			r.next = now.Add(silentRest)
			return false
		}
		body := r.all[first]
		delete(r.all, first)
		if body.wire.cutBody(first) {
			return true
		}
	}
}

// cutBody cuts off the body that is waited for: its handler's read ends with errDeadline.
func (c *conn) cutBody(room *bodyRoom) bool {
	s := &c.server.conns
	s.waking.Lock()
	defer s.waking.Unlock()
	// As in shed. The owner can't leave the wait before waking is released.
	word := c.word.Load()
	if waitState(word&stateMask) != stateBody || !c.word.CompareAndSwap(word, int64(stateShed)) {
		return false
	}
	c.server.passRoom(room)
	c.wakeReader()
	return true
}

// passRoom gives the room of a body that is cut off to others. Its handler is about to give its buffer back.
func (s *Server) passRoom(room *bodyRoom) { s.bodies.used.Add(-room.bytes.Swap(0)) }

// growBody returns a buffer with the content of buffer and at least the given capacity. The error is errBodiesFull; buffer is as it was then.
func (x *exchange) growBody(buffer []byte, size int) ([]byte, error) {
	if size <= cap(buffer) {
		return buffer, nil
	}
	if err := x.takeRoom(bodyCost(size) - bodyCost(cap(buffer))); err != nil {
		return buffer, err
	}
	grown := append(largeBuffers.Get(size), buffer...)
	if more := bodyCost(cap(grown)) - bodyCost(size); more > 0 { // the free list had no smaller one
		x.server.bodies.used.Add(more)
		x.worker.ctx.room.bytes.Add(more)
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

// chargeLocked records how many bytes the buffer of a stream's body takes now.
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

// wantsBodyLocked reports whether what comes of the body may be read.
func (s *http2Stream) wantsBodyLocked() bool {
	s.h.mu.AssertHeld()
	return !s.overrun && !s.late && (s.running || s.awaits == awaitsBody) && (s.taken == nil || !s.taken.ended)
}

// lacksRoomLocked reports whether there would be no room for the content of a DATA frame, unless others give some.
func (h *http2Conn) lacksRoomLocked(f *http2.Frame) bool {
	h.mu.AssertHeld()
	budget, n := &h.conn.server.bodies, len(f.Payload)
	if budget.limit < 0 || budget.used.Load()+int64(n) <= budget.limit {
		return false
	}
	s := h.streams.Find(f.Stream)
	return s != nil && s.wantsBodyLocked() && !s.keepsUpLocked(n)
}

// keepLocked keeps a piece of a request's body for its handler. It reports false if there is no room for it.
func (h *http2Conn) keepLocked(s *http2Stream, p []byte) bool {
	h.mu.AssertHeld()
	if len(p) == 0 || !s.wantsBodyLocked() {
		return true
	}
	if !h.mayBufferLocked(len(p)) && !s.keepsUpLocked(len(p)) {
		return false
	}
	s.body.Append(p)
	h.chargeLocked(s, s.body.Size())
	return true
}

// cutBody is conn.cutBody for a stream.
func (s *http2Stream) cutBody(room *bodyRoom) bool {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if !s.reading || !s.mayComeLocked() || s.into != nil && s.into.n > 0 {
		return false
	}
	s.server.passRoom(room)
	s.late = true
	s.wakeLocked()
	return true
}

// overrunLocked ends a body for which there is no room: by a 503 if its handler runs, and otherwise in a way that lets the client try again.
func (h *http2Conn) overrunLocked(s *http2Stream) (ended *requestContext) {
	h.mu.AssertHeld()
	h.conn.server.counts.overloads.Add(1)
	h.conn.server.counts.refusals[refusedBufferedBodies].Add(1)
	go h.conn.server.tellRefused(refusedBufferedBodies, h.conn.remote) // not here: the connection and the logger may be the user's
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
