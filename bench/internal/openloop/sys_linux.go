//go:build amd64 || arm64

package openloop

import (
	"encoding/binary"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// The system calls. Those that can't wait are made without telling Go's scheduler, which would cost more than they do.

const (
	epollET       = 1 << 31
	sysEpollWait2 = 441 // epoll_pwait2, on every architecture since Linux 5.11
	prTimerSlack  = 29
	shortSlice    = 100 * time.Microsecond // the least that the kernel has
	rusageSelf    = 0

	// connEvents is what a connection is watched for, once and for all.
	connEvents = syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLRDHUP | epollET
)

// poller is an epoll set and a bell that ends a wait for it.
type poller struct {
	epfd, bell int
	events     [128]syscall.EpollEvent
	timeout    syscall.Timespec // here, since what is given to a system call escapes to the heap
}

// bellSlot marks the bell's events.
const bellSlot = -1

func (p *poller) open() error {
	epfd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	bell, _, errno := syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		syscall.Close(epfd)
		return os.NewSyscallError("eventfd2", errno)
	}
	p.epfd, p.bell = epfd, int(bell)
	return p.watch(p.bell, bellSlot, 0)
}

func (p *poller) close() {
	syscall.Close(p.epfd)
	syscall.Close(p.bell)
}

// watch adds a descriptor to the set. Its events carry slot and generation.
func (p *poller) watch(fd, slot int, generation int32) error {
	event := syscall.EpollEvent{Events: connEvents &^ syscall.EPOLLOUT, Fd: int32(slot), Pad: generation}
	if slot != bellSlot {
		event.Events = connEvents
	}
	return os.NewSyscallError("epoll_ctl", syscall.EpollCtl(p.epfd, syscall.EPOLL_CTL_ADD, fd, &event))
}

// ring ends the wait that is, or the next one. Any goroutine may call it.
func (p *poller) ring() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	syscall.Write(p.bell, one[:])
}

// wait returns the events that come within d.
func (p *poller) wait(d time.Duration) ([]syscall.EpollEvent, error) {
	p.timeout = syscall.NsecToTimespec(int64(max(0, d)))
	events, timeout := unsafe.Pointer(&p.events), unsafe.Pointer(&p.timeout)
	set, count := uintptr(p.epfd), uintptr(len(p.events))
	var n uintptr
	var errno syscall.Errno
	if d <= 0 {
		n, _, errno = syscall.RawSyscall6(sysEpollWait2, set, uintptr(events), count, uintptr(timeout), 0, 0)
	} else {
		n, _, errno = syscall.Syscall6(sysEpollWait2, set, uintptr(events), count, uintptr(timeout), 0, 0)
	}
	if errno == syscall.EINTR {
		return nil, nil
	}
	if errno != 0 {
		return nil, os.NewSyscallError("epoll_pwait2", errno)
	}
	return p.events[:n], nil
}

// schedAttr is the kernel's struct sched_attr.
type schedAttr struct {
	size, policy                   uint32
	flags                          uint64
	nice                           int32
	priority                       uint32
	runtime, deadline, period      uint64
	utilizationMin, utilizationMax uint32
}

// bePunctual makes the calling thread's timers end when they should, instead of up to 50 µs later, and asks the scheduler for
// short slices, which a thread gets sooner when it wakes up (since Linux 6.12). It goes without what the kernel refuses.
func bePunctual() {
	syscall.RawSyscall(syscall.SYS_PRCTL, prTimerSlack, 1, 0)
	attr := schedAttr{runtime: uint64(shortSlice)}
	var nice syscall.Errno
	if attr.nice, nice = sysNice(); nice != 0 {
		return
	}
	attr.size = uint32(unsafe.Sizeof(attr))
	syscall.RawSyscall(sysSchedSetattr, 0, uintptr(unsafe.Pointer(&attr)), 0)
}

// sysNice returns the calling thread's niceness, so that it is kept.
func sysNice() (int32, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_GETPRIORITY, syscall.PRIO_PROCESS, 0, 0)
	return 20 - int32(n), errno // the system call's result is 40 to 1
}

func sysReceive(fd int, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)), 0, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

func sysSend(fd int, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)), syscall.MSG_NOSIGNAL, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// sysSendVector sends several buffers. The message has to be on the heap with all that it points to.
func sysSendVector(fd int, message *syscall.Msghdr) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(message)),
			syscall.MSG_NOSIGNAL)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// sysConnect opens a socket and begins to connect it.
func sysConnect(address syscall.Sockaddr) (int, error) {
	family := syscall.AF_INET
	if _, six := address.(*syscall.SockaddrInet6); six {
		family = syscall.AF_INET6
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err == nil {
		err = syscall.Connect(fd, address)
	}
	if err != nil && err != syscall.EINPROGRESS {
		syscall.Close(fd)
		return -1, os.NewSyscallError("connect", err)
	}
	return fd, nil
}

// socketError returns and clears the error that is pending on a socket.
func socketError(fd int) error {
	errno, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ERROR)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if errno != 0 {
		return os.NewSyscallError("connect", syscall.Errno(errno))
	}
	return nil
}

// processTime returns the user and kernel time of this process.
func processTime() time.Duration {
	var usage syscall.Rusage
	syscall.Getrusage(rusageSelf, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
