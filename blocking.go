package filo

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/requestctx"
	"github.com/filohttp/filo/internal/sock"
)

// The blocking driver: a worker serves a connection for its whole life, and waits in the connection's own Read and Write. No request sets a
// timer: the goroutine that serves the connection, its owner, stores the deadline of its wait. The sweep (connset.go) wakes the owner when
// the deadline has passed.

const (
	// maxWrite limits the size of one write, so that the server sees after each write how much a slow client has taken.
	maxWrite = 256 << 10
	// maxSendfile limits one call of sendfile. It is larger than maxWrite, since the kernel already has the bytes of a file.
	maxSendfile = 4 << 20
	// maxTLSWrite limits one write over TLS to one record, since a TLS write that a deadline has interrupted can't be continued.
	maxTLSWrite = 16 << 10
)

// blockingDriver is the blocking driver's side of a connection.
type blockingDriver struct{ *conn }

// keepsWorker implements driver.
func (blockingDriver) keepsWorker() bool { return true }

// remote implements driver.
func (d blockingDriver) remote() netip.AddrPort { return addrPortOf(d.remoteAddr()) }

// leaveLoop implements driver: there is no loop to give away.
func (blockingDriver) leaveLoop() error { return nil }

// IsBroken implements driver. It returns false, since only the next write would reveal a broken connection.
func (blockingDriver) IsBroken() bool { return false }

// want implements driver. It does nothing: reads return whatever has arrived.
func (blockingDriver) want(int) {}

// gathers implements driver.
func (blockingDriver) gathers() bool { return false }

// prepareParked implements driver: blocking writes leave nothing unsent.
func (blockingDriver) prepareParked() error { return nil }

// setParked implements driver: package net's connections can be shared.
func (blockingDriver) setParked() {}

// endWaits implements driver. The blocking driver has no waits to end.
func (blockingDriver) endWaits() {}

// prepareHijack implements driver.
func (d blockingDriver) prepareHijack() (net.Conn, error) {
	if !d.scratch.mayRun() {
		return nil, errBusy
	}
	return nil, nil
}

// hijack implements driver.
func (d blockingDriver) hijack(net.Conn) (net.Conn, error) { return d.netConn, nil }

// sendApart implements driver.
func (d blockingDriver) sendApart(p []byte) error {
	if d.netConn.SetWriteDeadline(time.Now().Add(apartTime)) != nil {
		end := time.AfterFunc(apartTime, func() { linger.Cut(d.netConn) })
		defer end.Stop()
	}
	_, err := d.netConn.Write(p)
	d.netConn.SetWriteDeadline(time.Time{})
	return err
}

// apartTime limits the write of a timeout's answer. The answer is so small that the write waits only if the socket's buffer is full.
const apartTime = time.Second

// serve serves the connection until it ends or is hijacked, or until the client has sent the HTTP/2 preface. In the last case it returns
// true.
func (c *conn) serve() (isHTTP2 bool) {
	for {
		switch c.next() {
		case stepRead:
			if c.flush() != nil {
				return false
			}
			c.readHead()
		case stepHandle:
			if !c.answer() {
				return false
			}
		case stepClose:
			if !c.failed {
				c.flush()
			}
			return false
		case stepGone:
			return false
		case stepHTTP2:
			return true
		}
	}
}

// answer runs the handler. It writes a large answer at once; smaller answers collect in c.out until the input is used up. It reports false if
// the client is gone.
func (c *conn) answer() bool {
	// Earlier answers may stay unsent while a quick handler runs, but not while a handler runs that may be slow.
	if len(c.out) > 0 && !c.server.classes.handler.IsQuick() && c.flush() != nil {
		return false
	}
	c.handle()
	if (c.outBody != nil || len(c.out) >= writeBufferFull) && !c.failed && c.flush() != nil {
		return false
	}
	c.afterAnswer()
	return true
}

// readHead reads more of a head, or more of a body that is being skipped.
func (c *conn) readHead() {
	state := c.inputState()
	if state == stateIdle {
		c.scratch.ctx.Response.forgetBody()
		c.server.changed(c, StateIdle)
	}
	if err := c.fill(state); err != nil {
		c.inputEnded(err)
	} else if state <= stateIdle {
		c.server.changed(c, StateActive)
	}
}

