package sock

import "syscall"

// sysGetsockopt is the number of getsockopt, which package syscall has not: it calls socketcall. Linux has it since 4.3.
const sysGetsockopt = 365

// Peek is Read, but leaves the bytes to be read again.
func Peek(fd int, p []byte) (int, syscall.Errno) {
	for {
		n, _, err := syscall.Recvfrom(fd, p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err == nil {
			return n, 0
		}
		if err != syscall.EINTR {
			return 0, err.(syscall.Errno)
		}
	}
}
