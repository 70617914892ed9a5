package loop

import (
	"os"
	"syscall"

	"github.com/filohttp/filo/internal/sock"
)

// This file has all code of the package that depends on Linux. The other files are portable, though they are built for Linux only.

// epollSet is the descriptor of the epoll set in which a loop waits. Its methods may be called concurrently.
type epollSet int

// Sets of events for which an entry of the epoll set is watched.
const (
	watchEnd     = sock.EpollRDHUP | sock.EpollET // the end of the input or of the connection; edge-triggered
	watchConn    = watchEnd | syscall.EPOLLIN     // watchEnd, and input
	watchRoom    = watchEnd | syscall.EPOLLOUT    // watchEnd, and room for output
	watchLevel   = syscall.EPOLLIN                // input, level-triggered: for listeners, and for a set in another set
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

// change sets the events for which an entry is watched. Those that have already happened are reported at once.
func (e epollSet) change(fd int, what, slot, generation uint32) {
	sock.EpollControl(int(e), syscall.EPOLL_CTL_MOD, fd, what, slot, generation)
}

// remove removes a descriptor from the set. Most descriptors needn't be removed, since closing the last descriptor of a socket does so too.
func (e epollSet) remove(fd int) { sock.EpollControl(int(e), syscall.EPOLL_CTL_DEL, fd, 0, 0, 0) }

// pollEvent is an event as the system returns it.
type pollEvent = syscall.EpollEvent

// unpackEvent returns what has happened, and the slot and the generation of the entry.
func unpackEvent(e *pollEvent) (events, slot, generation uint32) {
	return e.Events, uint32(e.Fd), uint32(e.Pad)
}

// poll fills events with those that have happened, and returns their number. It doesn't wait.
func (e epollSet) poll(events []pollEvent) int { return sock.EpollPoll(int(e), events) }

// await is like poll, but waits for an event, for at most the given number of milliseconds.
func (e epollSet) await(events []pollEvent, millis int) int {
	return sock.EpollWait(int(e), events, millis)
}

// claimedEvent marks the batch entry of a connection that was claimed before it was put into the batch.
const claimedEvent = 1 << 26

// pollBits converts events of epoll to bits of Socket.poll.
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

// bell is an eventfd, for which a loop's set or the runtime's poller reports an event each time it is rung. It is never read.
type bell int

func newBell() (bell, error) {
	fd, err := sock.NewEventFD()
	return bell(fd), err
}

func (b bell) ring() { sock.RingEventFD(int(b)) }

// duplicateTo makes spare another descriptor of fd's file, and closes the file to which spare referred before.
func duplicateTo(fd, spare int) error { return syscall.Dup3(fd, spare, syscall.O_CLOEXEC) }
