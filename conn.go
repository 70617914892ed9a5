package filo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/http2conn"
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/requestctx"
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
	stateLast                     // waiting briefly for a last request, since the server is shutting down
	stateClosed
	stateParked    // parked by Ctx.Park or ParkStream, and waiting
	stateHandshake // in a TLS handshake of the blocking driver, which a wake-up would break
	stateRest      // waiting for the rest of a body that its handler didn't read, after the answer
	stateStreams   // HTTP/2: waiting for frames while streams are open
	stateLeaving   // HTTP/2: waiting for frames after the first GOAWAY, in a shutdown
	stateShed      // told to close while it was idle, since other connections need its place

	stateBits = 4
	stateMask = 1<<stateBits - 1
)

// More states than a word's low bits can hold would change its deadline.
const _ = uint(stateMask - stateShed)

// A deadline in a word loses the bits that hold the state. Even without them the earliest deadline isn't 0, which would mean none.
const _ = uint(clock.Earliest - 1<<stateBits)

// idle reports whether the owner waits for a request and no byte of it has arrived.
func (s waitState) idle() bool { return s <= stateIdle || s == stateLast || s == stateHandshake }

// body reports whether the owner waits for a body.
func (s waitState) body() bool { return s == stateBody || s == stateRest }

// reading is a connection's position in its input.
type reading uint8

const (
	readingHead    reading = iota // the next request's head
	readingBody                   // the small body of a request whose head is complete: it must arrive before the handler runs
	readingRest                   // the rest of a body whose handler has returned
	readingNothing                // the connection ends when c.out has been written
)

var readingNext = [...]uint8{
	readingHead:    1<<readingHead | 1<<readingBody | 1<<readingRest | 1<<readingNothing,
	readingBody:    1<<readingHead | 1<<readingNothing,
	readingRest:    1<<readingHead | 1<<readingNothing,
	readingNothing: 1 << readingNothing,
}

// Next implements race.State.
func (s reading) Next() uint8 { return readingNext[s] }

// writing says how the client recognises the end of a streamed answer.
type writing uint8

const (
	writingSized  writing = iota // by the announced length, or the answer has no content
	writingChunks                // by the last chunk
	writingToEnd                 // by the end of the connection
)

// closing is how a connection is closed.
type closing uint8

const (
	closingPlain    closing = iota
	closingLinger           // the client may still be sending: it gets the time to read the last answer
	closingUnserved         // the connection had a place of the kind QuickConn, and no byte arrived in time: it is refused
	closingAborted          // the current answer won't be completed
	closingReset            // as closingAborted, but by a reset: a normal close would look like the answer's end
)

// closingLinger may become closingPlain: once the client has closed its sending side, lingering is unnecessary.
var closingNext = [...]uint8{
	closingPlain:    1<<closingPlain | 1<<closingLinger | 1<<closingUnserved | 1<<closingAborted | 1<<closingReset,
	closingLinger:   1<<closingPlain | 1<<closingLinger | 1<<closingAborted | 1<<closingReset,
	closingUnserved: 1 << closingUnserved,
	closingAborted:  1 << closingAborted,
	closingReset:    1 << closingReset,
}

// Next implements race.State.
func (s closing) Next() uint8 { return closingNext[s] }

