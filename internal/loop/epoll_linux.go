//go:build !386

package loop

import (
	"os"
	"syscall"

	"github.com/filohttp/filo/internal/sock"
)

// epollSet is what a loop waits by: the descriptor of an epoll set. Any goroutine may call add, change, remove and poll, also at the same
// time: a leader without work polls the sets of others. Nothing else in the package knows what epoll's events are called, nor how they
// are asked for.
type epollSet int

// What an entry of the set is watched for.
const (
	watchConn    = syscall.EPOLLIN | sock.EpollRDHUP | sock.EpollET // input and ends, each reported once
	watchConnOut = watchConn | syscall.EPOLLOUT                     // also room for output, once
	watchLevel   = syscall.EPOLLIN                                  // input, reported again as long as there is some: a listener, another set
	watchBell    = syscall.EPOLLIN | sock.EpollET
	watchNothing = 0
)

func newEpollSet() (epollSet, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	return epollSet(fd), os.NewSyscallError("epoll_create1", err)
}

func (e epollSet) close() { sock.Close(int(e)) }

// add begins to watch a descriptor. The events of its entry bring slot and generation.
func (e epollSet) add(fd int, what, slot, generation uint32) error {
	if errno := sock.EpollControl(int(e), syscall.EPOLL_CTL_ADD, fd, what, slot, generation); errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}

// change watches an entry for something else, and looks at once whether that has happened.
func (e epollSet) change(fd int, what, slot, generation uint32) {
	sock.EpollControl(int(e), syscall.EPOLL_CTL_MOD, fd, what, slot, generation)
}

// remove ends the watch of a descriptor. Closing a socket's last descriptor does so, too, and that is how most watches end.
func (e epollSet) remove(fd int) { sock.EpollControl(int(e), syscall.EPOLL_CTL_DEL, fd, 0, 0, 0) }

// pollEvent is an event: what has happened in Events, the slot of its entry in Fd, the generation in Pad.
type pollEvent = syscall.EpollEvent

// poll takes the events that there are, without waiting.
func (e epollSet) poll(events []pollEvent) int { return sock.EpollPoll(int(e), events) }

// claimedEvent stands for the events of a connection that was claimed before it was put into the batch.
const claimedEvent = 1 << 26

// pollBits returns the bits of Socket.poll that events mean.
func pollBits(events uint32) (bits uint32) {
	if events&(syscall.EPOLLIN|sock.EpollRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		bits |= pollReadable
	}
	if events&(sock.EpollRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		bits |= pollHup
	}
	if events&(syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		bits |= pollGone
	}
	if events&(syscall.EPOLLOUT|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		bits |= pollWritable
	}
	return bits
}
