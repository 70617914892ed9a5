//go:build linux

package loop

import "github.com/filohttp/filo/internal/sock"

// Overdue returns the name of an event that has happened while a goroutine or the idle connection still waits for it, "" if there is none.
// If there is one, the wake-up must follow shortly. progress holds the number of bytes that the owner has read, and the number that the client has
// acknowledged. Any goroutine may call Overdue at any time; it is for tests.
func (s *Socket) Overdue() (what string, progress [2]uint64) {
	s.whileOpen(func(fd int) {
		word := s.poll.Load()
		reads, writes := word&pollReadParked != 0, word&pollWriteParked != 0
		if word&pollBusy == 0 {
			reads, writes = reads || word&pollWaitsWrite == 0, writes || word&pollWaitsWrite != 0
		}
		switch {
		case reads && sock.IsReadable(fd):
			what = "there is input"
		case writes && sock.IsWritable(fd):
			what = "there is room"
		}
		received, sent, _ := sock.TransferredIn(fd)
		unread, _ := sock.UnreadIn(fd)
		progress = [2]uint64{received - uint64(unread), sent}
	})
	return what, progress
}

// Looks returns how many times the loop has asked the epoll set for events without waiting. Any goroutine may call Looks at any
// time; it is for tests.
func (s *Socket) Looks() int64 { return s.loop.looks.Load() }

// Waiting returns how many goroutines wait for their clients, and how many sockets the runtime's poller watches.
func (g *Group) Waiting() (goroutines, polled int64) {
	if g == nil {
		return 0, 0
	}
	return g.waiting.Load(), int64(g.polled.Load())
}
