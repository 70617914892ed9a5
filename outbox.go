package filo

import (
	"bytes"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/pace"
)

// ErrQueueFull is returned by ParkedConn.Queue when a client is too slow and its queue is full.
var ErrQueueFull = errors.New("filo: too much waits to be sent on a parked connection")

const (
	// defaultQueueLimit is how much may wait in a parked connection's queue unless SetQueueLimit says otherwise.
	defaultQueueLimit = 256 << 10
	// maxPump is how much of a queue is sent at a time: a leader does it for one connection of many.
	maxPump = 256 << 10
	// maxPaced is that in the blocking driver, where it must show that a slow client has taken something.
	maxPaced = 16 << 10
	// maxOwnRecords is how much more may wait of what TLS has to say by itself.
	maxOwnRecords = 64 << 10
)

// PreparedMessage is a message for many parked connections. It is rendered once, and exists once in memory no matter in how
// many queues it waits: see ParkedConn.Queue. It is immutable.
//
// Experimental: see Ctx.Park.
type PreparedMessage struct {
	frame []byte // as a chunk of a body
	start int    // of what the frame is around
}

// NewPreparedMessage makes a message from a copy of b.
func NewPreparedMessage(b []byte) *PreparedMessage {
	frame := appendChunk(make([]byte, 0, len(b)+chunkOverhead), b)
	return &PreparedMessage{frame: frame, start: len(frame) - len("\r\n") - len(b)}
}

// Len returns the size of the message's content in bytes.
func (m *PreparedMessage) Len() int { return len(m.frame) - len("\r\n") - m.start }

// bytes returns the message, as a chunk if it is to be one.
func (m *PreparedMessage) bytes(chunked bool) []byte {
	if chunked && m.Len() > 0 {
		return m.frame
	}
	return m.frame[m.start : len(m.frame)-len("\r\n")]
}

// chunkOverhead is more than a chunk is larger than its content.
const chunkOverhead = 24

// appendChunk appends b as a chunk. An empty one would be the last.
func appendChunk(dst, b []byte) []byte {
	dst = strconv.AppendUint(dst, uint64(len(b)), 16)
	dst = append(dst, "\r\n"...)
	dst = append(dst, b...)
	return append(dst, "\r\n"...)
}

// outbox is what is to be sent on a parked connection: by several goroutines that may wait for it, and by Queue, which never
// does. In the loop driver whoever has the lock writes what the socket takes, and the loop goes on with the rest when that
// takes more; in the blocking driver one goroutine at a time writes, and for what is queued it is started for that.
type outbox struct {
	conn    *conn // immutable
	now     nower // nil in the blocking driver; immutable
	chunked bool  // what is sent is chunks; immutable

	mu       sync.Mutex
	progress sync.Cond  // of mu: a piece has left, or there is an error
	pieces   []outPiece // what waits, in order; guarded by mu
	waiting  int        // their bytes; guarded by mu
	queued   int        // those of messages; guarded by mu
	limit    int        // of queued; guarded by mu
	err      error      // nothing can be sent any more; guarded by mu
	ending   bool       // nothing more is taken; guarded by mu
	sending  bool       // a goroutine of the blocking driver writes; guarded by mu
	direct   bool       // it is one that Write has; guarded by mu
	sealing  bool       // what TLS sends is what a goroutine of the program sends; guarded by mu
	message  bool       // which is a message, or is to be counted as one; guarded by mu

	deadline time.Time   // of Write; guarded by mu
	waiters  int         // in Write; guarded by mu
	timer    *time.Timer // wakes them at the deadline; guarded by mu

	stall  *time.Timer // looks at the pace of a client that has something to take; guarded by mu
	pace   pace.Pace   // since that began; guarded by mu
	looked clock.Time  // when the last look was, or that began; guarded by mu
	moved  int64       // by then; guarded by mu
}

// nower writes what a socket takes without waiting for more.
type nower interface {
	// writeNow writes what the socket takes of the two with one call, 0 for nothing: then the outbox is pumped when it takes
	// more.
	writeNow(first, second []byte) (n int, err error)
	// pumpLater has the outbox pumped once the socket takes more, or now if it does.
	pumpLater()
	// leaveTurn gives the loop away in whose turn the connection's function runs, if it does: the goroutine that is about to wait
	// may be the one that it runs on. It mustn't be called with the outbox's lock held.
	leaveTurn()
	// wakeOwner has the connection's owner look at the outbox. It mustn't be called with the outbox's lock held.
	wakeOwner()
}

