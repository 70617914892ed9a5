// Package asked tells all of filo's packages alike which scheme and host a client has asked for: if middleware in front has admitted a
// request for one host, a router behind it must not take it for another.
package asked

import (
	"bytes"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// View says which scheme and host the client has asked for, where the request itself doesn't show them because a trusted proxy stands in
// front. middleware.RealIP attaches one.
type View interface {
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

// Scheme is middleware.Scheme.
func Scheme(c *filo.Ctx) string {
	if v := ViewOf(c); v != nil {
		return v.Scheme(c)
	}
	return OwnScheme(c)
}

// OwnScheme returns the scheme of the connection, whatever a proxy says.
func OwnScheme(c *filo.Ctx) string {
	if c.TLS() != nil {
		return "https"
	}
	return "http"
}

// Host is middleware.HostBytes.
func Host(c *filo.Ctx) []byte {
	if v := ViewOf(c); v != nil {
		return v.Host(c)
	}
	return c.HostBytes()
}

// AppendHost appends a host in the form that all spellings of it share: in lower case, without the default port of the scheme, and
// without the dot that ends a name which is fully qualified.
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

// SameOrigin reports whether a page of the origin, as browsers write it in Origin, belongs to the server and host that the client has asked
// for.
func SameOrigin(c *filo.Ctx, origin []byte) bool {
	scheme, host, _ := bytes.Cut(origin, []byte("://"))
	switch {
	case len(host) == 0:
		return false
	case syntax.EqualFold(scheme, "https"): // a request that comes without TLS may have come to a proxy with TLS
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
