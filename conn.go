package filo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/race"
)

// waitState says what a connection's owner is doing. It is a part of conn.word.
type waitState uint8

const (
	stateNew     waitState = iota // waiting for the first byte
	stateIdle                     // waiting for the next request
	stateHead                     // waiting for the rest of a head
	stateBody                     // waiting for a body
	stateHandler                  // not waiting: parsing, or in a handler
	stateWrite                    // waiting for the client to take an answer
	stateLast                     // waiting a last moment for the next request, since the server is shutting down
	stateClosed
	stateParked    // taken over by a handler, and waiting
	stateHandshake // in a TLS handshake of the blocking driver, which doesn't survive a wake-up
	stateRest      // waiting for a body that nobody reads, behind its answer

	stateBits = 4
	stateMask = 1<<stateBits - 1
)

// idle reports whether the owner waits for a request of which no byte has come.
func (s waitState) idle() bool { return s <= stateIdle || s == stateLast || s == stateHandshake }

// body reports whether the owner waits for a body.
func (s waitState) body() bool { return s == stateBody || s == stateRest }

// reading is where in the input a connection is.
type reading uint8

const (
	readingHead    reading = iota // of the next request
	readingRest                   // of a body whose handler has returned
	readingNothing                // the connection ends when what is in out is written
)

// looped holds the operations that the loop driver implements in its own way for a running handler.
type looped interface {
	// watch cancels the context when the client leaves, until unwatch, and reports what of that has happened: the client has
	// ended its side, or is gone altogether. The caller, who may be any goroutine, holds the context's mu.
	watch(r *requestContext) (half, gone bool)
	unwatch()
	// sendApart sends what the client takes at once, on any goroutine. The owner sends the rest when the handler has returned.
	sendApart(p []byte) error
	// remote returns the address of the client, not valid if it has none of IP.
	remote() netip.AddrPort
	// leaveLoop makes the loop another worker's, so that the connection can be taken over. The error is errBusy.
	leaveLoop() error
	// prepareParked makes the connection ready for Ctx.Park, when it has left its loop.
	prepareParked() error
	// setParked makes the connection the parked one that it has become.
	setParked()
	// prepareHijack makes the loop another worker's, and opens the socket once more for hijack. The connection stays what it is:
	// what fails for want of a worker or of descriptors fails here.
	prepareHijack() (net.Conn, error)
	// hijack takes the connection out of its loop.
	hijack(prepared net.Conn) (net.Conn, error)
}

// step tells a driver what the protocol needs next.
type step uint8

const (
	stepRead   step = iota // write out, then read more input
	stepHandle             // run the handler
	stepClose              // write out, then close
	stepGone               // nothing: the connection was hijacked
)

// Errors that a driver reports to the protocol.
var (
	errDeadline = fmt.Errorf("filo: %w", os.ErrDeadlineExceeded)
	errDraining = errors.New("filo: the server is shutting down")
)

// conn is one connection. Its protocol code (next, and what that calls) does no IO: it takes bytes from in, leaves
// bytes in out, and tells its driver by a step what it needs. Only where a handler has to wait for its client does the
// protocol call the driver: receive, fill and flush.
//
// Unless said otherwise a field belongs to the goroutine that serves the connection, its owner.
type conn struct {
	// exchange is that of the current request. Its server, tlsState and answered are the connection's.
	exchange
	netConn net.Conn // immutable
	// looped is the connection as the loop driver knows it, nil in the blocking driver.
	looped looped
	*lent  // a part of worker

	in     *http1.Input  // the worker's, or the connection's own while a request is unfinished
	parser *http1.Parser // likewise
	rest   *body         // what is skipped while reading is readingRest

	reading reading
	linger  bool // close only after the client had time to read an error answer
	aborted bool // the current answer won't be completed
	broken  bool // an answer was broken off: close by a reset
	chunked bool // the current answer streams in chunks
	toEnd   bool // the current answer streams until the end of the connection
	// pipelined says that the client has sent a request before it had the answer to the one before: it may be sending others.
	pipelined bool
	unserved  bool // nothing came in the time for which it had one of the places that are kept: it is to be refused
	// awaitsBody says that the current request's head is complete, and its small body is waited for before the handler runs.
	awaitsBody bool
	counted    bool            // against MaxConnsPerIP; guarded by the server's connSet
	parked     *ParkedConn     // what it was taken over as, if that is one; set once
	requests   int             // that have begun
	context    context.Context // of Server.ConnContext; nil until it is needed
	// inputError is the error with which the watch for a context stopped reading; the input it received comes before.
	inputError error
	headSince  clock.Time // when the first byte of the head came; 0: it hasn't
	readPace   pace.Pace  // of the current body
	writePace  pace.Pace  // of the current answer

	// word holds the owner's waitState in its low bits and above them the deadline of its wait, a clock.Time, 0 for none.
	// The owner stores it; the sweep takes an expired deadline out and wakes the owner.
	word atomic.Int64

	// Guarded by the server's connSet.
	member bool
	index  int
}

