//go:build !linux

package sock

import "net"

// Conn reads and writes plain sockets by its own system calls on Linux. On this system it is never attached.
type Conn struct{ net.Conn }

// Attach does nothing.
func (s *Conn) Attach(net.Conn) {}

// Detach does nothing.
func (s *Conn) Detach() {}

// Attached returns false.
func (s *Conn) Attached() bool { return false }

// Ended isn't called, since a Conn is never attached.
func (s *Conn) Ended() (ended, gone bool) { return false, false }

// HasInput returns false.
func HasInput(net.Conn) (has, known bool) { return false, false }

// Buffered returns false: systems other than Linux report early that a socket has room.
func Buffered(net.Conn) (n int, ok bool) { return 0, false }

// Transferred returns false.
func Transferred(net.Conn) (received, sent uint64, ok bool) { return 0, 0, false }

// LimitUnsent does nothing.
func LimitUnsent(net.Conn, int) {}

// AwaitEnd returns ErrCannotTell.
func AwaitEnd(net.Conn, bool) error { return ErrCannotTell }
