package guard

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/forwarding"
)

var (
	errUndeclared = errors.New("guard: Server.ForOperator isn't set, so any client may reach the server")
	errPeer       = errors.New("guard: the client isn't on this machine")
	errProxied    = errors.New("guard: a proxy has sent a header of the PROXY protocol")
	errForwarded  = errors.New("guard: a proxy has forwarded the request")
	errOldVersion = errors.New("guard: a proxy may have forwarded the request, since it is HTTP/1.0")
	errHost       = errors.New("guard: the request is for a host other than this machine")
)

// local admits clients on the same machine, if the program has set Server.ForOperator.
//
// The client's address proves nothing, since a proxy on the machine uses its own address for all its clients. Nor does the request: modern proxies
// send HTTP/1.1, and no field distinguishes a proxy from a client. Only the program knows who can reach a listener, so it has to set ForOperator. The
// other conditions limit the damage if it sets ForOperator by mistake. The client must be on this machine, by TCP or a Unix socket. There must be no
// trace of a proxy: no header of the PROXY protocol, no field in which proxies name their clients, and no HTTP/1.0, which old proxies use. Finally,
// the host must be localhost, a name below localhost, which resolves to this machine only (RFC 6761, section 6.3), a loopback address, or one of
// Hosts. The owner of any other name could let it resolve to 127.0.0.1 (DNS rebinding). Then a page of that owner in a browser on this machine could
// read the guarded pages.
type local struct {
	pkg   string
	hosts map[string]bool
	told  sync.Once
}

const maxHost = 259 // RFC 1035, section 2.3.4, and a port

func newLocal(pkg string, hosts []string) (*local, error) {
	l := &local{pkg: pkg, hosts: make(map[string]bool)}
	for _, host := range hosts {
		name, ok := hostname([]byte(strings.ToLower(host)))
		if !ok || len(name) != len(host) || strings.ContainsFunc(host, notInHost) {
			return nil, fmt.Errorf("%q in Hosts isn't a host without a port", host)
		}
		l.hosts[string(name)] = true
	}
	return l, nil
}

func notInHost(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/@*,?#", r) }

// admit logs the first refusal, since the answer doesn't tell a refused operator the reason. It logs no further ones, so strangers can't fill the
// log.
func (l *local) admit(c *filo.Ctx) error {
	err := l.refusal(c)
	if err != nil {
		l.told.Do(func() {
			c.Logger().Warn("the guard has refused a request; further ones are logged if Server.LogAllErrors is set", "guard", l.pkg, "reason", err,
				"remedy", "set Token, or serve this by a server of its own with ForOperator")
		})
	}
	return err
}

func (l *local) refusal(c *filo.Ctx) error {
	server := c.Server()
	switch {
	case !server.ForOperator:
		return errUndeclared
	// With these options each of the server's connections begins with a PROXY header. The check doesn't ask the Ctx, which loses this information if
	// net/http middleware runs before the guard.
	case len(server.ProxyProtocol.TrustedPeers) > 0 || server.ProxyProtocol.TrustUnixSocket:
		return errProxied
	case !c.RemoteAddrPort().Addr().IsLoopback() && !bySocketFile(c):
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

// bySocketFile reports whether the client has connected to a Unix socket. LocalAddr may return nil for a connection from the program's own
// net.Listener.
func bySocketFile(c *filo.Ctx) bool {
	local := c.LocalAddr()
	return local != nil && local.Network() == "unix"
}

// hasHost reports whether the host, which may have a port, is a name or an address of this machine.
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
	// An IPv6 address must have had brackets. No other host may have them.
	return err == nil && address.IsLoopback() && address.Zone() == "" && (name[0] == '[') == address.Is6()
}

// hostname removes a port, and the final dot of a fully qualified name.
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
