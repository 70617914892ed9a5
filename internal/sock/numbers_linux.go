//go:build !386

package sock

import "syscall"

const (
	sysAccept4     = syscall.SYS_ACCEPT4
	sysGetsockopt  = syscall.SYS_GETSOCKOPT
	sysGetpeername = syscall.SYS_GETPEERNAME
	sysRecvfrom    = syscall.SYS_RECVFROM
	sysShutdown    = syscall.SYS_SHUTDOWN
)
