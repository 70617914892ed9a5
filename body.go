package filo

import (
	"errors"
	"io"

	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/lend"
)

const (
	// directRead is the smallest read that goes directly into the handler's buffer, without a copy.
	directRead = 2 << 10
	// maxDrain is how many bytes of an unread body the server discards to keep the connection. If the rest is known to be larger, the server
	// closes the connection instead.
	maxDrain = 256 << 10
	// maxSkip is how many bytes of an unread body the server discards after an answer that hasn't announced the connection's end. A client
	// that sends more most likely never ends its body.
	maxSkip = 16 << 20
	// firstBodyBuffer is the size of the first buffer for a body that doesn't fit in the read buffer.
	firstBodyBuffer = 4 << 10
)

// body is the state of a request's body: its length, its limit, and how much of it has been read.
type body struct {
	chunked   bool
	expect    bool  // 100 (Continue) must be sent before the first read
	closeEnd  bool  // the end of the body is unknown, so the connection ends with this request
	remaining int64 // the bytes that the handler hasn't read yet, of a body with a length
	received  int64
	limit     bodyLimit
	decoder   http1.ChunkDecoder
	gathered  bool  // Request.Body is waiting for the whole body
	err       error // what every further read returns; io.EOF at the end
	done      bool  // err is io.EOF; a flag, since comparing errors would be the largest cost of a request without a body

	wholeBody
	// large is the buffer that holds whole if readLarge has read the body; dropBody takes it back.
	large []byte
}

// bodyLimit is the maximum size of a body in bytes. A negative value means no limit.
type bodyLimit int64

// isBelow reports whether a body of n bytes is too large.
func (l bodyLimit) isBelow(n int64) bool { return l >= 0 && n > int64(l) }

// isTooLarge reports whether the length that was announced for the body is over the limit.
func (b *body) isTooLarge() bool { return !b.chunked && b.limit.isBelow(b.received+b.remaining) }

// wholeBody records whether a body was read as a whole.
type wholeBody struct {
	whole      []byte // what Body returns
	wholeErr   error
	wholeRead  bool // Request.Body has read the whole body; readers then read from whole
	wholeTaken int  // how many bytes of whole readers have read
	formRead   bool // MultipartForm has read the body: see errFormRead
}

func (b *wholeBody) readFromWhole(p []byte) (int, error) {
	if b.wholeTaken == len(b.whole) {
		if b.wholeErr != nil {
			return 0, b.wholeErr
		}
		return 0, io.EOF
	}
	n := copy(p, b.whole[b.wholeTaken:])
	b.wholeTaken += n
	return n, nil
}

// begin sets b to an unread body.
func (b *body) begin(f http1.Framing) {
	b.remaining, b.received = f.Length, 0
	b.expect = f.ExpectContinue
	b.chunked = f.Length < 0
	b.err, b.done = nil, false
	b.wholeRead, b.wholeTaken, b.formRead = false, 0, false
	switch {
	case b.chunked:
		b.decoder = http1.ChunkDecoder{}
	case f.Length == 0:
		b.reachEnd()
	}
}

// end forgets the body.
func (b *body) end() {
	b.whole, b.wholeErr, b.closeEnd = nil, nil, false
}

func (b *body) complete() bool { return b.done }

// reachEnd marks the body as read to its end.
func (b *body) reachEnd() { b.err, b.done = io.EOF, true }

// fail makes every further read return err. The input after the body can't be parsed any more.
func (b *body) fail(err error) error {
	b.err, b.closeEnd = err, true
	return err
}

// hijacked makes every further read fail: the remaining input belongs to the code that has taken the connection over.
func (b *body) hijacked() { b.err, b.done = ErrHijacked, false }

// took records that the handler has received n bytes of content.
func (b *body) took(n int) error {
	b.received += int64(n)
	if b.limit.isBelow(b.received) {
		return b.fail(errTooLarge)
	}
	if !b.chunked {
		b.remaining -= int64(n)
		if b.remaining == 0 {
			b.reachEnd()
		}
	}
	return nil
}

// take returns the next piece of the body in the read buffer, at most max bytes, or nil if there is none. If the piece is nil, the body has
// ended if b.err is set; otherwise more input is needed.
func (c *conn) take(b *body, max int) ([]byte, error) {
	for b.err == nil && c.in.Len() > 0 {
		unread := c.in.Unread()
		if !b.chunked {
			piece := unread[:min(len(unread), max, int(min(b.remaining, 1<<30)))]
			c.in.Advance(len(piece))
			return piece, b.took(len(piece))
		}
		if b.decoder.AtTrailer() {
			c.takeTrailer(b)
			break
		}
		if b.decoder.InData() {
			unread = unread[:min(len(unread), max)]
		}
		piece, n, fault := b.decoder.Decode(unread)
		if fault == http1.NoFault && len(piece) > max {
			// The decoder consumed framing together with more than max bytes of data: leave the excess for the next call.
			b.decoder.GiveBack(len(piece) - max)
			n -= len(piece) - max
			piece = piece[:max]
		}
		c.in.Advance(n)
		if fault != http1.NoFault {
			return nil, b.fail(faultErrors[fault])
		}
		if len(piece) > 0 {
			return piece, b.took(len(piece))
		}
	}
	if b.err != nil && !b.done {
		return nil, b.err
	}
	return nil, nil
}

