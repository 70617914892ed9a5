package middleware

import (
	"bytes"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/asked"
)

// RealIPOptions configures RealIP.
type RealIPOptions struct {
	// TrustedProxies are the address ranges of the server's own proxies, such as 10.0.0.0/8. RealIP ignores what any other
	// address says about the origin of a request. Required, unless TrustUnixSocket is set.
	TrustedProxies []netip.Prefix
	// TrustUnixSocket treats every connection over a Unix socket as a trusted proxy.
	TrustUnixSocket bool
	// Forwarded reads the Forwarded field (RFC 7239) instead of X-Forwarded-For, -Proto and -Host. RealIP never reads both kinds of fields: a
	// proxy that sets one kind forwards the client's own values of the other kind.
	Forwarded bool
	// TrustProto and TrustHost declare that the proxies also set, or remove, the scheme and the host of the client's request:
	// X-Forwarded-Proto and X-Forwarded-Host, or the parameters proto and host. Otherwise RealIP ignores these fields and parameters. If
	// RealIP wraps the router, instead of being given to its Use, routes with hosts match the host that RealIP finds.
	TrustProto, TrustHost bool
}

// maxForwardedHops is the maximum length of a chain of proxies that RealIP follows.
const maxForwardedHops = 32

// realIP reads the origin of a request from its fields. All requests share one realIP. It reads the fields only when a caller asks for the
// origin, so a request whose origin isn't needed costs nothing. Reading the fields allocates no memory.
type realIP struct{ options RealIPOptions }

// RealIP finds the true origin of a request that came through proxies: see ClientIP, Scheme and Host. Put it outside of everything that calls
// these functions, such as the access log, rate limits and redirects.
//
// Each proxy appends an address at the right end of the field, and everything to the left may be made up by the client. RealIP therefore
// reads from the right. The last address is the one that connected to the nearest proxy. If that address is a trusted proxy too, the address
// before it is the one that connected to that proxy, and so on. The first address that isn't trusted is the client's; RealIP ignores
// everything to its left.
func RealIP(options RealIPOptions) filo.Middleware {
	check(len(options.TrustedProxies) > 0 || options.TrustUnixSocket, "RealIP: no TrustedProxies: name those in front of the server; without any, the connection's address is the client's")
	r := &realIP{options}
	r.options.TrustedProxies = make([]netip.Prefix, len(options.TrustedProxies))
	for i, prefix := range options.TrustedProxies {
		check(prefix.IsValid(), "RealIP: an invalid prefix in TrustedProxies")
		if address := prefix.Addr(); address.Is4In6() {
			check(prefix.Bits() >= 96, "RealIP: TrustedProxies: %s is neither of IPv4 nor of IPv6 addresses", prefix)
			prefix = netip.PrefixFrom(address.Unmap(), prefix.Bits()-96)
		}
		r.options.TrustedProxies[i] = prefix.Masked()
	}
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			asked.SetView(c, r)
			return next(c)
		}
	}
}

// ClientIP returns the address of the client: the peer of the connection, or, with RealIP and a trusted proxy as peer, the client
// that the proxy names. If a proxy hides the client ("unknown", or an obfuscated name), the result is the address of that proxy.
// An IPv4 address in IPv6 form is returned as IPv4, and the zone is removed. The result is invalid if the connection doesn't use
// IP and RealIP found no address either.
func ClientIP(c *filo.Ctx) netip.Addr {
	address, trusted := peer(c)
	return trusted.client(c, address)
}

// client does the work of ClientIP. The receiver, which may be nil, and address are the results of peer for the request.
func (r *realIP) client(c *filo.Ctx, address netip.Addr) netip.Addr {
	if r == nil {
		return address
	}
	return r.forwarded(c, address).client
}

// Client implements asked.View.
func (*realIP) Client(c *filo.Ctx) netip.Addr {
	address, trusted := peer(c)
	if client := trusted.client(c, address); client != address {
		return client
	}
	return netip.Addr{}
}

// Scheme returns the scheme that the client used, "http" or "https": the connection's scheme, or, with RealIP, TrustProto and a trusted
// proxy, the scheme that the proxy names. Unlike the result of URI.Scheme, a client can't choose this result.
func Scheme(c *filo.Ctx) string { return asked.Scheme(c) }

