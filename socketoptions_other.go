//go:build !linux

package filo

import "net"

func (o *SocketOptions) set(int, bool) error             { return nil }
func (o *SocketOptions) setListening(net.Listener) error { return nil }
