//go:build !linux

package sock

import "net"

func (o *Options) set(int, bool) error             { return nil }
func (o *Options) setListening(net.Listener) error { return nil }
