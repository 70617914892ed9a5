//go:build unix && !linux

package main

import "syscall"

// childAttributes keeps Ctrl-C from a child, so that this program ends the children in order.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
