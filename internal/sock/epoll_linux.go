package sock

import (
	"encoding/binary"
	"os"
	"syscall"
	"unsafe"
)

// Constants that package syscall lacks on some architectures.
const (
	EpollRDHUP = 0x2000
	EpollET    = 1 << 31
)

// EpollPoll fills events with those that have happened, and returns their number. It doesn't wait.
func EpollPoll(epfd int, events []syscall.EpollEvent) int {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0 // interrupted
	}
	return int(n)
}

// EpollWait is like EpollPoll, but if no event has happened, it waits for one for at most the given number of milliseconds. The wait blocks
// its thread and its processor. A signal ends the wait, for example the signal with which the runtime preempts a goroutine.
func EpollWait(epfd int, events []syscall.EpollEvent, millis int) int {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), uintptr(millis), 0, 0)
	if errno != 0 {
		return 0 // interrupted
	}
	return int(n)
}

// EpollControl adds, changes or removes an entry of an epoll set, as op says.
func EpollControl(epfd, op, fd int, events uint32, slot, generation uint32) syscall.Errno {
	event := syscall.EpollEvent{Events: events, Fd: int32(slot), Pad: int32(generation)}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(&event)), 0, 0)
	return errno
}

// NewEventFD returns an eventfd for an edge-triggered poller, so it needn't be read.
func NewEventFD() (int, error) {
	fd, _, errno := syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return 0, os.NewSyscallError("eventfd2", errno)
	}
	return int(fd), nil
}

// RingEventFD makes pollers report an event for the eventfd.
func RingEventFD(fd int) {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	Write(fd, one[:])
}
