//go:build unix && !linux

package main

import "syscall"

// childAttributes keeps Ctrl-C from a child process, so that this program can end the children in order.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
