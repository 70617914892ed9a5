//go:build unix && !linux

package main

import "syscall"

// childAttributes has a program get no Ctrl-C of its own, so that it ends in order.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
