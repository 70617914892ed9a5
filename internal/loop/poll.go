//go:build linux

package loop

// Bits of Socket.poll.
const (
	pollBusy       = 1 << iota // a goroutine owns the connection
	pollWaitsWrite             // the connection is idle, and waits to be writable rather than readable
	pollHup                    // the client sends nothing more: the owner will read the end of the input
	pollGone                   // the connection is broken, or both sides have ended it
	pollClosing                // Cut was called: the owner must end the connection
	pollReadable               // an event has reported input, and the owner hasn't read since
	pollWritable
	pollReadParked // a goroutine waits in Read for an event
	pollWriteParked
	pollReadExpired // the read deadline has passed
	pollWriteExpired
	pollShared // several goroutines may write: see Share
)

// event records an event of the epoll set. It returns true if the connection was idle and has waited for the event: then the caller has
// claimed the connection.
func (s *Socket) event(events uint32) (claimed bool) {
	set := pollBits(events)
	if set&pollWritable != 0 && s.IsShared() {
		s.served.Writable()
	}
	old, claimed := s.set(set)
	if !claimed && set&pollHup != 0 && old&pollBusy != 0 {
		s.served.PeerLeft(set&pollGone != 0)
	}
	return claimed
}

// set sets bits. It wakes the goroutines that wait for one of the bits, and claims the connection if it is idle and waits for one of the
// bits. It returns the previous word.
func (s *Socket) set(bits uint32) (old uint32, claimed bool) {
	const read = pollReadable | pollHup | pollClosing | pollReadExpired
	const write = pollWritable | pollGone | pollClosing | pollWriteExpired
	for {
		old = s.poll.Load()
		word := old | bits
		awaited, asked := uint32(read|pollWriteExpired), uint32(pollReadable)
		if old&pollWaitsWrite != 0 {
			awaited, asked = write|pollReadExpired, pollWritable
		}
		if old&pollShared != 0 {
			awaited &^= pollWriteExpired
		}
		if claimed = old&pollBusy == 0 && bits&awaited != 0; claimed {
			word = (word | pollBusy) &^ (pollWaitsWrite | asked) // clear asked, since the new owner tries the socket anyway
		}
		if bits&read != 0 {
			word &^= pollReadParked
		}
		// Goroutines may wait to write on a shared connection even while it is idle.
		if bits&write != 0 {
			word &^= pollWriteParked
		}
		if s.poll.CompareAndSwap(old, word) {
			s.wake(old &^ word)
			return old, claimed
		}
	}
}

// wake wakes the goroutines whose parked bits were cleared.
func (s *Socket) wake(parked uint32) {
	if parked&(pollReadParked|pollWriteParked) == 0 {
		return
	}
	all := s.waiters.Load()
	for i := range directions {
		if parked&directions[i].parked == 0 {
			continue
		}
		s.loop.group.waiting.Add(-1) // from here on the goroutine doesn't wait for its client, though it may not run yet
		w := &all.waiter[i]
		w.woken <- struct{}{}
		if polled := w.polled.Load(); polled != nil {
			polled.ring(i)
		}
	}
}

// clear clears bits.
func (s *Socket) clear(bits uint32) { s.poll.And(^bits) }

// Post leaves a connection, which the caller has claimed, for a leader of its loop to serve.
func (s *Socket) Post() { s.loop.post(s) }

// Share allows goroutines other than the owner to write to the connection. After Share, Conn.Writable is called when the socket has room,
// and a write deadline that passes doesn't claim the connection.
func (s *Socket) Share() {
	s.moveBack()
	s.poll.Or(pollShared)
}

// IsShared reports whether Share was called.
func (s *Socket) IsShared() bool { return s.poll.Load()&pollShared != 0 }

// IsCut reports whether Cut was called.
func (s *Socket) IsCut() bool { return s.poll.Load()&pollClosing != 0 }

// IsBroken reports whether the connection is broken or was cut, so that bytes that are sent don't reach the client.
func (s *Socket) IsBroken() bool { return s.poll.Load()&(pollGone|pollClosing) != 0 }

// SawEnd reports whether an event has said that the client sends nothing more (half), or that the connection is broken (gone). Bytes that
// the client sent before may still be unread.
func (s *Socket) SawEnd() (half, gone bool) {
	word := s.poll.Load()
	return word&pollHup != 0, word&pollGone != 0
}

// WokenBy must be called first by an owner that has just claimed the connection. It reports whether Cut was called or, if not, whether a
// deadline of the owner has passed. In the second case it clears the deadline.
func (s *Socket) WokenBy() (cut, expired bool) {
	s.Drained = false
	switch word := s.poll.Load(); {
	case word&pollClosing != 0:
		return true, false
	case word&(pollReadExpired|pollWriteExpired) == 0:
		return false, false
	case word&pollShared != 0:
		s.clear(pollReadExpired) // the write deadline belongs to the goroutines that wait to write
	default:
		s.clear(pollReadExpired | pollWriteExpired)
	}
	return false, true
}

// Release makes the connection idle until there is input or, if write is set, until the socket has room. It returns false if that has
// already happened: then the caller still owns the connection, and must try the socket again.
func (s *Socket) Release(write bool) bool {
	s.assertOwned()
	s.moveBack()
	happened, idle := uint32(pollReadable|pollHup|pollClosing|pollReadExpired|pollWriteExpired), uint32(0)
	if write {
		happened, idle = pollWritable|pollGone|pollClosing|pollReadExpired|pollWriteExpired, pollWaitsWrite
	}
	for {
		old := s.poll.Load()
		if old&happened != 0 && (old&pollShared == 0 || old&happened != pollWriteExpired) {
			s.poll.And(^uint32(pollReadable | pollWritable))
			return false
		}
		if s.poll.CompareAndSwap(old, old&^pollBusy|idle) {
			return true
		}
	}
}
