package filo

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http2conn"
)

// blockingHTTP2 is the driver of an HTTP/2 connection outside of loops. One worker reads the connection and runs quick handlers, as the
// leader of a loop does; it doesn't count against Concurrency. Before it runs a handler that may take long, it becomes an ordinary worker,
// and another worker reads. The worker that reads never waits for a write: while output is unsent, a goroutine of the outbox writes it.
//
// blockingHTTP2 is also a job: the worker that receives it reads the connection.
type blockingHTTP2 struct {
	*conn
	h      *http2conn.Conn
	failed bool // nothing can be sent any more; only the owner uses it
	// ended is closed when the connection has ended: ServeConn must not return earlier.
	ended chan struct{}
	idle  chan struct{} // Flushed sends to it; capacity 1
	// lookedFor is the expired deadline after which the owner has already read once more. Only the owner uses the field.
	lookedFor clock.Time
	// monitor is a timer that runs while a handler runs inline. It takes the connection from the worker if the handler turns out to be slow.
	monitor *time.Timer
}

// inlineTime is how long a handler may hold up its connection.
const inlineTime = time.Millisecond

var _ http2conn.Driver = (*blockingHTTP2)(nil)
var _ http2Runner = (*blockingHTTP2)(nil)

// startHTTP2 switches the connection, which w serves, to HTTP/2.
func (c *conn) startHTTP2(w *scratch) *blockingHTTP2 {
	d := &blockingHTTP2{conn: c, ended: make(chan struct{}), idle: make(chan struct{}, 1)}
	d.monitor = time.AfterFunc(time.Hour, d.retake)
	d.monitor.Stop()
	d.h = c.newHTTP2(d)
	c.remote() // so that Clients and Running know the address
	d.h.Out.Open(d.h, nil, c.netConn, false)
	c.detach()
	c.http2.Store(d.h)
	if w.worker != nil {
		w.worker.place.Leave()
	}
	return d
}

// do implements job. The worker needs no place until it runs a handler that may take long.
func (d *blockingHTTP2) do(w *workerChan) (again bool) {
	w.own()
	w.protect(func() { d.serve(w.scratch) })
	return w.pool.release(w)
}

// serve reads the connection until it has ended, or until another worker reads it: then serve returns false.
func (d *blockingHTTP2) serve(w *scratch) (ended bool) {
	h := d.h
	t := w.beginHTTP2(h)
	defer func() {
		if !h.IsOwnedBy(t) {
			return
		}
		h.FlushTurn(t)
		h.EndTurn(t)
		if value := recover(); value != nil {
			d.failed = true
			d.end()
			panic(value) // the pool logs it
		}
		d.succeed(w) // a handler is ending this goroutine
	}()
	for {
		switch h.Next(t) {
		case http2conn.StepRefuse:
			w.http2.exchange.refuse(w, d.conn, d)
		case http2conn.StepRun:
			if !w.http2.exchange.run(w, d.conn, d) {
				return false
			}
			d.monitor.Stop()
			if t.Rendered() >= writeBufferFull {
				h.FlushTurn(t)
				h.Out.AwaitBelow(http2conn.MaxControl)
			}
		case http2conn.StepRead:
			h.WakePutOff(t)
			h.FlushTurn(t)
			h.Out.AwaitBelow(http2conn.MaxControl)
			d.read(t)
		case http2conn.StepEnd:
			for h.FlushTurn(t); !h.IsFlushed(); {
				<-d.idle
			}
			h.EndTurn(t)
			d.end()
			return true
		}
	}
}

// read waits for input, or for other work.
func (d *blockingHTTP2) read(t *http2conn.Turn) {
	h, c := d.h, d.conn
	waits, deadline := h.Wait(c.server.clock.Now(), t.In.Len() > 0)
	c.setWait(http2WaitStates[waits], deadline)
	if h.MustDrain() {
		c.endWait(deadline, false)
		return
	}
	asked := h.IsLookAsked()
	if asked && !c.beginLastLook(0) {
		c.endWait(deadline, false)
		h.HasLooked()
		return
	}
	space := t.In.Space()
	n, err := c.netConn.Read(space)
	if asked {
		c.netConn.SetReadDeadline(time.Time{})
	}
	h.Shed = c.endWait(deadline, false)
	late := errors.Is(err, os.ErrDeadlineExceeded) && (h.Shed || deadline != 0 && c.server.clock.Exact() >= deadline)
	if late && deadline != d.lookedFor && c.beginLastLook(deadline) {
		// The owner looks once for each deadline, so that a client that goes on sending can't postpone the deadline.
		d.lookedFor = deadline
		n, err = c.netConn.Read(space)
		c.netConn.SetReadDeadline(time.Time{})
	}
	h.Received(t, space, n)
	switch {
	case n > 0 || err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.netConn.SetReadDeadline(time.Time{})
		if asked {
			h.HasLooked()
		}
		h.Look(t, late)
	default:
		h.Stop()
		d.failed = !isEOF(err)
	}
}

// end ends the connection, once its output has been sent.
func (d *blockingHTTP2) end() {
	defer close(d.ended)
	h, c := d.h, d.conn
	if d.failed {
		h.Out.Fail(net.ErrClosed)
	}
	h.Close() // ends the handlers, even if the client never takes the rest of the output
	h.Out.Finish(nil)
	h.Out.AwaitEmpty()
	// The client might not have read the last frames. Closing a socket with unread bytes resets the connection, and the frames would be lost.
	c.endConn(!d.failed)
}

// watch implements http2Runner.
func (d *blockingHTTP2) watch(*scratch) { d.monitor.Reset(inlineTime) }

// giveAway implements http2Runner.
func (d *blockingHTTP2) giveAway(w *scratch) {
	d.giveHTTP2Away(w)
	d.succeed(w)
}

// retake gives the connection to another worker if a handler still runs inline.
func (d *blockingHTTP2) retake() {
	if w := d.takeHTTP2Away(); w != nil {
		d.succeed(w)
	}
}

// succeed makes another worker read the connection.
func (d *blockingHTTP2) succeed(w *scratch) {
	if w.worker != nil {
		w.worker.pool.pop(true).ch <- d
		return
	}
	go survive(d.server.logger(), "panic in a connection of ServeConn", func() {
		next, running, returned := scratches.Get().(*scratch), &d.server.running, false
		running.Add(next.running)
		defer func() {
			if running.Remove(next.running); returned {
				scratches.Put(next) // not after a panic: the buffers may be in any state
			}
		}()
		d.serve(next)
		returned = true
	})
}

// noticeLoss implements http2Runner.
func (d *blockingHTTP2) noticeLoss(w *scratch) {
	if w.place != nil {
		w.place.ReceiveLate()
	}
}

// clientLeft implements http2Runner. It returns false, since only a read would show that the client has left.
func (d *blockingHTTP2) clientLeft() bool { return false }

// Send implements http2conn.Driver.
func (d *blockingHTTP2) Send(b []byte) (kept bool) { return d.h.Out.Lend(b, http2conn.ReleaseBuffer) }

// WakeOwner implements http2conn.Driver.
func (d *blockingHTTP2) WakeOwner() { d.netConn.SetReadDeadline(clock.Past) }

// Flushed implements http2conn.Driver.
func (d *blockingHTTP2) Flushed() { d.idle <- struct{}{} }
