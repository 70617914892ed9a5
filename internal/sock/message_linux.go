package sock

import (
	"syscall"
	"unsafe"
)

// Peek is like Read, but doesn't consume the bytes.
func Peek(fd int, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(sysRecvfrom, uintptr(fd), uintptr(bytesPointer(p)), uintptr(len(p)),
			syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// Writev writes two buffers with one system call. Copying may take long, so the scheduler is notified.
func Writev(fd int, first, second []byte) (int, syscall.Errno) {
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

// Shutdown shuts down one direction of a connection, or both: how is a constant such as syscall.SHUT_WR.
func Shutdown(fd, how int) { syscall.RawSyscall(sysShutdown, uintptr(fd), uintptr(how), 0) }
