//go:build !386

package loop

// Bits of Socket.poll.
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
	pollShared // several goroutines write: see Share
)

// event notes what the epoll set has reported. It returns true if the connection was idle and is the caller's now.
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

// set sets bits, wakes who waits for one of them, and claims the connection if nobody owns it and it waits for one of them.
// It returns the word from before.
func (s *Socket) set(bits uint32) (old uint32, claimed bool) {
	const read = pollReadable | pollHup | pollClosing | pollReadExpired
	const write = pollWritable | pollGone | pollClosing | pollWriteExpired
	for {
		old = s.poll.Load()
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
		// Others may wait to write on a shared connection, whether or not it is owned.
		if bits&write != 0 {
			set &^= pollWriteParked
		}
		if s.poll.CompareAndSwap(old, set) {
			s.wake(old &^ set)
			return old, claimed
		}
	}
}

// wake wakes the goroutines whose parked bits were taken out.
func (s *Socket) wake(parked uint32) {
	if parked&pollReadParked != 0 {
		s.waiters.Load().readable <- struct{}{}
	}
	if parked&pollWriteParked != 0 {
		s.waiters.Load().writable <- struct{}{}
	}
}

// clear takes bits out.
func (s *Socket) clear(bits uint32) { s.poll.And(^bits) }

// Post leaves the connection, which the caller has claimed, to its loop's leader.
func (s *Socket) Post() { s.loop.post(s) }

// Share makes the connection one that several goroutines write to, and not its owner alone. From here on what waits to be written is no
// reason to claim it: Conn.Writable is called instead.
func (s *Socket) Share() { s.poll.Or(pollShared) }

// IsShared reports whether Share was called.
func (s *Socket) IsShared() bool { return s.poll.Load()&pollShared != 0 }

// IsCut reports whether Cut was called.
func (s *Socket) IsCut() bool { return s.poll.Load()&pollClosing != 0 }

// IsBroken reports whether nothing that is sent arrives any more.
func (s *Socket) IsBroken() bool { return s.poll.Load()&(pollGone|pollClosing) != 0 }

// SawEnd reports whether an event has said that the client sends nothing more, or is gone altogether. What it has sent before may not
// have been read.
func (s *Socket) SawEnd() (half, gone bool) {
	word := s.poll.Load()
	return word&pollHup != 0, word&pollGone != 0
}

// WokenBy begins the work of an owner that has just claimed the connection. It reports whether Cut was called, or else a deadline of
// the owner's has passed, which it takes out.
func (s *Socket) WokenBy() (cut, expired bool) {
	s.Drained = false
	switch word := s.poll.Load(); {
	case word&pollClosing != 0:
		return true, false
	case word&(pollReadExpired|pollWriteExpired) == 0:
		return false, false
	case word&pollShared != 0:
		s.clear(pollReadExpired) // the other one is for those who wait to write
	default:
		s.clear(pollReadExpired | pollWriteExpired)
	}
	return false, true
}

// Release makes the connection idle, to wait for the client to send or, if write is set, to take something. It reports
// false, and the connection stays the caller's, who asks the socket again, if that has happened already.
func (s *Socket) Release(write bool) bool {
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

// park waits until one of the happened bits is set. It takes the one that says so out, since the socket is to be asked.
func (s *Socket) park(parked, event, happened uint32, wake func(*connWaiters) chan struct{}) {
	for {
		old := s.poll.Load()
		if old&event != 0 {
			if s.poll.CompareAndSwap(old, old&^event) {
				return
			}
			continue
		}
		if old&happened != 0 {
			return
		}
		if s.poll.CompareAndSwap(old, old|parked) {
			<-wake(s.waiters.Load())
		}
	}
}
