package sock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Options are TCP socket options. They are made from a filo.SocketOptions, whose comments explain the fields and their defaults.
type Options struct {
	Backlog                 int
	ReusePort               bool
	DeferAccept             time.Duration
	FastOpen                int
	KeepAlive               time.Duration
	ReadBuffer, WriteBuffer int
}

// defaultKeepAlive is net.ListenConfig's default.
const defaultKeepAlive = 15 * time.Second

// keepAlive returns the keep-alive interval, or 0 if keep-alive is off.
func (o *Options) keepAlive() time.Duration {
	switch {
	case o.KeepAlive < 0:
		return 0
	case o.KeepAlive == 0:
		return defaultKeepAlive
	}
	return o.KeepAlive
}

// Listen opens a listening socket on the TCP address. shared says that other sockets of this process listen on the same address.
func (o *Options) Listen(addr string, shared bool) (net.Listener, error) {
	interval := o.keepAlive()
	config := net.ListenConfig{
		Control: func(_, _ string, raw syscall.RawConn) error {
			var failed error
			if err := raw.Control(func(fd uintptr) { failed = o.set(int(fd), shared) }); err != nil {
				return err
			}
			return failed
		},
		KeepAliveConfig: net.KeepAliveConfig{Enable: interval > 0, Idle: interval, Interval: interval},
	}
	if interval == 0 {
		config.KeepAlive = -1
	}
	// Multipath TCP would make every connection more expensive, and few clients use it.
	config.SetMultipathTCP(false)
	listener, err := config.Listen(context.Background(), "tcp", addr)
	if wrong := (*net.AddrError)(nil); errors.As(err, &wrong) {
		return nil, fmt.Errorf("filo: an address is a host, which may be empty, and a port, such as \":8080\" or \"localhost:8080\": %w", err)
	}
	if err != nil {
		return nil, err
	}
	if err := o.setListening(listener); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}
