//go:build !linux

package sock

import (
	"net"
	"syscall"

	"github.com/filohttp/filo/internal/localfile"
)

// newSendfile returns nil: on this system only the ReadFrom of package net's connections sends files, and only whole files.
func newSendfile(net.Conn, syscall.Conn, *localfile.File) FileSender { return nil }
