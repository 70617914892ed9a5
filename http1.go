package filo

import (
	"time"

	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/race"
)

const (
	// writeBufferFull is the size at which conn.out is written even if more pipelined requests have arrived.
	writeBufferFull = 16 << 10
	// maxKeptWriteBuffer is the largest write buffer that a worker keeps between connections.
	maxKeptWriteBuffer = 64 << 10
	// copiedBody is the largest body that is copied into the write buffer, after its head. Larger bodies are written without a copy.
	copiedBody = 8 << 10
)

// handle runs the handler on the current request and leaves its answer in c.out. The driver then writes as much of c.out as it must, and calls
// afterAnswer.
func (c *conn) handle() {
	ctx := c.scratch.ctx
	c.before = len(c.out)
	if ctx.Request.isForServer() {
		// RFC 9110, section 9.3.7: OPTIONS * asks about the server and not about a resource.
		c.answerError(ctx, ctx.NoContent())
		return
	}
	invoked := false
	defer func() {
		if invoked {
			return
		}
		// The handler is ending the goroutine, so the connection ends, too.
		if e := c.exited(ctx); e != endingTaken {
			c.conclude(ctx, e)
			if c.failed || c.flush() == nil {
				c.afterAnswer()
			}
		}
	}()
	err := c.invoke(ctx)
	invoked = true
	c.conclude(ctx, c.finish(ctx, err))
}

// answerError answers a request without calling its handler: with err, or with the response as it is if err is nil.
func (c *conn) answerError(ctx *Ctx, err error) { c.conclude(ctx, c.finish(ctx, err)) }

// conclude renders or aborts an answer whose handler has returned.
func (c *conn) conclude(ctx *Ctx, e ending) {
	switch e {
	case endingWhole:
		c.render(ctx)
	case endingAborted:
		c.abortNow(ctx)
	case endingTimedOut:
		c.netConn.SetReadDeadline(time.Time{}) // see answerApart
		c.setReading(readingNothing)
	}
}

// skipReceived discards the received part of a body that its handler didn't read, so that the method settle sees what has arrived after the
// body.
func (c *conn) skipReceived(b *body) {
	if b.err != nil || b.endsConnection() || b.exceeds(maxDrain) {
		return
	}
	b.limit = -1
	for piece := []byte{0}; piece != nil; {
		piece, _ = c.take(b, c.in.Len())
	}
}

// abortNow drops the unwritten part of the answer, and closes the connection once the earlier answers are written. If the end of the
// connection would mark the end of the body, the connection is reset instead.
func (c *conn) abortNow(ctx *Ctx) {
	c.out, c.outBody = c.out[:c.before], nil
	how := closingAborted
	if ctx.stream.sent && c.writing == writingToEnd {
		how = closingReset
	}
	c.readNothing(how)
	ctx.Response.resetBody()
}

// render puts the answer into c.out. A body that is too large to be copied goes to c.outBody.
func (c *conn) render(ctx *Ctx) {
	c.skipReceived(&ctx.Request.body)
	r := &ctx.Response
	length, size := r.wholeLength(ctx)
	f := http1.Head{Length: length}
	c.settle(ctx, &f)
	c.out = r.appendHead(c.out, c.server, &f)
	switch {
	case size == 0:
	case size <= copiedBody:
		c.out = append(c.out, r.bodyBytes()...)
	default:
		c.outBody = r.bodyBytes()
	}
}

// wholeLength returns the length that a whole answer announces, noLength if none, and how many bytes of its body are sent.
func (r *Response) wholeLength(ctx *Ctx) (length int64, size int) {
	size = r.size()
	length = int64(size)
	declared := r.declaredLength()
	switch {
	case !http1.BodyAllowed(r.status):
		length, size = r.bareLength(declared), 0
	case ctx.Request.isHead():
		if size == 0 && declared >= 0 {
			length = declared
		}
		size = 0
	case r.tunnels():
		length = noLength
	case declared >= 0 && declared != length:
		ctx.exchange.server.logger().Error("the handler's Content-Length isn't the length of its body; the body is sent as it is",
			"declared", declared, "length", length, "path", ctx.loggedPath())
	}
	return length, size
}

// bareLength returns the length that an answer whose status allows no body announces, noLength if none. The argument declared is the
// Content-Length that the handler has set. RFC 9110, section 8.6: a 204 has no Content-Length; a 304 may have the Content-Length of the answer
// to a GET. A 205 has an empty body (section 15.3.6).
func (r *Response) bareLength(declared int64) int64 {
	switch r.status {
	case 304:
		return declared
	case 205:
		return 0
	}
	return noLength
}

// settle decides whether the connection goes on after the answer, and sets f accordingly.
func (c *conn) settle(ctx *Ctx, f *http1.Head) {
	request, b, most := &ctx.Request, &ctx.Request.body, int64(maxDrain)
	if !ctx.returned {
		most = maxSkip // a handler that streams its answer may still read its body; if it doesn't, up to maxSkip bytes are skipped
	}
	switch {
	case !b.complete() && (b.endsConnection() || b.exceeds(most)):
		f.Close = true
	case ctx.Response.tunnels():
		f.Close, c.pipelined = true, true // the client may be sending already
	case request.framing.Close, ctx.Response.wantsClose():
		f.Close = true
	case c.server.config.maxRequests > 0 && int(c.requests.Load()) >= c.server.config.maxRequests:
		f.Close = true
	case c.server.life.EndsConns() && (c.in.Len() == 0 || c.server.life.EndsRest(c.server.clock.Exact)):
		f.Close = true // requests that have arrived are answered first, but a client that never stops pipelining must not delay a shutdown
	case c.scratch.place != nil && c.scratch.place.IsReserved() && c.driver.keepsWorker():
		f.Close = true // the connection has a reserved place, which other connections need
	}
	f.KeepAlive = !f.Close && request.line.Minor == 0
	if f.Close {
		c.setReading(readingNothing)
	}
}

// endsConnection reports whether the input after the body can't be parsed.
func (b *body) endsConnection() bool { return b.closeEnd || b.expect }

// exceeds reports whether the rest of the body is known to be larger than a maximum (most).
func (b *body) exceeds(most int64) bool {
	return !b.chunked && b.remaining > most || b.chunked && b.decoder.Remaining() > most
}

// afterAnswer moves the connection on to the next request, or to the unread rest of this request's body.
func (c *conn) afterAnswer() {
	b := &c.scratch.ctx.Request.body
	c.pipelined = c.pipelined || c.in.Len() > 0
	switch {
	case c.hijacked || c.failed || c.closing >= closingAborted:
	case !b.complete() && (c.reading == readingNothing || b.endsConnection()):
		c.readNothing(closingLinger)
	case c.reading == readingNothing:
		if c.setClosing(closingPlain); c.pipelined {
			c.setClosing(closingLinger)
		}
	case !b.complete():
		// maxSkip is much more than maxDrain: the answer has told the client that the connection stays open, so the client may send
		// its next request, which a close would lose.
		c.rest = b
		c.setReading(readingRest)
		b.limit = bodyLimit(b.received + maxSkip)
		// The bytes lent to the handler aren't needed any more. Without them the buffer has enough room to skip the body.
		if race.Enabled {
			c.poisonRequest()
		}
		c.in.Unpin()
	default:
		c.end()
	}
}
