//go:build !linux

package sock

import (
	"io/fs"
	"net"
)

// Chmod does nothing, since a Unix socket has permissions before it is bound only on Linux.
func Chmod(int, fs.FileMode) {}

func (o *Options) set(int, bool) error             { return nil }
func (o *Options) setListening(net.Listener) error { return nil }