// Scheme implements asked.View.
func (*realIP) Scheme(c *filo.Ctx) string {
	if address, trusted := peer(c); trusted != nil && trusted.options.TrustProto {
		var proto []byte
		if trusted.options.Forwarded {
			proto = trusted.forwarded(c, address).proto
		} else {
			proto = lastElement(c, "X-Forwarded-Proto")
		}
		switch {
		case bytes.EqualFold(proto, []byte("https")), bytes.EqualFold(proto, []byte("wss")): // some proxies send wss for WebSocket handshakes
			return "https"
		case bytes.EqualFold(proto, []byte("http")), bytes.EqualFold(proto, []byte("ws")):
			return "http"
		}
	}
	return asked.OwnScheme(c)
}

// Host returns the host that the client asked for, perhaps with a port: the request's host, or, with RealIP, TrustHost and a trusted proxy,
// the host that the proxy names.
func Host(c *filo.Ctx) string { return string(HostBytes(c)) }

// HostBytes returns the result of Host as bytes, which are borrowed until the handler returns.
func HostBytes(c *filo.Ctx) []byte { return asked.Host(c) }

// Host implements asked.View.
func (*realIP) Host(c *filo.Ctx) []byte {
	address, trusted := peer(c)
	return trusted.host(c, address)
}

// host does the work of HostBytes. The receiver, which may be nil, and address are the results of peer for the request.
func (r *realIP) host(c *filo.Ctx, address netip.Addr) []byte {
	if r != nil && r.options.TrustHost {
		var host []byte
		if r.options.Forwarded {
			host = r.forwarded(c, address).host
		} else {
			host = lastElement(c, "X-Forwarded-Host")
		}
		// A colon without a port is allowed (RFC 3986, section 3.2.3), and the server accepts one in Host, too.
		if isHost(bytes.TrimSuffix(host, []byte{':'})) {
			return host
		}
	}
	return c.HostBytes()
}

// peer returns the address of the connection's remote end, which is invalid if the connection doesn't use IP. If a trusted proxy is at that
// end, trusted is the realIP to use; otherwise it is nil.
func peer(c *filo.Ctx) (address netip.Addr, trusted *realIP) {
	r, _ := asked.ViewOf(c).(*realIP)
	address = c.RemoteAddrPort().Addr().WithZone("")
	switch {
	case r == nil:
	case address.IsValid():
		if r.trusts(address) {
			trusted = r
		}
	case r.options.TrustUnixSocket:
		if remote := c.RemoteAddr(); remote != nil && remote.Network() == "unix" {
			trusted = r
		}
	}
	return address, trusted
}

