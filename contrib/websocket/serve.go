package websocket

import (
	"errors"
	"io"
	"time"

	"github.com/filohttp/filo"
)

var (
	errFunction  = failure(StatusInternalError, "")
	errPanic     = error(failure(StatusInternalError, "one of the functions has panicked"))
	errGoingAway = failure(StatusGoingAway, "the server shuts down")
)

// pingMessage is the ping for silent clients.
var pingMessage = filo.NewPreparedMessage([]byte{bitFin | opPing, 0})

// opened starts a connection for Serve, in the handler of its request.
func (c *Conn) opened(request *filo.Ctx) {
	server := request.Server()
	defer c.parked.OnClose(func() { c.ended(server) })
	returned := false
	defer func() {
		if !returned {
			c.over(errPanic) // OnOpen has panicked
		}
	}()
	if open := c.options.OnOpen; open != nil {
		if err := open(request, c); err != nil {
			c.closeFor(err)
		}
	}
	returned = true
	c.parked.SetWait(c.nextLook())
}

// serve is called when bytes have arrived, when the deadline has passed, or when the server shuts down.
func (c *Conn) serve(p *filo.ParkedConn, why filo.Wake) (err error) {
	returned := false
	defer func() {
		if !returned {
			c.sendClose(errFunction, errPanic, stateOver) // OnMessage has panicked, so the connection ends
		}
	}()
	switch why {
	case filo.WakeData:
		err = c.receive()
	case filo.WakeDeadline:
		err = c.look()
	case filo.WakeShutdown:
		err = c.goAway()
	}
	returned = true
	if err == nil {
		p.SetWait(c.nextLook())
		return nil
	}
	c.dropInput()
	if tell := c.leave(err); tell != nil {
		tell()
	}
	if why == filo.WakeShutdown || CloseStatus(err) != StatusAbnormalClosure {
		return io.EOF // after the close frame was sent
	}
	return err
}

// receive reads the bytes that have arrived, and handles all of them.
func (c *Conn) receive() error {
	input := inputs.Get().(*[readSize]byte)
	defer inputs.Put(input)
	n, err := c.parked.Read(input[:])
	if n == 0 {
		return endError(err)
	}
	if c.current() == stateFailed {
		return nil
	}
	c.heard, c.pinged = now(), 0
	return c.take(input[:n])
}

// endError returns the error for a connection whose input has ended.
func endError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errEnded
	}
	return err
}

// take handles received bytes. Its error ends the connection.
func (c *Conn) take(b []byte) error {
	in := c.in
	if in == nil {
		in = incomings.Get().(*incoming)
		in.reset(c)
		c.in = in
	}
	defer c.uncork()
	for c.current() < stateFailed {
		used, e, payload, err := in.next(b)
		if b = b[used:]; err == nil {
			if len(b) > 0 {
				c.cork()
			}
			err = c.handle(in, e, payload)
		}
		if err != nil {
			return c.fail(err)
		}
		if e == eventNone {
			break
		}
	}
	if in.atRest() {
		c.in = nil
		incomings.Put(in)
	}
	return nil
}

// fail ends the connection because of an error. If the client has caused the error, the connection ends a little later, so that
// the client can read the close frame.
func (c *Conn) fail(err error) error {
	var failed *CloseError
	if !errors.As(err, &failed) || !failed.Local {
		return err // the client has sent its close frame
	}
	c.dropInput()
	if !c.sendClose(failed, failed, stateFailed) {
		return err // this side had already sent a close frame
	}
	return nil
}

// dropInput discards the incomplete message, if there is one.
func (c *Conn) dropInput() {
	if c.in != nil {
		c.in.release()
		incomings.Put(c.in)
		c.in = nil
	}
}

// handle handles an event.
func (c *Conn) handle(in *incoming, e event, payload []byte) error {
	switch e {
	case eventData, eventEnd:
		message, complete, err := in.gather(c, e, payload)
		if err != nil || !complete {
			return err
		}
		if c.current() == stateOpen {
			if err := c.options.OnMessage(c, in.kind, message); err != nil {
				c.closeFor(err)
			}
		}
		in.release()
		in.since = now()
	case eventNone:
	default:
		if err := c.control(e, payload); err != nil {
			return err
		}
		if in.atRest() {
			in.since = now()
		}
	}
	return nil
}

