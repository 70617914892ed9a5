package websocket

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"

	"github.com/filohttp/filo"
)

// MessageType is the type of a message.
type MessageType uint8

const (
	// Text is the type of a message in UTF-8.
	Text = MessageType(ws.OpText)
	// Binary is the type of a message of any bytes.
	Binary = MessageType(ws.OpBinary)
)

const (
	opClose = byte(ws.OpClose)
	opPing  = byte(ws.OpPing)
	opPong  = byte(ws.OpPong)
)

// ErrClosed is wrapped by the errors of closed connections, next to the error that ended the connection.
var ErrClosed = net.ErrClosed

var (
	errEnded  = fmt.Errorf("websocket: the connection ended without a close frame: %w", io.ErrUnexpectedEOF)
	errNoPong = errors.New("websocket: the client doesn't answer a ping")
	errSlow   = failure(StatusPolicyViolation, "a message took too long")
	// errNow is that Close was called.
	errNow = fmt.Errorf("websocket: %w by this side", ErrClosed)
)

// state is how far a connection has come.
type state int32

const (
	stateOpen    state = iota
	stateClosing       // this side has sent a close frame, and waits for the client's
	stateFailed        // likewise, after which nothing that comes has a meaning any more
	stateOver
)

// Conn is a WebSocket. Several goroutines may call Write, Send, Ping, Close and CloseNow at once. Only one goroutine at a time
// may call Read or Reader.
//
// Unless a comment says otherwise, a field belongs to the connection's reader: the goroutine that runs its function or that is
// in Read.
type Conn struct {
	options     *Options         // immutable, as the next five are
	net         net.Conn         // what it is read and written by
	parked      *filo.ParkedConn // the same, of Serve; or else nil
	stream      *stream          // of Accept; or else nil
	subprotocol string
	deflate     deflateTerms
	contexts    *contexts // nil unless there are any; what was sent is guarded by mu
	value       any       // the user's

	in     *incoming     // of Serve: a message that isn't complete; nil at rest
	heard  time.Duration // when something came last
	pinged time.Duration // when a ping was sent that nothing has come since; 0 if none was

	mu     sync.Mutex  // orders what is sent
	corked bool        // what is written is gathered in out; guarded by mu
	out    *buffer     // nil while it is empty; guarded by mu
	late   *time.Timer // sends it if the function takes long; guarded by mu
	busy   atomic.Int32

	gate   sync.Mutex   // after mu
	state  atomic.Int32 // a state, changed only with gate held; leaves stateOpen with mu too, except to stateOver
	told   bool         // OnClose was called, or is about to be; guarded by gate
	cause  error        // why it isn't open; guarded by gate
	timer  *time.Timer  // closes it when the client doesn't; guarded by gate
	topics []*topic     // in which it is; guarded by gate
}

// epoch is the zero of the times that now returns.
var epoch = time.Now()

func now() time.Duration { return time.Since(epoch) }

// Subprotocol returns the negotiated subprotocol, or "" if there is none.
func (c *Conn) Subprotocol() string { return c.subprotocol }

// RemoteAddr returns the address of the connection's other end.
func (c *Conn) RemoteAddr() net.Addr { return c.net.RemoteAddr() }

// LocalAddr returns the address of this end.
func (c *Conn) LocalAddr() net.Addr { return c.net.LocalAddr() }

// SetValue stores a value for the application, such as the client's identity. Call it in OnOpen, before other goroutines use
// the connection.
func (c *Conn) SetValue(value any) { c.value = value }

// Value returns the value that SetValue stored.
func (c *Conn) Value() any { return c.value }

// current returns the state.
func (c *Conn) current() state { return state(c.state.Load()) }

// closedError returns the error for the user of a connection that isn't open any more, or nil if it is open.
func (c *Conn) closedError() error {
	if c.current() == stateOpen {
		return nil
	}
	c.gate.Lock()
	defer c.gate.Unlock()
	if c.cause == nil || errors.Is(c.cause, ErrClosed) {
		return errNow
	}
	return fmt.Errorf("%w: %w", ErrClosed, c.cause)
}

// Close sends a close frame. The code is 1000 to 1003, 1007 to 1014 or 3000 to 4999. The reason is a text for people; its first
// 123 bytes are sent. Nothing can be written after Close.
//
// On a connection of Serve, Close then returns, and OnClose is called when the client has answered, or after CloseTimeout. On a
// connection of Accept, Close itself waits for that, and discards further messages.
func (c *Conn) Close(code StatusCode, reason string) error {
	if !code.sendable() {
		return fmt.Errorf("websocket: a close frame can't have status %d", code)
	}
	frame := failure(code, closeReason(reason))
	sent := c.sendClose(frame, frame, stateClosing)
	if c.stream != nil {
		return c.stream.awaitClose()
	}
	if !sent {
		return c.closedError()
	}
	return nil
}

// CloseNow ends the connection without a close frame.
func (c *Conn) CloseNow() error {
	c.over(errNow)
	return nil
}

// sendClose sends a close frame if none was sent, and closes the connection if the client doesn't do so in time. The cause is
// what the user gets to know.
func (c *Conn) sendClose(frame *CloseError, cause error, next state) (sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := c.options.CloseTimeout
	if next == stateFailed {
		wait = min(wait, lingerTime)
	}
	c.gate.Lock()
	if c.current() != stateOpen {
		c.gate.Unlock()
		return false
	}
	c.state.Store(int32(next))
	c.setCauseLocked(cause)
	if next != stateOver {
		c.timer = time.AfterFunc(wait, func() { c.over(nil) })
	}
	c.gate.Unlock()
	var room [2 + maxControl]byte
	c.sendLastLocked(appendClose(room[:0], frame.Code, frame.Reason), cause == errPanic)
	return true
}

// lingerTime is how long a client whose connection has failed may go on sending. If it was closed at once, what is on its way
// here would make the system reset it, and the client might lose the close frame.
var lingerTime = 500 * time.Millisecond // changed by tests

// over ends the connection, because of the error if there was no other reason before. It reports whether the connection wasn't over yet.
func (c *Conn) over(cause error) (first bool) {
	c.gate.Lock()
	first = c.state.Swap(int32(stateOver)) != int32(stateOver)
	c.setCauseLocked(cause)
	c.stopTimerLocked()
	c.gate.Unlock()
	c.net.Close() // which has c.ended called, of Serve
	if c.stream != nil {
		c.stream.forget()
	}
	return first
}

// setCauseLocked sets the cause if there is none yet. A cause that is set is never written again, since it is read without the lock.
func (c *Conn) setCauseLocked(cause error) {
	if c.cause == nil {
		c.cause = cause
	}
}

func (c *Conn) stopTimerLocked() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// ended is called when a connection of Serve is over, while its function doesn't run.
func (c *Conn) ended() {
	if tell := c.leave(errEnded); tell != nil {
		go tell() // the caller must not wait
	}
}

// leave records the end of the connection, and returns what remains to be done: OnClose, if nobody has called it.
func (c *Conn) leave(cause error) (tell func()) {
	c.gate.Lock()
	first := !c.told
	c.told = true
	c.state.Store(int32(stateOver))
	c.setCauseLocked(cause)
	c.stopTimerLocked()
	topics := c.topics
	c.topics = nil
	c.gate.Unlock()
	for _, t := range topics {
		t.remove(c)
	}
	if !first || c.options.OnClose == nil {
		return nil
	}
	return func() { c.options.OnClose(c, c.cause) } // which doesn't change any more
}
