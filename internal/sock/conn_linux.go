package sock

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// Conn reads and writes a plain socket of package net with the Read and Write of this package. Package net still does the waiting, and
// handles deadlines and closing. A Conn can be attached to one connection after another. The zero value isn't attached.
type Conn struct {
	raw           syscall.RawConn // nil unless attached
	input, output call
	read, write   func(fd uintptr) bool // input.read and output.write; they are made once, since a method value is allocated
}

// call holds the arguments and the result of a read or a write.
type call struct {
	p     []byte
	n     int
	errno syscall.Errno
}

// Attach makes s read and write netConn, if that is a plain socket. Otherwise s isn't attached afterwards.
func (s *Conn) Attach(netConn net.Conn) {
	s.raw = nil
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

// Detach undoes Attach.
func (s *Conn) Detach() { s.raw = nil }

// Attached reports whether s is attached to a connection.
func (s *Conn) Attached() bool { return s.raw != nil }

// Ended reports, without waiting, whether the client has ended its side and all bytes before the end were read (ended), and whether the
// connection is broken (gone).
func (s *Conn) Ended() (ended, gone bool) {
	err := s.raw.Control(func(fd uintptr) { ended, gone = Ended(int(fd)) })
	return ended, gone || err != nil
}

// Ended checks whether the next read of a socket would find the end of the input (ended), or fail because the connection is broken (gone).
// The system reports a reset only once; after that Ended finds the end of the input.
func Ended(fd int) (ended, gone bool) {
	var next [1]byte
	n, errno := Peek(fd, next[:])
	return n == 0 && errno == 0, errno != 0 && errno != syscall.EAGAIN
}

// AwaitEnd waits until the client of a socket has ended its side or, if gone is set, until the connection is broken or ended on both sides.
// Then it returns io.EOF. Like a Read, it may return another error first, for example at a deadline. It returns ErrCannotTell if the
// connection isn't a socket.
func AwaitEnd(netConn net.Conn, gone bool) error {
	raw, err := rawConn(netConn)
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

// transport returns the connection below a TLS connection, and any other connection unchanged.
func transport(netConn net.Conn) net.Conn {
	if tlsConn, ok := netConn.(*tls.Conn); ok {
		netConn = tlsConn.NetConn()
	}
	return netConn
}

// rawConn returns the socket of a connection, which may use TLS. It returns ErrCannotTell if there is no socket.
func rawConn(netConn net.Conn) (syscall.RawConn, error) {
	owner, ok := transport(netConn).(syscall.Conn)
	if !ok {
		return nil, ErrCannotTell
	}
	return owner.SyscallConn()
}

// HasInput reports whether a Read of a connection would return at once. known is false if the connection isn't a socket.
func HasInput(netConn net.Conn) (has, known bool) {
	raw, err := rawConn(netConn)
	if err != nil {
		return false, false
	}
	err = raw.Control(func(fd uintptr) {
		_, errno := Peek(int(fd), make([]byte, 1))
		has = errno != syscall.EAGAIN
	})
	return has, err == nil
}

// Buffered returns how many written bytes are still in the system's buffer because the peer of the connection hasn't acknowledged them. For
// a Unix socket the number includes the system's own overhead. ok is false if the connection isn't a socket. Any goroutine may call it.
func Buffered(netConn net.Conn) (n int, ok bool) {
	if looped, ok := transport(netConn).(interface{ Buffered() (n int, ok bool) }); ok {
		return looped.Buffered()
	}
	raw, err := rawConn(netConn)
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) { n, ok = BufferedIn(int(fd)) })
	return n, ok && err == nil
}

// BufferedIn is Buffered for a descriptor.
func BufferedIn(fd int) (n int, ok bool) {
	var size int32
	_, _, errno := syscall.RawSyscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&size)))
	return int(size), errno == 0
}

// UnreadIn returns how many received bytes of a connection haven't been read.
func UnreadIn(fd int) (n int, ok bool) {
	var size int32
	_, _, errno := syscall.RawSyscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCINQ, uintptr(unsafe.Pointer(&size)))
	return int(size), errno == 0
}

const (
	pollIn  = 1 // POLLIN
	pollOut = 4 // POLLOUT
)

// IsReadable reports whether a read would return at once: with at least as many bytes as SetLowWater has set, with the end of the input, or
// with an error.
func IsReadable(fd int) bool { return hasHappened(fd, pollIn) }

