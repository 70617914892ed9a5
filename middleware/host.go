package middleware

import (
	"bytes"
	"net/netip"
	"strings"
)

// hostname returns a host without its port. It keeps the brackets of an IPv6 address.
func hostname(host []byte) []byte {
	i := bytes.LastIndexByte(host, ':')
	if i < 0 || bytes.IndexByte(host[i:], ']') >= 0 {
		return host
	}
	return host[:i]
}

// isHost reports whether s is a host with an optional port: a name of letters, digits, hyphens, underscores and dots, or an IP address. RFC
// 3986 allows further characters in a host ("!", and percent-encoding). No real host contains them, so isHost refuses them in options and in
// fields that proxies set.
func isHost[S []byte | string](s S) bool {
	// The name has at most 253 bytes, and ":65535" may follow.
	if len(s) == 0 || len(s) > 259 {
		return false
	}
	if s[0] == '[' {
		return isIPv6Host(string(s))
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == ':' {
			return i > 0 && isPort(string(s[i+1:]))
		} else if !isHostByte(c) {
			return false
		}
	}
	return true
}

func isHostByte(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_'
}

func isIPv6Host(s string) bool {
	address, port, closed := strings.Cut(s[1:], "]")
	if ip, err := netip.ParseAddr(address); !closed || err != nil || !ip.Is6() || ip.Zone() != "" {
		return false
	}
	return port == "" || port[0] == ':' && isPort(port[1:])
}

func isPort(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 5
}

// longestHost is the maximum length in bytes of a host in an option: a name (RFC 1035, section 2.3.4) and a port.
const longestHost = 259

// appendLower appends s with its ASCII letters in lower case.
func appendLower(dst, s []byte) []byte {
	for _, c := range s {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return dst
}

// hostSet holds hosts, and domains that stand for the hosts one label below them.
type hostSet struct {
	hosts   map[string]bool
	domains map[string]bool
}

// newHostSet makes a set of names such as "example.com" and "*.example.com", without ports.
func newHostSet(option string, names []string) hostSet {
	set := hostSet{hosts: make(map[string]bool), domains: make(map[string]bool)}
	for _, name := range names {
		lower := strings.ToLower(name)
		domain, below := strings.CutPrefix(lower, "*.")
		check(isHost(domain) && len(hostname([]byte(domain))) == len(domain) && !strings.HasPrefix(domain, ".") &&
			!strings.HasSuffix(domain, "."), `%s: %q is neither a host, without a port, nor "*." and one`, option, name)
		if below {
			set.domains[domain] = true
		} else {
			set.hosts[domain] = true
		}
	}
	return set
}

// has reports whether a host, with or without a port, is in the set. The final dot of a fully qualified name is ignored.
func (set *hostSet) has(host []byte) bool {
	var buffer [longestHost]byte
	name := bytes.TrimSuffix(hostname(host), []byte{'.'})
	if len(name) == 0 || len(name) > len(buffer) {
		return false
	}
	if set.hosts[string(name)] {
		return true // most clients send the name in lower case
	}
	name = appendLower(buffer[:0], name)
	if set.hosts[string(name)] {
		return true
	}
	dot := bytes.IndexByte(name, '.')
	return dot > 0 && set.domains[string(name[dot+1:])]
}
