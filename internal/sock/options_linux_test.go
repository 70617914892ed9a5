package sock

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// option reads an option of a listener or a connection.
func option(t *testing.T, of any, level, name int) (value int) {
	t.Helper()
	err := Control(of, func(fd int) (err error) {
		value, err = syscall.GetsockoptInt(fd, level, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Each option is set on the listening socket. A second socket needs ReusePort to listen on the same address.
func TestListen(t *testing.T) {
	o := Options{ReusePort: true, DeferAccept: 1500 * time.Millisecond, FastOpen: 3, ReadBuffer: 20_000, WriteBuffer: 30_000, Backlog: 5}
	listener, err := o.Listen("127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, test := range []struct {
		name          string
		level, option int
		least, most   int
	}{
		{"SO_REUSEPORT", syscall.SOL_SOCKET, soReusePort, 1, 1},
		{"TCP_DEFER_ACCEPT", syscall.IPPROTO_TCP, syscall.TCP_DEFER_ACCEPT, 2, 3}, // the system counts retries, and rounds up
		{"TCP_FASTOPEN", syscall.IPPROTO_TCP, tcpFastOpen, 3, 3},
		{"SO_RCVBUF", syscall.SOL_SOCKET, syscall.SO_RCVBUF, 20_000, 40_000}, // the system doubles the sizes of buffers
		{"SO_SNDBUF", syscall.SOL_SOCKET, syscall.SO_SNDBUF, 30_000, 60_000},
	} {
		if got := option(t, listener, test.level, test.option); got < test.least || got > test.most {
			t.Errorf("%s is %d, want %d to %d", test.name, got, test.least, test.most)
		}
	}
	sibling, err := o.Listen(listener.Addr().String(), false)
	if err != nil {
		t.Fatal(err)
	}
	sibling.Close()
	if _, err := new(Options).Listen(listener.Addr().String(), false); err == nil {
		t.Error("another one listens on the same address without ReusePort")
	}
	if sibling, err = new(Options).Listen(listener.Addr().String(), true); err != nil {
		t.Fatal(err)
	}
	sibling.Close()
}

// Connections inherit the options that package net would set on each of them, beginning with the first connection.
func TestListenInherited(t *testing.T) {
	for _, test := range []struct {
		keepAlive time.Duration
		on, idle  int
	}{{0, 1, 15}, {1500 * time.Millisecond, 1, 2}, {-1, 0, 0}} {
		o := Options{KeepAlive: test.keepAlive}
		listener, err := o.Listen("127.0.0.1:0", false)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		if got := option(t, listener, syscall.IPPROTO_TCP, syscall.TCP_NODELAY); got != 1 {
			t.Errorf("TCP_NODELAY is %d", got)
		}
		if got := option(t, listener, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE); got != test.on {
			t.Errorf("%v: SO_KEEPALIVE is %d", test.keepAlive, got)
		}
		if got := option(t, listener, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE); test.on == 1 && got != test.idle {
			t.Errorf("%v: TCP_KEEPIDLE is %d, want %d", test.keepAlive, got, test.idle)
		}
	}
}

// The error for a malformed address explains the format of addresses.
func TestListenWrongAddress(t *testing.T) {
	_, err := new(Options).Listen("8080", false)
	if err == nil || !strings.Contains(err.Error(), `such as ":8080"`) {
		t.Error(err)
	}
	if _, ok := err.(net.Error); ok {
		t.Errorf("%T hides the sentence", err)
	}
}

func TestReleaseAtLeast(t *testing.T) {
	for release, want := range map[string]bool{
		"5.12.0": true, "5.15.0-91-generic\n": true, "6.1": true, "10.0.1": true,
		"5.11.22": false, "4.18.0-553.el8.x86_64": false, "3.10.0": false, "": false, "x.y": false,
	} {
		if got := releaseAtLeast(release, 5, 12); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}
