package filo

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"github.com/filohttp/filo/internal/lend"
)

// maxRawWrite is how much one system call of a socket writes: one that copies more takes so long that the scheduler
// should know of it.
const maxRawWrite = 64 << 10

// socket reads and writes a plain socket by system calls that the runtime's scheduler isn't told of. The socket doesn't
// block, so telling costs more than it can ever give: a sixth of the server's processor time with small requests.
// Waiting, deadlines and closing are the net package's, as ever.
//
// It belongs to a worker, and serves one connection after the other.
type socket struct {
	raw           syscall.RawConn // nil while there is no plain socket
	input, output socketCall
	read, write   func(fd uintptr) bool // input.read and output.write; made once, since making allocates
}

// socketCall is the arguments and the result of a read or a write.
type socketCall struct {
	p     []byte
	n     int
	errno syscall.Errno
}

// attach makes s read and write the connection, if that is a plain socket.
func (s *socket) attach(netConn net.Conn) {
	s.raw = nil
	if lend.RaceEnabled {
		return // syscall's Read and Write tell the race detector that what is sent comes before it is received
	}
	switch netConn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return
	}
	raw, err := netConn.(syscall.Conn).SyscallConn()
	if err != nil {
		return
	}
	s.raw = raw
	if s.read == nil {
		s.read, s.write = s.input.read, s.output.write
	}
}

func (s *socket) detach() { s.raw = nil }

// attached reports whether s can be used.
func (s *socket) attached() bool { return s.raw != nil }

// ended reports whether the client has sent all that it will send and all of it has been read, and whether it is gone
// altogether. It doesn't wait.
func (s *socket) ended() (ended, gone bool) {
	err := s.raw.Control(func(fd uintptr) { ended, gone = peekEnd(int(fd)) })
	return ended, gone || err != nil
}

// peekEnd looks at what a socket would read next: the end of the client's side, or an error because the client is gone.
// A reset shows only once: who looks next sees an end.
func peekEnd(fd int) (ended, gone bool) {
	var next [1]byte
	n, _, err := syscall.Recvfrom(fd, next[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n == 0 && err == nil, err != nil && err != syscall.EAGAIN && err != syscall.EINTR
}

// awaitPeer waits until the client of a socket has ended its side, with io.EOF, or, if gone is set, until it is gone altogether.
// It ends as a Read of the connection does otherwise.
func awaitPeer(netConn net.Conn, gone bool) error {
	if tlsConn, ok := netConn.(*tls.Conn); ok {
		netConn = tlsConn.NetConn()
	}
	owner, ok := netConn.(syscall.Conn)
	if !ok {
		return errCannotTell
	}
	raw, err := owner.SyscallConn()
	if err != nil {
		return err
	}
	events := int16(pollRDHUP)
	if gone {
		events = 0
	}
	if err := raw.Read(func(fd uintptr) bool { return hasHappened(int(fd), events) }); err != nil {
		return err
	}
	return io.EOF
}

// pollRDHUP is POLLRDHUP, which package syscall hasn't.
const pollRDHUP = 0x2000

// hasHappened reports whether one of the events of poll(2) has, or the socket is broken or ended on both sides.
func hasHappened(fd int, events int16) bool {
	entry := struct {
		fd              int32
		events, revents int16
	}{int32(fd), events, 0}
	var now syscall.Timespec
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&entry)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n > 0
}

// Read is net.Conn's Read.
func (s *socket) Read(p []byte) (int, error) {
	call := &s.input
	call.p, call.n, call.errno = p, 0, 0
	err := s.raw.Read(s.read)
	call.p = nil
	switch {
	case err != nil:
		return 0, err
	case call.errno != 0:
		return 0, os.NewSyscallError("read", call.errno)
	case call.n == 0:
		return 0, io.EOF
	}
	return call.n, nil
}

// Write is net.Conn's Write.
func (s *socket) Write(p []byte) (int, error) {
	call := &s.output
	call.p, call.n, call.errno = p, 0, 0
	err := s.raw.Write(s.write)
	call.p = nil
	if err == nil && call.errno != 0 {
		err = os.NewSyscallError("write", call.errno)
	}
	return call.n, err
}

// read reports whether there is a result; if not, it is called again when the socket is readable.
func (c *socketCall) read(fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(c.p))), uintptr(len(c.p)))
		switch errno {
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		case 0:
			c.n = int(n)
			return true
		default:
			c.errno = errno
			return true
		}
	}
}

// write reports whether all is written, or can't be; if not, it is called again when the socket takes more.
func (c *socketCall) write(fd uintptr) bool {
	for len(c.p) > 0 {
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(c.p))), uintptr(min(len(c.p), maxRawWrite)))
		switch errno {
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		case 0:
			c.n += int(n)
			c.p = c.p[n:]
		default:
			c.errno = errno
			return true
		}
	}
	return true
}
