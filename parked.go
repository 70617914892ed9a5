package filo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/answerconn"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2conn"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/outbox"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/syntax"
)

// Wake is the reason for a call of a ParkedConn's function.
//
// Experimental: see Ctx.Park.
type Wake int

const (
	// WakeData means that there is data to read, or that the client has closed its sending side.
	WakeData Wake = iota
	// WakeDeadline means that the deadline set by SetWait has passed.
	WakeDeadline
	// WakeShutdown means that the server is shutting down. The connection is closed after the call.
	WakeShutdown
)

// ParkedConn is a connection that a handler has taken over and that waits for data without a worker: see Ctx.Park and
// Ctx.ParkStream. Any goroutine may call Write, Queue and Close at any time. Only the connection's function may call Read.
//
// Experimental: see Ctx.Park.
type ParkedConn struct {
	conn     *conn
	netConn  net.Conn
	serve    func(*ParkedConn, Wake) error
	received []byte       // what Read returns first
	wait     clock.Time   // see SetWait; 0: none
	timer    *time.Timer  // the timer for wait, for a stream of HTTP/2; nil until it is needed
	class    *class.Class // the class of the connection's function; immutable
	place    admit.Place  // the place of a call on a goroutine that isn't a worker's; only the owner uses it
	serving  *scratch     // buffers of the worker that has the turn, in the loop driver; only the owner uses it
	out      outbox.Outbox
	asked    atomic.Bool // End was called
	chunked  bool        // the data is sent as a chunked body; immutable
	ending   bool        // the function isn't called again, and the connection is closed once all data has been sent; only the owner uses it
	unread   bool        // the client may still be sending, and nobody reads; only the owner uses it
	// sealed says that data passes through TLS before the outbox, as in the loop driver, and not after it. Immutable.
	sealed  bool
	sealing race.Mutex[race.OfSealing] // orders the writes to TLS if sealed is set; taken before the outbox's lock

	mu race.Mutex[race.OfParked]
	// turn is the last turn in which a leader called the function, the zero value if no leader has. Guarded by mu.
	turn loop.Turn
	// readUntil is the deadline for Read, 0 for none. It is set on netConn only during a Read, since the server uses netConn's deadline to
	// wake the connection when it waits. Once asked is set, readUntil has no effect, since End has set a deadline in the past. Guarded by mu.
	readUntil clock.Time
	onClose   func() // see OnClose; guarded by mu
	reading   bool   // a Read is running; guarded by mu
	isOver    bool   // the connection has ended; guarded by mu
	carried   bool   // another server has accepted the connection: see carried.adopt; immutable
}

// Park takes the connection over from the server like Hijack, for connections that mostly wait, such as WebSockets. Once the
// handler has returned, the connection waits without a worker; in the loop driver also without a goroutine or a buffer. When data arrives,
// the server calls serve as it calls a handler: on a worker, or directly in the loop if serve is known to be quick, or to compute briefly.
//
// Each call of serve must read at least some of the data. It returns nil to wait again, io.EOF to end the connection after the queued data
// has been sent, and any other error to end it at once. Calls never overlap, and the first call comes after the handler has returned.
//
// With a protocol, such as "websocket", Park answers 101 (Switching Protocols), as Upgrade does; with "" it sends no answer.
//
// A parked connection counts against MaxConns and, while serve runs, against Concurrency. In the blocking driver a goroutine
// waits for each parked connection.
//
// Over HTTP/2, Park needs a protocol and a client that asks for it by extended CONNECT, if Server.HTTP2 allows that. The request's stream
// is parked, not its connection. A waiting stream needs no goroutine in any driver, and doesn't count against MaxConns.
//
// If another server has received the request (adaptor.ToHTTP), a goroutine waits for each parked connection, and that server must let its
// connection be hijacked. Shutdown wakes such connections and waits for them, whether this server serves or not.
//
// Experimental: Park, ParkStream, ParkedConn, PreparedMessage and Wake may change in any minor version, even after 1.0. Package sse and
// contrib/websocket, which are built on them, are stable.
func (c *Ctx) Park(protocol string, serve func(*ParkedConn, Wake) error) (*ParkedConn, error) {
	c.check()
	if err := c.mayTakeOver(); err != nil {
		return nil, err
	}
	if protocol != "" {
		if err := c.agreeOn(protocol); err != nil {
			return nil, err
		}
	}
	return c.parkSwitched(protocol != "", serve)
}

