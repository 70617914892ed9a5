package sock

import (
	"net"
	"syscall"
	"unsafe"

	"github.com/filohttp/filo/internal/localfile"
	"github.com/filohttp/filo/internal/race"
)

// sendfile sends a file with the system call of that name. It passes the offset to each call. So it doesn't change the file's position,
// which other goroutines may use at the same time.
type sendfile struct {
	target RawWriter
	file   syscall.RawConn
	local  *localfile.File // the same file; nil if it isn't a local file
	offset int64
	left   int
	sent   int
	err    error
	// send and sendTo are method values of callSend and callSendTo, which are made once.
	send   func(file uintptr)
	sendTo func(socket uintptr) (done bool)
	socket int
}

// RawWriter is a connection to which callers can write with their own system calls. RawWrite calls write until write returns true. Between
// the calls it waits until the socket may have room. A program's own connection can't implement RawWriter, since the type of write is
// internal.
type RawWriter interface {
	RawWrite(write RawWrite) error
}

// RawWrite writes as much to the descriptor fd as possible without waiting, and reports whether it has finished.
type RawWrite func(fd uintptr) (done bool)

// newSendfile returns a FileSender that uses sendfile, or nil if the connection isn't a plain socket.
func newSendfile(conn net.Conn, file syscall.Conn, local *localfile.File) FileSender {
	target, ok := conn.(RawWriter)
	if !ok {
		switch conn.(type) {
		case *net.TCPConn, *net.UnixConn: // not a type that embeds one, whose Write may differ
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
	s := &sendfile{target: target, file: raw, local: local}
	s.send, s.sendTo = s.callSend, s.callSendTo
	return s
}

// netWriter is a RawWriter for connections of package net.
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
	return s.result(err)
}

// SendNow implements NowSender.
func (s *sendfile) SendNow(socket uintptr, offset int64, size int) (int, error) {
	s.offset, s.left, s.sent = offset, size, 0
	s.callSendTo(socket)
	return s.result(s.err)
}

func (s *sendfile) result(err error) (int, error) {
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

// maxRaw is how many bytes of a file are sent without notifying the runtime's scheduler, if the bytes are in memory. More bytes would block
// a processor for too long. A socket rarely has room for more.
const maxRaw = 2 << 20

// callSend sends until the end of the requested part or of the file, until the socket is full, or until an error occurs.
func (s *sendfile) callSend(file uintptr) {
	s.err = nil
	if s.local == nil {
		s.sendMost(syscall.Sendfile, file, s.left)
		return
	}
	if size := min(s.left, maxRaw); !race.Enabled && s.local.IsWarm(s.offset, int64(size)) {
		if more := s.sendMost(rawSendfile, file, size); !more {
			return
		}
	}
	begin := s.offset
	s.sendMost(syscall.Sendfile, file, s.left)
	s.local.Sent(begin, s.offset-begin)
}

// sendMost sends at most size bytes with the function call. It returns true if it has sent all of them, and more of the part is left.
func (s *sendfile) sendMost(call func(out, in int, offset *int64, count int) (int, error), file uintptr, size int) (more bool) {
	for size > 0 {
		n, err := call(s.socket, int(file), &s.offset, size) // advances the offset
		switch {
		case err == syscall.EINTR:
		case err != nil:
			s.err = err
			return false
		case n == 0:
			return false
		default:
			s.sent += n
			s.left -= n
			size -= n
		}
	}
	return s.left > 0
}

// rawSendfile is like syscall.Sendfile, but doesn't notify the scheduler.
func rawSendfile(out, in int, offset *int64, count int) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDFILE, uintptr(out), uintptr(in), uintptr(unsafe.Pointer(offset)), uintptr(count), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