// takeTrailer parses the trailer section, to which the limits of a head apply.
func (c *conn) takeTrailer(b *body) {
	p, unread := c.parser, c.in.Unread()
	done, fault := p.ParseTrailer(unread, &c.server.config.head)
	if fault != http1.NoFault {
		b.fail(faultErrors[fault])
		return
	}
	if !done {
		return
	}
	p.CopyFields(&c.scratch.ctx.Request.Trailer.list, unread)
	c.in.Advance(p.Len())
	b.reachEnd()
}

// readBody is io.Reader's Read for the request's body.
func (x *exchange) readBody(b *body, p []byte) (n int, err error) {
	if b.wholeRead {
		// Request.Body has already read the whole body.
		return b.readFromWhole(p)
	}
	if b.formRead {
		return 0, errFormRead
	}
	n, err = x.wire.readBody(b, p)
	x.bodyRead(b)
	return n, err
}

// bodyRead starts the watch of the client for the request's context, if there is one, once the body is complete.
func (x *exchange) bodyRead(b *body) {
	if ctx := x.scratch.ctx; ctx.context != nil && b.complete() {
		ctx.watch()
	}
}

// readBody implements wire.
func (c *conn) readBody(b *body, p []byte) (int, error) {
	if len(p) == 0 && b.err == nil {
		return 0, nil
	}
	for b.err == nil {
		piece, err := c.take(b, len(p))
		if err != nil {
			return 0, err
		}
		if len(piece) > 0 {
			return copy(p, piece), nil
		}
		if b.err != nil {
			break
		}
		if n := b.direct(len(p)); n >= directRead && c.in.Len() == 0 {
			return c.readDirect(b, p[:n])
		}
		if err := c.waitBody(b); err != nil {
			return 0, err
		}
	}
	return 0, b.err
}

// direct returns how many bytes, at most size, can be read directly into the handler's buffer: only bytes that are certain to be content of
// this body, not framing.
func (b *body) direct(size int) int {
	switch {
	case !b.chunked:
		return int(min(int64(size), b.remaining))
	case b.decoder.InData():
		return int(min(int64(size), b.decoder.Remaining()))
	}
	return 0
}

// gathers reports whether the handler wants the whole body, so that a read needn't return a part of it. A handler with a timeout must be
// woken often, since only then does it notice that its time has run out.
func (x *exchange) gathers(b *body) bool {
	t := x.scratch.ctx.timeout
	return b.gathered && (t == nil || !t.armed)
}

func (c *conn) readDirect(b *body, p []byte) (int, error) {
	if err := c.beforeWait(b); err != nil {
		return 0, err
	}
	if c.gathers(b) {
		c.driver.want(len(p))
		defer c.driver.want(0)
	}
	n, err := c.receive(p, stateBody)
	if n > 0 {
		if b.chunked {
			b.decoder.Took(int64(n))
		}
		if err := b.took(n); err != nil {
			return 0, err
		}
		return n, nil
	}
	return 0, c.bodyFailed(b, err)
}

// waitBody reads more of the connection's input into the read buffer.
func (c *conn) waitBody(b *body) error {
	if err := c.beforeWait(b); err != nil {
		return err
	}
	if err := c.fill(stateBody); err != nil {
		return c.bodyFailed(b, err)
	}
	return nil
}

// bodyFailed makes every further read of the body fail, since a read of the connection has failed with err.
func (c *conn) bodyFailed(b *body, err error) error {
	if c.scratch.ctx.timedOut() {
		return b.fail(ErrHandlerTimeout)
	}
	var problem *HTTPError // a refusal by the server itself
	if !errors.As(err, &problem) && !errors.Is(err, errDeadline) {
		c.loseClient()
	}
	if errors.Is(err, errDeadline) {
		c.server.counts.timeouts.body.Add(1)
	}
	return b.fail(bodyError(err))
}

