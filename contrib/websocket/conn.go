package websocket

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
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

// ErrClosed is wrapped by the errors that a closed connection returns. They also wrap the error that ended the connection.
var ErrClosed = net.ErrClosed

var (
	errEnded  = fmt.Errorf("websocket: the connection ended without a close frame: %w", io.ErrUnexpectedEOF)
	errNoPong = errors.New("websocket: the client doesn't answer a ping")
	errSlow   = failure(StatusPolicyViolation, "a message took too long")
	// errNow is the error of a connection that Close or CloseNow has ended.
	errNow = fmt.Errorf("websocket: %w by this side", ErrClosed)
)

// state is the phase of a connection's life.
type state int32

const (
	stateOpen    state = iota
	stateClosing       // this side has sent a close frame, and waits for the client's close frame
	stateFailed        // like stateClosing, but further input is ignored
	stateOver
)

// Conn is a WebSocket. Several goroutines may call Write, Send, Ping, Close and CloseNow at once. Only one goroutine at a time
// may call Read or Reader.
//
// Unless a comment says otherwise, a field belongs to the connection's reader: the goroutine that runs the connection's function, or that
// is in Read.
type Conn struct {
	options     *shared          // immutable, as are the next five
	net         net.Conn         // for reading and writing
	parked      *filo.ParkedConn // the same connection, if Serve has opened it; else nil
	stream      *stream          // if Accept has opened the connection; else nil
	subprotocol string
	deflate     deflateTerms
	contexts    *contexts // nil if no message may refer to earlier messages; its field sent is guarded by mu
	value       any       // set by SetValue

	in     *incoming     // for Serve: an incomplete message; nil if there is none
	heard  time.Duration // when the client last sent something, or when a ping was due that couldn't be sent
	pinged time.Duration // when the last ping was sent, if the client has sent nothing since; else 0

	mu     sync.Mutex  // orders the frames that are sent
	corked bool        // writes are gathered in out; guarded by mu
	out    *buffer     // nil while it is empty; guarded by mu
	late   *time.Timer // sends the bytes in out if the function takes long; guarded by mu
	busy   atomic.Int32

	gate   sync.Mutex   // locked after mu
	state  atomic.Int32 // a state; changes need gate, and changes from stateOpen to a state other than stateOver also need mu
	told   bool         // OnClose was called, or is about to be; guarded by gate
	cause  error        // why the connection is no longer open; guarded by gate
	timer  *time.Timer  // closes the connection if the client doesn't; guarded by gate
	topics []*topic     // the topics that the connection has joined; guarded by gate
}

// epoch is the time from which the function now measures.
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

// closedError returns the error that methods of a closed connection return, or nil if the connection is open.
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
// On a connection opened by Serve, Close then returns. OnClose is called later, when the client has answered, or after CloseTimeout. On a
// connection opened by Accept, Close itself waits for the answer or the timeout, and discards further messages. If another goroutine reads a
// message from a Reader, that message is discarded, too: the goroutine gets an error.
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

// sendClose sends a close frame if none was sent yet, and closes the connection if the client doesn't do so in time. The cause is the error
// that the connection's methods return.
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

// lingerTime is how long a client whose connection has failed may continue to send. If the connection were closed at once, bytes on their
// way here would make the system reset it, and the client might lose the close frame.
var lingerTime = 500 * time.Millisecond // changed by tests

// over ends the connection, with this cause unless the connection already has a cause. It reports whether this call has ended the connection.
func (c *Conn) over(cause error) (first bool) {
	c.gate.Lock()
	first = c.state.Swap(int32(stateOver)) != int32(stateOver)
	c.setCauseLocked(cause)
	c.stopTimerLocked()
	c.gate.Unlock()
	c.net.Close() // on a connection opened by Serve, c.ended is then called
	if c.stream != nil {
		c.stream.forget()
	}
	return first
}

// setCauseLocked sets the cause if there is none yet. A cause is never overwritten, because once it is set, it is read without the lock.
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

// ended is called when a connection opened by Serve has ended, while none of its functions runs.
func (c *Conn) ended(s *filo.Server) {
	c.dropInput()
	if tell := c.leave(errEnded); tell != nil {
		go func() { // the caller must not wait
			defer recoverPanic("OnClose", s.Logger)
			tell()
		}()
	}
}

// recoverPanic logs a panic of one of the application's functions. It is deferred where filo itself doesn't recover the panic, which would
// end the process.
func recoverPanic(function string, logger *slog.Logger) {
	if value := recover(); value != nil {
		cmp.Or(logger, slog.Default()).Error("websocket: panic in "+function, "value", fmt.Sprintf("%.1024s", fmt.Sprint(value)),
			"stack", string(debug.Stack()))
	}
}

// leave records the end of the connection. It returns a function that calls OnClose, or nil if OnClose isn't set or was already called.
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
	return func() { c.options.OnClose(c, c.cause) } // the cause doesn't change any more
}