// parkSwitched does the rest of Park after agreeOn. If switches is set, the response already has the fields of the 101. Otherwise no answer is
// sent.
func (c *Ctx) parkSwitched(switches bool, serve func(*ParkedConn, Wake) error) (*ParkedConn, error) {
	err := c.mayTakeOver()
	if switches {
		err = c.maySwitch()
	}
	if err != nil {
		return nil, err
	}
	if switches {
		c.Response.announceHead()
	}
	switch w := c.exchange.wire.(type) {
	case *http2Exchange:
		if !switches {
			return nil, errNoHijack
		}
		return w.park(c, serve, true)
	case *carried:
		return w.park(c, serve, switches)
	}
	owner, err := c.prepareParked()
	if err != nil {
		return nil, err // before the 101, after which no other answer is possible
	}
	if switches {
		c.switchProtocols()
	}
	return c.park(owner, serve, false, switches)
}

// ParkStream answers with the response's status and fields, and parks the connection as Park does. Whatever is written or
// queued on the connection becomes the body. Use it for bodies that mostly wait, such as event streams. An HTTP/1.1 client gets
// each Write and each PreparedMessage as a chunk, an HTTP/1.0 client as plain bytes. The function may read, to notice when the
// client leaves. The body ends properly when the function returns io.EOF, and after WakeShutdown; with any other error it is
// cut off.
//
// The connection carries no further request, except over HTTP/2. The functions given to Response.WrapBody are called, but can't wrap the
// body. If the response can have no body, as an answer to HEAD, the error is ErrBodyNotAllowed.
//
// Experimental: see Park.
func (c *Ctx) ParkStream(serve func(*ParkedConn, Wake) error) (*ParkedConn, error) {
	c.check()
	r := &c.Response
	if err := c.mayTakeOver(); err != nil {
		return nil, err
	}
	if c.Request.isHead() || !http1.BodyAllowed(r.status) {
		return nil, ErrBodyNotAllowed
	}
	r.announceHead()
	switch w := c.exchange.wire.(type) {
	case *http2Exchange:
		return w.park(c, serve, false)
	case *carried:
		return w.parkStream(c, serve)
	}
	owner, err := c.prepareParked()
	if err != nil {
		return nil, err // before the head, after which no other answer is possible
	}
	f := http1.Head{Length: noLength, Chunked: c.Request.line.Minor > 0 && !r.tunnels(), Close: true}
	owner.out = r.appendHead(owner.out, owner.server, &f)
	owner.count(r.status)
	return c.park(owner, serve, f.Chunked, f.Chunked)
}

// prepareParked makes sure that the connection can be parked, and claims the answer. Until the claim, a timeout may be writing, so
// prepareParked sends the unsent part of earlier answers only after the claim.
func (c *Ctx) prepareParked() (owner *conn, err error) {
	owner = c.exchange.wire.(*conn)
	if err := owner.driver.leaveLoop(); err != nil {
		return nil, err
	}
	if err := c.claimAnswer(); err != nil {
		return nil, err
	}
	return owner, owner.driver.prepareParked()
}

// park takes the connection over, after its answer has been rendered. frames is passed to outbox.Open: it is true for a chunked body, and for
// another protocol, whose frames this server doesn't know, so it takes each Write for one.
func (c *Ctx) park(owner *conn, serve func(*ParkedConn, Wake) error, chunked, frames bool) (*ParkedConn, error) {
	c.endWatch()
	if err := owner.flush(); err != nil {
		return nil, err
	}
	p := &ParkedConn{conn: owner, netConn: owner.netConn, serve: serve, chunked: chunked}
	p.class = owner.server.classes.entered.Parked(owner.scratch.timer.Class())
	if owner.scratch.place != nil {
		p.place = owner.server.pool.places.NewPlace()
	}
	socket, _ := owner.driver.(outbox.Socket)
	p.out.Open((*parkedOwner)(p), socket, p.netConn, frames)
	p.sealed = socket != nil && owner.tlsState != nil
	p.received = append(p.received, owner.in.Unread()...)
	owner.in.Advance(len(p.received))
	p.unread = !c.Request.body.complete()
	c.Request.body.hijacked()
	owner.hijacked, owner.parked = true, p
	owner.driver.setParked()
	owner.tellTaken()
	return p, nil
}

