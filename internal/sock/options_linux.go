package sock

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Options that package syscall lacks.
const (
	soReusePort = 0xf
	tcpFastOpen = 23
)

// set sets the options of a socket before it is bound.
func (o *Options) set(fd int, shared bool) error {
	seconds := int((o.DeferAccept + time.Second - 1) / time.Second)
	for _, option := range [...]struct {
		name          string
		level, option int
		value         int
	}{
		{"SO_REUSEPORT", syscall.SOL_SOCKET, soReusePort, boolToInt(o.ReusePort || shared)},
		{"TCP_DEFER_ACCEPT", syscall.IPPROTO_TCP, syscall.TCP_DEFER_ACCEPT, seconds},
		{"TCP_FASTOPEN", syscall.IPPROTO_TCP, tcpFastOpen, o.FastOpen},
		{"SO_RCVBUF", syscall.SOL_SOCKET, syscall.SO_RCVBUF, o.ReadBuffer},
		{"SO_SNDBUF", syscall.SOL_SOCKET, syscall.SO_SNDBUF, o.WriteBuffer},
	} {
		if option.value <= 0 {
			continue
		}
		if err := syscall.SetsockoptInt(fd, option.level, option.option, option.value); err != nil {
			return os.NewSyscallError("setsockopt "+option.name, err)
		}
	}
	o.SetInherited(fd)
	return nil
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// setListening sets the options that can be set only after the socket has begun to listen.
func (o *Options) setListening(listener net.Listener) error {
	if o.Backlog <= 0 {
		return nil
	}
	return Control(listener, func(fd int) error {
		return os.NewSyscallError("listen", syscall.Listen(fd, o.Backlog)) // a second listen changes the backlog
	})
}

// SetInherited sets those options on a listening socket that package net sets on each accepted connection. Connections that loops accept
// inherit these options from the listening socket, which saves system calls. Connections that the system had already established before the
// call don't inherit them.
func (o *Options) SetInherited(fd int) {
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	interval := o.keepAlive()
	syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, boolToInt(interval > 0))
	if seconds := int((interval + time.Second - 1) / time.Second); seconds > 0 {
		syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, seconds)
		syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, seconds)
	}
}

// Chmod sets the permissions that the file of a Unix socket will have when the socket is bound, apart from those that the umask removes.
func Chmod(fd int, mode fs.FileMode) { syscall.Fchmod(fd, uint32(mode.Perm())) }

// SetReusePort allows further sockets to listen on a listening socket's address.
func SetReusePort(fd int) error {
	return os.NewSyscallError("setsockopt", syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, soReusePort, 1))
}

// Control calls f with the descriptor of a listener or connection of package net.
func Control(of any, f func(fd int) error) error {
	raw, err := of.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// SetLowWater makes pollers report a TCP socket as readable only when it has the given number of bytes, or when no more bytes can arrive
// before some are read. It does nothing where that isn't reliable: for sockets of other protocols, such as Multipath TCP, and before Linux
// 5.12, where the event might never be reported under memory pressure.
func SetLowWater(fd, bytes int) {
	if !hasLowWater() {
		return
	}
	if protocol, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_PROTOCOL); err == nil && protocol == syscall.IPPROTO_TCP {
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes)
	}
}

var hasLowWater = sync.OnceValue(func() bool {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return err == nil && releaseAtLeast(string(release), 5, 12)
})

// releaseAtLeast reports whether a release of Linux, such as 5.15.0-91-generic, is major.minor or later.
func releaseAtLeast(release string, major, minor int) bool {
	var x, y int
	if n, _ := fmt.Sscanf(release, "%d.%d", &x, &y); n < 2 {
		return false
	}
	return x > major || x == major && y >= minor
}
