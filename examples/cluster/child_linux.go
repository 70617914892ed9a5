package main

import "syscall"

// childAttributes has the system end a program when this one is killed. It gets no Ctrl-C of its own, so that it ends in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
