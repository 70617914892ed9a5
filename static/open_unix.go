//go:build unix

package static

import (
	"os"
	"syscall"
)

// openFlags let the opening of a FIFO or a device not wait, and keep a terminal from becoming the process's own.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY
