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
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/syntax"
)

// baseRequest is copied by each WithContext, the only way to a request with a context.
var baseRequest http.Request

// newRequest makes a request of net/http that owns all it holds.
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
	r.RemoteAddr = addressText(c.RemoteAddr())
	r.Body = http.NoBody
	if r.ContentLength != 0 {
		r.Body = &e.body
		e.body.exchange = e
	}
	if r.ContentLength < 0 {
		r.TransferEncoding = []string{"chunked"}
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

// parseTarget parses a request target into a URL. The target of CONNECT is a host alone, except net/rpc's.
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
// has a byte that a URI can't hold: "/a%2Fb|" would become "/a/b%7C", which has other routes.
func keepPath(u *url.URL) { u.RawPath = syntax.EscapePath(u.RawPath) }

// addressText returns an address's String, but allocates less.
func addressText(address net.Addr) string {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP != nil {
		at := tcp.AddrPort() // an IPv4 address in the form of IPv6, if the listener is for both
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
		case "Host", "Transfer-Encoding": // they are fields of the request
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

// announcedTrailer takes the names of trailer fields out of a header. It fails if there are more than limit names. The values come behind
// the body.
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
