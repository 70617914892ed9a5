package sock

import (
	"bytes"
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

// The calls never wait: a call that would have to wait fails with EAGAIN. Write writes at most maxWrite bytes, Writev writes its two buffers
// in order, and bytes that Peek returns can still be read.
func TestCalls(t *testing.T) {
	client, server := tcpPair(t)
	control(t, server, func(fd int) {
		b := make([]byte, 16)
		for name, call := range map[string]func(int, []byte) (int, syscall.Errno){"Read": Read, "Peek": Peek} {
			if n, errno := call(fd, b); n != 0 || errno != syscall.EAGAIN {
				t.Errorf("%s with nothing to read: %d, %v", name, n, errno)
			}
		}
		control(t, client, func(client int) {
			if n, errno := Writev(client, []byte("first "), []byte("second")); n != 12 || errno != 0 {
				t.Errorf("Writev: %d, %v", n, errno)
			}
		})
		awaitEvent(t, fd, pollIn)
		for _, call := range []func(int, []byte) (int, syscall.Errno){Peek, Peek, Read} {
			if n, errno := call(fd, b); string(b[:n]) != "first second" || errno != 0 {
				t.Errorf("got %q, %v", b[:n], errno)
			}
		}
		if n, errno := Write(fd, nil); n != 0 || errno != 0 {
			t.Errorf("Write of nothing: %d, %v", n, errno)
		}
		large := bytes.Repeat([]byte("x"), 2*maxWrite)
		written := 0
		for {
			n, errno := Write(fd, large)
			if errno == syscall.EAGAIN {
				break
			}
			if written += n; n > maxWrite || errno != 0 || written > 1<<30 {
				t.Fatalf("Write: %d, %v, after %d", n, errno, written)
			}
		}
		if written == 0 {
			t.Error("nothing was written")
		}
		Shutdown(fd, syscall.SHUT_RDWR)
		if n, errno := Write(fd, large); n != 0 || errno != syscall.EPIPE {
			t.Errorf("Write after Shutdown: %d, %v", n, errno)
		}
	})
}

// Accept returns the client's address, as Peer does, and the connection doesn't block. Closing a duplicate doesn't affect the original
// descriptor.
func TestAccept(t *testing.T) {
	for name, test := range map[string]struct{ network, address string }{
		"IPv4": {"tcp4", "127.0.0.1:0"}, "IPv6": {"tcp6", "[::1]:0"}, "Unix": {"unix", filepath.Join(t.TempDir(), "socket")},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen(test.network, test.address)
			if err != nil {
				t.Skip(err) // the machine has no IPv6
			}
			defer listener.Close()
			client, err := net.Dial(test.network, listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			raw, err := listener.(syscall.Conn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			raw.Control(func(listening uintptr) {
				var address, peer Address
				awaitEvent(t, int(listening), pollIn)
				fd, errno := Accept(int(listening), &address)
				if errno != 0 {
					t.Fatal(errno)
				}
				defer Close(fd)
				want := ""
				if tcp, ok := client.LocalAddr().(*net.TCPAddr); ok {
					want = tcp.AddrPort().String()
				} else {
					want = "invalid AddrPort"
				}
				if errno := Peer(fd, &peer); errno != 0 {
					t.Fatal(errno)
				}
				if address.AddrPort().String() != want || peer.AddrPort().String() != want {
					t.Errorf("the client is %v and %v, want %s", address.AddrPort(), peer.AddrPort(), want)
				}
				if local := LocalAddr(fd); local.String() != listener.Addr().String() || local.Network() != listener.Addr().Network() {
					t.Errorf("the server is %v, want %v", local, listener.Addr())
				}
				if _, errno := Accept(int(listening), &address); errno != syscall.EAGAIN {
					t.Errorf("a second connection: %v", errno)
				}
				dup, err := Duplicate(fd)
				if err != nil {
					t.Fatal(err)
				}
				Close(dup)
				if _, errno := Read(dup, make([]byte, 1)); errno != syscall.EBADF {
					t.Errorf("the duplicate is still open: %v", errno)
				}
				if _, errno := Read(fd, make([]byte, 1)); errno != syscall.EAGAIN {
					t.Errorf("the connection: %v", errno)
				}
			})
		})
	}
}

// With EpollET, an eventfd reports one event each time that it is rung.
func TestEpoll(t *testing.T) {
	set, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(set)
	bell, err := NewEventFD()
	if err != nil {
		t.Fatal(err)
	}
	defer Close(bell)
	if errno := EpollControl(set, syscall.EPOLL_CTL_ADD, bell, syscall.EPOLLIN|EpollET, 7, 9); errno != 0 {
		t.Fatal(errno)
	}
	var events [4]syscall.EpollEvent
	for range 2 {
		if n := EpollPoll(set, events[:]); n != 0 {
			t.Errorf("%d events before it is rung", n)
		}
		RingEventFD(bell)
		if n := EpollPoll(set, events[:]); n != 1 || events[0].Events != syscall.EPOLLIN || events[0].Fd != 7 || events[0].Pad != 9 {
			t.Errorf("%d events, the first %+v", n, events[0])
		}
	}
}