// lent holds the worker's buffers that a connection uses while it is attached.
type lent struct {
	// stream reads and writes the connection: the worker's raw socket if possible, or else netConn itself.
	stream io.ReadWriter
	out    []byte // rendered and not written
	// before is how much of out belongs to the answers before the current one.
	before int
	// outBody is a body that follows out and isn't copied into it. It is borrowed from the response.
	outBody []byte
}

func newConn(s *Server, netConn net.Conn) *conn {
	c := new(conn)
	c.open(s, netConn)
	return c
}

// open sets what doesn't change as long as there is the connection.
func (c *conn) open(s *Server, netConn net.Conn) { c.server, c.netConn, c.wire = s, netConn, c }

// localAddr implements wire.
func (c *conn) localAddr() net.Addr { return c.netConn.LocalAddr() }

// remoteAddr implements wire.
func (c *conn) remoteAddr() net.Addr { return c.netConn.RemoteAddr() }

// remote implements wire.
func (c *conn) remote() netip.AddrPort {
	if c.looped != nil {
		return c.looped.remote()
	}
	return addrPortOf(c.netConn.RemoteAddr())
}

// attach lends a worker's buffers to the connection.
func (c *conn) attach(w *scratch) {
	c.worker, c.lent, c.in, c.parser = w, &w.lent, &w.in, &w.parser
	w.parser.Reset()
	c.stream, c.out, c.before, c.outBody = c.netConn, w.out[:0], 0, nil
	if w.socket.Attach(c.netConn); w.socket.Attached() {
		c.stream = &w.socket
	}
	if w.ctx == nil {
		w.ctx = new(Ctx)
	}
	w.ctx.exchange = &c.exchange
}

// detach takes them back.
func (c *conn) detach() {
	w := c.worker
	w.ctx.end() // before the reset, since it may give back bytes that a watch has read
	if race.Enabled {
		c.poisonRequest()
	}
	w.in.Reset()
	w.socket.Detach()
	if cap(c.out) <= maxKeptWriteBuffer {
		w.out = c.out[:0]
	} else {
		w.out = nil
	}
	w.ctx.Response.reset()
	w.ctx.exchange = nil
	if race.Enabled {
		w.ctx = nil
	}
	w.stream, w.outBody = nil, nil
	c.worker, c.lent, c.in, c.parser, c.rest = nil, nil, nil, nil, nil
}

func (c *conn) setState(s waitState) { c.word.Store(int64(s)) }

// deadlineIn returns the deadline that a connection's word holds, 0 for none.
func deadlineIn(word int64) clock.Time { return clock.Time(word &^ stateMask) }

func (c *conn) setWait(s waitState, deadline clock.Time) {
	c.word.Store(int64(deadline)&^stateMask | int64(s))
	if set := &c.server.conns; deadline != 0 && deadline < set.due.Load() {
		set.hasten(deadline)
	}
}

func (c *conn) state() waitState { return waitState(c.word.Load() & stateMask) }

// next looks at the input and says what to do.
func (c *conn) next() step {
	if c.reading == readingRest {
		c.skipRest()
	}
	switch {
	case c.hijacked:
		return stepGone
	case c.reading == readingNothing:
		return stepClose
	case c.reading == readingRest || c.in.Len() == 0:
		return stepRead
	}
	done, fault := c.parser.Parse(c.in.Unread(), &c.server.config.head)
	if fault == http1.NoFault && !done {
		// Empty lines before a request line are no part of a request, and a connection that got nothing else is idle.
		c.in.Advance(c.parser.TakeEmptyLines())
		return stepRead
	}
	if fault == http1.NoFault && c.looped != nil && c.lacksBody() {
		return stepRead
	}
	if fault == http1.NoFault {
		fault = c.begin()
	}
	if fault != http1.NoFault {
		c.refuse(faultErrors[fault])
		return stepClose
	}
	return stepHandle
}

