package main

import "syscall"

// childAttributes makes the system end a child when this program is killed. The child gets no Ctrl-C, so that this program ends the
// children in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
