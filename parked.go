package filo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/classes"
)

// Wake says why the function of a ParkedConn is called.
//
// Experimental: see Ctx.Park.
type Wake int

const (
	// WakeData says that something has come to be read, or the end of what comes.
	WakeData Wake = iota
	// WakeDeadline says that the deadline of SetWait has passed.
	WakeDeadline
	// WakeShutdown says that the server shuts down. The connection is closed afterwards.
	WakeShutdown
)

// ParkedConn is a connection that a handler has taken over, and that waits without a worker until something comes: see
// Ctx.Park and Ctx.ParkStream. Write, Queue and Close may be called at any time and by several goroutines; Read belongs to the
// connection's function.
//
// Experimental: see Ctx.Park.
type ParkedConn struct {
	conn     *conn
	netConn  net.Conn
	serve    func(*ParkedConn, Wake) error
	received []byte // to be read first
	wait     time.Time
	chunked  bool           // what is written is a body in chunks; immutable
	class    *classes.Class // of the function; immutable
	serving  *scratch       // who calls the function in the loop driver; the owner's
	ending   bool           // its function isn't called any more, and it is closed when all has left; the owner's
	asked    atomic.Bool    // to end
	unread   bool           // the client may still be sending what nobody reads; the owner's
	out      outbox
	ledBy    *loop      // where the function was called by the leader last; guarded by out.mu
	ledTurn  uint64     // its word then, which it has in no other turn; guarded by out.mu
	sealing  sync.Mutex // orders what is written through TLS in the loop driver; before out.mu

	// reads is the deadline for Read. While the connection waits, the deadline of netConn is the server's, to wake it; it is this
	// one only during a Read, and none of the two once the connection is asked to end.
	reads struct {
		sync.Mutex
		until   time.Time
		waiting bool // in a Read
	}

	ends struct {
		sync.Mutex
		over bool
		call func() // see OnClose
	}
}

// Park takes the connection over from the server like Hijack, for those that mostly wait, such as WebSockets: once the
// handler has returned it waits without a worker, in its loop without a goroutine or a buffer either, and serve is called
// when something comes: on a worker, or as a quick handler is where the loop runs, if it is known to be quick. It reads what
// it wants, at least something, and waits again by returning nil. To return io.EOF ends the connection when what is queued has
// been sent, another error at once. It is called by one goroutine at a time, and by none before the handler has returned.
//
// With a protocol, such as "websocket", the answer is 101 (Switching Protocols), as for Upgrade; with "" there is none.
//
// A parked connection counts against MaxConns and, while serve runs, against Concurrency. In the blocking driver a goroutine
// waits for each.
//
// Experimental: Park, ParkStream, ParkedConn, PreparedMessage and Wake may change in any minor version, also after 1.0. What they
// are for is stable in package sse and in contrib/websocket, which are made of them.
func (c *Ctx) Park(protocol string, serve func(*ParkedConn, Wake) error) (*ParkedConn, error) {
	c.check()
	switch {
	case c.conn.hijacked:
		return nil, ErrHijacked
	case c.stream.sent:
		return nil, ErrHeadSent
	}
	if protocol != "" {
		if err := c.agreeOn(protocol); err != nil {
			return nil, err
		}
	}
	if err := c.prepareParked(); err != nil {
		return nil, err // before the 101, behind which there could be no other answer
	}
	if protocol != "" {
		c.switchProtocols()
	}
	return c.park(serve, false)
}

// ParkStream answers with the response's status and fields, and parks the connection as Park does: what is written or queued
// there is the body. It is for bodies that mostly wait, such as those of event streams. An HTTP/1.1 client gets each Write and
// each PreparedMessage as a chunk, another one as it is. The function may read, to know when the client has left; when it returns
// io.EOF, and after WakeShutdown, the body ends as it should, and with another error it is broken off.
//
// The connection carries no further request. Response.WrapBody doesn't apply. A response that can have no body, as one to HEAD, is
// ErrBodyNotAllowed.
//
// Experimental: see Park.
func (c *Ctx) ParkStream(serve func(*ParkedConn, Wake) error) (*ParkedConn, error) {
	c.check()
	r := &c.Response
	switch {
	case c.conn.hijacked:
		return nil, ErrHijacked
	case c.stream.sent:
		return nil, ErrHeadSent
	case c.Request.isHead(), !bodyAllowed(r.status):
		return nil, ErrBodyNotAllowed
	}
	if err := c.prepareParked(); err != nil {
		return nil, err // before the head, behind which there could be no other answer
	}
	f := headFraming{length: noLength, chunked: c.Request.minor > 0, close: true}
	c.conn.out = r.appendHead(c.conn.out, c.conn.server, f)
	c.conn.count(r.status)
	return c.park(serve, f.chunked)
}

// prepareParked makes sure that the connection can be parked, and claims the answer. Until that is done a time-out may be
// writing, and what the client hasn't taken mustn't be touched.
func (c *Ctx) prepareParked() error {
	looped := c.conn.looped
	if looped == nil {
		return c.claimAnswer()
	}
	if err := looped.leaveLoop(); err != nil {
		return err
	}
	if err := c.claimAnswer(); err != nil {
		return err
	}
	return looped.prepareParked()
}

