//go:build linux

package filo

import (
	"errors"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/proxyproto"
	"github.com/filohttp/filo/internal/requestctx"
	"github.com/filohttp/filo/internal/sock"
)

// loopConn is a connection in a loop, with HTTP/1.1 or HTTP/2. Unless said otherwise a field belongs to the socket's owner.
//
// As a net.Conn it differs from its socket only in Write and RawWrite, which first send the unsent bytes.
type loopConn struct {
	conn
	loop.Socket
	woken       woken
	parkedOnce  bool // the request whose handler parked the connection has ended
	toldIdle    bool // ConnState was told that the connection is idle
	handshaking bool // its TLS handshake is in the server's queue of handshakes
	ousted      bool // its handshake had to make room for another handshake

	deadline  clock.Time // the end of the current wait, 0 for none
	lastUntil clock.Time // when the wait for a last request ends, in a shutdown; 0: not set yet
	// pending holds the received part of an incomplete request.
	pending *pendingInput
	// unsent is the part of complete answers that the client hasn't taken yet, nil if it has taken everything.
	unsent *unsent
	// watcher is the context to be cancelled when the client leaves. The goroutine that takes the loop's event reads the field.
	watcher atomic.Pointer[requestctx.Context]
	// told is the header of the PROXY protocol; nil as long as it hasn't arrived, or if there is none.
	told atomic.Pointer[proxyproto.Header]
}

// woken says what ended the wait before a connection's turn.
type woken uint8

const (
	wokenInTime  woken = iota // the event that it waited for, as far as is known
	wokenExpired              // its deadline
	wokenShed                 // other connections need its place
)

// pendingInput is an unfinished request while no worker lends it buffers.
type pendingInput struct {
	in     http1.Input
	parser http1.Parser
	rest   body
}

var (
	_ loop.Conn      = (*loopConn)(nil)
	_ linger.Socket  = (*loopConn)(nil)
	_ sock.RawWriter = (*loopConn)(nil)
)

var _ overdueSocket = (*loopConn)(nil)

// BeforeWait implements loop.Conn: it gives the loop to another worker.
func (lc *loopConn) BeforeWait() error {
	if lc.handshaking {
		lc.server.handshakes.Wait(lc)
	}
	if p := lc.parked; p != nil {
		if p.serving != nil {
			return p.serving.leave(p.class)
		}
		return nil
	}
	return lc.leaveLoop()
}

// PeerLeft implements loop.Conn: it ends the watched context, if there is one.
func (lc *loopConn) PeerLeft(broken bool) {
	switch r := lc.watcher.Load(); {
	case r == nil:
	case broken:
		r.Cancel(ErrClientGone)
	default:
		r.ClientEnded(clock.Nanotime().Sub(r.WatchedSince.Load()) <= requestctx.HalfCloseTime)
	}
}

// Write first sends the unsent bytes, and then all of p. It waits for the client if the owner is in a wait to write (stateWrite) or in a
// handshake, or if the lingerer is the caller. Otherwise crypto/tls is the caller, and Write stores the bytes that the client doesn't take at
// once: answers that will wait in the loop, the answer of a time-out, or a reply to a key update that a read has received.
func (lc *loopConn) Write(p []byte) (int, error) {
	switch {
	case lc.Taken() != nil:
	case lc.IsShared():
		return lc.sharedOut().Put(p) // the caller is crypto/tls
	case lc.NoWaitWrite || lc.tlsState != nil && lc.state() != stateWrite && lc.state() != stateClosed:
		if u := lc.unsent; u != nil && len(u.bytes) > maxUntaken {
			return 0, errUntaken
		}
		return len(p), lc.queue(p, nil)
	case lc.unsent != nil:
		u := lc.unsent
		n, err := lc.Socket.Write(u.bytes)
		if u.bytes = u.bytes[n:]; err != nil {
			return 0, err
		}
		lc.unsent = nil
	}
	return lc.Socket.Write(p)
}

// writeVector is like Write, for two buffers. It may return once the whole first buffer is sent.
func (lc *loopConn) writeVector(first, second []byte) (int64, error) {
	if lc.unsent == nil {
		return lc.Socket.WriteVector(first, second)
	}
	n, err := lc.Write(first)
	return int64(n), err
}

// RawWrite first sends the unsent bytes, and then a part of a file: see sock.RawWriter.
func (lc *loopConn) RawWrite(write sock.RawWrite) error {
	if err := lc.leaveLoop(); err != nil { // the file may have to be read from a disk
		return err
	}
	if _, err := lc.Write(nil); err != nil {
		return err
	}
	return lc.Socket.RawWrite(write)
}

// maxWanted is the largest number of body bytes for which a handler waits at a time. Until they have arrived, the system buffers them.
const maxWanted = 1 << 20