// begin makes the head that the parser has completed the current request.
func (c *conn) begin() http1.Fault {
	w := c.worker
	c.awaitsBody = false
	p, ctx := c.parser, w.ctx
	head := c.in.Unread()[:p.Len():p.Len()]
	f, fault := p.Frame(head)
	if fault != http1.NoFault {
		return fault
	}
	c.in.Advance(len(head))
	c.in.Pin()
	c.requests++
	c.headSince, c.lost = 0, false
	c.readPace, c.writePace = pace.Pace{}, pace.Pace{}
	ctx.begin(&p.RequestHead, head, f)
	return http1.NoFault
}

// maxAwaitedBody is how large a body may be for the loop driver to wait for it before the handler runs.
const maxAwaitedBody = 16 << 10

// lacksBody reports whether a request whose head is complete has a small body that hasn't all come. To wait for that takes
// no worker; for a larger one the handler's waits. That of a chunked one does, too: nobody knows how large it will be, and its
// client may want to be answered while it sends.
func (c *conn) lacksBody() bool {
	p := c.parser
	if !p.Has(field.ContentLength) || c.inputError != nil {
		return false
	}
	unread := c.in.Unread()
	f, fault := p.Frame(unread[:p.Len()])
	limit := c.server.config.maxBody
	if fault != http1.NoFault || f.ExpectContinue || limit >= 0 && f.Length > limit {
		return false
	}
	if f.Length < 0 || f.Length > maxAwaitedBody || int64(len(unread)-p.Len()) >= f.Length {
		return false
	}
	if !c.awaitsBody {
		c.awaitsBody, c.headSince, c.readPace = true, 0, pace.Pace{}
	}
	return true
}

// end makes the connection ready for the next request, once the answer to the current one is in out or written.
func (c *conn) end() {
	c.parser.Reset()
	c.outBody = nil
	c.endRequest()
	c.in.Unpin()
}

// endRequest lets go of what the current request holds. Its handler has returned.
func (c *conn) endRequest() {
	c.worker.ctx.end()
	if race.Enabled {
		c.retireCtx()
	}
}

// retireCtx makes the request's memory unusable: what a handler has kept is overwritten, and the Ctx isn't used again.
func (c *conn) retireCtx() {
	c.poisonRequest()
	old := c.worker.ctx
	c.worker.ctx = &Ctx{exchange: &c.exchange}
	*old = Ctx{}
}

// poisonRequest overwrites all memory that was lent to the handler.
func (c *conn) poisonRequest() {
	c.in.Poison()
	c.worker.ctx.poison()
}

// poison overwrites what the request and the response hold.
func (c *Ctx) poison() {
	request, response := &c.Request, &c.Response
	for _, h := range [...]*Header{&request.Header, &request.Trailer, &response.Header, &response.Trailer} {
		h.list.Poison()
	}
	for _, b := range [...][]byte{request.uri.decoded, request.uri.query.arena, request.form.arena} {
		lend.Poison(b[:cap(b)])
	}
}

// skipRest throws away what is left of the last request's body, so that it is never taken for a request.
func (c *conn) skipRest() {
	b := c.rest
	if c.server.life.endsRest(c.server.clock.exact) {
		c.reading, c.linger = readingNothing, true
		return
	}
	for {
		piece, err := c.take(b, c.in.Len())
		switch {
		case err != nil:
			c.reading, c.linger = readingNothing, true
			return
		case b.complete():
			c.reading = readingHead
			c.end()
			return
		case piece == nil:
			return
		}
	}
}

// refuse answers a request that isn't one. What follows it can't be understood, so the connection ends.
func (c *conn) refuse(err *HTTPError) {
	c.logRefused(err)
	head := string(c.parser.Method(c.in.Unread())) == "HEAD"
	c.out = c.server.appendRefusal(c.out, err, &refusalFields, head)
	c.count(err.Status)
	c.reading, c.linger = readingNothing, true
}

// inputEnded takes note that no more input will come, and why.
func (c *conn) inputEnded(err error) {
	started := c.in.Len() > 0 || c.parser.Started()
	if c.reading == readingHead && started {
		switch {
		case errors.Is(err, errDeadline):
			c.refuse(errSlowHead)
		case isEOF(err):
			c.refuse(errTruncated)
			// The client has said that it sends nothing more, so there is nothing to linger for.
			c.linger = false
		}
	}
	c.unserved = !started && c.requests == 0 && c.worker.kept()
	c.reading = readingNothing
}
