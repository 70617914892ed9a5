// Package listening opens listeners on Unix sockets, and wraps a listener so that it is closed only once. It accepts no connections.
package listening

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// Unix opens a listening Unix socket: see filo.ListenUnix.
func Unix(path string, mode fs.FileMode) (net.Listener, error) {
	if runtime.GOOS == "linux" && strings.HasPrefix(path, "@") {
		return net.Listen("unix", path)
	}
	if err := removeStaleSocket(path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		// On Linux the socket file then has, from the start, no more permissions than mode without those of the umask. Other systems may refuse the
		// call.
		return raw.Control(func(fd uintptr) { sock.Chmod(int(fd), mode) })
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// removeStaleSocket removes a socket file on which no process listens any more. It leaves any other file. It also leaves a socket to which a
// connection fails for another reason, since that socket may belong to a busy server.
func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return nil
	}
	probe, err := net.Dial("unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return os.Remove(path)
	}
	if err == nil {
		probe.Close()
	}
	return &net.OpError{Op: "listen", Net: "unix", Addr: &net.UnixAddr{Name: path, Net: "unix"},
		Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
}

// Once is a listener that calls the Close of the wrapped listener only once, since the program's listener may not allow a second call.
type Once struct {
	net.Listener
	once sync.Once
	err  error // of Close
}

// Close closes the listener on the first call.
func (l *Once) Close() error {
	l.once.Do(func() { l.err = l.Listener.Close() })
	return l.err
}

// SetDeadline sets the deadline for Accept. It fails if the wrapped listener has no SetDeadline.
func (l *Once) SetDeadline(at time.Time) error {
	if patient, ok := l.Listener.(interface{ SetDeadline(time.Time) error }); ok {
		return patient.SetDeadline(at)
	}
	return errors.ErrUnsupported
}
