package syntax

import (
	"net"
	"net/netip"
	"strings"
)

// SaysHTTPS reports whether a proxy's field has https in it.
func SaysHTTPS(value []byte) bool {
	for ; len(value) >= len("https"); value = value[1:] {
		if EqualFold(value[:len("https")], "https") {
			return true
		}
	}
	return false
}

// IsThisMachine reports whether a host, perhaps with a port, is a name or an address that means the client's own machine, from which browsers
// take Secure cookies over plain HTTP, too.
func IsThisMachine(host string) bool {
	name := host
	if bare, _, err := net.SplitHostPort(host); err == nil {
		name = bare
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.Unmap().IsLoopback()
}
