package websocket

import (
	"errors"
	"runtime"
	"sync"

	"github.com/filohttp/filo"
)

var errAccepted = errors.New("websocket: Send, Join and Resume work only on connections of Serve")

// PreparedMessage is a message for many clients. It is rendered once for all clients, and compressed once if any client uses compression. It
// is immutable, and many goroutines may use it.
type PreparedMessage struct {
	kind    MessageType
	payload []byte // shares its memory with plain
	plain   rendered
	deflate sync.Once
	shorter rendered // the compressed form; empty if that isn't shorter
}

// rendered is a frame in two forms: for direct writes, and for the queue.
type rendered struct {
	frame  []byte
	queued *filo.PreparedMessage
}

func newRendered(frame []byte) rendered { return rendered{frame, filo.NewPreparedMessage(frame)} }

// NewPreparedMessage makes a PreparedMessage from a copy of the message. A text must be UTF-8.
func NewPreparedMessage(kind MessageType, message []byte) (*PreparedMessage, error) {
	if err := checkMessage(kind, message); err != nil {
		return nil, err
	}
	frame := appendHeader(make([]byte, 0, maxServerHeader+len(message)), bitFin|byte(kind), len(message))
	frame = append(frame, message...)
	return &PreparedMessage{kind: kind, plain: newRendered(frame), payload: frame[len(frame)-len(message):]}, nil
}

// compressed returns the message's compressed form, which refers to no other message.
func (m *PreparedMessage) compressed() (r *rendered, ok bool) {
	m.deflate.Do(func() {
		b := getBuffer()
		defer putBuffer(b)
		if frame, ok := appendDeflatedFrame(b, m.kind, m.payload, nil); ok {
			m.shorter = newRendered(append([]byte(nil), frame...))
		}
	})
	return &m.shorter, m.shorter.queued != nil
}

// Send sends a message without waiting for the client. If the client doesn't read the bytes at once, the connection queues a reference to the
// message. Send is for connections opened by Serve. If more than MaxQueuedBytes would wait, Send sends nothing and returns filo.ErrQueueFull;
// the caller decides whether to try again later or to close the connection.
func (c *Conn) Send(m *PreparedMessage) error {
	if c.parked == nil {
		return errAccepted
	}
	for !c.mu.TryLock() {
		switch c.busy.Load() {
		case busyFrame:
			return c.sendBeside(m)
		case busyBehind:
			return filo.ErrQueueFull
		}
		runtime.Gosched() // another goroutine is writing, without waiting for the client
	}
	defer c.mu.Unlock()
	if err := c.closedError(); err != nil {
		return err
	}
	r, deflated := m.form(c)
	if err := c.queueLocked(r); err != nil {
		return err
	}
	if deflated {
		c.sentDeflatedLocked(m.payload)
	}
	return nil
}

// queueLocked sends a frame, and doesn't wait.
func (c *Conn) queueLocked(r *rendered) error {
	if c.out != nil && len(c.out.b)+len(r.frame) <= corkSize {
		c.out.b = append(c.out.b, r.frame...)
		return nil
	}
	if c.out != nil {
		if err := c.parked.Queue(filo.NewPreparedMessage(c.out.b)); err != nil {
			return err
		}
		c.emptyLocked()
	}
	return c.parked.Queue(r.queued)
}

// sendBeside sends a message while another goroutine waits for the client to read an earlier frame. That goroutine holds mu, which also
// guards the context of the compression. So if the connection keeps such a context, the message is sent uncompressed: a compressed message
// would have to be added to the context, which this goroutine can't change.
func (c *Conn) sendBeside(m *PreparedMessage) error {
	r := &m.plain
	if !c.deflate.sendContext {
		r, _ = m.form(c)
	}
	c.gate.Lock()
	open := c.current() == stateOpen
	var err error
	if open {
		err = c.parked.Queue(r.queued) // must be queued before a close frame, so the gate is held
	}
	c.gate.Unlock()
	if !open {
		return c.closedError()
	}
	return err
}

// form returns the form of the message that suits the connection.
func (m *PreparedMessage) form(c *Conn) (r *rendered, deflated bool) {
	if c.deflate.on && len(m.payload) >= c.options.CompressionMinimum && len(m.payload) <= c.deflate.longest() {
		if r, ok := m.compressed(); ok {
			return r, true
		}
	}
	return &m.plain, false
}
