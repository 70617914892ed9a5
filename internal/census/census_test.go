package census

import (
	"net"
	"net/netip"
	"testing"
)

// An IPv6 client can choose addresses from a whole /64, so a /64 counts as one client.
func TestOf(t *testing.T) {
	tcp := func(text, zone string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(text), Port: 1, Zone: zone} }
	for _, test := range []struct {
		addr net.Addr
		want string // "" for an address that isn't counted
	}{
		{tcp("192.0.2.1", ""), "192.0.2.1"},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 1}, "192.0.2.1"},
		{tcp("::ffff:192.0.2.1", ""), "192.0.2.1"},
		{tcp("192.0.2.2", ""), "192.0.2.2"},
		{tcp("::1", ""), "::"},
		{tcp("2001:db8:1:2::1", ""), "2001:db8:1:2::"},
		{tcp("2001:db8:1:2:ffff:ffff:ffff:ffff", ""), "2001:db8:1:2::"},
		{tcp("2001:db8:1:3::1", ""), "2001:db8:1:3::"},
		{tcp("fe80::1", "eth0"), "fe80::"},
		{&net.TCPAddr{}, ""},
		{&net.UnixAddr{Name: "@", Net: "unix"}, ""},
		{nil, ""},
	} {
		var want netip.Addr
		if test.want != "" {
			want = netip.MustParseAddr(test.want)
		}
		if got := Of(test.addr); got != want {
			t.Errorf("Of(%v) = %v, want %v", test.addr, got, want)
		}
	}
}

// A client can have as many connections as the maximum, and no entry for it is left when they have ended.
func TestConns(t *testing.T) {
	var c Conns
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	if c.IsFull(a, 0) || c.Bodies(a) != nil {
		t.Error("a client without connections is there")
	}
	for i := range 4 {
		if ok := c.Count(a, 3); ok != (i < 3) || c.IsFull(a, 3) != (i >= 2) {
			t.Errorf("connection %d: %t", i, ok)
		}
	}
	if !c.Count(b, 3) || c.Len() != 2 || c.Bodies(a) == nil || c.Bodies(a) == c.Bodies(b) {
		t.Error("another client counts with the first one")
	}
	for range 3 {
		c.Uncount(a)
	}
	if c.Uncount(b); c.Len() != 0 {
		t.Errorf("%d clients are left", c.Len())
	}
}
