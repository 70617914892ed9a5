package syntax

import (
	"net"
	"net/netip"
	"strings"
)

// SaysHTTPS reports whether the value of a field that a proxy has set contains "https", in any case.
func SaysHTTPS(value []byte) bool {
	for ; len(value) >= len("https"); value = value[1:] {
		if EqualFold(value[:len("https")], "https") {
			return true
		}
	}
	return false
}

// IsThisMachine reports whether a host, which may have a port, is a name or an address of the client's own machine. Browsers accept Secure cookies
// from such a host over plain HTTP, too.
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