// beforeWait sends earlier answers and the 100 (Continue): the client may wait for these before it sends the body.
func (c *conn) beforeWait(b *body) error {
	if b.isTooLarge() {
		return b.fail(errTooLarge)
	}
	ctx := c.scratch.ctx
	if err := ctx.holdAnswer(); err != nil {
		return b.fail(err)
	}
	defer ctx.releaseAnswer()
	if b.expect {
		b.expect = false
		// No 100 (Continue) is sent if a part of the body has arrived, or if the head of the final answer was sent.
		if b.received == 0 && c.in.Len() == 0 && !ctx.stream.sent {
			c.out = append(c.out, http1.Continue...)
		}
	}
	if err := c.flush(); err != nil {
		// The client left before the server asked for the body. The handler gets the error of a client that leaves while it sends the body.
		return b.fail(&HTTPError{Status: 400, Detail: errTruncated.Detail, Err: err})
	}
	return nil
}

// bodyError turns the error of a read of the connection into the body's error.
func bodyError(err error) error {
	var problem *HTTPError // from the loop driver, or from a hooks.Transport
	switch {
	case errors.As(err, &problem), err == ErrHandlerTimeout:
		return err
	case errors.Is(err, errDeadline):
		return errSlowBody
	case err == io.EOF:
		return &HTTPError{Status: 400, Detail: errTruncated.Detail, Err: io.ErrUnexpectedEOF}
	}
	return &HTTPError{Status: 400, Detail: errTruncated.Detail, Err: err}
}

// readWholeBody returns the whole body: in the read buffer if it fits there, otherwise in a separate buffer.
func (x *exchange) readWholeBody(b *body) ([]byte, error) {
	if b.wholeRead {
		return b.whole, b.wholeErr
	}
	var err error
	switch {
	case b.formRead:
		err = errFormRead
	case b.done:
	case b.err != nil:
		err = b.err
	case b.isTooLarge():
		err = b.fail(errTooLarge)
	default:
		var lent bool
		if b.received == 0 {
			b.whole, lent, err = x.wire.lendBody(b)
		}
		if !lent {
			b.large, err = x.readLarge(b)
			b.whole = b.large
		}
	}
	b.wholeRead, b.wholeErr = true, err
	x.bodyRead(b)
	if err != nil {
		b.whole = nil
	}
	return b.whole, err
}

// lendBody implements wire. If the body fits in the read buffer, lendBody waits until the whole body has arrived.
func (c *conn) lendBody(b *body) (whole []byte, ok bool, err error) {
	if b.chunked || b.remaining > int64(c.in.Room()) {
		return nil, false, nil
	}
	size := int(b.remaining)
	for c.in.Len() < size {
		if err := c.waitBody(b); err != nil {
			return nil, true, err
		}
	}
	whole = c.in.Unread()[:size:size]
	c.in.Advance(size)
	c.in.Pin()
	return whole, true, b.took(size)
}

// takeBuffer returns an empty buffer to read a body into: the one that the worker keeps, or a new one.
func (w *scratch) takeBuffer() []byte {
	buffer := w.body[:0]
	w.body = nil
	if cap(buffer) == 0 {
		buffer = make([]byte, 0, firstBodyBuffer)
	}
	return buffer
}

// believedPart is a divisor: once 1/16 of a body with an announced length has arrived, the server allocates the whole length. Since this part
// is small, the body outgrows few buffers before that, and most of these are small enough for the worker to keep.
const believedPart = 16

// largeBuffers keeps the buffers of large bodies, for all servers of the process together.
var largeBuffers lend.Buffers

// readLarge reads the body into a buffer that grows as bytes arrive. It allocates an announced length only when a part of the body has
// arrived, so that a client can't make the server allocate memory just by announcing a length. If MaxBufferedBodies leaves no room for the
// body, the rest of it can still be skipped.
func (x *exchange) readLarge(b *body) (buffer []byte, err error) {
	announced := b.remaining
	if cost := bodyCost(int(min(announced, 1<<30))); !b.chunked && cost > 0 {
		if err := x.checkRoom(cost); err != nil {
			return nil, err
		}
	}
	b.gathered = !b.chunked
	defer func() { b.gathered = false }()
	buffer = x.scratch.takeBuffer()
	for {
		if len(buffer) == cap(buffer) {
			size := int64(2 * cap(buffer))
			if !b.chunked {
				size = min(8*int64(cap(buffer)), announced/believedPart)
				if int64(len(buffer)) >= announced/believedPart || size > announced {
					size = announced
				}
			}
			// A body with a length never needs more room than its length. A chunked body needs a little more, for the read that finds its
			// end.
			buffer, err = x.growBody(buffer, int(size))
		}
		if err == nil {
			var n int
			n, err = x.readBody(b, buffer[len(buffer):cap(buffer)])
			buffer = buffer[:len(buffer)+n]
		}
		if err == io.EOF || err == nil && b.complete() {
			return buffer, nil
		}
		if err != nil {
			x.dropBody(buffer)
			return nil, err
		}
	}
}

