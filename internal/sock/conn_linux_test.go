package sock

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// pair returns the two ends of a connection on a loopback address or, for "unix", a path.
func pair(t *testing.T, network, address string) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = net.Dial(network, listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func tcpPair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	c, s := pair(t, "tcp", "127.0.0.1:0")
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// control calls f with the descriptor of a connection.
func control(t *testing.T, conn net.Conn, f func(fd int)) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { f(int(fd)) }); err != nil {
		t.Fatal(err)
	}
}

// A Conn reads and writes as the connection itself would: all bytes in order, with the same end and errors.
func TestConn(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "socket")} {
		t.Run(network, func(t *testing.T) {
			client, server := pair(t, network, address)
			var c Conn
			if c.Attach(server); !c.Attached() {
				t.Fatal("a plain socket isn't attached")
			}
			sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // more than a socket's buffers hold
			received := make(chan []byte)
			go func() {
				b := make([]byte, len(sent))
				n, _ := io.ReadFull(client, b)
				received <- b[:n]
			}()
			if n, err := c.Write(sent); n != len(sent) || err != nil {
				t.Errorf("wrote %d of %d bytes, %v", n, len(sent), err)
			}
			if got := <-received; !bytes.Equal(got, sent) {
				t.Errorf("%d bytes came of %d, or others", len(got), len(sent))
			}
			if n, err := c.Write(nil); n != 0 || err != nil {
				t.Errorf("writing nothing: %d, %v", n, err)
			}
			server.SetReadDeadline(time.Now().Add(time.Millisecond))
			b := make([]byte, 10)
			if n, err := c.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("at the deadline: %d, %v", n, err)
			}
			server.SetReadDeadline(time.Time{})
			io.WriteString(client, "answer")
			if n, err := c.Read(b); string(b[:n]) != "answer" || err != nil {
				t.Errorf("read %q, %v", b[:n], err)
			}
			client.Close()
			if n, err := c.Read(b); n != 0 || err != io.EOF {
				t.Errorf("at the end: %d, %v", n, err)
			}
			server.Close()
			if n, err := c.Read(b); n != 0 || !errors.Is(err, net.ErrClosed) {
				t.Errorf("read of a closed connection: %d, %v", n, err)
			}
			if n, err := c.Write(b); n != 0 || !errors.Is(err, net.ErrClosed) {
				t.Errorf("write to a closed connection: %d, %v", n, err)
			}
			if c.Detach(); c.Attached() {
				t.Error("it is still attached")
			}
		})
	}
}

// A type that merely embeds a socket isn't attached, since it may have a Read of its own.
func TestConnRefuses(t *testing.T) {
	_, tcp := tcpPair(t)
	pipe, other := net.Pipe()
	defer other.Close()
	var c Conn
	for _, conn := range []net.Conn{struct{ *net.TCPConn }{tcp}, pipe} {
		if c.Attach(tcp); !c.Attached() {
			t.Error("a plain socket isn't attached")
		}
		if c.Attach(conn); c.Attached() {
			t.Errorf("a %T is attached", conn)
		}
	}
}

// Errors of a broken connection name the system call.
func TestConnBroken(t *testing.T) {
	client, server := tcpPair(t)
	var c Conn
	c.Attach(server)
	client.SetLinger(0)
	client.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v", err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write: %v", err)
	}
}

// Ended reports the end of the input, or that the connection is broken. It consumes no bytes.
func TestEnded(t *testing.T) {
	for name, test := range map[string]struct {
		end         func(*net.TCPConn)
		ended, gone bool
	}{
		"open":    {func(*net.TCPConn) {}, false, false},
		"unread":  {func(c *net.TCPConn) { io.WriteString(c, "x"); c.CloseWrite() }, false, false},
		"ended":   {func(c *net.TCPConn) { c.CloseWrite() }, true, false},
		"is gone": {func(c *net.TCPConn) { c.SetLinger(0); c.Close() }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := tcpPair(t)
			test.end(client)
			var c Conn
			c.Attach(server)
			if name != "open" {
				control(t, server, func(fd int) { awaitEvent(t, fd, pollRDHUP) })
			}
			if ended, gone := c.Ended(); ended != test.ended || gone != test.gone {
				t.Errorf("ended %t, gone %t, want %t, %t", ended, gone, test.ended, test.gone)
			}
			if name == "unread" {
				if b := make([]byte, 2); true {
					if n, err := c.Read(b); n != 1 || err != nil {
						t.Errorf("afterwards read %d, %v", n, err)
					}
				}
				if ended, gone := c.Ended(); !ended || gone {
					t.Errorf("afterwards ended %t, gone %t", ended, gone)
				}
			}
		})
	}
}

// awaitEvent waits until one of the events of poll(2) has happened, or the socket is broken or ended on both sides.
func awaitEvent(t *testing.T, fd int, events int16) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !hasHappened(fd, events); {
		if time.Now().After(deadline) {
			t.Fatal("nothing comes")
		}
	}
}

// AwaitEnd returns when the client has ended its side. With gone set, it returns only when the connection is broken or ended on both sides.
func TestAwaitEnd(t *testing.T) {
	client, server := tcpPair(t)
	await := func(gone bool) <-chan error {
		result := make(chan error, 1)
		go func() { result <- AwaitEnd(server, gone) }()
		return result
	}
	io.WriteString(client, "what isn't read doesn't hide the end")
	ended := await(false)
	client.CloseWrite()
	if err := <-ended; err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	server.SetReadDeadline(time.Now().Add(time.Millisecond))
	if err := <-await(true); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a client that has only ended its side is gone: %v", err)
	}
	server.SetReadDeadline(time.Time{})
	gone := await(true)
	client.SetLinger(0)
	client.Close()
	if err := <-gone; err != io.EOF {
		t.Errorf("when it is gone: %v", err)
	}
	pipe, other := net.Pipe()
	defer other.Close()
	if err := AwaitEnd(pipe, false); err != ErrCannotTell {
		t.Errorf("no socket: %v", err)
	}
}
