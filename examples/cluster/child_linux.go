package main

import "syscall"

// childAttributes makes the kernel kill a child process when this program is killed. A child doesn't get Ctrl-C, so that this program can end the
// children in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
