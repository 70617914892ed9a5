//go:build unix

package static

import (
	"os"
	"syscall"
)

// With openFlags, opening a FIFO or a device doesn't wait, and a terminal doesn't become the process's own.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY
