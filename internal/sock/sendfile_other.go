//go:build !linux

package sock

import (
	"net"
	"syscall"

	"github.com/filohttp/filo/internal/localfile"
)

// newSendfile returns nil: only the ReadFrom of package net's connections can send files, and only whole ones.
func newSendfile(net.Conn, syscall.Conn, *localfile.File) FileSender { return nil }
