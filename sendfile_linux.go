package filo

import (
	"net"
	"syscall"
)

// sendfilePart is a part of a file that is sent by sendfile. The offset is told with each call: the file's own position, which
// others may use at the same time, stays where it is.
type sendfilePart struct {
	target sendfileTarget
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

// sendfileTarget is a connection with a socket. It calls sendTo until that is done, and waits in between until the socket may
// take more.
type sendfileTarget interface {
	sendFile(part *sendfilePart) error
}

// systemSender returns what sends the part by sendfile; nil if the connection isn't a socket's own.
func (p *filePart) systemSender(conn net.Conn) fileSender {
	target, ok := conn.(sendfileTarget)
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
		target = socketSender{socket}
	}
	file, err := p.file.SyscallConn()
	if err != nil {
		return nil
	}
	s := &sendfilePart{target: target, file: file}
	s.send, s.sendTo = s.callSend, s.callSendTo
	return s
}

// socketSender is a connection of package net's.
type socketSender struct{ syscall.RawConn }

func (s socketSender) sendFile(part *sendfilePart) error { return s.Write(part.sendTo) }

// sendFile implements fileSender.
func (s *sendfilePart) sendFile(offset int64, size int) (int, error) {
	s.offset, s.left, s.sent = offset, size, 0
	err := s.target.sendFile(s)
	if err == nil {
		err = s.err
	}
	if s.sent == 0 && (err == syscall.EINVAL || err == syscall.ENOSYS || err == syscall.EOPNOTSUPP) {
		return 0, errNoSendfile
	}
	return s.sent, err
}

func (s *sendfilePart) callSendTo(socket uintptr) (done bool) {
	s.socket = int(socket)
	if err := s.file.Control(s.send); err != nil {
		s.err = err
	}
	return s.err != syscall.EAGAIN
}

// callSend sends until the part or the file ends, or the socket takes nothing more, or it fails.
func (s *sendfilePart) callSend(file uintptr) {
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
