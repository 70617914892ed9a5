// Package outbox queues what is sent on a connection that several goroutines write to. Some of them wait for the client, and some never do.
//
// An outbox sends in one of two ways. With a Socket, of a connection in a loop, whoever has the lock writes what the socket takes, and
// the loop goes on with the rest when that takes more. Without one, a goroutine at a time writes to a net.Conn: one in Write, or one
// that is started for what doesn't wait.
package outbox

import (
	"bytes"
	"errors"
	"net"
	"os"
	"sync"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/race"
)

// ErrFull is the error of a message that would make more wait than the limit allows.
var ErrFull = errors.New("filo: too much waits to be sent on a parked connection")

// Owner is the connection that an outbox belongs to.
type Owner interface {
	// Limits returns how slowly the client may take what waits for it, always the same.
	Limits() pace.Limits
	// Now returns the time.
	Now() clock.Time
	// Disconnect is called when the client is too slow, without the lock. Everything else has failed by then with
	// os.ErrDeadlineExceeded.
	Disconnect()
}

// Outbox is the queue of one connection, sent in order. Everything is guarded by mu but for what Open sets. The methods can be
// called at any time by any goroutine.
type Outbox struct {
	owner  Owner    // immutable
	socket Socket   // nil if conn is written to by goroutines that wait; immutable
	conn   net.Conn // immutable
	frames bool     // each Write is a frame, behind a part of which nothing can follow; immutable

	mu       race.Mutex
	progress sync.Cond // of mu: a piece has left, or there is an error
	queue    queue
	limit    int // of the queue's messages
	stall    stall
	turn     turn
	waits    waits
	seal     seal
	err      error // nothing can be sent any more
	ending   bool  // nothing more is taken
}

// seal says what Put gets from TLS.
type seal struct {
	open    bool // what a goroutine of the program sends, and not what TLS has to say by itself
	message bool // that is a message
}

// Open makes the outbox ready for use. It writes to the socket or, if that is nil, to conn. frames says that nothing can follow what
// Write has sent in part.
func (o *Outbox) Open(owner Owner, socket Socket, conn net.Conn, frames bool) {
	o.owner, o.socket, o.conn, o.frames, o.limit = owner, socket, conn, frames, DefaultLimit
	o.progress.L = &o.mu
}

// Queue sends a message without waiting. What the client doesn't take at once waits, as a reference to b, which is never changed. The
// error is ErrFull if more would wait than the limit allows: then nothing of b is sent. One message always may wait.
func (o *Outbox) Queue(b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.admitLocked(len(b)); err != nil {
		return err
	}
	o.putLocked(piece{b: b, message: true}, false)
	return o.err
}

// Write sends b and waits until it has left, or the deadline has passed.
func (o *Outbox) Write(b []byte) (int, error) {
	if o.socket == nil {
		return o.writeInTurn(b)
	}
	return o.writeNow(b)
}

// BeginSeal lets through TLS what a Write or, with its size, a message is to send: what Put gets until EndSeal.
func (o *Outbox) BeginSeal(message bool, size int) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if message {
		err = o.admitLocked(size)
	} else {
		err = o.unusableLocked()
	}
	o.seal = seal{open: err == nil, message: message}
	return err
}

// EndSeal ends that.
func (o *Outbox) EndSeal() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seal.open = false
}

// Put sends a copy of b, which comes from TLS, without waiting. What TLS has to say by itself, since the client asks for it, is
// bounded all the same.
func (o *Outbox) Put(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.seal.open && o.queue.messages-maxOwnRecords > o.limit {
		o.failLocked(ErrFull)
	}
	if o.err != nil {
		return 0, o.err
	}
	o.putLocked(piece{b: b, message: !o.seal.open || o.seal.message}, true)
	return len(b), o.err
}

// putLocked sends a piece as far as it goes at once, and makes the rest wait, which is copied if the piece isn't the outbox's to keep:
// what a goroutine waits for is the outbox's until the wait is done.
func (o *Outbox) putLocked(p piece, copied bool) {
	o.mu.AssertHeld()
	if o.socket != nil {
		p.b = o.sendNowLocked(p.b)
		switch {
		case o.err != nil:
			return
		case len(p.b) == 0 && o.queue.empty():
			if p.wait != nil {
				p.wait.done = true
			}
			return
		}
	}
	if copied {
		p.b = bytes.Clone(p.b)
	}
	o.queue.add(p)
	if o.socket == nil && !o.turn.taken {
		o.turn.taken = true
		go o.send()
	}
	o.watchLocked()
}

// consumeLocked takes n bytes that were sent out of what waits.
func (o *Outbox) consumeLocked(n int) {
	o.mu.AssertHeld()
	o.stall.took(n)
	done := o.queue.consume(n)
	if o.queue.empty() {
		o.stall.end()
	}
	if done {
		o.progress.Broadcast()
	}
}

// unusableLocked says why nothing can be sent any more; nil if it can.
func (o *Outbox) unusableLocked() error {
	o.mu.AssertHeld()
	if o.err == nil && o.ending {
		return net.ErrClosed
	}
	return o.err
}

// admitLocked says why size more bytes of a message may not wait; nil if they may.
func (o *Outbox) admitLocked(size int) error {
	o.mu.AssertHeld()
	if err := o.unusableLocked(); err != nil {
		return err
	}
	if !admits(o.queue.messages, size, o.limit) {
		return ErrFull
	}
	return nil
}

// brokenLocked takes note that n bytes of a Write have left and the rest won't.
func (o *Outbox) brokenLocked(n int) {
	o.mu.AssertHeld()
	if n > 0 && o.frames {
		o.failLocked(os.ErrDeadlineExceeded)
	}
}

// Finish takes nothing more but last, and reports whether all has left. If not, the connection is woken when it has.
func (o *Outbox) Finish(last []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && !o.ending && len(last) > 0 {
		o.putLocked(piece{b: last}, false)
	}
	o.ending = true
	o.progress.Broadcast() // a Write that waits for its turn hasn't one any more
	return o.emptyLocked()
}

// Empty reports whether nothing waits to be sent, or nothing can be.
func (o *Outbox) Empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.emptyLocked()
}

// AwaitEmpty waits for that, as long as the client may take its time.
func (o *Outbox) AwaitEmpty() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.emptyLocked() {
		o.progress.Wait()
	}
}

func (o *Outbox) emptyLocked() bool {
	o.mu.AssertHeld()
	return o.err != nil || o.queue.empty() && !o.turn.taken
}

// SetLimit sets how many bytes of messages may wait.
func (o *Outbox) SetLimit(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit = n
}

// Size returns how many bytes wait.
func (o *Outbox) Size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queue.bytes
}

// Fail lets nothing be sent any more: the caller is going to close the socket.
func (o *Outbox) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failLocked(err)
}

func (o *Outbox) failLocked(err error) {
	o.mu.AssertHeld()
	if o.err != nil {
		return
	}
	o.err = err
	if !o.queue.empty() {
		o.tellOwnerLocked()
	}
	o.queue.clear()
	o.stall.end()
	o.progress.Broadcast()
}