// outPiece is a part of what is sent.
type outPiece struct {
	b      []byte
	wait   *outWait // of the goroutine that waits for it; nil if none does
	queued bool     // it counts against the limit
	// turn says, in the blocking driver, that wait is done when it is that goroutine's turn to send. The piece itself is empty.
	turn bool
}

type outWait struct{ done bool }

func (o *outbox) open(c *conn, chunked bool) {
	o.conn, o.chunked, o.limit = c, chunked, defaultQueueLimit
	o.now, _ = c.looped.(nower)
	o.progress.L = &o.mu
}

// unusableLocked says why nothing can be sent any more; nil if it can.
func (o *outbox) unusableLocked() error {
	if o.err == nil && o.ending {
		return net.ErrClosed
	}
	return o.err
}

// admitLocked reports whether size more bytes may wait, of a message. One always may.
func (o *outbox) admitLocked(size int) error {
	if err := o.unusableLocked(); err != nil {
		return err
	}
	if o.queued > 0 && o.queued+size > o.limit {
		return ErrQueueFull
	}
	return nil
}

// putLocked sends b as far as it goes at once, and makes the rest wait. What a goroutine waits for is the outbox's only until
// wait is done; what isn't a message is copied otherwise, since it isn't the outbox's at all.
func (o *outbox) putLocked(b []byte, wait *outWait, message, copied bool) {
	for sent := 0; o.now != nil && len(o.pieces) == 0; {
		if len(b) == 0 {
			if wait != nil {
				wait.done = true
			}
			return
		}
		n, err := o.now.writeNow(b, nil)
		if err != nil {
			o.failLocked(err)
			return
		}
		if b = b[n:]; n == 0 {
			break
		}
		if sent += n; sent >= maxPump && len(b) > 0 {
			o.now.pumpLater()
			break
		}
	}
	if copied {
		b = bytes.Clone(b)
	}
	o.pieces = append(o.pieces, outPiece{b: b, wait: wait, queued: message})
	if o.waiting += len(b); message {
		o.queued += len(b)
	}
	if o.now == nil && !o.sending {
		o.sending = true
		go o.send()
	}
	o.watchPaceLocked()
}

// pump goes on with what waits.
func (o *outbox) pump() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for sent := 0; len(o.pieces) > 0 && o.err == nil; {
		if len(o.pieces[0].b) == 0 {
			o.consumeLocked(0) // a mark behind what a goroutine waits for
			continue
		}
		var second []byte
		if len(o.pieces) > 1 {
			second = o.pieces[1].b
		}
		n, err := o.now.writeNow(o.pieces[0].b, second)
		if err != nil {
			o.failLocked(err)
			return
		}
		if o.consumeLocked(n); n == 0 {
			return
		}
		if sent += n; sent >= maxPump {
			o.now.pumpLater()
			return
		}
	}
}

// consumeLocked takes n bytes that were sent out of what waits, and the marks behind them.
func (o *outbox) consumeLocked(n int) {
	o.waiting -= n
	o.pace.Add(n, 0)
	done := false
	for len(o.pieces) > 0 && !o.pieces[0].turn {
		first := &o.pieces[0]
		k := min(n, len(first.b))
		if first.queued {
			o.queued -= k
		}
		if first.b = first.b[k:]; len(first.b) > 0 {
			break
		}
		n -= k
		if first.wait != nil {
			first.wait.done, done = true, true
		}
		*first = outPiece{}
		o.pieces = o.pieces[1:]
	}
	if len(o.pieces) == 0 {
		o.pieces = nil
		o.endPaceLocked()
	}
	if done {
		o.progress.Broadcast()
	}
}

// send is a goroutine of the blocking driver.
func (o *outbox) send() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.conn.netConn.SetWriteDeadline(time.Time{})
	for len(o.pieces) > 0 && !o.pieces[0].turn && o.err == nil {
		piece := o.pieces[0].b
		o.mu.Unlock()
		n, err := o.conn.netConn.Write(piece[:min(len(piece), maxPaced)])
		o.mu.Lock()
		if o.err != nil {
			break
		}
		if o.consumeLocked(n); err != nil {
			o.failLocked(err)
		}
	}
	o.passOnLocked()
}

