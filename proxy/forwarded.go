package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
)

// claims are the fields by which servers are told who a client is, and what it has asked a proxy for.
var claims = map[string]bool{
	"Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true, "X-Forwarded-Port": true,
	"X-Forwarded-Prefix": true, "X-Forwarded-Scheme": true, "X-Forwarded-Server": true, "X-Forwarded-Ssl": true,
	"X-Real-Ip": true, "X-Client-Ip": true, "True-Client-Ip": true, "Cf-Connecting-Ip": true, "X-Cluster-Client-Ip": true,
	"X-Original-Forwarded-For": true, "X-Original-Url": true, "X-Rewrite-Url": true,
}

// plainName returns the field that a server takes a name for which makes a variable of it: in CGI, and what comes from there,
// X_Real_IP and X-Real-IP are the same one.
func plainName(name string) string {
	if !strings.ContainsFunc(name, isSign) {
		return name
	}
	return http.CanonicalHeaderKey(strings.Map(func(r rune) rune {
		if isSign(r) {
			return '-'
		}
		return r
	}, name))
}

// isSign reports whether r is neither a letter nor a digit nor a dash.
func isSign(r rune) bool {
	return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// passedOn are the fields of trusted proxies that stay as they are.
var passedOn = [...]string{"X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix"}

// rewrite makes the request for an upstream.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	for name := range r.Out.Header {
		if claims[plainName(name)] {
			delete(r.Out.Header, name)
		}
	}
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
			if values := r.In.Header[name]; len(values) > 0 {
				r.Out.Header[name] = values
			}
		}
	}
	if p.options.Forwarded {
		p.setForwarded(r, remote, trusted)
	}
	if !p.options.PreserveHost {
		r.Out.Host = ""
	}
	if p.options.Rewrite != nil {
		p.options.Rewrite(r)
	}
}

// trusts reports whether an address is that of a trusted proxy.
func (p *Proxy) trusts(remote string) bool {
	if len(p.options.TrustedProxies) == 0 {
		return false
	}
	address, err := netip.ParseAddr(remote)
	if err != nil {
		return false
	}
	address = address.Unmap().WithZone("")
	for _, prefix := range p.options.TrustedProxies {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
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