// park takes the connection over. What it answers has been rendered.
func (c *Ctx) park(serve func(*ParkedConn, Wake) error, chunked bool) (*ParkedConn, error) {
	owner := c.conn
	c.endWatch()
	if err := owner.flush(); err != nil {
		return nil, err
	}
	p := &ParkedConn{conn: owner, netConn: owner.netConn, serve: serve, chunked: chunked}
	p.class = owner.server.classes.Parked(owner.worker.class)
	p.out.open(owner, chunked)
	p.received = append(p.received, owner.in.unread()...)
	owner.in.advance(len(p.received))
	p.unread = !c.Request.body.complete()
	c.Request.body.hijacked()
	owner.hijacked, owner.parked = true, p
	if owner.looped != nil {
		owner.looped.setParked()
	}
	owner.server.changed(owner, StateHijacked)
	return p, nil
}

// Read reads what has come, or waits for it.
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
	p.reads.Lock()
	defer p.reads.Unlock()
	switch until := p.reads.until; {
	case p.asked.Load():
		return os.ErrDeadlineExceeded
	case until.IsZero():
	case !time.Now().Before(until):
		return os.ErrDeadlineExceeded
	default:
		p.netConn.SetReadDeadline(until)
	}
	p.reads.waiting = true
	return nil
}

func (p *ParkedConn) endRead() {
	p.reads.Lock()
	defer p.reads.Unlock()
	p.reads.waiting = false
	if !p.reads.until.IsZero() && !p.asked.Load() {
		p.netConn.SetReadDeadline(time.Time{})
	}
}

// Write sends all of b, waiting for the client if it must. Of a body in chunks it is one.
//
// A Write that waits in the connection's function, where that runs in a loop because it is known to be quick, gives the loop to
// another worker first, so that the others in it don't wait. Queue never waits.
func (p *ParkedConn) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	frame := b
	if p.chunked {
		frame = appendChunk(make([]byte, 0, len(b)+chunkOverhead), b)
	}
	n, err := p.writeFrame(frame)
	if err == nil {
		return len(b), nil
	}
	if p.chunked {
		n = 0 // a chunk in part is nothing
	}
	return n, err
}

func (p *ParkedConn) writeFrame(frame []byte) (int, error) {
	if !p.sealed() {
		return p.out.write(frame)
	}
	if p.out.expired() {
		return 0, os.ErrDeadlineExceeded // and nothing is sealed, which could not be taken back
	}
	p.sealing.Lock()
	err := p.seal(frame, false)
	p.sealing.Unlock()
	if err != nil {
		return 0, err
	}
	return 0, p.out.awaitSent()
}

// sealed reports whether what is sent goes through TLS to the outbox, and not the other way round.
func (p *ParkedConn) sealed() bool { return p.out.now != nil && p.conn.tlsState != nil }

// seal puts b, which is a message or what else is sent, into the outbox through TLS. The caller holds sealing.
func (p *ParkedConn) seal(b []byte, message bool) error {
	if err := p.out.beginSeal(message, len(b)); err != nil {
		return err
	}
	defer p.out.endSeal()
	_, err := p.netConn.Write(b)
	return err
}

// Queue sends a message without ever waiting for the client: what that doesn't take at once waits, as a reference to m, and is
// sent when it does. Messages and writes are sent in the order in which they were given.
//
// The error is ErrQueueFull if what waits would get more than SetQueueLimit allows, and nothing of m is sent then; a single
// message always may wait. After the connection's end it is net.ErrClosed, or what went wrong.
//
// A client that takes nothing of what waits for WriteTimeout, or less than MinTransferRate on average after that, is
// disconnected.
func (p *ParkedConn) Queue(m *PreparedMessage) error {
	b := m.bytes(p.chunked)
	if !p.sealed() {
		return p.out.queue(b)
	}
	p.sealing.Lock()
	defer p.sealing.Unlock()
	return p.seal(b, true)
}

// SetQueueLimit sets how many bytes of messages may wait for the client. Default 256 KB. Where TLS is in between they wait as
// TLS sends them, a copy for each connection.
func (p *ParkedConn) SetQueueLimit(n int) { p.out.setLimit(n) }

// Queued returns how many bytes wait for the client.
func (p *ParkedConn) Queued() int { return p.out.size() }

// OnClose sets a function to be called once when the connection is over, whoever has ended it, or now if it is. It must be
// quick.
func (p *ParkedConn) OnClose(f func()) {
	p.ends.Lock()
	over := p.ends.over
	p.ends.call = f
	p.ends.Unlock()
	if over {
		f()
	}
}

// over calls it.
func (p *ParkedConn) over() {
	p.ends.Lock()
	f, again := p.ends.call, p.ends.over
	p.ends.over = true
	p.ends.Unlock()
	if f == nil || again {
		return
	}
	defer p.recoverPanic()
	f()
}

// SetWait sets until when the connection waits the next time that its function returns; the function is called then, with
// WakeDeadline. The zero time, to which it falls back each time, is for ever. It belongs to the function, and to the
// handler until that returns.
func (p *ParkedConn) SetWait(until time.Time) { p.wait = until }

