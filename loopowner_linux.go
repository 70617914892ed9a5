//go:build !386

package filo

import (
	"syscall"

	"github.com/filohttp/filo/internal/sock"
)

// Bits of loopConn.poll.
const (
	pollBusy       = 1 << iota // somebody owns the connection: serves it, or has taken it over
	pollWaitsWrite             // it isn't busy, and waits to be writable rather than readable
	pollHup                    // the client sends nothing more: there is an end to be read
	pollGone                   // the connection is broken, or both sides have ended it
	pollClosing                // Cut was called: the owner is to end it
	pollReadable               // an event came that nobody has looked into
	pollWritable
	pollReadParked // the owner's goroutine waits for an event
	pollWriteParked
	pollReadExpired // the deadline has passed
	pollWriteExpired
	pollShared // it is parked: several goroutines write, by its outbox
)

// event notes what the epoll set has reported. It returns true if the connection was idle and is the caller's now.
func (lc *loopConn) event(events uint32) (claimed bool) {
	var set uint32
	if events&(syscall.EPOLLIN|sock.EpollRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		set |= pollReadable
	}
	if events&(sock.EpollRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		set |= pollHup
	}
	if events&(syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		set |= pollGone
	}
	if events&(syscall.EPOLLOUT|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		set |= pollWritable
	}
	if set&pollWritable != 0 && lc.poll.Load()&pollShared != 0 {
		lc.parked.out.Pump()
	}
	old, claimed := lc.set(set)
	if !claimed && set&pollHup != 0 && old&pollBusy != 0 {
		lc.clientLeft(set&pollGone != 0)
	}
	return claimed
}

// set sets bits, wakes who waits for one of them, and claims the connection if nobody owns it and it waits for one of them.
// It returns the word from before.
func (lc *loopConn) set(bits uint32) (old uint32, claimed bool) {
	const read = pollReadable | pollHup | pollClosing | pollReadExpired
	const write = pollWritable | pollGone | pollClosing | pollWriteExpired
	for {
		old = lc.poll.Load()
		set := old | bits
		awaited, asked := uint32(read|pollWriteExpired), uint32(pollReadable)
		if old&pollWaitsWrite != 0 {
			awaited, asked = write|pollReadExpired, pollWritable
		}
		if old&pollShared != 0 {
			awaited &^= pollWriteExpired
		}
		if claimed = old&pollBusy == 0 && bits&awaited != 0; claimed {
			set = (set | pollBusy) &^ (pollWaitsWrite | asked) // the owner asks the socket anyway
		}
		if bits&read != 0 {
			set &^= pollReadParked
		}
		// Others may wait in Write of a parked connection, whether or not it is owned.
		if bits&write != 0 {
			set &^= pollWriteParked
		}
		if lc.poll.CompareAndSwap(old, set) {
			lc.wake(old &^ set)
			return old, claimed
		}
	}
}

// wake wakes the goroutines whose parked bits were taken out.
func (lc *loopConn) wake(parked uint32) {
	if parked&pollReadParked != 0 {
		lc.waiters.Load().readable <- struct{}{}
	}
	if parked&pollWriteParked != 0 {
		lc.waiters.Load().writable <- struct{}{}
	}
}

// clear takes bits out.
func (lc *loopConn) clear(bits uint32) { lc.poll.And(^bits) }

// release makes the connection idle, to wait for the client to send or, if write is set, to take something. It reports
// false, and the connection stays the caller's, if that has happened already.
func (lc *loopConn) release(write bool) bool {
	happened, idle := uint32(pollReadable|pollHup|pollClosing|pollReadExpired|pollWriteExpired), uint32(0)
	if write {
		happened, idle = pollWritable|pollGone|pollClosing|pollReadExpired|pollWriteExpired, pollWaitsWrite
	}
	for {
		old := lc.poll.Load()
		if old&happened != 0 && (old&pollShared == 0 || old&happened != pollWriteExpired) {
			return false
		}
		if lc.poll.CompareAndSwap(old, old&^pollBusy|idle) {
			return true
		}
	}
}

// park waits until one of the happened bits is set. It takes the one that says so out, since the socket is to be asked.
func (lc *loopConn) park(parked, event, happened uint32, wake func(*connWaiters) chan struct{}) {
	for {
		old := lc.poll.Load()
		if old&event != 0 {
			if lc.poll.CompareAndSwap(old, old&^event) {
				return
			}
			continue
		}
		if old&happened != 0 {
			return
		}
		if lc.poll.CompareAndSwap(old, old|parked) {
			<-wake(lc.waiters.Load())
		}
	}
}
