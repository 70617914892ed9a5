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
	"github.com/filohttp/filo/internal/proxyproto"
	"github.com/filohttp/filo/internal/sock"
)

// loopConn is an HTTP/1 connection in a loop. Unless said otherwise a field belongs to the socket's owner.
//
// As a net.Conn it differs from its socket by Write and RawWrite, which first send what is unsent.
type loopConn struct {
	conn
	loop.Socket
	ended      bool // the connection isn't served any more: the owner is about to close it, or to leave it to the lingerer
	expired    bool // the deadline of the wait before this turn has passed
	shed       bool // it was told to close for others, while it waited before this turn
	parkedOnce bool // the request whose handler parked the connection has ended
	toldIdle   bool // ConnState was told that the connection is idle

	// deadline is the end of the current wait, 0 for none, and since its beginning, both on the coarse clock's scale. since is 0 once
	// bytes have come.
	deadline, since clock.Time
	lastUntil       clock.Time // end of the wait for a last request, once the server shuts down; 0: not set yet
	// pending holds what has come of an incomplete request.
	pending *pendingInput
	// unsent is the part of complete answers that the client hasn't taken yet, nil if it has taken everything.
	unsent *unsent
	// watcher is the context to be cancelled when the client leaves. The goroutine that takes the event reads it.
	watcher atomic.Pointer[requestContext]
	// told is the header of the PROXY protocol; nil as long as it hasn't arrived, or if there is none.
	told atomic.Pointer[proxyproto.Header]
}

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

// BeforeWait implements loop.Conn: it gives the loop to another worker.
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

// PeerLeft implements loop.Conn: it ends the watched context, if there is one.
func (lc *loopConn) PeerLeft(broken bool) {
	switch r := lc.watcher.Load(); {
	case r == nil:
	case broken:
		r.cancel(ErrClientGone)
	default:
		r.clientEnded(clock.Nanotime().Sub(r.watchedSince) <= halfCloseTime)
	}
}

// Write first sends what is unsent, and then all of p. It waits for the client if the owner does (stateWrite), in a handshake, and for
// the lingerer. Otherwise it keeps what the client doesn't take at once: then crypto/tls is the caller, with answers that will wait in
// the loop, an answer in the handler's place, or a reply to a key update that came with a read.
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

// writeVector is Write for two buffers. It may return once all of first is sent.
func (lc *loopConn) writeVector(first, second []byte) (int64, error) {
	if lc.unsent == nil {
		return lc.Socket.WriteVector(first, second)
	}
	n, err := lc.Write(first)
	return int64(n), err
}

// RawWrite first sends what is unsent, and then a part of a file: see sock.RawWriter.
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

// leave gives the loop that the connection's worker leads, if any, to another worker.
func (lc *loopConn) leave(class *class.Class) error {
	if lc.worker == nil {
		return nil // it isn't served any more
	}
	return lc.worker.leave(class)
}

func (lc *loopConn) leaveLoop() error { return lc.leave(lc.worker.timer.Class()) }

func (lc *loopConn) remote() netip.AddrPort {
	if h := lc.told.Load(); h != nil {
		if source := h.Source(); source.IsValid() {
			return source
		}
	}
	return lc.Peer.AddrPort()
}