// Read reads the data that has arrived, or waits for more.
func (p *ParkedConn) Read(b []byte) (int, error) {
	if len(p.received) > 0 {
		n := copy(b, p.received)
		p.received = p.received[n:]
		return n, nil
	}
	if err := p.beginRead(); err != nil {
		return 0, err
	}
	defer p.endRead()
	return p.netConn.Read(b)
}

func (p *ParkedConn) beginRead() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked.Load() {
		return os.ErrDeadlineExceeded
	}
	if p.readUntil != 0 {
		left := p.readUntil.Sub(p.conn.server.clock.Exact())
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		p.netConn.SetReadDeadline(time.Now().Add(left))
	}
	p.reading = true
	return nil
}

func (p *ParkedConn) endRead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = false
	if p.readUntil != 0 && !p.asked.Load() {
		p.netConn.SetReadDeadline(time.Time{})
	}
}

// Write sends all of b, and waits for the client if necessary. In a chunked body b becomes one chunk.
//
// If the write deadline passes when only a part of b was sent, nothing more can be sent in a chunked body, after a switch of protocols or over
// TLS, since the client would take it for the rest of b.
//
// If the connection's function runs in a loop, a Write that must wait first gives the loop to another worker, so that the loop's other
// connections don't wait. Queue never waits.
func (p *ParkedConn) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	frame := b
	if p.chunked {
		frame = http1.AppendChunk(make([]byte, 0, len(b)+http1.ChunkOverhead), b)
	}
	n, err := p.writeFrame(frame)
	if err == nil {
		return len(b), nil
	}
	if p.chunked {
		n = 0 // a partly sent chunk counts as nothing
	}
	return n, err
}

// flush makes the connection of an HTTP/2 stream send the bytes that the outbox has passed to it.
func (p *ParkedConn) flush() {
	if s, ok := p.netConn.(*http2conn.StreamConn); ok {
		s.LeaveTurn()
	}
}

func (p *ParkedConn) writeFrame(frame []byte) (int, error) {
	if !p.sealed {
		defer p.flush()
		return p.out.Write(frame)
	}
	if p.out.Expired() {
		return 0, os.ErrDeadlineExceeded // before sealing: a sealed record can't be withdrawn
	}
	p.sealing.Lock()
	err := p.seal(frame, false)
	p.sealing.Unlock()
	if err != nil {
		return 0, err
	}
	return 0, p.out.AwaitSent()
}

// seal sends b through TLS into the outbox. The argument message says that b is a message of Queue. The caller holds p.sealing.
func (p *ParkedConn) seal(b []byte, message bool) error {
	if err := p.out.BeginSeal(message, len(b)); err != nil {
		return err
	}
	defer p.out.EndSeal()
	_, err := p.netConn.Write(b)
	return err
}

// Queue sends a message without ever waiting for the client. If the client doesn't take it at once, the rest waits in the
// queue, as a reference to m, and is sent as the client takes it. Messages and writes are sent in the order of the calls.
//
// The error is ErrQueueFull if more would wait than SetQueueLimit allows; then no part of m is sent. A message may always wait if no other
// message waits, whatever its size. After the connection's end the error is net.ErrClosed, or the error that ended it.
//
// The server disconnects a client that takes nothing from the queue for WriteTimeout, or so little that it doesn't earn that time back by
// MinTransferRate.
func (p *ParkedConn) Queue(m *PreparedMessage) error {
	b := m.framed(p.chunked)
	if !p.sealed {
		defer p.flush()
		return p.out.Queue(b)
	}
	p.sealing.Lock()
	defer p.sealing.Unlock()
	return p.seal(b, true)
}

// SetQueueLimit sets how many bytes of messages may wait for the client. Default 256 KB. Over TLS, messages wait in encrypted
// form, with a copy for each connection.
func (p *ParkedConn) SetQueueLimit(n int) { p.out.SetLimit(n) }

// Queued returns the number of bytes that wait for the client.
func (p *ParkedConn) Queued() int { return p.out.Size() }

