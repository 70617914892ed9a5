//go:build !386

package filo

import (
	"net/netip"
	"sync/atomic"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/sock"
)

// loopConn is an HTTP/1 connection in a loop. Its fields belong to the socket's owner, unless it says otherwise.
//
// As a net.Conn it differs from its socket by Write and RawWrite, which send what is unsent before.
type loopConn struct {
	conn
	loop.Socket
	ended      bool // the connection isn't served any more: the owner is about to close it, or leaves that to the lingerer
	expired    bool // the deadline of the wait before this turn has passed
	parkedOnce bool // the request that parked it is over
	toldIdle   bool // ConnState knows that the connection is idle

	// deadline is when the current wait ends at the latest, 0 for never, and since is when it began, both on the coarse clock's scale.
	// since is 0 once something has come.
	deadline, since clock.Time
	lastUntil       clock.Time // until when it may wait for a last request, once the server shuts down; 0: not decided
	// pending is what has come of a request that isn't complete.
	pending *pendingInput
	// unsent is what the client hasn't taken yet of complete answers, nil if it has taken all.
	unsent *unsent
	// watcher is the context to be cancelled when the client leaves. Whoever takes the event reads it.
	watcher atomic.Pointer[requestContext]
}

// pendingInput is an unfinished request, which no worker has a buffer for.
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

// BeforeWait implements loop.Conn: another worker gets the loop.
func (lc *loopConn) BeforeWait() error {
	if p := lc.parked; p != nil {
		if p.serving != nil {
			return p.serving.leave(p.class)
		}
		return nil
	}
	if lc.worker == nil {
		return nil
	}
	return lc.leave(lc.worker.timer.Class())
}

// PeerLeft implements loop.Conn: the context that is watched, if there is one, ends.
func (lc *loopConn) PeerLeft(broken bool) {
	switch r := lc.watcher.Load(); {
	case r == nil:
	case broken:
		r.cancel(ErrClientGone)
	default:
		r.clientEnded(clock.Nanotime().Sub(r.watchedSince) <= halfCloseTime)
	}
}

// Write sends all of p, and before it what is unsent. It waits for the client where the owner awaits that (stateWrite), in a handshake,
// and for the lingerer. Any other caller is crypto/tls, with answers that the owner waits with in the loop, with an answer in the
// handler's place, or with a reply to a key update that a read has found: then what the client doesn't take at once is kept.
func (lc *loopConn) Write(p []byte) (int, error) {
	switch {
	case lc.Taken() != nil:
	case lc.IsShared():
		return lc.parked.out.Put(p) // by TLS
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

// writeVector is Write for two buffers. It may return early with all of first.
func (lc *loopConn) writeVector(first, second []byte) (int64, error) {
	if lc.unsent == nil {
		return lc.Socket.WriteVector(first, second)
	}
	n, err := lc.Write(first)
	return int64(n), err
}

// RawWrite sends a part of a file, and before it what is unsent: see sock.RawWriter.
func (lc *loopConn) RawWrite(write sock.RawWrite) error {
	if lc.worker != nil {
		// The file may have to be read from a disk.
		if err := lc.leave(lc.worker.timer.Class()); err != nil {
			return err
		}
	}
	if _, err := lc.Write(nil); err != nil {
		return err
	}
	return lc.Socket.RawWrite(write)
}

// sendApart sends what the client takes at once, and keeps the rest.
func (lc *loopConn) sendApart(p []byte) error {
	if lc.tlsState == nil {
		return lc.queue(p, nil)
	}
	_, err := lc.netConn.Write(p)
	return err
}

// leave gives the loop that the connection's worker leads, if it leads one, to another worker.
func (lc *loopConn) leave(class *class.Class) error {
	if lc.worker == nil {
		return nil // it isn't served any more
	}
	return lc.worker.leave(class)
}

func (lc *loopConn) leaveLoop() error { return lc.leave(lc.worker.timer.Class()) }

func (lc *loopConn) remote() netip.AddrPort { return lc.Peer.AddrPort() }
