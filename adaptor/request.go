package adaptor

import (
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/asked"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/syntax"
)

// baseRequest is copied with WithContext, which is the only way to give a request a context.
var baseRequest http.Request

// newRequest makes a request of net/http that shares no memory with the Ctx.
func newRequest(c *filo.Ctx, e *exchange) (*http.Request, error) {
	in := &c.Request
	method, target := c.Method(), in.Target()
	at, err := parseTarget(method, target)
	if err != nil {
		return nil, &filo.HTTPError{Status: 400, Detail: "invalid request target", Err: err}
	}
	r := baseRequest.WithContext(&e.context)
	r.Method, r.URL, r.RequestURI, r.Host = method, at, target, c.Host()
	r.Proto = in.Proto()
	r.ProtoMajor, r.ProtoMinor, _ = http.ParseHTTPVersion(r.Proto)
	r.Header = newHeader(&in.Header)
	r.ContentLength, r.Close, r.TLS = in.ContentLength(), in.Close(), c.TLS()
	remote := c.RemoteAddr()
	r.RemoteAddr = addressText(remote)
	if view := asked.ViewOf(c); view != nil {
		e.received = asked.Received{Host: r.Host, RemoteAddr: r.RemoteAddr}
		r.Host = string(view.Host(c))
		if client := view.Client(c); client.IsValid() {
			r.RemoteAddr, e.proxy = netip.AddrPortFrom(client, 0).String(), remote
		}
	}
	r.Body = http.NoBody
	if r.ContentLength != 0 {
		r.Body = &e.body
		e.body.exchange = e
	}
	if r.ContentLength < 0 && r.ProtoMajor == 1 {
		r.TransferEncoding = []string{"chunked"}
	}
	if r.ContentLength < 0 || r.ContentLength > 0 && r.ProtoMajor > 1 { // only HTTP/1.1 has no trailer behind a body of known length
		if r.Trailer, err = announcedTrailer(r.Header, inside.MaxHeaderFields(c)); err != nil {
			return nil, err
		}
		e.body.trailer = &r.Trailer
	}
	match := inside.Match(c)
	for i := range match.Len() {
		name, value := match.At(i)
		r.SetPathValue(name, string(value))
	}
	r.Pattern = match.Route
	return r, nil
}

// parseTarget parses a request target into a URL. The target of CONNECT is only a host, except in net/rpc, which sends a path.
func parseTarget(method, target string) (*url.URL, error) {
	if method != "CONNECT" || strings.HasPrefix(target, "/") {
		at, err := url.ParseRequestURI(target)
		if err == nil {
			keepPath(at)
		}
		return at, err
	}
	at, err := url.ParseRequestURI("http://" + target)
	if err == nil {
		at.Scheme = ""
	}
	return at, err
}

// keepPath makes u's EscapedPath and RequestURI return the path as it was sent. Without that, net/url makes another path if the sent one
// has a byte that a URI can't hold: "/a%2Fb|" would become "/a/b%7C", which may match another route.
func keepPath(u *url.URL) { u.RawPath = syntax.EscapePath(u.RawPath) }

// addressText returns an address's String, but allocates less.
func addressText(address net.Addr) string {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP != nil {
		at := tcp.AddrPort() // an IPv4-mapped IPv6 address, if the listener accepts both versions
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
	}
	return address.String()
}

// newHeader copies the fields of a request. Names and values share one string, and the values one slice.
func newHeader(in *filo.Header) http.Header {
	size := 0
	for name, value := range in.All() {
		size += len(name) + len(value)
	}
	var text strings.Builder
	text.Grow(size)
	for name, value := range in.All() {
		text.Write(name)
		text.Write(value)
	}
	rest, values := text.String(), make([]string, 0, in.Len())
	header := make(http.Header, in.Len())
	for name, value := range in.All() {
		key := textproto.CanonicalMIMEHeaderKey(rest[:len(name)])
		one := rest[len(name) : len(name)+len(value)]
		rest = rest[len(name)+len(value):]
		switch key {
		case "Host", "Transfer-Encoding": // http.Request has fields for them
			continue
		}
		if before, ok := header[key]; ok {
			header[key] = append(before, one)
			continue
		}
		values = append(values, one)
		header[key] = values[len(values)-1 : len(values) : len(values)]
	}
	// Pragma is HTTP/1.0's Cache-Control: see RFC 9111, section 5.4. net/http adds the field, too.
	if pragma := header["Pragma"]; len(pragma) > 0 && pragma[0] == "no-cache" && header["Cache-Control"] == nil {
		header["Cache-Control"] = []string{"no-cache"}
	}
	return header
}

// announcedTrailer removes the Trailer field from a header, and returns the names in it. Their values follow after the body.
// announcedTrailer fails if there are more names than the argument limit allows.
func announcedTrailer(header http.Header, limit int) (http.Header, error) {
	lists, ok := header["Trailer"]
	if !ok {
		return nil, nil
	}
	for _, list := range lists {
		if limit -= strings.Count(list, ",") + 1; limit < 0 {
			return nil, filo.Error(431, "too many trailer fields")
		}
	}
	delete(header, "Trailer")
	trailer := make(http.Header)
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			switch name = http.CanonicalHeaderKey(textproto.TrimString(name)); name {
			case "Transfer-Encoding", "Trailer", "Content-Length":
			default:
				if httpguts.ValidHeaderFieldName(name) { // http.Transport refuses a request with another name
					trailer[name] = nil
				}
			}
		}
	}
	return trailer, nil
}
