package sock

import (
	"os"
	"syscall"
	"unsafe"

	"github.com/filohttp/filo/internal/race"
)

// If a system call can't block, this package makes it without notifying the runtime's scheduler. The notification would have no benefit, and
// would cost a sixth of a server's processor time if requests are small. Builds with the race detector read and write with package syscall,
// which tells the detector that a write happens before the read of its bytes.

// maxWrite is the maximum number of bytes of one Write. Copying more would take so long that the scheduler should be notified.
const maxWrite = 64 << 10

// noBytes is where the pointer for an empty buffer points.
var noBytes byte

func bytesPointer(p []byte) unsafe.Pointer {
	if len(p) == 0 {
		return unsafe.Pointer(&noBytes)
	}
	return unsafe.Pointer(unsafe.SliceData(p))
}

// Read reads from a non-blocking socket.
func Read(fd int, p []byte) (int, syscall.Errno) {
	for {
		if race.Enabled {
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

// Write writes at most maxWrite bytes to a non-blocking socket.
func Write(fd int, p []byte) (int, syscall.Errno) {
	p = p[:min(len(p), maxWrite)]
	for {
		if race.Enabled {
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

// Close closes a descriptor.
func Close(fd int) { syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(fd), 0, 0) }

// Duplicate returns another descriptor of the open file to which fd refers.
func Duplicate(fd int) (int, error) {
	dup, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("fcntl", errno)
	}
	return int(dup), nil
}
