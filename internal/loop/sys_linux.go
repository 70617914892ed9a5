package loop

import (
	"os"
	"syscall"

	"github.com/filohttp/filo/internal/sock"
)

// This file has all that the loop driver asks of Linux alone. The other files of the package are portable, though they are built for Linux only.

// epollSet is the descriptor of the epoll set in which a loop waits. Any goroutine may call its methods, also at the same time.
type epollSet int

// Events that an entry of the set is watched for.
const (
	watchEnd     = sock.EpollRDHUP | sock.EpollET // ends, each reported once
	watchConn    = watchEnd | syscall.EPOLLIN     // also input
	watchRoom    = watchEnd | syscall.EPOLLOUT    // also room for output
	watchLevel   = syscall.EPOLLIN                // input, reported again as long as some is left: a listener, another set
	watchBell    = syscall.EPOLLIN | sock.EpollET
	watchNothing = 0
)

func newEpollSet() (epollSet, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	return epollSet(fd), os.NewSyscallError("epoll_create1", err)
}

func (e epollSet) close() { sock.Close(int(e)) }

// add begins to watch a descriptor. Events of its entry carry slot and generation.
func (e epollSet) add(fd int, what, slot, generation uint32) error {
	if errno := sock.EpollControl(int(e), syscall.EPOLL_CTL_ADD, fd, what, slot, generation); errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}

// change watches an entry for other events, and reports at once those that have already happened.
func (e epollSet) change(fd int, what, slot, generation uint32) {
	sock.EpollControl(int(e), syscall.EPOLL_CTL_MOD, fd, what, slot, generation)
}

// remove ends the watch of a descriptor. Most watches end without it: closing a socket's last descriptor ends them too.
func (e epollSet) remove(fd int) { sock.EpollControl(int(e), syscall.EPOLL_CTL_DEL, fd, 0, 0, 0) }

// pollEvent is an event.
type pollEvent = syscall.EpollEvent

// unpackEvent returns what has happened, and the slot and the generation of the entry.
func unpackEvent(e *pollEvent) (events, slot, generation uint32) {
	return e.Events, uint32(e.Fd), uint32(e.Pad)
}

// poll takes the events that have happened, without waiting.
func (e epollSet) poll(events []pollEvent) int { return sock.EpollPoll(int(e), events) }

// await is poll, but waits for an event, for at most that many milliseconds.
func (e epollSet) await(events []pollEvent, millis int) int {
	return sock.EpollWait(int(e), events, millis)
}

// claimedEvent stands in for the events of a connection that was already claimed when it was put into the batch.
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

// bell is a descriptor that a loop's set, or the runtime's poller, reports each time it is rung. Nobody reads it.
type bell int

func newBell() (bell, error) {
	fd, err := sock.NewEventFD()
	return bell(fd), err
}

func (b bell) ring() { sock.RingEventFD(int(b)) }

// duplicateTo makes spare another descriptor of fd's file. It closes the file that spare referred to before.
func duplicateTo(fd, spare int) error { return syscall.Dup3(fd, spare, syscall.O_CLOEXEC) }
