package sock

import (
	"net"
	"syscall"
)

// sendfile sends a file by the system call of that name. The offset is told with each call: the file's own position, which others
// may use at the same time, stays where it is.
type sendfile struct {
	target RawWriter
	file   syscall.RawConn
	offset int64
	left   int
	sent   int
	err    error
	// The methods of these names, made once.
	send   func(file uintptr)
	sendTo func(socket uintptr) (done bool)
	socket int
}

// RawWriter is a connection whose writes can be made by system calls of others. RawWrite calls write until that is done, and waits
// in between until the socket may take more. No connection of a user's has such a method, since the type of write is internal.
type RawWriter interface {
	RawWrite(write RawWrite) error
}

// RawWrite writes to a descriptor what it takes at once, and reports whether that is all.
type RawWrite func(fd uintptr) (done bool)

// newSendfile returns what sends the file by sendfile; nil if the connection isn't a socket's own.
func newSendfile(conn net.Conn, file syscall.Conn) FileSender {
	target, ok := conn.(RawWriter)
	if !ok {
		switch conn.(type) {
		case *net.TCPConn, *net.UnixConn: // themselves, and nothing that embeds one, and may have a Write of its own
		default:
			return nil
		}
		socket, err := conn.(syscall.Conn).SyscallConn()
		if err != nil {
			return nil
		}
		target = netWriter{socket}
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil
	}
	s := &sendfile{target: target, file: raw}
	s.send, s.sendTo = s.callSend, s.callSendTo
	return s
}

// netWriter is a connection of package net's.
type netWriter struct{ syscall.RawConn }

// RawWrite implements RawWriter.
func (w netWriter) RawWrite(write RawWrite) error { return w.Write(write) }

// SendFile implements FileSender.
func (s *sendfile) SendFile(offset int64, size int) (int, error) {
	s.offset, s.left, s.sent = offset, size, 0
	err := s.target.RawWrite(s.sendTo)
	if err == nil {
		err = s.err
	}
	if s.sent == 0 && (err == syscall.EINVAL || err == syscall.ENOSYS || err == syscall.EOPNOTSUPP) {
		return 0, ErrNoSendfile
	}
	return s.sent, err
}

func (s *sendfile) callSendTo(socket uintptr) (done bool) {
	s.socket = int(socket)
	if err := s.file.Control(s.send); err != nil {
		s.err = err
	}
	return s.err != syscall.EAGAIN
}

// callSend sends until the part or the file ends, or the socket takes nothing more, or it fails.
func (s *sendfile) callSend(file uintptr) {
	for s.err = nil; s.left > 0; {
		n, err := syscall.Sendfile(s.socket, int(file), &s.offset, s.left) // which counts the offset up
		switch {
		case err == syscall.EINTR:
		case err != nil:
			s.err = err
			return
		case n == 0:
			return
		default:
			s.sent += n
			s.left -= n
		}
	}
}