// driver is the interface by which the protocol calls the driver that serves the connection: the loop driver's *loopConn, or a
// blockingDriver. Unless said otherwise, the owner calls the methods while a handler runs.
type driver interface {
	// keepsWorker reports whether the connection keeps its worker, and the worker's place, from one request to the next and while it waits. If
	// not, the connection waits without a worker for a request, and for the request's body if that is small.
	keepsWorker() bool
	// remote returns the client's address, invalid if the connection isn't an IP connection.
	remote() netip.AddrPort
	// canWatch prepares watch. It returns false if the client can't be watched.
	canWatch() bool
	// watch makes the driver cancel the context when the client leaves, until unwatch is called. The result half is true if the client is
	// already known to have closed its sending side, and the result gone if the client is known to have left. Any goroutine may call watch,
	// holding the context's mu.
	watch(r *requestctx.Context) (half, gone bool)
	unwatch()
	// sendApart sends a time-out's answer: see wire.answerApart. Any goroutine may call it.
	sendApart(p []byte) error
	// IsBroken reports whether the connection is known to be broken, so that nothing more reaches the client.
	IsBroken() bool
	// leaveLoop gives the loop, if there is one, to another worker, before the connection is parked or sends a file. The error is errBusy.
	leaveLoop() error
	// want makes reads wait for size bytes, if the driver can do so, so that the handler isn't woken for fewer. A size of 0 ends this.
	want(size int)
	// gathers reports whether reads wait for more bytes because the method want was called.
	gathers() bool
	// prepareParked sends the rest of earlier answers that the client hasn't taken yet. The caller has called leaveLoop.
	prepareParked() error
	// setParked lets several goroutines write to the connection, which has been parked.
	setParked()
	// prepareHijack gives the loop to another worker, and creates the net.Conn that hijack needs, if it needs one. It fails if places or
	// descriptors have run out; the connection can still answer then.
	prepareHijack() (net.Conn, error)
	// hijack takes the connection from the driver.
	hijack(prepared net.Conn) (net.Conn, error)
	// endWaits makes sure that no further write of a closing connection waits for the client.
	endWaits()
}

// fileDriver is a driver that can send files while no handler runs.
type fileDriver interface {
	driver
	// hasTimeFor reports whether the worker leads a loop that can wait while the worker sends size bytes of a file, and whether the client has
	// taken all earlier answers. If so, sendFirst sends the bytes of c.out, and then as much of the file as the socket accepts at once, up to
	// a limit.
	hasTimeFor(size int64) bool
	sendFirst(f *unsentFile) error
	// keepFile makes the loop send the rest of an answer.
	keepFile(f unsentFile)
}

// step tells a driver what the protocol needs next.
type step uint8

const (
	stepRead   step = iota // write c.out, then read more input
	stepHandle             // run the handler
	stepClose              // write c.out, then close
	stepGone               // nothing: the connection was hijacked
	stepHTTP2              // go on with HTTP/2, whose preface has arrived
)

// Errors that a driver reports to the protocol.
var (
	errDeadline = fmt.Errorf("filo: %w", os.ErrDeadlineExceeded)
	errDraining = errors.New("filo: the server is shutting down")
	errShed     = errors.New("filo: the connection was idle, and others need its place")
)

// conn is a connection. It begins with HTTP/1, and may switch to HTTP/2: see http2. HTTP/1's code (the method next and the methods that it
// calls) does no IO: it takes bytes from c.in, leaves bytes in c.out, and returns the step that the driver does next. The protocol calls the
// driver (receive, fill, flush) only where a handler has to wait for its client.
//
// Unless said otherwise a field belongs to the goroutine that serves the connection, its owner.
type conn struct {
	// exchange is the current request's exchange. Its fields server, tlsState and answered belong to the connection, and outlast the
	// request.
	exchange
	netConn net.Conn // immutable
	// driver is a *loopConn or a blockingDriver. Immutable.
	driver driver
	*lent  // points into worker

	in     *http1.Input  // the worker's, or the connection's own while a request is unfinished
	parser *http1.Parser // belongs to the worker or the connection, as the field in does
	rest   *body         // the body that is skipped while reading is readingRest

	reading reading
	writing writing // how the current answer ends, if it is streamed
	closing closing
	// pipelined says that the client has sent a request without waiting for the previous answer: more requests may be on their way.
	pipelined bool
	// awaitsProxy says that the connection begins with a header of the PROXY protocol, which must arrive before anything else.
	awaitsProxy bool
	counted     bool            // it counts against MaxConnsPerIP; guarded by the server's connSet
	member      bool            // it is in the connSet, which guards the field
	index       int32           // the index in the connSet, which guards the field
	requests    atomic.Int32    // requests that have begun, up to the type's maximum; the owner counts, and Clients reads it
	buffered    int32           // bytes in the system's buffer when the sweep last looked at a wait to write, or one of the constants below
	parked      *ParkedConn     // set once, by Ctx.Park or ParkStream
	context     context.Context // from Server.ConnContext; nil until it is needed
	// inputError is a read error found before the handler reads: by a client watch, or while reading is readingBody. receive returns that
	// error.
	inputError error
	headSince  clock.Time // when the first byte of the head, or of a TLS handshake, arrived; 0 if none has
	readPace   pace.Pace  // how fast the client sends the current body
	writePace  pace.Pace  // how fast the client takes the current answer; the sweep owns it while the sweep holds the deadline of a wait to write

	// since is the time when a wait to write began, or when the sweep last saw that the client had taken bytes. The system's send buffer
	// begins to empty long before the socket becomes writable, so the sweep checks that buffer from time to time, and the wait goes on as long
	// as the client takes bytes: see connSet.expire. In a loop, since is also the beginning of other waits, and 0 once bytes have arrived.
	since clock.Time

	// http2 is set when the connection switches to HTTP/2. From then on the fields above that belong to a request aren't used. Stats reads it.
	http2 atomic.Pointer[http2conn.Conn]

	// word holds the owner's waitState in its low bits, and the deadline of its wait in the bits above (a clock.Time, 0 for none).
	// The owner stores it. The sweep removes an expired deadline from it and wakes the owner.
	word atomic.Int64
}