// passOnLocked ends the turn of a goroutine of the blocking driver that was sending: what comes next is sent by whoever waits
// for his turn with it, or else by a goroutine that is started for that.
func (o *outbox) passOnLocked() {
	switch {
	case o.err != nil || len(o.pieces) == 0:
		o.sending = false
		o.endPaceLocked()
	case o.pieces[0].turn:
		o.pieces[0].wait.done = true
		o.pieces = o.pieces[1:]
	default:
		go o.send()
	}
	o.progress.Broadcast()
}

// takeTurnLocked waits in the blocking driver until all that was given before has left, and makes the caller the one that sends,
// until passOnLocked.
func (o *outbox) takeTurnLocked() error {
	wait := &outWait{done: !o.sending}
	if o.sending {
		o.pieces = append(o.pieces, outPiece{wait: wait, turn: true})
	}
	o.sending = true
	o.awaitLocked(func() bool { return wait.done || o.ending })
	err := o.unusableLocked()
	if err == nil && o.expiredLocked() {
		err = os.ErrDeadlineExceeded
	}
	switch {
	case err == nil:
		return nil
	case wait.done:
		o.passOnLocked()
	default:
		o.pieces = slices.DeleteFunc(o.pieces, func(p outPiece) bool { return p.wait == wait })
	}
	return err
}

// queue sends b, which is never changed, without waiting.
func (o *outbox) queue(b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.admitLocked(len(b)); err != nil {
		return err
	}
	o.putLocked(b, nil, true, false)
	return o.err
}

// beginSeal lets through TLS what Write or, with its size, Queue is to send.
func (o *outbox) beginSeal(message bool, size int) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if message {
		err = o.admitLocked(size)
	} else {
		err = o.unusableLocked()
	}
	o.sealing, o.message = err == nil, message
	return err
}

func (o *outbox) endSeal() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sealing = false
}

// put sends a copy of b, which comes from TLS, without waiting. What TLS has to say by itself, since the client asks for it, is
// bounded all the same.
func (o *outbox) put(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.sealing && o.queued-maxOwnRecords > o.limit {
		o.failLocked(ErrQueueFull)
	}
	if o.err != nil {
		return 0, o.err
	}
	o.putLocked(b, nil, !o.sealing || o.message, true)
	return len(b), o.err
}

// write sends b and waits until it has left.
func (o *outbox) write(b []byte) (int, error) {
	if o.now == nil {
		return o.writeBlocking(b)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch err := o.unusableLocked(); {
	case err != nil:
		return 0, err
	case o.expiredLocked():
		return 0, os.ErrDeadlineExceeded
	}
	wait := new(outWait)
	o.putLocked(b, wait, false, false)
	if o.awaitLocked(func() bool { return wait.done }) {
		return len(b), nil
	}
	if o.err != nil {
		return 0, o.err
	}
	n := len(b) - o.withdrawLocked(wait)
	o.brokenLocked(n)
	return n, os.ErrDeadlineExceeded
}

// brokenLocked takes note that n bytes of something have left and the rest won't: nothing can come behind a part of a chunk.
func (o *outbox) brokenLocked(n int) {
	if n > 0 && o.chunked {
		o.failLocked(os.ErrDeadlineExceeded)
	}
}

// awaitSent waits until all that was put has left. It can't be taken back: when the deadline has passed, all is over.
func (o *outbox) awaitSent() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	wait := &outWait{done: len(o.pieces) == 0}
	if !wait.done {
		o.pieces = append(o.pieces, outPiece{wait: wait})
	}
	if !o.awaitLocked(func() bool { return wait.done }) {
		o.failLocked(os.ErrDeadlineExceeded)
	}
	return o.err
}

// writeBlocking is write in the blocking driver.
func (o *outbox) writeBlocking(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.takeTurnLocked(); err != nil {
		return 0, err
	}
	o.direct = true
	o.conn.netConn.SetWriteDeadline(o.deadline)
	o.watchPaceLocked()
	n, err := 0, error(nil)
	for n < len(b) && err == nil {
		o.mu.Unlock()
		var moved int
		moved, err = o.conn.netConn.Write(b[n:min(len(b), n+maxPaced)])
		o.mu.Lock()
		n += moved
		o.pace.Add(moved, 0)
	}
	o.direct = false
	if err != nil {
		o.brokenLocked(n)
	}
	o.passOnLocked()
	return n, err
}

// awaitLocked waits until something is so. It returns false if it can't be any more, or the deadline has passed.
func (o *outbox) awaitLocked(so func() bool) bool {
	o.waiters++
	if o.now != nil && !so() {
		o.mu.Unlock()
		o.now.leaveTurn()
		o.mu.Lock()
	}
	for !so() && o.err == nil && !o.expiredLocked() {
		o.setTimerLocked()
		o.progress.Wait()
	}
	o.waiters--
	if o.waiters == 0 && o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	return so()
}

