package guard

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/forwarding"
)

var (
	errPeer       = errors.New("guard: the client isn't on this machine")
	errForwarded  = errors.New("guard: a proxy has forwarded the request")
	errOldVersion = errors.New("guard: HTTP/1.0, as a proxy's, can't be told from a forwarded request")
	errHost       = errors.New("guard: the request is for a host other than this machine")
)

// local admits who is on the same machine, and asks for it by a name that says so.
//
// The peer's address alone is not enough. A proxy on the machine makes all its clients local, so nothing that bears a trace of
// one is let in: none of the fields by which proxies say for whom they ask, and not HTTP/1.0, in which a proxy speaks that adds
// none of them. And a name of somebody else's may be given the address 127.0.0.1 by its owner (DNS rebinding), whose page
// in a browser on this machine would read what it likes: so the host must be localhost, a name below that, which resolves
// to this machine only (RFC 6761, section 6.3), a loopback address, or one of the hosts that were named.
type local struct{ hosts map[string]bool }

const maxHost = 259 // RFC 1035, section 2.3.4, and a port

func newLocal(hosts []string) (*local, error) {
	l := &local{hosts: make(map[string]bool)}
	for _, host := range hosts {
		name, ok := hostname([]byte(strings.ToLower(host)))
		if !ok || len(name) != len(host) || strings.ContainsFunc(host, notInHost) {
			return nil, fmt.Errorf("%q in Hosts is no host without a port", host)
		}
		l.hosts[string(name)] = true
	}
	return l, nil
}

func notInHost(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/@*,?#", r) }

func (l *local) admit(c *filo.Ctx) error {
	switch {
	case !c.RemoteAddrPort().Addr().IsLoopback():
		return errPeer
	case c.Request.Proto() == "HTTP/1.0":
		return errOldVersion
	case forwarded(c):
		return errForwarded
	case !l.hasHost(c.HostBytes()):
		return errHost
	case crossSite(c):
		return errCrossSite
	}
	return nil
}

// hasHost reports whether the host, perhaps with a port, means this machine.
func (l *local) hasHost(host []byte) bool {
	var memory [maxHost]byte
	if len(host) > len(memory) {
		return false
	}
	name, ok := hostname(appendLower(memory[:0], host))
	if !ok {
		return false
	}
	if string(name) == "localhost" || bytes.HasSuffix(name, []byte(".localhost")) && name[0] != '.' || l.hosts[string(name)] {
		return true
	}
	address, err := netip.ParseAddr(string(bytes.TrimSuffix(bytes.TrimPrefix(name, []byte{'['}), []byte{']'})))
	// What has colons must have had brackets, and nothing else may.
	return err == nil && address.IsLoopback() && address.Zone() == "" && (name[0] == '[') == address.Is6()
}

// hostname cuts off a port, and the dot that ends a name which is fully qualified.
func hostname(host []byte) (name []byte, ok bool) {
	name = host
	if i := bytes.LastIndexByte(host, ':'); i >= 0 && bytes.IndexByte(host[i:], ']') < 0 {
		name = host[:i]
		for _, digit := range host[i+1:] {
			if digit < '0' || digit > '9' {
				return nil, false
			}
		}
	}
	name = bytes.TrimSuffix(name, []byte{'.'})
	return name, len(name) > 0
}

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

// forwarded reports whether the request has a field that a proxy adds.
func forwarded(c *filo.Ctx) bool {
	for name := range c.Request.Header.All() {
		if forwarding.KindOf(name) != forwarding.None {
			return true
		}
	}
	return false
}
