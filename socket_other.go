//go:build !linux

package filo

import "net"

// socket would read and write plain sockets by system calls of its own, as it does on Linux. Elsewhere it is never attached.
type socket struct{ net.Conn }

func (s *socket) attach(net.Conn)           {}
func (s *socket) detach()                   {}
func (s *socket) attached() bool            { return false }
func (s *socket) ended() (ended, gone bool) { return false, false }

func awaitPeer(net.Conn, bool) error { return errCannotTell }
