//go:build !386

package filo

import (
	"syscall"
	"time"
	"unsafe"

	"github.com/filohttp/filo/internal/lend"
)

// The system calls of the loop driver. Those that can't wait are made without telling the runtime's scheduler, which
// would cost more than it can give. Race builds read and write by package syscall, which tells the race detector that what
// is sent comes before it is received.

// Constants that package syscall hasn't for every architecture.
const (
	epollRDHUP = 0x2000
	epollET    = 1 << 31
)

// noBytes is what an empty buffer points to.
var noBytes byte

func bytesPointer(p []byte) unsafe.Pointer {
	if len(p) == 0 {
		return unsafe.Pointer(&noBytes)
	}
	return unsafe.Pointer(unsafe.SliceData(p))
}

// sysRead reads from a socket that doesn't block.
func sysRead(fd int, p []byte) (int, syscall.Errno) {
	for {
		if lend.RaceEnabled {
			n, err := syscall.Read(fd, p)
			if err == nil {
				return n, 0
			}
			if err != syscall.EINTR {
				return 0, err.(syscall.Errno)
			}
			continue
		}
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(bytesPointer(p)), uintptr(len(p)))
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// sysPeek is sysRead, but what it reads stays there to be read.
func sysPeek(fd int, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(bytesPointer(p)), uintptr(len(p)),
			syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// sysWrite writes to a socket that doesn't block, at most maxRawWrite bytes.
func sysWrite(fd int, p []byte) (int, syscall.Errno) {
	p = p[:min(len(p), maxRawWrite)]
	for {
		if lend.RaceEnabled {
			n, err := syscall.Write(fd, p)
			if err == nil {
				return n, 0
			}
			if err != syscall.EINTR {
				return 0, err.(syscall.Errno)
			}
			continue
		}
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(bytesPointer(p)), uintptr(len(p)))
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// sysWritev writes two buffers. It may copy much, and so tells the scheduler.
func sysWritev(fd int, first, second []byte) (int, syscall.Errno) {
	vector := [2]syscall.Iovec{{Base: (*byte)(bytesPointer(first))}, {Base: (*byte)(bytesPointer(second))}}
	vector[0].SetLen(len(first))
	vector[1].SetLen(len(second))
	for {
		n, _, errno := syscall.Syscall(syscall.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&vector)), 2)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// sockaddr is a socket address as the kernel writes it: family, port, address, and the scope of an IPv6 address.
type sockaddr [28]byte

// sysAccept accepts a connection that doesn't block.
func sysAccept(fd int, address *sockaddr) (int, syscall.Errno) {
	for {
		size := uint32(len(address))
		n, _, errno := syscall.RawSyscall6(syscall.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(address)),
			uintptr(unsafe.Pointer(&size)), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// sysPeer asks for the address of a connection's client.
func sysPeer(fd int, address *sockaddr) syscall.Errno {
	size := uint32(len(address))
	_, _, errno := syscall.RawSyscall(syscall.SYS_GETPEERNAME, uintptr(fd), uintptr(unsafe.Pointer(address)), uintptr(unsafe.Pointer(&size)))
	return errno
}

// sysThread returns the calling thread's number.
func sysThread() int {
	id, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	return int(id)
}

// sysThreadTime returns how long the calling thread has run.
func sysThreadTime() time.Duration {
	const clockThreadTime = 3
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadTime, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano())
}

func sysClose(fd int) { syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(fd), 0, 0) }

func sysShutdown(fd, how int) { syscall.RawSyscall(syscall.SYS_SHUTDOWN, uintptr(fd), uintptr(how), 0) }

// epollPoll takes the events that there are.
func epollPoll(epfd int, events []syscall.EpollEvent) int {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0 // interrupted
	}
	return int(n)
}

// epollControl changes what an epoll descriptor watches.
func epollControl(epfd, op, fd int, events uint32, slot, generation uint32) syscall.Errno {
	event := syscall.EpollEvent{Events: events, Fd: int32(slot), Pad: int32(generation)}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(&event)), 0, 0)
	return errno
}