// withdrawLocked takes out what a goroutine doesn't wait for any more, and returns how much of it hasn't left.
func (o *outbox) withdrawLocked(wait *outWait) (rest int) {
	for i := range o.pieces {
		if o.pieces[i].wait != wait {
			continue
		}
		rest = len(o.pieces[i].b)
		o.waiting -= rest
		o.pieces = slices.Delete(o.pieces, i, i+1)
		if len(o.pieces) == 0 {
			o.endPaceLocked()
			o.tellOwnerLocked()
		}
		break
	}
	return rest
}

// tellOwnerLocked tells an owner who waits for that, to close the connection, that nothing is left to be sent.
func (o *outbox) tellOwnerLocked() {
	if o.ending && o.now != nil {
		go o.now.wakeOwner()
	}
}

func (o *outbox) expired() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.expiredLocked()
}

func (o *outbox) expiredLocked() bool {
	return !o.deadline.IsZero() && !time.Now().Before(o.deadline)
}

// setTimerLocked makes the goroutines that wait look at the deadline when it has come.
func (o *outbox) setTimerLocked() {
	if o.timer != nil || o.deadline.IsZero() {
		return
	}
	o.timer = time.AfterFunc(time.Until(o.deadline), func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.timer = nil
		o.progress.Broadcast()
	})
}

func (o *outbox) setDeadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deadline = t
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	if o.waiters > 0 {
		o.progress.Broadcast() // they set the timer
	}
	if o.direct {
		return o.conn.netConn.SetWriteDeadline(t)
	}
	return nil
}

// finish takes nothing more but last, and reports whether all has left. If not, the connection is woken when it has.
func (o *outbox) finish(last []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && !o.ending && len(last) > 0 {
		o.putLocked(last, nil, false, false)
	}
	o.ending = true
	o.progress.Broadcast() // a Write that waits for its turn in the blocking driver hasn't one any more
	return o.emptyLocked()
}

// empty reports whether nothing waits to be sent, or nothing can be.
func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.emptyLocked()
}

// awaitEmpty waits for that, as long as the client may take its time.
func (o *outbox) awaitEmpty() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.emptyLocked() {
		o.progress.Wait()
	}
}

func (o *outbox) emptyLocked() bool { return o.err != nil || len(o.pieces) == 0 && !o.sending }

func (o *outbox) setLimit(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit = n
}

// size returns how many bytes wait.
func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting
}

// fail lets nothing be sent any more: the caller is going to close the socket.
func (o *outbox) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failLocked(err)
}

func (o *outbox) failLocked(err error) {
	if o.err != nil {
		return
	}
	o.err = err
	if len(o.pieces) > 0 {
		o.tellOwnerLocked()
	}
	o.waiting, o.queued, o.pieces = 0, 0, nil
	o.endPaceLocked()
	o.progress.Broadcast()
}

// watchPaceLocked has a client that doesn't take what waits watched. What a socket's buffers take at once may have earned it much
// time, so it must take something in each of the time-outs as well.
func (o *outbox) watchPaceLocked() {
	grace := o.conn.server.config.writing.Grace
	if o.stall != nil || grace < 0 || o.err != nil {
		return
	}
	o.pace, o.moved, o.looked = pace.Pace{}, 0, o.conn.server.clock.exact()
	o.stall = time.AfterFunc(grace, o.checkPace)
}

func (o *outbox) endPaceLocked() {
	if o.stall != nil {
		o.stall.Stop()
		o.stall = nil
	}
}

// checkPace closes the connection of a client that is too slow.
func (o *outbox) checkPace() {
	if o.tooSlow() {
		o.conn.parked.Close()
	}
}

func (o *outbox) tooSlow() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stall == nil || o.err != nil {
		return false
	}
	limits, now := o.conn.server.config.writing, o.conn.server.clock.exact()
	if now.Sub(o.looked) < limits.Grace {
		return false // the timer of a wait that is over
	}
	o.pace.Add(0, now.Sub(o.looked))
	if moved := o.pace.Moved() - o.moved; moved == 0 || o.pace.Late(limits, moved) {
		o.failLocked(os.ErrDeadlineExceeded)
		return true
	}
	o.moved, o.looked = o.pace.Moved(), now
	o.stall.Reset(limits.Grace)
	return false
}