// lastRead gives an idle connection a last chance to send a request while the server shuts down. The argument since is the time when the
// connection became idle. lastRead sets short deadlines, since a read with a deadline in the past would fail even if bytes have arrived.
func (c *conn) lastRead(p []byte, state waitState, since clock.Time) (int, error) {
	wait := c.server.lastReadTime(state, c.server.clock.Now().Sub(since))
	c.setState(stateLast)
	end := time.Now().Add(wait)
	for looks := 0; looks < lastLooks || time.Now().Before(end); looks++ {
		if c.netConn.SetReadDeadline(time.Now().Add(wait/lastLooks)) != nil {
			break // without a deadline the read might never end
		}
		n, err := c.stream.Read(p)
		c.netConn.SetReadDeadline(time.Time{})
		switch {
		case n > 0:
			return n, nil
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		}
		// The read has timed out, or was ended by a wake-up meant for the earlier wait.
	}
	return 0, errDraining
}

// canWatch implements driver. unwatch ends the watch by a read deadline. The sockets of package net support deadlines; for any other
// net.Conn, canWatch tries to set one.
func (d blockingDriver) canWatch() bool {
	if !d.scratch.socket.Attached() && d.netConn.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	// The watching goroutine may receive the beginning of the next request. It reads no more than fits into watchSpace.
	if d.in.Len() < http1.ReadBufferSize {
		d.in.Pin()
		d.scratch.watchSpace = d.in.Space()
	}
	return true
}

// watch implements driver. The goroutine reports a half-close once it has read all bytes that precede the half-close.
func (d blockingDriver) watch(r *requestctx.Context) (half, gone bool) {
	w := &clientWatch{context: r, netConn: d.netConn, space: d.scratch.watchSpace}
	if socket := &d.scratch.socket; socket.Attached() {
		if w.halfClosed, gone = socket.Ended(); gone {
			return false, true
		}
	}
	w.ended, w.stopping = make(chan struct{}), make(chan struct{})
	d.scratch.watcher = w
	go w.run()
	return false, false
}

// unwatch implements driver.
func (d blockingDriver) unwatch() {
	watcher := d.scratch.watcher
	d.scratch.watcher, d.scratch.watchSpace = nil, nil
	if watcher != nil {
		watcher.end(d.conn)
	}
}

// clientWatch is the goroutine that watches a client in the blocking driver.
type clientWatch struct {
	context *requestctx.Context
	netConn net.Conn
	space   []byte
	// halfClosed says that the client had closed its sending side before the goroutine began.
	halfClosed bool
	stopping   chan struct{} // closed to end the goroutine
	ended      chan struct{} // closed when the goroutine has ended
	// received and err are the result of the goroutine's reads. They belong to the goroutine until it has ended.
	received int
	err      error
}

// run reads as many bytes as fit into space, waits until the client has left, and cancels the context.
func (w *clientWatch) run() {
	defer close(w.ended)
	r, start := w.context, time.Now()
	err, stopped := w.await(func() error {
		for w.received < len(w.space) {
			n, err := w.netConn.Read(w.space[w.received:])
			if w.received += n; err != nil {
				return err
			}
		}
		return nil
	})
	if stopped {
		return
	}
	w.err = err
	if err == nil {
		// space is full: the end of the input follows bytes that this goroutine doesn't read.
		if err, stopped = w.await(func() error { return sock.AwaitEnd(w.netConn, false) }); stopped {
			return
		}
	}
	switch {
	case err == sock.ErrCannotTell:
		return
	case !isEOF(err):
		r.Cancel(ErrClientGone)
		return
	}
	r.ClientEnded(w.halfClosed || time.Since(start) <= requestctx.HalfCloseTime)
	if err, stopped = w.await(func() error { return sock.AwaitEnd(w.netConn, true) }); !stopped && err != sock.ErrCannotTell {
		r.Cancel(ErrClientGone)
	}
}

// await repeats wait as long as wait fails because of a deadline and the watch hasn't been stopped.
func (w *clientWatch) await(wait func() error) (err error, stopped bool) {
	for {
		if err = wait(); !errors.Is(err, os.ErrDeadlineExceeded) {
			return err, false
		}
		// First clear the deadline, then check stopping: a stop in between sets the deadline again.
		w.netConn.SetReadDeadline(time.Time{})
		select {
		case <-w.stopping:
			return nil, true
		default:
		}
	}
}

// end ends the goroutine, and passes the bytes that the goroutine has read to the connection.
func (w *clientWatch) end(c *conn) {
	close(w.stopping)
	w.netConn.SetReadDeadline(clock.Past)
	<-w.ended
	w.netConn.SetReadDeadline(time.Time{})
	c.in.Received(w.received)
	c.inputError = w.err
}