// releaseBuffer takes back a buffer that a body was read into, or that a body has outgrown. The worker keeps a small buffer; a large one
// goes to the free list.
func (w *scratch) releaseBuffer(buffer []byte) {
	if cap(buffer) > maxKeptBody {
		largeBuffers.Put(buffer)
		return
	}
	lend.Poison(buffer[:cap(buffer)])
	w.body = buffer[:0]
}

// The functions below count the buffers of bodies that handlers read as a whole, in any protocol, against Server.MaxBufferedBodies.
// internal/budget has the counters. internal/http2conn counts the bodies of HTTP/2 that wait for their handlers.

// errBodiesFull is the error of a body for which there is no room.
var errBodiesFull = &HTTPError{Status: 503, Detail: "too many request bodies at once", Err: ErrBusy}

// bodyCost returns how many bytes the buffer of a body counts as. Buffers of up to maxKeptBody don't count, since the workers keep them.
func bodyCost(capacity int) int64 {
	if capacity <= maxKeptBody {
		return 0
	}
	return int64(capacity)
}

// takeRoom counts n more bytes for the current request's body. If there is no room, the error is errBodiesFull.
func (x *exchange) takeRoom(n int64) error {
	if n <= 0 {
		return nil
	}
	room, bodies := &x.scratch.ctx.room, &x.server.bodies
	return x.cutSilentUntil(func() bool { return bodies.Take(room, x.wire.queuedBody(), n) })
}

// takeDecoderRoom is takeRoom for the memory of a decoder. A client gets a megabyte of it for a few bytes, so decoders leave half of the room to
// the bodies themselves.
func (x *exchange) takeDecoderRoom(n int64) error {
	bodies, own := &x.server.bodies, x.scratch.ctx.room.Bytes()+x.wire.queuedBody()
	if err := x.cutSilentUntil(func() bool {
		used := bodies.Used()
		return bodies.Limit() < 0 || used <= own || used+n <= bodies.Limit()/2
	}); err != nil {
		return err
	}
	return x.takeRoom(n)
}

// checkRoom returns errBodiesFull if n more bytes of the current request's body would have no room.
func (x *exchange) checkRoom(n int64) error {
	room, bodies := &x.scratch.ctx.room, &x.server.bodies
	return x.cutSilentUntil(func() bool { return bodies.HasRoom(room, x.wire.queuedBody(), n) })
}

// cutSilentUntil makes room by ending silent bodies until there is enough. If no body is silent, the error is errBodiesFull.
func (x *exchange) cutSilentUntil(enough func() bool) error {
	for !enough() {
		if !x.server.bodies.CutSilent(x.server.clock.Exact()) {
			return x.refuseBody()
		}
	}
	return nil
}

// refuseBody counts the refusal of the current request's body.
func (x *exchange) refuseBody() error {
	if x.wire.overrunBody() {
		x.server.refusedRequest(refusedBufferedBodies, x.wire.remote())
	}
	return errBodiesFull
}

// queuedBody implements wire for protocols that queue no bodies: unread bytes stay in the connection.
func (x *exchange) queuedBody() int64 { return 0 }

// overrunBody implements wire for protocols that queue no bodies.
func (x *exchange) overrunBody() bool { return true }

// giveRoom gives back n bytes that takeRoom has counted for the current request, unless CutBody has already passed them to other requests.
func (x *exchange) giveRoom(n int64) { x.server.bodies.Give(&x.scratch.ctx.room, n) }

// CutBody implements budget.Silent: the read that waits for the body ends with errDeadline.
func (c *conn) CutBody(room *budget.Room) bool {
	s := &c.server.conns
	s.waking.Lock()
	defer s.waking.Unlock()
	// This works as in connSet.shed: the owner can't leave the wait before connSet.waking is unlocked.
	word := c.word.Load()
	if waitState(word&stateMask) != stateBody || !c.word.CompareAndSwap(word, int64(stateShed)) {
		return false
	}
	c.server.bodies.Pass(room)
	c.wakeReader()
	return true
}

// growBody returns a buffer with the content of buffer and at least the given capacity. If the error is errBodiesFull, buffer is unchanged.
func (x *exchange) growBody(buffer []byte, size int) ([]byte, error) {
	if size <= cap(buffer) {
		return buffer, nil
	}
	if err := x.takeRoom(bodyCost(size) - bodyCost(cap(buffer))); err != nil {
		return buffer, err
	}
	grown := append(largeBuffers.Get(size), buffer...)
	if more := bodyCost(cap(grown)) - bodyCost(size); more > 0 { // the free list had no smaller buffer
		x.server.bodies.Add(&x.scratch.ctx.room, more)
	}
	x.scratch.releaseBuffer(buffer)
	return grown, nil
}

// dropBody gives back a buffer that the current request's body was read into.
func (x *exchange) dropBody(buffer []byte) {
	if cost := bodyCost(cap(buffer)); cost > 0 {
		x.giveRoom(cost)
	}
	x.scratch.releaseBuffer(buffer)
}
