//go:build unix

package static

import (
	"os"
	"syscall"
)

// openFlags have opening a FIFO or a device not wait, and a terminal not become the process's own.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY
