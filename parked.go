package filo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// Wake says why the function of a ParkedConn is called.
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
// Ctx.Park. Write may be called at any time and by several goroutines; Read belongs to the connection's function.
type ParkedConn struct {
	conn     *conn
	netConn  net.Conn
	serve    func(*ParkedConn, Wake) error
	received []byte // to be read first
	wait     time.Time
	closed   bool // guarded by writing

	writing sync.Mutex
}

// Park takes the connection over from the server like Hijack, for those that mostly wait, such as WebSockets: once the
// handler has returned it waits without a worker, in its loop without a goroutine or a buffer either, and serve is called
// on a worker when something comes. It reads what it wants, at least something, and waits again by returning nil; an error
// closes the connection. It is called by one goroutine at a time, and by none before the handler has returned.
//
// With a protocol, such as "websocket", the answer is 101 (Switching Protocols), as for Upgrade; with "" there is none.
//
// A parked connection counts against MaxConns and, while serve runs, against Concurrency. In the blocking driver a goroutine
// waits for each.
func (c *Ctx) Park(protocol string, serve func(*ParkedConn, Wake) error) (*ParkedConn, error) {
	c.check()
	switch {
	case c.conn.hijacked:
		return nil, ErrHijacked
	case c.stream.sent:
		return nil, ErrHeadSent
	}
	if protocol != "" {
		if err := c.switchProtocols(protocol); err != nil {
			return nil, err
		}
	}
	if err := c.claimAnswer(); err != nil {
		return nil, err
	}
	owner := c.conn
	c.endWatch()
	if owner.looped != nil {
		if err := owner.looped.prepareParked(); err != nil {
			return nil, err
		}
	}
	if err := owner.flush(); err != nil {
		return nil, err
	}
	p := &ParkedConn{conn: owner, netConn: owner.netConn, serve: serve}
	p.received = append(p.received, owner.in.unread()...)
	owner.in.advance(len(p.received))
	c.Request.body.hijacked()
	owner.hijacked, owner.parked = true, p
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
	return p.netConn.Read(b)
}

// Write sends all of b, waiting for the client if it must.
func (p *ParkedConn) Write(b []byte) (int, error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.closed {
		return 0, net.ErrClosed
	}
	return p.netConn.Write(b)
}

// SetWait sets until when the connection waits the next time that its function returns; the function is called then, with
// WakeDeadline. The zero time, to which it falls back each time, is for ever. It belongs to the function, and to the
// handler until that returns.
func (p *ParkedConn) SetWait(until time.Time) { p.wait = until }

// Close ends the connection, at any time. Its function isn't called any more.
func (p *ParkedConn) Close() error {
	if p.conn.looped != nil {
		return p.conn.looped.Close()
	}
	return p.netConn.Close()
}

// LocalAddr returns the address of this end.
func (p *ParkedConn) LocalAddr() net.Addr { return p.netConn.LocalAddr() }

// RemoteAddr returns the address of the client.
func (p *ParkedConn) RemoteAddr() net.Addr { return p.netConn.RemoteAddr() }

// SetDeadline sets until when Read and Write wait, as a net.Conn's does. SetWait is for the time in between.
func (p *ParkedConn) SetDeadline(t time.Time) error { return p.netConn.SetDeadline(t) }

// SetReadDeadline sets until when Read waits.
func (p *ParkedConn) SetReadDeadline(t time.Time) error { return p.netConn.SetReadDeadline(t) }

// SetWriteDeadline sets until when Write waits.
func (p *ParkedConn) SetWriteDeadline(t time.Time) error { return p.netConn.SetWriteDeadline(t) }

// call calls the function and reports whether the connection goes on.
func (p *ParkedConn) call(why Wake) (again bool) {
	s := p.conn.server
	defer func() {
		if value := recover(); value != nil {
			again = false
			s.logger().Error("panic in the function of a parked connection", "value", fmt.Sprint(value),
				"remote", p.RemoteAddr(), "stack", string(debug.Stack()))
		}
	}()
	p.wait = time.Time{}
	err := p.serve(p, why)
	if err != nil && s.LogAllErrors {
		s.logger().Warn("a parked connection ends", "error", err, "remote", p.RemoteAddr())
	}
	return err == nil && why != WakeShutdown
}

// deadline returns until when the connection waits, on the coarse clock's scale.
func (p *ParkedConn) deadline() int64 {
	if p.wait.IsZero() {
		return 0
	}
	return max(p.conn.server.clock.exact()+int64(time.Until(p.wait)), 1<<stateBits)
}

// close closes the connection when nobody writes any more.
func (p *ParkedConn) close() {
	p.writing.Lock()
	defer p.writing.Unlock()
	p.closed = true
	p.netConn.Close()
}

// parkedBuffer is how much a waiting goroutine of the blocking driver reads at first.
const parkedBuffer = 512

// run waits for the connection, and serves it, in the blocking driver.
func (p *ParkedConn) run() {
	c, s := p.conn, p.conn.server
	buffer := make([]byte, parkedBuffer)
	end := func() {
		p.close()
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
		if !p.call(why) {
			return
		}
	}
}

// await waits until something has come, or it is time for something else.
func (p *ParkedConn) await(buffer []byte) Wake {
	c, s := p.conn, p.conn.server
	deadline := p.deadline()
	c.setWait(stateParked, deadline)
	for !s.draining.Load() {
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