// OnClose registers f to be called once when the connection has ended, no matter who ended it; if it has already ended, f is
// called now. f must be quick.
func (p *ParkedConn) OnClose(f func()) {
	p.mu.Lock()
	over := p.isOver
	p.onClose = f
	p.mu.Unlock()
	if over {
		f()
	}
}

// over calls the function given to OnClose, once.
func (p *ParkedConn) over() {
	p.mu.Lock()
	f, again := p.onClose, p.isOver
	p.isOver = true
	p.mu.Unlock()
	if f == nil || again {
		return
	}
	defer p.recoverPanic()
	f()
}

// SetWait sets a deadline for the next wait, the one that begins when the connection's function returns. At the deadline the
// function is called with WakeDeadline. The zero time, which is restored for each wait, means no deadline. Only the function, or the
// handler before it returns, may call SetWait.
func (p *ParkedConn) SetWait(until time.Time) { p.wait = p.conn.server.clock.At(until) }

// Close ends the connection at once. It may be called at any time. The connection's function isn't called again.
func (p *ParkedConn) Close() error {
	p.out.Fail(net.ErrClosed)
	return linger.Cut(p.netConn)
}

// End ends the connection as if its function had returned io.EOF: further data is refused, and the connection is closed once
// the queue has been sent. It may be called at any time. A running call of the function may continue; no further call follows.
func (p *ParkedConn) End() {
	p.asked.Store(true)
	p.finish()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isOver { // after the end the lingerer may be reading
		if p.netConn.SetReadDeadline(clock.Past) != nil && p.out.Empty() { // wakes the reader
			linger.Cut(p.netConn) // nothing else would wake the reader
		}
	}
}

// parkedOwner is the side of a ParkedConn that its outbox calls.
type parkedOwner ParkedConn

// Limits implements outbox.Owner.
func (p *parkedOwner) Limits() pace.Limits { return p.conn.server.config.writing }

// Now implements outbox.Owner.
func (p *parkedOwner) Now() clock.Time { return p.conn.server.clock.Exact() }

// HasMore implements outbox.Owner.
func (p *parkedOwner) HasMore() bool { return false }

// Drained implements outbox.Owner.
func (p *parkedOwner) Drained() {}

// Disconnect implements outbox.Owner.
func (p *parkedOwner) Disconnect(err error) {
	p.conn.server.counts.slowWriter(err)
	(*ParkedConn)(p).Close()
}

// LocalAddr returns the address of the server's end.
func (p *ParkedConn) LocalAddr() net.Addr { return p.netConn.LocalAddr() }

// RemoteAddr returns the address of the client's end.
func (p *ParkedConn) RemoteAddr() net.Addr { return p.netConn.RemoteAddr() }

// SetDeadline sets a deadline for Read and Write, as for a net.Conn. SetWait sets the deadline for the wait between calls of the function.
func (p *ParkedConn) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