func (r *realIP) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(r.options.TrustedProxies, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// forwarded holds the client, scheme and host that the proxies state. A nil or invalid value means that no proxy states it; X-Forwarded-For
// never states proto or host.
type forwarded struct {
	client      netip.Addr
	proto, host []byte
}

// forwarded reads Forwarded or X-Forwarded-For. The argument nearest is the address of the trusted proxy at the connection's remote end. If
// several trusted proxies state a scheme or a host, the value from the proxy closest to the client counts.
func (r *realIP) forwarded(c *filo.Ctx, nearest netip.Addr) forwarded {
	said, name := forwarded{client: nearest}, "X-Forwarded-For"
	if r.options.Forwarded {
		name = "Forwarded"
	}
	var elements elementsBackwards
	elements.collect(c, name)
	for range maxForwardedHops {
		node, ok := elements.previous()
		if ok && r.options.Forwarded {
			var proto, host []byte
			if node, proto, host, ok = parseForwarded(node); proto != nil {
				said.proto = proto
			}
			if host != nil {
				said.host = host
			}
		}
		if !ok {
			break
		}
		address, ok := parseNode(node)
		if !ok {
			break
		}
		said.client = address
		if !r.trusts(address) {
			break
		}
	}
	return said
}

// parseForwarded reads an element of Forwarded (RFC 7239, section 4), such as `for="[2001:db8::1]:4711";proto=https`. A value with
// a backslash counts as missing: no useful value needs one.
func parseForwarded(element []byte) (node, proto, host []byte, ok bool) {
	for len(element) > 0 {
		var pair []byte
		pair, element, _ = cutOutsideQuotes(element, ';')
		name, value, found := bytes.Cut(bytes.TrimSpace(pair), []byte{'='})
		if len(name) == 0 && !found {
			continue
		}
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		if !found || bytes.IndexByte(value, '"') >= 0 || bytes.IndexByte(value, '\\') >= 0 {
			return nil, nil, nil, false
		}
		var parameter *[]byte
		switch {
		case bytes.EqualFold(name, []byte("for")):
			parameter = &node
		case bytes.EqualFold(name, []byte("proto")):
			parameter = &proto
		case bytes.EqualFold(name, []byte("host")):
			parameter = &host
		default:
			continue
		}
		if *parameter != nil { // "Each parameter MUST NOT occur more than once per field-value."
			return nil, nil, nil, false
		}
		*parameter = value
	}
	return node, proto, host, true
}

// cutOutsideQuotes is bytes.Cut at the first separator that isn't in a quoted-string.
func cutOutsideQuotes(b []byte, separator byte) (before, after []byte, found bool) {
	inQuotes := false
	for i, c := range b {
		switch {
		case c == '"':
			inQuotes = !inQuotes
		case c == separator && !inQuotes:
			return b[:i], b[i+1:], true
		}
	}
	return b, nil, false
}

// parseNode returns the address that a proxy names, which may be followed by a port.
func parseNode(node []byte) (netip.Addr, bool) {
	if len(node) == 0 || len(node) > len("[0000:0000:0000:0000:0000:ffff:255.255.255.255]:65535") {
		return netip.Addr{}, false
	}
	if node[0] == '[' && node[len(node)-1] == ']' {
		node = node[1 : len(node)-1]
	} else if colon := bytes.IndexByte(node, ':'); colon >= 0 && (node[0] == '[' || bytes.IndexByte(node[colon+1:], ':') < 0) {
		address, err := netip.ParseAddrPort(borrowedString(node))
		return address.Addr().Unmap().WithZone(""), err == nil
	}
	address, err := netip.ParseAddr(borrowedString(node))
	return address.Unmap().WithZone(""), err == nil
}

// borrowedString returns b as a string without copying it: a copy would be an allocation for each address. The callee may keep it only in
// an error, which the caller drops.
func borrowedString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// maxForwardedLines is how many header fields with the same name are read, counted from the last one: each proxy may add a field.
const maxForwardedLines = 8

// elementsBackwards iterates over the elements of a list from its end. The list may be spread over several fields.
type elementsBackwards struct {
	lines [maxForwardedLines][]byte
	n     int // how many lines are left
}

// collect finds the elements of the list in the fields called name.
func (e *elementsBackwards) collect(c *filo.Ctx, name string) {
	for value := range c.Request.Header.Values(name) {
		if e.n == maxForwardedLines {
			copy(e.lines[:], e.lines[1:])
			e.n--
		}
		e.lines[e.n] = value
		e.n++
	}
}

// previous returns the element before the one that it returned last. Empty elements are skipped (RFC 9110, section 5.6.1).
func (e *elementsBackwards) previous() ([]byte, bool) {
	for e.n > 0 {
		line := e.lines[e.n-1]
		comma := lastCommaOutsideQuotes(line)
		element := bytes.TrimSpace(line[comma+1:])
		if comma >= 0 {
			e.lines[e.n-1] = line[:comma]
		} else {
			e.n--
		}
		if len(element) > 0 {
			return element, true
		}
	}
	return nil, false
}

// lastCommaOutsideQuotes returns the index of the last comma that isn't in a quoted-string, -1 if there is none. Between a byte inside of a
// quoted-string and the end there is an odd number of quotes. A quote that a client has left open is to the left of the elements that proxies
// have added, so it can't hide any of those elements.
func lastCommaOutsideQuotes(line []byte) int {
	inQuotes := false
	for i := len(line) - 1; i >= 0; i-- {
		switch {
		case line[i] == '"':
			inQuotes = !inQuotes
		case line[i] == ',' && !inQuotes:
			return i
		}
	}
	return -1
}

// lastElement returns the last element of a list, which the nearest proxy has written, or nil if there is none.
func lastElement(c *filo.Ctx, name string) []byte {
	var elements elementsBackwards
	elements.collect(c, name)
	element, _ := elements.previous()
	return element
}
