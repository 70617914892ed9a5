package sock

import (
	"net"
	"os"
	"syscall"
	"testing"
)

// A server goes on accepting after errors whose cause isn't its listener.
func TestIsTemporary(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{
		syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOMEM: true, syscall.ENOBUFS: true, syscall.ECONNABORTED: true,
		syscall.ENOSPC: true, // package net has accepted the connection, but the user has no epoll watches left
		syscall.EBADF:  false, syscall.EINVAL: false, syscall.ENOTSOCK: false,
	} {
		err := &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", errno)}
		if got := IsTemporary(err); got != want {
			t.Errorf("%v: %t", errno, got)
		}
	}
}