// Close ends the connection, at any time. Its function isn't called any more.
func (p *ParkedConn) Close() error {
	p.out.fail(net.ErrClosed)
	return cutConn(p.netConn)
}

// End ends the connection, at any time, as if its function had returned io.EOF: nothing more is taken, and it is closed when what
// is queued has been sent. A call of the function that is under way may go on; there is no further one.
func (p *ParkedConn) End() {
	p.asked.Store(true)
	p.finish()
	p.ends.Lock()
	defer p.ends.Unlock()
	if !p.ends.over { // or else the lingerer may be reading
		p.reads.Lock()
		defer p.reads.Unlock()
		p.netConn.SetReadDeadline(longAgo) // wakes whoever waits
	}
}

// LocalAddr returns the address of this end.
func (p *ParkedConn) LocalAddr() net.Addr { return p.netConn.LocalAddr() }

// RemoteAddr returns the address of the client.
func (p *ParkedConn) RemoteAddr() net.Addr { return p.netConn.RemoteAddr() }

// SetDeadline sets until when Read and Write wait, as a net.Conn's does. SetWait is for the time in between.
func (p *ParkedConn) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

// SetReadDeadline sets until when Read waits: the one that is under way, and those to come.
func (p *ParkedConn) SetReadDeadline(t time.Time) error {
	p.reads.Lock()
	defer p.reads.Unlock()
	p.reads.until = t
	if p.reads.waiting && !p.asked.Load() {
		return p.netConn.SetReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline sets until when Write waits.
func (p *ParkedConn) SetWriteDeadline(t time.Time) error { return p.out.setDeadline(t) }

// call calls the function and reports whether the connection goes on. If not, and it is to be ended as it should, it is ending.
func (p *ParkedConn) call(why Wake) (again bool) {
	s := p.conn.server
	defer p.recoverPanic()
	p.wait = time.Time{}
	err := p.serve(p, why)
	if err == nil && why != WakeShutdown {
		return true
	}
	p.ending = err == nil || errors.Is(err, io.EOF) || p.asked.Load()
	if !p.ending && s.LogAllErrors {
		s.logger().Warn("a parked connection ends", "error", err, "remote", fmt.Sprint(p.RemoteAddr()))
	}
	return false
}

// recoverPanic is deferred around what is the user's.
func (p *ParkedConn) recoverPanic() {
	if value := recover(); value != nil {
		p.conn.server.logger().Error("panic in the function of a parked connection", "value", fmt.Sprint(value),
			"remote", fmt.Sprint(p.RemoteAddr()), "stack", string(debug.Stack()))
	}
}

// finish ends what is sent, and reports whether all of it has left.
func (p *ParkedConn) finish() bool {
	last := ""
	if p.chunked {
		last = "0\r\n\r\n"
	}
	if !p.sealed() {
		return p.out.finish([]byte(last))
	}
	p.sealing.Lock()
	defer p.sealing.Unlock()
	if last != "" {
		p.seal([]byte(last), false)
	}
	return p.out.finish(nil)
}

// deadline returns until when the connection waits, on the coarse clock's scale.
func (p *ParkedConn) deadline() int64 {
	return p.conn.server.clock.at(p.wait)
}

// close closes the connection. What hasn't left is lost.
func (p *ParkedConn) close() {
	closeConn(p.netConn) // TLS says goodbye
	p.out.fail(net.ErrClosed)
	p.over()
}

// parkedBuffer is how much a waiting goroutine of the blocking driver reads at first.
const parkedBuffer = 512

// run waits for the connection, and serves it, in the blocking driver.
func (p *ParkedConn) run() {
	c, s := p.conn, p.conn.server
	buffer := make([]byte, parkedBuffer)
	end := func() {
		// Nobody knows here whether there is something to be read.
		if p.ending {
			p.over()
		}
		if !p.ending || !s.lingerer.takeOver(p.netConn, nil) {
			p.close()
		}
		c.setState(stateClosed)
		s.conns.remove(c)
		s.changed(c, StateClosed)
	}
	defer end() // a Goexit included
	for {
		why := WakeData
		if len(p.received) == 0 {
			why = p.await(buffer)
		}
		c.setState(stateHandler)
		if p.asked.Load() {
			p.ending = true
		} else if p.call(why) {
			continue
		}
		if p.ending && !p.finish() {
			p.out.awaitEmpty()
		}
		return
	}
}

// await waits until something has come, or it is time for something else.
func (p *ParkedConn) await(buffer []byte) Wake {
	c, s := p.conn, p.conn.server
	deadline := p.deadline()
	c.setWait(stateParked, deadline)
	for !s.draining.Load() && !p.asked.Load() {
		n, err := p.netConn.Read(buffer)
		p.received = buffer[:n]
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return WakeData // an error comes once more when the function reads
		}
		p.netConn.SetReadDeadline(time.Time{})
		if deadline != 0 && s.clock.exact() >= deadline {
			return WakeDeadline
		}
		c.setWait(stateParked, deadline)
	}
	return WakeShutdown
}