const (
	notLooked   = -1 // the sweep hasn't checked this wait yet
	notFollowed = -2 // the deadline of the wait stays fixed, however much the client takes
)

// lent holds the worker's buffers that a connection uses while it is attached.
type lent struct {
	// stream reads and writes the connection: the worker's raw socket if possible, or else netConn itself.
	stream io.ReadWriter
	out    []byte // rendered but not yet written
	// before is how many bytes of the field out belong to earlier answers.
	before int
	// outBody is a body that is sent after the bytes of out, without being copied into out. It is borrowed from the response.
	outBody []byte
}

// newConn returns a connection of the blocking driver.
func newConn(s *Server, netConn net.Conn) *conn {
	c := new(conn)
	c.open(s, netConn, blockingDriver{c})
	return c
}

// open sets the fields that stay the same for the whole connection.
func (c *conn) open(s *Server, netConn net.Conn, d driver) {
	c.server, c.netConn, c.wire, c.driver = s, netConn, c, d
}

// localAddr implements wire.
func (c *conn) localAddr() net.Addr { return c.netConn.LocalAddr() }

// attach lends a worker's buffers to the connection.
func (c *conn) attach(w *scratch) {
	c.scratch, c.lent, c.in, c.parser = w, &w.lent, &w.in, &w.parser
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

// detach returns the buffers to the worker.
func (c *conn) detach() {
	w := c.scratch
	w.ctx.end() // before w.in.Reset, since end may add bytes to w.in that a watch has read
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
	c.scratch, c.lent, c.in, c.parser, c.rest = nil, nil, nil, nil, nil
}

// lingers reports whether the client may still be sending when the connection is closed.
func (c *conn) lingers() bool { return c.closing == closingLinger && !c.failed }

// readNothing makes the connection end when c.out has been written.
func (c *conn) readNothing(how closing) {
	c.setReading(readingNothing)
	c.setClosing(how)
}

// setReading sets the connection's position in its input.
func (c *conn) setReading(next reading) { race.Enter(&c.reading, next) }

// setClosing decides how the connection will be closed.
func (c *conn) setClosing(next closing) { race.Enter(&c.closing, next) }

// breakOff records that nothing more can be written, and so nothing more is read.
func (c *conn) breakOff() {
	c.failed = true
	c.setReading(readingNothing)
}

func (c *conn) setState(s waitState) { c.word.Store(int64(s)) }

// deadlineIn returns the deadline that a connection's word holds, 0 for none.
func deadlineIn(word int64) clock.Time { return clock.Time(word &^ stateMask) }

func (c *conn) setWait(s waitState, deadline clock.Time) {
	c.word.Store(waitWord(s, deadline))
	c.awaitSweep(deadline)
}

// waitWord returns the word of a connection that waits in the state s until the deadline.
func waitWord(s waitState, deadline clock.Time) int64 { return int64(deadline)&^stateMask | int64(s) }

// awaitSweep makes sure that the next sweep runs in time for the deadline of a wait.
func (c *conn) awaitSweep(deadline clock.Time) {
	if set := &c.server.conns; set.schedule.IsLate(deadline) {
		set.hasten(deadline)
	}
}

func (c *conn) state() waitState { return waitState(c.word.Load() & stateMask) }

// next examines the input and returns the driver's next step.
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
	if c.requests.Load() == 0 && c.server.config.unencryptedHTTP2 && c.tlsState == nil {
		switch done, fault := http2.ReadPreface(c.in.Unread()); {
		case done:
			return stepHTTP2
		case fault == http2.NoFault:
			return stepRead
		}
	}
	done, fault := c.parser.Parse(c.in.Unread(), &c.server.config.head)
	if fault == http1.NoFault && !done {
		// Empty lines before a request line aren't part of a request: a connection that has received nothing else is idle.
		c.in.Advance(c.parser.TakeEmptyLines())
		return stepRead
	}
	if fault == http1.NoFault && c.lacksBody() {
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

// begin begins the request whose head the parser has completed.
func (c *conn) begin() http1.Fault {
	w := c.scratch
	c.setReading(readingHead)
	p, ctx := c.parser, w.ctx
	head := c.in.Unread()[:p.Len():p.Len()]
	f, fault := p.Frame(head)
	if fault != http1.NoFault {
		return fault
	}
	c.in.Advance(len(head))
	c.in.Pin()
	c.countRequest()
	c.headSince, c.lost = 0, false
	c.readPace, c.writePace = pace.Pace{}, pace.Pace{}
	ctx.begin(&p.RequestHead, head, f)
	return http1.NoFault
}

// countRequest counts a request that begins.
func (c *conn) countRequest() {
	if c.requests.Load() == 0 && c.isStranger() {
		c.remoteAddr() // so that Clients and Running know the address
	}
	c.requests.Store(min(c.requests.Load(), math.MaxInt32-1) + 1)
}

// maxAwaitedBody is the largest body that the loop driver receives completely before the handler runs.
const maxAwaitedBody = 16 << 10

// lacksBody reports whether a request whose head is complete has a small body that must arrive before the handler runs. The connection waits for
// such a body without a worker, unless it keeps one. The handler waits for larger bodies, and for chunked ones: their size is unknown, and the
// client may expect an answer while it sends.
func (c *conn) lacksBody() bool {
	p := c.parser
	if !p.Has(field.ContentLength) || c.inputError != nil || c.driver.keepsWorker() {
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
	if c.reading != readingBody {
		c.setReading(readingBody)
		c.headSince, c.readPace = 0, pace.Pace{}
	}
	return true
}

// end makes the connection ready for the next request, once the answer to the current request is in c.out or has been written.
func (c *conn) end() {
	c.parser.Reset()
	c.outBody = nil
	if c.inputError == errDeadline || c.inputError == errShed {
		c.inputError = nil // the body has arrived after all
	}
	c.endRequest()
	c.in.Unpin()
}

// endRequest releases what the current request holds. Its handler has returned.
func (c *conn) endRequest() {
	c.scratch.ctx.end()
	if race.Enabled {
		c.retireCtx()
	}
}

// retireCtx overwrites the memory that a handler may have kept, and replaces the Ctx, so that the old one panics when it is used.
func (c *conn) retireCtx() {
	c.poisonRequest()
	old := c.scratch.ctx
	c.scratch.ctx = &Ctx{exchange: &c.exchange}
	*old = Ctx{}
}

// poisonRequest overwrites all memory that was lent to the handler.
func (c *conn) poisonRequest() {
	c.in.Poison()
	c.scratch.ctx.poison()
}

// poison overwrites what the request and the response hold.
func (c *Ctx) poison() {
	request, response := &c.Request, &c.Response
	for _, h := range [...]*Header{&request.Header, &request.Trailer, &response.Header, &response.Trailer} {
		h.list.Poison()
	}
	for _, b := range [...][]byte{request.uri.target.Memory(), request.uri.query.list.Memory(), request.form.list.Memory()} {
		lend.Poison(b)
	}
}

// skipRest discards the rest of the last request's body, so that it is never parsed as a request.
func (c *conn) skipRest() {
	b := c.rest
	if c.server.life.EndsRest(c.server.clock.Exact) {
		c.readNothing(closingLinger)
		return
	}
	for {
		piece, err := c.take(b, c.in.Len())
		switch {
		case err != nil:
			c.readNothing(closingLinger)
			return
		case b.complete():
			c.setReading(readingHead)
			c.end()
			return
		case piece == nil:
			return
		}
	}
}

// refuse answers a malformed or incomplete request. The input after it can't be parsed, so the connection ends.
func (c *conn) refuse(err *HTTPError) {
	c.logRefused(err)
	head := string(c.parser.Method(c.in.Unread())) == "HEAD"
	c.out = c.server.appendRefusal(c.out, err, &refusalFields, head)
	c.count(err.Status)
	c.readNothing(closingLinger)
}

// inputEnded handles the end of the input. err is the reason.
func (c *conn) inputEnded(err error) {
	started, late := c.in.Len() > 0 || c.parser.Started(), errors.Is(err, errDeadline)
	if c.reading == readingHead && started {
		switch {
		case late:
			c.server.counts.timeouts.head.Add(1)
			c.refuse(errSlowHead)
		case isEOF(err):
			c.refuse(errTruncated)
			// The client has closed its sending side: no input can arrive that would make lingering necessary.
			c.setClosing(closingPlain)
		}
	}
	if !started && c.requests.Load() == 0 && c.scratch.isFindingOut() {
		c.setClosing(closingUnserved)
	}
	switch timeouts := &c.server.counts.timeouts; {
	case !late || c.closing == closingUnserved || c.server.life.Draining.Load(): // a shutdown cuts waits short
	case c.reading == readingRest:
		timeouts.body.Add(1)
	case !started && c.requests.Load() == 0:
		timeouts.silent.Add(1)
	case !started:
		timeouts.idle.Add(1)
	}
	c.setReading(readingNothing)
}

// endConn ends a connection that is no longer served, unless it has ended before. If lingers is set, its client may still be sending, and
// gets the time to read the last answer.
func (c *conn) endConn(lingers bool) {
	c.endConnBy(func() {
		if lingers && c.server.lingerer.TakeOver(c.netConn, nil) {
			return
		}
		c.driver.endWaits()
		linger.Close(c.netConn) // TLS sends its close alert
	})
}

// endConnBy is like endConn, but closes the socket by calling closeSocket. The socket is closed last: when the client sees the end and
// reconnects, the old connection's place is already free, and ConnState has been called. A panic in ConnState or in the connection's Close is
// logged and goes no further.
func (c *conn) endConnBy(closeSocket func()) {
	s := c.server
	if waitState(c.word.Swap(int64(stateClosed))&stateMask) == stateClosed {
		return
	}
	defer survive(s.logger(), "panic in a connection's Close", func() { // deferred, since ConnState may end the goroutine
		if c.closing == closingReset {
			linger.ResetOnClose(c.netConn)
		}
		closeSocket()
	})
	s.conns.remove(c)
	if c.parked == nil || !c.parked.carried { // ConnState was never called for a carried connection
		survive(s.logger(), "panic in ConnState", func() { s.changed(c, StateClosed) })
	}
}

// survive calls f. If f panics, survive recovers and logs the panic.
func survive(logger *slog.Logger, message string, f func()) {
	defer func() {
		if value := recover(); value != nil {
			logPanic(logger, message, value, debug.Stack())
		}
	}()
	f()
}