// want implements driver. It does nothing with TLS, whose records arrive one by one.
func (lc *loopConn) want(size int) {
	if lc.tlsState == nil {
		lc.Want(min(size, maxWanted))
	}
}

// keepsWorker implements driver.
func (lc *loopConn) keepsWorker() bool { return false }

// canWatch implements driver: the loop notices when any client leaves.
func (lc *loopConn) canWatch() bool { return true }

// gathers implements driver.
func (lc *loopConn) gathers() bool { return lc.WantsMuch() }

// sendApart implements driver. It sends as much as the client takes at once, and stores the rest.
func (lc *loopConn) sendApart(p []byte) error {
	if lc.tlsState == nil {
		return lc.queue(p, nil)
	}
	_, err := lc.netConn.Write(p)
	return err
}

// leaveLoop implements driver. There is nothing to give away if the connection isn't served any more.
func (lc *loopConn) leaveLoop() error {
	if lc.scratch == nil {
		return nil
	}
	return lc.scratch.leave(lc.scratch.timer.Class())
}

func (lc *loopConn) remote() netip.AddrPort {
	if h := lc.told.Load(); h != nil {
		if source := h.Source(); source.IsValid() {
			return source
		}
	}
	return lc.Peer.AddrPort()
}

const (
	// maxUnsent is how much of an answer may wait in the connection for a client that doesn't take it. If more is unsent, a worker waits for
	// the client.
	maxUnsent = 256 << 10
	// maxUntaken is how much of crypto/tls's output may wait in the connection: answers, and replies to the key updates that a client
	// sends with a body.
	maxUntaken = 2 * maxUnsent
)

var errUntaken = errors.New("filo: the client doesn't read the replies to its key updates")

// unsent is the part of complete answers that a client hasn't taken yet. At least one of bytes, held and file isn't empty.
type unsent struct {
	bytes []byte
	file  *unsentFile // a file that follows bytes; nil if there is none
	// held is a large body that follows bytes; nil if there is none. No worker waits while the client takes it. It is borrowed from the
	// response, which doesn't reuse so large a buffer.
	held    []byte
	counted int64 // how many of the held bytes count against Server.MaxBufferedAnswers
}

// holdBody stores the answer's body in the connection by reference. With copies, clients that request a few answers and don't read them
// could fill the memory. Bodies that a handler has rendered for one client, as opposed to those that many answers share, need room in the
// budget of answers. Without room the client gets a 503 instead.
func (lc *loopConn) holdBody() {
	if len(lc.outBody) <= maxKeptBody {
		return // the body is copied, since its buffer will be reused
	}
	body, counted := lc.outBody, int64(0)
	if lc.scratch.ctx.Response.source == bodyBuffer {
		counted = int64(len(body))
	}
	lc.outBody = nil
	if counted > 0 && !lc.server.answers.Take(counted) {
		lc.server.refusedRequest(refusedUnsentAnswers, lc.remote())
		lc.out = lc.server.appendRefusal(lc.out[:lc.before], errAnswersFull, lc.scratch.ctx.Response.refusalFields(errAnswersFull), false)
		lc.setReading(readingNothing)
		return
	}
	u := lc.makeUnsent()
	u.held, u.counted = body, counted
}

func (lc *loopConn) makeUnsent() *unsent {
	if lc.unsent == nil {
		lc.unsent = new(unsent)
	}
	return lc.unsent
}

// dropUnsent drops the bytes that the client hasn't taken.
func (lc *loopConn) dropUnsent() {
	if u := lc.unsent; u != nil {
		lc.server.answers.Add(-u.counted)
		lc.unsent = nil
		if u.file != nil {
			lc.server.closeStream(u.file.stream)
		}
	}
}

// keepFile implements fileDriver.
func (lc *loopConn) keepFile(f unsentFile) { lc.makeUnsent().file = &f }

const (
	// maxFirst is how much of a file a leader sends before it gives its loop away. If the file has to be read from a disk, the monitor counts
	// the time against the handler's class. So a leader only does this for a class that filo measures.
	maxFirst = 1 << 20
	// firstTime is about how long it takes to send maxFirst bytes of a file that is in memory.
	firstTime = 60 * time.Microsecond
)

// hasTimeFor implements fileDriver.
func (lc *loopConn) hasTimeFor(size int64) bool {
	took := firstTime * time.Duration(min(size, maxFirst)) / maxFirst
	return lc.unsent == nil && lc.scratch != nil && lc.scratch.timer.Class().Learns() && lc.scratch.worker.MaySpend(took)
}

// sendFirst implements fileDriver.
func (lc *loopConn) sendFirst(f *unsentFile) error {
	err := lc.queue(lc.out, nil)
	if lc.out, lc.before = lc.out[:0], 0; err != nil {
		lc.writeFailed(err)
		return err
	}
	if lc.unsent != nil {
		return nil
	}
	lc.scratch.worker.BeginClass(lc.scratch.timer.Class()) // the handler has returned, but its file may be on a slow disk
	if err = lc.sendSome(f, maxFirst); err == loop.ErrNotYet {
		err = nil
	}
	return err
}

