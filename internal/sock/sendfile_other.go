//go:build !linux

package sock

import (
	"net"
	"syscall"
)

// newSendfile returns nil: only the ReadFrom of package net's connections can send files, and only whole ones.
func newSendfile(net.Conn, syscall.Conn, Cache) FileSender { return nil }
