//go:build !linux

package sock

import (
	"net"
	"syscall"
)

// newSendfile returns nil: the connections of package net, which send whole files, are all that can.
func newSendfile(net.Conn, syscall.Conn) FileSender { return nil }
