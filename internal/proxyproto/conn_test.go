package proxyproto

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
)

const example = "PROXY TCP4 192.0.2.1 192.0.2.2 1000 443\r\n"

// source is a connection whose Read is that of the test's io.Reader.
type source struct {
	net.Conn
	io.Reader
}

func (s source) Read(p []byte) (int, error) { return s.Reader.Read(p) }
func (source) RemoteAddr() net.Addr         { return &net.UnixAddr{Name: "peer"} }
func (source) LocalAddr() net.Addr          { return &net.UnixAddr{Name: "server"} }

// Receive reads a header that arrives in pieces, and no byte after it. Until then, the connection's addresses are those of the peer.
func TestReceive(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	c := NewConn(source{server, iotest.OneByteReader(server)}, nil)
	if c.ProxyHeader() != nil || c.RemoteAddr().String() != "peer" || c.LocalAddr().String() != "server" {
		t.Errorf("before the header: %v, %v", c.RemoteAddr(), c.LocalAddr())
	}
	go io.WriteString(client, example+"GET")
	if some, err := c.Receive(func() bool { return false }); !some || err != nil {
		t.Fatal(some, err)
	}
	if got := c.ProxyHeader().Source(); got != netip.MustParseAddrPort("192.0.2.1:1000") || c.RemoteAddr().String() != got.String() || c.LocalAddr().String() != "192.0.2.2:443" {
		t.Errorf("after the header: %v, %v, %v", got, c.RemoteAddr(), c.LocalAddr())
	}
	rest := make([]byte, 3)
	if _, err := io.ReadFull(c, rest); err != nil || string(rest) != "GET" {
		t.Errorf("what follows is %q, %v", rest, err)
	}
}

// For an incomplete header, Receive returns an error that says why, and whether any byte arrived.
func TestReceiveErrors(t *testing.T) {
	lost := errors.New("lost")
	for _, test := range []struct {
		name  string
		sent  string
		end   error
		some  bool
		wants error
	}{
		{"nothing", "", io.EOF, false, ErrCut}, {"a part", example[:20], io.EOF, true, ErrCut}, {"another protocol", "GET / HTTP/1.1\r\n\r\n", io.EOF, true, ErrMissing},
		{"a lost connection", example[:20], lost, true, lost},
	} {
		from := io.MultiReader(iotest.OneByteReader(strings.NewReader(test.sent)), iotest.ErrReader(test.end))
		c := NewConn(source{Reader: from}, nil)
		if some, err := c.Receive(func() bool { return false }); some != test.some || err != test.wants || c.ProxyHeader() != nil {
			t.Errorf("%s: %t, %v", test.name, some, err)
		}
	}
}