// control handles a control frame. The error for a close frame is a *CloseError. The error has the client's code, or this side's code if the
// client's frame answers this side's close frame.
func (c *Conn) control(e event, payload []byte) error {
	switch e {
	case eventPing:
		if err := c.sendControl(opPong, payload); err != nil && !errors.Is(err, ErrClosed) {
			return err
		}
	case eventClose:
		closed, wrong := parseClose(payload)
		if wrong != nil {
			return wrong
		}
		// Section 5.5.1: the answer to a close frame is a close frame, typically with the same code.
		c.sendClose(closed, closed, stateOver)
		return closed
	}
	return nil
}

// closeFor closes the connection because OnOpen or OnMessage has returned an error.
func (c *Conn) closeFor(err error) {
	frame := errFunction
	if asked, ok := errors.AsType[*CloseError](err); ok && asked.Code.sendable() {
		frame = failure(asked.Code, closeReason(asked.Reason))
	}
	c.sendClose(frame, err, stateClosing)
}

// look checks which of the connection's time limits has been reached.
func (c *Conn) look() error {
	at := now()
	if in := c.in; in != nil && c.options.ReadTimeout > 0 && at >= in.since+c.options.ReadTimeout {
		return c.fail(errSlow)
	}
	return c.lookSilence(at)
}

// lookSilence pings a silent client, and ends its connection if it doesn't answer. If no ping can be sent now, the silence is counted anew.
func (c *Conn) lookSilence(at time.Duration) error {
	o := c.options
	switch {
	case c.current() != stateOpen:
	case c.pinged != 0 && o.PongTimeout > 0:
		if at >= c.pinged+o.PongTimeout {
			return errNoPong
		}
	case o.PingInterval > 0 && at >= max(c.heard, c.pinged)+o.PingInterval:
		if c.sendPing() {
			c.pinged = now() // later than at if the ping has waited for another goroutine's frame
		} else {
			c.heard = at
		}
	}
	return nil
}

// sendPing sends a ping, and reports whether it did. On a connection opened by Serve it doesn't wait for a goroutine that sends something
// else: the client shows that it is alive by reading that.
func (c *Conn) sendPing() (sent bool) {
	if c.stream != nil {
		return c.Ping() == nil
	}
	if !c.mu.TryLock() {
		return false
	}
	defer c.mu.Unlock()
	return c.closedError() == nil && c.parked.Queue(pingMessage) == nil
}

// nextLook returns when to check the connection if nothing arrives.
func (c *Conn) nextLook() time.Time {
	var at time.Duration
	if c.in != nil && c.options.ReadTimeout > 0 {
		at = c.in.since + c.options.ReadTimeout
	}
	if silence := c.nextSilence(); silence != 0 && (at == 0 || silence < at) {
		at = silence
	}
	if at == 0 {
		return time.Time{}
	}
	return epoch.Add(at)
}

// nextSilence returns when a silent client must be pinged or disconnected; 0 means never.
func (c *Conn) nextSilence() time.Duration {
	switch o := c.options; {
	case c.current() != stateOpen:
	case c.pinged != 0 && o.PongTimeout > 0:
		return c.pinged + o.PongTimeout
	case o.PingInterval > 0:
		return max(c.heard, c.pinged) + o.PingInterval
	}
	return 0
}

// goodbyeTime limits the wait for the client's answer to a close frame when the server shuts down.
var goodbyeTime = 100 * time.Millisecond // changed by tests

// goAway sends a close frame because the server shuts down.
func (c *Conn) goAway() error {
	c.sendClose(errGoingAway, errGoingAway, stateClosing)
	c.parked.SetReadDeadline(time.Now().Add(goodbyeTime))
	for {
		if err := c.receive(); err != nil {
			return err
		}
	}
}