// IsWritable reports whether the system considers the socket writable: a third of its buffer must be free.
func IsWritable(fd int) bool { return hasHappened(fd, pollOut) }

// Transferred returns how many bytes of a TCP connection were received, and how many sent bytes its peer has acknowledged. Both include the
// overhead of TLS. ok is false if the connection isn't a TCP connection, or the system doesn't report the numbers. Any goroutine may call
// it.
func Transferred(netConn net.Conn) (received, sent uint64, ok bool) {
	if looped, ok := transport(netConn).(interface {
		Transferred() (received, sent uint64, ok bool)
	}); ok {
		return looped.Transferred()
	}
	raw, err := rawConn(netConn)
	if err != nil {
		return 0, 0, false
	}
	err = raw.Control(func(fd uintptr) { received, sent, ok = TransferredIn(int(fd)) })
	return received, sent, ok && err == nil
}

// tcpInfo is the beginning of Linux's struct tcp_info, up to the last field that is used here. It begins with 8 bytes and 24 words of 4
// bytes.
type tcpInfo struct {
	_                  [104]byte
	_, _               [8]byte // rates
	acknowledged, came [8]byte // bytes_acked and bytes_received; byte arrays, since the alignment of uint64 differs between architectures
}

// TransferredIn is Transferred for a descriptor.
func TransferredIn(fd int) (received, sent uint64, ok bool) {
	var info tcpInfo
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := syscall.RawSyscall6(sysGetsockopt, uintptr(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO, uintptr(unsafe.Pointer(&info)),
		uintptr(unsafe.Pointer(&size)), 0)
	ok = errno == 0 && size == uint32(unsafe.Sizeof(info))
	return binary.NativeEndian.Uint64(info.came[:]), binary.NativeEndian.Uint64(info.acknowledged[:]), ok
}

// LimitUnsent makes the system accept no more output of a TCP connection once it holds the given number of unsent bytes, so that later bytes
// needn't wait for megabytes before them. It does nothing for other connections.
func LimitUnsent(netConn net.Conn, bytes int) {
	if looped, ok := transport(netConn).(interface{ LimitUnsent(bytes int) }); ok {
		looped.LimitUnsent(bytes)
		return
	}
	if raw, err := rawConn(netConn); err == nil {
		_ = raw.Control(func(fd uintptr) { LimitUnsentIn(int(fd), bytes) }) // a closed connection needs no limit
	}
}

// LimitUnsentIn is LimitUnsent for a descriptor.
func LimitUnsentIn(fd, bytes int) {
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, tcpNotSentLowat, bytes)
}

// tcpNotSentLowat is TCP_NOTSENT_LOWAT, which package syscall lacks.
const tcpNotSentLowat = 25

// pollRDHUP is POLLRDHUP, which package syscall lacks.
const pollRDHUP = 0x2000

// hasHappened reports whether one of the events of poll(2) has happened, or the socket is broken or ended on both sides.
func hasHappened(fd int, events int16) bool {
	entry := struct {
		fd              int32
		events, revents int16
	}{int32(fd), events, 0}
	var now syscall.Timespec
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&entry)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n > 0
}

// Read implements net.Conn.
func (s *Conn) Read(p []byte) (int, error) {
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

// Write implements net.Conn.
func (s *Conn) Write(p []byte) (int, error) {
	call := &s.output
	call.p, call.n, call.errno = p, 0, 0
	err := s.raw.Write(s.write)
	call.p = nil
	if err == nil && call.errno != 0 {
		err = os.NewSyscallError("write", call.errno)
	}
	return call.n, err
}

// read tries to read, and reports whether it has got a result or an error. If not, read is called again when the socket is readable.
func (c *call) read(fd uintptr) bool {
	c.n, c.errno = Read(int(fd), c.p)
	return c.errno != syscall.EAGAIN
}

// write writes as much as possible, and reports whether all was written or an error occurred. If not, write is called again when the socket
// has room.
func (c *call) write(fd uintptr) bool {
	for len(c.p) > 0 {
		n, errno := Write(int(fd), c.p)
		if errno == syscall.EAGAIN {
			return false
		}
		if errno != 0 {
			c.errno = errno
			return true
		}
		c.n += n
		c.p = c.p[n:]
	}
	return true
}
