package filotest

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

// GetRequest is a minimal request.
const GetRequest = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// StrictConn is the client's end of a connection, in memory or over a socket.
type StrictConn interface {
	net.Conn
	CloseWrite() error
}

// Host is a server that runs until its test ends.
type Host struct {
	Config *filo.Server
	Memory bool // the server's connections are in memory
	Dial   func() (StrictConn, error)
}

// ServeMemory starts a server on an in-memory listener.
func ServeMemory(t testing.TB, config *filo.Server) *Host {
	t.Helper()
	s := servertest.NewServer(t, config)
	return &Host{Config: config, Memory: true, Dial: func() (StrictConn, error) {
		c, err := s.Listener.Dial()
		if err != nil {
			return nil, err
		}
		return c.(*servertest.Conn), nil
	}}
}

// ServeSocket starts a server on a loopback socket.
func ServeSocket(t testing.TB, config *filo.Server) *Host {
	t.Helper()
	listener := Listen(t, "tcp", "127.0.0.1:0")
	ServeOn(t, config, listener)
	return &Host{Config: config, Dial: func() (StrictConn, error) {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}}
}

// ServeOn serves a listener and shuts the server down when the test ends.
func ServeOn(t testing.TB, config *filo.Server, listener net.Listener) {
	t.Helper()
	ServeBy(t, config, func() error { return config.Serve(listener) })
}

// ServeBy calls serve on a goroutine, and shuts the server down when the test ends.
func ServeBy(t testing.TB, config *filo.Server, serve func() error) {
	t.Helper()
	s := New(config, 1)
	s.Go(func() { s.Served <- serve() })
	s.CloseAtEnd(t, 1)
	t.Cleanup(func() { // runs before Close
		if err := s.ShutdownInTime(); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

// EachHost runs a test over in-memory connections and over real sockets.
func EachHost(t *testing.T, newServer func() *filo.Server, test func(t *testing.T, h *Host)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { test(t, ServeMemory(t, newServer())) })
	t.Run("socket", func(t *testing.T) { test(t, ServeSocket(t, newServer())) })
}

// Connect opens a connection that is closed when the test ends.
func (h *Host) Connect(t testing.TB) *StrictClient {
	t.Helper()
	c, err := h.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(Bound)); err != nil {
		t.Fatal(err)
	}
	return &StrictClient{StrictConn: c, In: bufio.NewReader(c)}
}

// Raw sends the request, closes the client's writing half, and returns all bytes that the server sends.
func (h *Host) Raw(t testing.TB, request string) string {
	t.Helper()
	c := h.Connect(t)
	defer c.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		// A server that refuses a request may stop reading, so a failed write is no error: only the answer counts.
		io.WriteString(c, request)
		c.CloseWrite()
	}()
	all, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("reading the answer to %.100q: %v", request, err)
	}
	c.Close()
	<-sent
	return string(all)
}
