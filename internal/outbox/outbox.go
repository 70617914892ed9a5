// Package outbox queues the messages that several goroutines send on one connection. Some of these goroutines wait for the client, and
// others never do.
//
// An outbox sends in one of two ways. With a Socket, for a connection in a loop, the goroutine that holds the lock writes as much as the
// socket has room for, and the loop sends the rest later. Without a Socket, one goroutine at a time writes to a net.Conn: either a goroutine
// in Write, or one that the outbox starts to send the pieces for which no goroutine waits.
package outbox

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/race"
)

// ErrFull is the error for a message that would exceed the limit of waiting bytes.
var ErrFull = errors.New("filo: too much waits to be sent on a parked connection")

// Owner is the connection to which an outbox belongs.
type Owner interface {
	// Limits returns how slowly the client may take waiting bytes. It always returns the same limits.
	Limits() pace.Limits
	// Now returns the time.
	Now() clock.Time
	// HasMore reports whether the owner has more to send when the Socket has room: see PumpLater. It is called without the lock.
	HasMore() bool
	// Drained is called, without the lock, when the queue was sent. It is called only if there is no Socket, by the goroutine that writes.
	Drained()
	// Disconnect is called, without the lock, when the client is too slow, or when a write has failed for a reason that reads might not
	// report. err is os.ErrDeadlineExceeded if the client is too slow. The outbox has already failed with err.
	Disconnect(err error)
}

// Outbox is the queue of one connection. It sends its bytes in order. mu guards all fields that aren't immutable. Any goroutine may call the
// methods at any time.
//
// Most connections have an outbox that is empty most of the time. Fields that only a waiting client or a waiting goroutine needs are
// allocated when it begins to wait.
type Outbox struct {
	owner  Owner    // immutable
	socket Socket   // nil: goroutines write to conn, and may block; immutable
	conn   net.Conn // immutable

	mu       race.Mutex[race.OfLeaf]
	waiting  int32      // goroutines in awaitLocked
	limit    int32      // the maximum number of bytes of waiting messages
	progress *sync.Cond // uses mu; signals changes for which goroutines wait; nil before the first wait
	queue    queue
	stall    *stall    // nil: the client isn't watched
	deadline *deadline // nil: there is no deadline
	err      error     // the reason why nothing can be sent any more
	frames   bool      // each Write is a frame: nothing may follow a part of a frame; immutable
	ending   bool      // Finish was called: nothing more is accepted
	crowded  bool      // a goroutine is in AwaitBelow
	turn     turn
	seal     seal
}

// seal describes the bytes that TLS passes to Put.
type seal struct {
	open    bool // a goroutine of the program sends them, and not TLS itself
	message bool // they are a message
}

// Open makes the outbox ready for use. It writes to socket or, if socket is nil, to conn. frames says that if only a part of a Write's bytes
// was sent, nothing more may be sent.
func (o *Outbox) Open(owner Owner, socket Socket, conn net.Conn, frames bool) {
	o.owner, o.socket, o.conn, o.frames, o.limit = owner, socket, conn, frames, DefaultLimit
	if socket == nil {
		o.mu.SetRank(race.Unranked{}) // conn's deadlines are set with mu held
	}
}

// OnStream says that the socket is an HTTP/2 stream. Then the locks of the HTTP/2 connection and of that connection's outbox are acquired
// while the lock of this outbox is held.
func (o *Outbox) OnStream() { o.mu.SetRank(race.OfStream{}) }

// Owner returns the connection to which the outbox belongs.
func (o *Outbox) Owner() Owner { return o.owner }

// Queue sends a message without blocking. If the client doesn't take all of b at once, the outbox keeps a reference to b, so b must never be
// modified. Queue returns ErrFull, and sends no part of b, if more bytes would wait than the limit allows. A single message may always wait.
func (o *Outbox) Queue(b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.admitLocked(len(b)); err != nil {
		return err
	}
	o.putLocked(piece{b: b, message: true}, false)
	return o.err
}

// Write sends b, and waits until all of b was sent or the deadline has passed.
func (o *Outbox) Write(b []byte) (int, error) {
	if o.socket == nil {
		return o.writeInTurn(b)
	}
	return o.writeNow(b)
}

// BeginSeal says that the bytes that TLS passes to Put until EndSeal belong to a Write or, if message is set, to a message of this size.
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

// EndSeal undoes BeginSeal.
func (o *Outbox) EndSeal() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seal.open = false
}

// Put sends b, which TLS passes to it, without blocking. The outbox copies the part that must wait. Records that TLS sends by itself,
// because the client requests them, are limited, too.
func (o *Outbox) Put(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.seal.open && o.queue.messages-maxOwnRecords > int(o.limit) {
		o.failLocked(ErrFull)
	}
	if o.err != nil {
		return 0, o.err
	}
	o.putLocked(piece{b: b, message: !o.seal.open || o.seal.message}, true)
	return len(b), o.err
}

// Lend is like Put, but it may keep b itself instead of a copy, and reports whether it does. It keeps b if more than half of b's capacity is
// unsent bytes. Then it calls release with b, with the lock held, when all of b was sent. If the connection fails before that, it never
// calls release. There is no limit: the caller checks Size before it lends more.
func (o *Outbox) Lend(b []byte, release func(b []byte)) (kept bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := piece{b: b, message: true}
	if o.err != nil || o.sendPieceLocked(&p) {
		return false
	}
	if kept = len(p.b) > cap(b)/2; kept {
		p.whole, p.release = b, release
	} else {
		p.b = bytes.Clone(p.b)
	}
	o.queueLocked(p)
	return kept
}