// sendPiece sends as much of a file as the socket takes at once. If the socket is full the error is loop.ErrNotYet. A leader gives its loop
// away, since the file may have to be read from a disk. If no place is free the leader stays, and sends no more than maxUnsent bytes.
func (lc *loopConn) sendPiece(f *unsentFile) error {
	if lc.leaveLoop() != nil {
		return lc.sendSome(f, maxUnsent)
	}
	return lc.sendSome(f, maxSendfile)
}

// sendSome sends as much of a file as the socket takes at once, but no more than a maximum (most). If the socket is full the error is
// loop.ErrNotYet.
func (lc *loopConn) sendSome(f *unsentFile, most int64) error {
	n, err := lc.TrySendFile(f.sender, f.offset, int(min(f.left, most)))
	f.offset, f.left = f.offset+int64(n), f.left-int64(n)
	lc.writePace.Add(lc.server.config.writing, n, 0)
	if n == 0 && err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// takeHeld moves the next piece of the held body to u.bytes, which is empty. With TLS it sends the piece, and the part that the client
// doesn't take is stored in u.bytes.
func (lc *loopConn) takeHeld(u *unsent) error {
	n := min(len(u.held), maxUnsent)
	piece := u.held[:n:n]
	u.held = u.held[n:]
	if lc.tlsState == nil {
		u.bytes = piece
		return nil
	}
	_, err := lc.netConn.Write(piece)
	lc.writePace.Add(lc.server.config.writing, max(0, n-len(u.bytes)), 0)
	return err
}

// queue sends as much of first and second as the socket takes at once, and stores the rest in lc.unsent.
func (lc *loopConn) queue(first, second []byte) error {
	for u := lc.unsent; (u == nil || len(u.bytes) == 0) && len(first)+len(second) > 0; {
		n, err := lc.TryWrite(first, second)
		if err == loop.ErrNotYet {
			break
		}
		if err != nil {
			return err
		}
		k := min(n, len(first))
		first, second = first[k:], second[n-k:]
	}
	if len(first)+len(second) > 0 {
		u := lc.makeUnsent()
		u.bytes = append(append(u.bytes, first...), second...)
	}
	return nil
}

// errOthersFirst says that the client can take more of a file, but other connections have their turn first.
var errOthersFirst = errors.New("filo: other connections come first")

// sendUnsent sends more of the unsent bytes. If some are still left, the error is loop.ErrNotYet or errOthersFirst. If the connection
// fails, sendUnsent breaks it off and returns no error.
func (lc *loopConn) sendUnsent() error {
	if lc.unsent == nil {
		return nil
	}
	switch err := lc.sendNow(); {
	case err == nil || err == errOthersFirst:
		return err
	case err == loop.ErrNotYet && !(lc.woken != wokenInTime && lc.writePace.Late(lc.server.config.writing)):
		lc.woken = wokenInTime
		lc.WatchWritable()
		return err
	case err == loop.ErrNotYet:
		lc.server.counts.timeouts.write.Add(1)
	}
	lc.breakOff()
	lc.dropUnsent()
	return nil
}

// sendNow sends as much of the unsent bytes as the socket takes at once. If some are left, the error is loop.ErrNotYet or errOthersFirst.
func (lc *loopConn) sendNow() error {
	u := lc.unsent
	for {
		for len(u.bytes) > 0 {
			n, err := lc.TryWrite(u.bytes, nil)
			if err != nil {
				return err
			}
			lc.writePace.Add(lc.server.config.writing, n, 0)
			u.bytes = u.bytes[n:]
		}
		u.bytes = nil
		switch f := u.file; {
		case f != nil && f.left > 0:
			if err := lc.sendPiece(f); err != nil {
				return err
			}
			if f.left > 0 && lc.scratch.worker.Leads() {
				return errOthersFirst
			}
		case len(u.held) > 0:
			if err := lc.takeHeld(u); err != nil {
				return err
			}
		default:
			lc.dropUnsent()
			return nil
		}
	}
}

// finishUnsent sends the unsent bytes, and waits for the client as in a write of an answer. There is no held body, since none is held while
// a handler runs.
func (lc *loopConn) finishUnsent() error {
	u := lc.unsent
	if u == nil {
		return nil
	}
	for len(u.bytes) > 0 {
		deadline := lc.beforeWrite()
		n, err := lc.Socket.Write(u.bytes)
		u.bytes = u.bytes[n:]
		if err = lc.afterWrite(n, err, deadline); err != nil {
			lc.writeFailed(err)
			return err
		}
	}
	lc.unsent = nil
	return nil
}