// SetReadDeadline sets a deadline for Read, both for a Read that is waiting and for later Reads.
func (p *ParkedConn) SetReadDeadline(t time.Time) error {
	until := p.conn.server.clock.At(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readUntil = until
	if p.reading && !p.asked.Load() {
		return p.netConn.SetReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline sets a deadline for Write.
func (p *ParkedConn) SetWriteDeadline(t time.Time) error { return p.out.SetDeadline(t) }

// call calls the function and reports whether the connection goes on. If not, it sets ending, unless the connection ends at once.
func (p *ParkedConn) call(why Wake) (again bool) {
	s := p.conn.server
	if w := p.serving; w != nil {
		w.timer.Start(w.leads())
		defer w.timer.End()
	} else {
		defer p.place.Leave()
	}
	defer p.recoverPanic()
	if p.asked.Load() {
		p.ending = true // End was called while the connection waited for a place
		return false
	}
	p.wait = 0
	err := p.serve(p, why)
	if err == nil && why != WakeShutdown {
		return true
	}
	p.ending = err == nil || errors.Is(err, io.EOF) || p.asked.Load()
	if !p.ending && s.LogAllErrors {
		s.logger().Warn("a parked connection ends", "error", syntax.LoggedError(err), "remote", fmt.Sprint(p.RemoteAddr()))
	}
	return false
}

// recoverPanic is deferred around calls of user code. If the code panics, recoverPanic recovers and logs the panic.
func (p *ParkedConn) recoverPanic() {
	if value := recover(); value != nil {
		logPanic(p.conn.server.logger(), "panic in the function of a parked connection", value, debug.Stack(),
			"remote", fmt.Sprint(p.RemoteAddr()))
	}
}

// finish makes the outbox refuse further data, ends a chunked body, and reports whether all data has been sent.
func (p *ParkedConn) finish() bool {
	last := ""
	if p.chunked {
		last = http1.LastChunk
	}
	if !p.sealed {
		return p.out.Finish([]byte(last))
	}
	p.sealing.Lock()
	defer p.sealing.Unlock()
	if last != "" {
		p.seal([]byte(last), false)
	}
	return p.out.Finish(nil)
}

// parkable is a parked connection or stream as serveBy sees it. The drivers and protocols wait in different ways.
type parkable interface {
	// next returns the next step. The argument calls is how many times the function was called since serveBy began. Once ParkedConn.ending is
	// set, the function isn't called again.
	next(calls int) (parkedStep, Wake)
	// enter acquires the right to call the function on this goroutine. If that fails, enter reports false, and the connection is served later.
	enter() bool
	// wait waits until all data has been sent if ParkedConn.ending is set, and otherwise for a reason to call the function. Or it arranges
	// that the connection is served again after the wait, and returns true at once: the goroutine then no longer owns the connection.
	wait() (left bool)
	// end ends the connection or stream: properly if ParkedConn.ending is set.
	end()
}

// parkedStep is what a parked connection does next.
type parkedStep uint8

const (
	parkedWait   parkedStep = iota
	parkedCall              // the function must be called
	parkedOthers            // other connections have their turn first
	parkedLost              // the connection can't be used any more
)

// serveBy serves a parked connection that its goroutine owns: it calls the function as long as there is a reason, and then lets the
// connection wait, or ends it. It reports whether other connections must have their turn before this one is served again.
func (p *ParkedConn) serveBy(d parkable) (again bool) {
	owned := true
	defer func() {
		if owned {
			d.end() // runs even after a Goexit
		}
	}()
	for calls := 0; owned; {
		p.ending = p.ending || p.asked.Load()
		step, why := d.next(calls)
		if step == parkedLost || p.ending && p.finish() {
			break
		}
		switch step {
		case parkedWait:
			owned = !d.wait()
		case parkedOthers:
			owned, again = false, true
		case parkedCall:
			if owned = d.enter(); owned && !p.call(why) && !p.ending {
				return false
			}
			calls++
		}
	}
	return again
}

// takePlace takes a place for a call of the function on a goroutine that isn't a worker's. It returns false if none is free.
func (p *ParkedConn) takePlace() bool { return p.place.Enter(admit.Ordinary.Only()) }

const (
	// placeWait is how long a parked connection waits before it asks for a place again. For every 64 connections that already wait
	// (placeCrowd), the wait is 5 ms longer, so that asking doesn't keep the processors busy.
	placeWait  = 5 * time.Millisecond
	placeCrowd = 64
)

// placeLater calls again on another goroutine, when it is time to ask for a place again.
func (p *ParkedConn) placeLater(again func()) {
	waiting := &p.conn.server.parkedWaiting
	time.AfterFunc(placeWait*time.Duration(1+waiting.Add(1)/placeCrowd), func() {
		waiting.Add(-1)
		again()
	})
}

// endConn ends a parked connection. If lingers is set, and the connection ends properly, its client may still be sending.
func (p *ParkedConn) endConn(lingers bool) {
	if p.ending {
		defer p.conn.endConn(lingers) // deferred, since the function given to OnClose may end the goroutine
		p.over()                      // before endConn: once isOver is set, End can't end the lingerer's wait any more
		return
	}
	p.conn.endConn(false)
	p.out.Fail(net.ErrClosed)
	p.over()
}

// parkedBuffer is the size of the buffer of a goroutine that waits in the blocking driver.
const parkedBuffer = 512

// blockingParked serves a parked connection on a goroutine of its own, which waits for the client.
type blockingParked struct {
	*ParkedConn
	came   bool // wait has found a reason to call the function, and stored it in why
	why    Wake
	buffer [parkedBuffer]byte
}

// run serves the parked connection in the blocking driver.
func (p *ParkedConn) run() { p.serveBy(&blockingParked{ParkedConn: p}) }

// next implements parkable.
func (d *blockingParked) next(int) (parkedStep, Wake) {
	came := d.came
	d.came = false
	switch {
	case d.ending:
		return parkedWait, 0
	case len(d.received) > 0:
		return parkedCall, WakeData
	case came:
		return parkedCall, d.why
	}
	return parkedWait, 0
}

// enter implements parkable. It waits for a place, unless the connection is about to end.
func (d *blockingParked) enter() bool {
	for !d.asked.Load() && d.out.Err() == nil && !d.takePlace() {
		again := make(chan struct{})
		d.placeLater(func() { close(again) })
		<-again
	}
	return true
}

// wait implements parkable.
func (d *blockingParked) wait() (left bool) {
	if d.ending {
		d.out.AwaitEmpty()
		return false
	}
	deadline := d.ParkedConn.wait
	d.came, d.why = true, d.await(d.buffer[:])
	d.endAwait(deadline)
	return false
}

// endAwait ends a wait that began with this deadline. If the server has woken the connection, the wake-up may still be on its way; it
// must not end a later read of the function.
func (p *ParkedConn) endAwait(deadline clock.Time) {
	s := p.conn.server
	old := p.conn.word.Swap(int64(stateHandler))
	if (deadline == 0 || deadlineIn(old) != 0) && !s.life.Draining.Load() {
		return
	}
	s.conns.awaitWakeUp()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked.Load() {
		p.netConn.SetReadDeadline(time.Time{})
	}
}

// end implements parkable.
func (d *blockingParked) end() {
	stream, streams := d.netConn.(*answerconn.Conn)
	if streams {
		stream.Whole = d.ending && d.out.AllSent()
	}
	d.endConn(!streams) // the client of a connection that isn't a stream may still be sending
}

// setParkedWait begins a wait in the blocking driver. A carried connection gets a deadline of its own, since the server's sweep might not
// run.
func (p *ParkedConn) setParkedWait(deadline clock.Time) {
	c := p.conn
	c.setWait(stateParked, deadline)
	if p.carried && deadline != 0 {
		p.netConn.SetReadDeadline(time.Now().Add(deadline.Sub(c.server.clock.Exact())))
	}
}

// await waits until data arrives or there is another reason to call the function, and returns the reason.
func (p *ParkedConn) await(buffer []byte) Wake {
	c, s := p.conn, p.conn.server
	deadline := p.wait
	p.setParkedWait(deadline)
	for late := false; !s.life.Draining.Load() && !p.asked.Load(); {
		n, err := p.netConn.Read(buffer)
		if late || p.carried {
			p.netConn.SetReadDeadline(time.Time{})
		}
		p.received = buffer[:n]
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return WakeData // the function's next Read returns the error, if there is one
		}
		p.netConn.SetReadDeadline(time.Time{})
		switch {
		case late:
			return WakeDeadline
		case deadline != 0 && s.clock.Exact() >= deadline:
			if late = c.beginLastLook(deadline); late {
				continue
			}
			return WakeDeadline
		}
		p.setParkedWait(deadline)
	}
	return WakeShutdown
}

// ErrQueueFull is returned by ParkedConn.Queue when a client is too slow and its queue is full.
var ErrQueueFull = outbox.ErrFull

// PreparedMessage is a message for many parked connections. It is rendered once, and exists once in memory no matter in how
// many queues it waits: see ParkedConn.Queue. It is immutable.
//
// Experimental: see Ctx.Park.
type PreparedMessage struct {
	payload []byte
	chunk   []byte // the payload with the framing of a chunk around it, in the same memory
}

// NewPreparedMessage makes a message from a copy of b.
func NewPreparedMessage(b []byte) *PreparedMessage {
	chunk := http1.AppendChunk(make([]byte, 0, len(b)+http1.ChunkOverhead), b)
	end := len(chunk) - len("\r\n")
	return &PreparedMessage{payload: chunk[end-len(b) : end : end], chunk: chunk}
}

// Len returns the size of the message's content in bytes.
func (m *PreparedMessage) Len() int { return len(m.payload) }

// framed returns the message as the connection sends it. An empty message gets no framing: an empty chunk would end the body.
func (m *PreparedMessage) framed(chunked bool) []byte {
	if chunked && len(m.payload) > 0 {
		return m.chunk
	}
	return m.payload
}
