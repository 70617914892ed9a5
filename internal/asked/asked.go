// Package asked is the one place where filo's packages find out which scheme and host a client has asked for. If the packages disagreed, middleware
// could admit a request for one host, and the router behind the middleware could route it to another.
package asked

import (
	"bytes"
	"net/netip"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// Received has the host and the remote address of a request as the server has received it. Package adaptor gives requests of net/http what the View
// says instead. The contexts of these requests have the value *Received with the key ReceivedKey{}.
type Received struct{ Host, RemoteAddr string }

// ReceivedKey is the key of a *Received in a context.
type ReceivedKey struct{}

// View says who the client is, and which scheme and host it has asked for. middleware.RealIP attaches it to requests. If a trusted proxy has
// forwarded a request, the connection and the Host field don't show that.
type View interface {
	// Client returns the address of the client, or an invalid address if the client is the connection's remote end.
	Client(c *filo.Ctx) netip.Addr
	Scheme(c *filo.Ctx) string
	// Host returns bytes that are borrowed until the handler returns.
	Host(c *filo.Ctx) []byte
}

type viewKey struct{}

// SetView attaches a view to a request.
func SetView(c *filo.Ctx, v View) { c.Set(viewKey{}, v) }

// ViewOf returns the view of a request, nil if it has none.
func ViewOf(c *filo.Ctx) View {
	v, _ := c.Get(viewKey{}).(View)
	return v
}

// Scheme implements middleware.Scheme.
func Scheme(c *filo.Ctx) string {
	if v := ViewOf(c); v != nil {
		return v.Scheme(c)
	}
	return OwnScheme(c)
}

// OwnScheme returns the scheme of the connection, and ignores what a proxy says about the client's.
func OwnScheme(c *filo.Ctx) string {
	if c.TLS() != nil {
		return "https"
	}
	return "http"
}

// Host implements middleware.HostBytes.
func Host(c *filo.Ctx) []byte {
	if v := ViewOf(c); v != nil {
		return v.Host(c)
	}
	return c.HostBytes()
}

// AppendHost appends the canonical form of a host: in lower case, without the default port of the scheme, and without the final dot of a fully
// qualified name.
func AppendHost(dst, host []byte, scheme string) []byte {
	host = withoutDefaultPort(host, scheme)
	name, port := host, []byte(nil)
	if i := bytes.LastIndexByte(host, ':'); i >= 0 && bytes.IndexByte(host[i:], ']') < 0 {
		name, port = host[:i], host[i:]
	}
	for _, c := range bytes.TrimSuffix(name, []byte{'.'}) {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return append(dst, port...)
}

// SameOrigin reports whether origin, the value of an Origin field, names the server and host that the client has asked for.
func SameOrigin(c *filo.Ctx, origin []byte) bool {
	scheme, host, _ := bytes.Cut(origin, []byte("://"))
	switch {
	case len(host) == 0:
		return false
	case syntax.EqualFold(scheme, "https"): // a proxy may have received the request over TLS and forwarded it without
		return syntax.EqualFold(withoutDefaultPort(host, "https"), withoutDefaultPort(Host(c), "https"))
	case syntax.EqualFold(scheme, "http"):
		return Scheme(c) == "http" && syntax.EqualFold(withoutDefaultPort(host, "http"), withoutDefaultPort(Host(c), "http"))
	}
	return false
}

// withoutDefaultPort cuts off the default port of a scheme, and a colon without a port (RFC 3986, section 6.2.3).
func withoutDefaultPort(host []byte, scheme string) []byte {
	host = bytes.TrimSuffix(host, []byte(defaultPort(scheme)))
	return bytes.TrimSuffix(host, []byte{':'})
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return ":443"
	}
	return ":80"
}