// putLocked sends as much of a piece as possible at once, and queues the rest. If copied is set, it queues a copy, since the outbox must not
// keep p.b. If a goroutine waits for the piece, p.b isn't copied, and belongs to the outbox until the wait has ended.
func (o *Outbox) putLocked(p piece, copied bool) {
	o.mu.AssertHeld()
	if o.sendPieceLocked(&p) {
		return
	}
	if copied {
		p.b = bytes.Clone(p.b)
	}
	o.queueLocked(p)
}

// sendPieceLocked sends as much of a piece as possible at once. It returns false if the caller must queue the rest.
func (o *Outbox) sendPieceLocked(p *piece) (done bool) {
	o.mu.AssertHeld()
	if o.socket == nil {
		return false
	}
	p.b = o.sendNowLocked(p.b)
	switch {
	case o.err != nil:
		return true
	case len(p.b) == 0 && o.queue.empty():
		if p.wait != nil {
			p.wait.done = true
		}
		return true
	}
	return false
}

// queueLocked queues a piece.
func (o *Outbox) queueLocked(p piece) {
	o.mu.AssertHeld()
	o.queue.add(p)
	if o.socket == nil && !o.turn.taken {
		o.turn.taken = true
		go o.send()
	}
	o.watchLocked()
}

// consumeLocked removes n sent bytes from the queue.
func (o *Outbox) consumeLocked(n int) {
	o.mu.AssertHeld()
	o.stall.took(n)
	done := o.queue.consume(n)
	if o.queue.empty() {
		o.endWatchLocked()
	}
	if done || o.crowded {
		o.wakeLocked()
	}
}

// unusableLocked returns the reason why the outbox accepts no more bytes, or nil.
func (o *Outbox) unusableLocked() error {
	o.mu.AssertHeld()
	if o.err == nil && o.ending {
		return net.ErrClosed
	}
	return o.err
}

// admitLocked returns the reason why the outbox doesn't accept a message of size bytes, or nil if it does.
func (o *Outbox) admitLocked(size int) error {
	o.mu.AssertHeld()
	if err := o.unusableLocked(); err != nil {
		return err
	}
	if !admits(o.queue.messages, size, int(o.limit)) {
		return ErrFull
	}
	return nil
}

// brokenLocked records that only the first n bytes of a Write were sent before its deadline. If they are a part of a frame, the outbox
// fails.
func (o *Outbox) brokenLocked(n int) {
	o.mu.AssertHeld()
	if n > 0 && o.frames {
		o.failLocked(os.ErrDeadlineExceeded)
	}
}

// Finish queues the bytes of last, and accepts no more bytes. It reports whether everything was sent. If not, the outbox wakes the owner
// as soon as that is the case.
func (o *Outbox) Finish(last []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && !o.ending && len(last) > 0 {
		o.putLocked(piece{b: last}, false)
	}
	o.ending = true
	o.wakeLocked() // a Write that waits for its turn must fail
	return o.emptyLocked()
}

// Empty reports whether no bytes wait to be sent, or nothing can be sent any more.
func (o *Outbox) Empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.emptyLocked()
}

// AllSent reports whether everything was sent.
func (o *Outbox) AllSent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err == nil && o.emptyLocked()
}

// AwaitEmpty waits until Empty returns true. If the client is too slow, the outbox fails, which ends the wait.
func (o *Outbox) AwaitEmpty() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.emptyLocked() {
		o.waitLocked()
	}
}

// AwaitBelow waits until fewer than size bytes wait to be sent, or nothing can be sent any more. Only one goroutine at a time may call
// AwaitBelow.
func (o *Outbox) AwaitBelow(size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && o.queue.bytes >= size {
		o.crowded = true
		o.waitLocked()
	}
	o.crowded = false
}

func (o *Outbox) emptyLocked() bool {
	o.mu.AssertHeld()
	return o.err != nil || o.queue.empty() && !o.turn.taken
}

// SetLimit sets how many bytes of messages may wait.
func (o *Outbox) SetLimit(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit = int32(max(min(n, math.MaxInt32), math.MinInt32))
}

// Size returns how many bytes wait to be sent.
func (o *Outbox) Size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queue.bytes
}

// Err returns the reason why nothing can be sent any more, nil if sending is possible.
func (o *Outbox) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Fail makes the outbox fail with err: nothing is sent any more. It must be called before the socket is closed.
func (o *Outbox) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failLocked(err)
}

// breakLocked records that a write has failed. If the client has left, reads of the owner fail too, after the remaining input was read.
// After a failure for another reason, such as a lack of memory, reads might not fail. Then the owner would wait for the client, and the
// client for bytes that can't be sent. So breakLocked disconnects the client.
func (o *Outbox) breakLocked(err error) {
	o.mu.AssertHeld()
	o.failLocked(err)
	if !isReported(err) {
		go o.owner.Disconnect(err)
	}
}

// reportedErrors are the write errors that the owner learns without Disconnect: its reads report them as well, or its own calls have caused them.
var reportedErrors = [...]error{
	syscall.EPIPE, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
	io.ErrClosedPipe, net.ErrClosed, os.ErrDeadlineExceeded,
}

func isReported(err error) bool {
	for _, reported := range reportedErrors {
		if errors.Is(err, reported) {
			return true
		}
	}
	return false
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
	o.endWatchLocked()
	o.wakeLocked()
}
