package proxy

import (
	"fmt"
	"net"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/forwarding"
)

// passedOn are the fields that are kept if a trusted proxy has sent them.
var passedOn = [...]string{"X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix"}

// rewrite makes the request for an upstream.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	for name := range r.Out.Header {
		if forwarding.KindOf(name) == forwarding.Claim {
			delete(r.Out.Header, name)
		}
	}
	for name := range r.In.Trailer {
		if forwarding.KindOf(name) == forwarding.Claim {
			delete(r.In.Trailer, name)
		}
	}
	r.Out.URL.RawQuery = upstreamQuery(r.In.URL.RawQuery) // ReverseProxy may have dropped parameters of r.Out's query

	if r.Out.Body != nil {
		// ReverseProxy hides the Close of the client's body, which an HTTP/2 transport needs when an answer ends before its request's
		// body: the transport waits for its Read of the body, and only Close ends a Read that waits for the client.
		r.Out.Body = r.In.Body
	}
	r.Out.Trailer = r.In.Trailer // the body's reader sets trailer fields in this map at the end of the body, so it must not be a copy
	remote, _, err := net.SplitHostPort(r.In.RemoteAddr)
	if err != nil {
		remote = r.In.RemoteAddr
	}
	trusted := p.trusts(remote)
	if trusted {
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	}
	r.SetXForwarded()
	if trusted {
		for _, name := range passedOn {
			if values := r.In.Header[name]; saysSomething(values) {
				r.Out.Header[name] = values
			}
		}
	}
	if p.options.Forwarded {
		p.setForwarded(r, remote, trusted)
	}
	r.Out.Header["Via"] = append(r.Out.Header["Via"], fmt.Sprintf("%d.%d filo", r.In.ProtoMajor, r.In.ProtoMinor))
	if !p.options.PreserveHost {
		r.Out.Host = ""
	}
	if p.options.Rewrite != nil {
		p.options.Rewrite(r)
	}
}

// lastForward reports whether the proxy must answer a request itself because its Max-Forwards is 0. Otherwise it decrements that field.
func lastForward(h *filo.Header) bool {
	left, err := strconv.ParseUint(h.Get("Max-Forwards"), 10, 64)
	if err == nil && left > 0 {
		h.Set("Max-Forwards", strconv.FormatUint(left-1, 10))
	}
	return err == nil && left == 0
}

// saysSomething reports whether the list in a field has an element. If it has none, middleware.RealIP in front of the proxy takes host and
// scheme from the request itself, and the upstream must see the same values.
func saysSomething(values []string) bool {
	return slices.ContainsFunc(values, func(value string) bool { return strings.Trim(value, ", \t") != "" })
}

// trusts reports whether an address belongs to a trusted proxy.
func (p *Proxy) trusts(remote string) bool {
	address, err := netip.ParseAddr(remote)
	if err != nil {
		return false
	}
	address = address.Unmap().WithZone("")
	return slices.ContainsFunc(p.options.TrustedProxies, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// setForwarded adds an element to Forwarded (RFC 7239, section 4).
func (p *Proxy) setForwarded(r *httputil.ProxyRequest, remote string, trusted bool) {
	if strings.Contains(remote, ":") {
		remote = "[" + remote + "]"
	}
	scheme := "http"
	if r.In.TLS != nil {
		scheme = "https"
	}
	element := "for=" + quoted(remote) + ";host=" + quoted(r.In.Host) + ";proto=" + scheme
	if before := r.In.Header["Forwarded"]; trusted && len(before) > 0 {
		element = strings.Join(before, ", ") + ", " + element
	}
	r.Out.Header.Set("Forwarded", element)
}

// quoted returns a value as a quoted-string if it isn't a token (RFC 9110, section 5.6.4).
func quoted(value string) string {
	for i := range len(value) {
		switch c := value[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
		}
	}
	return value
}
