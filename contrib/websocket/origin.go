package websocket

import (
	"fmt"
	"strings"
)

// originPattern is an allowed origin. If it is wild, it allows the hosts one label below a domain.
type originPattern struct {
	scheme, host string // in lower case; host is without the "*", but with the dot after it
	wild         bool
}

// originCheck decides which pages may connect. Browsers let every page open a WebSocket to every server, with the cookies that the server has
// set; only the server can refuse the connection (RFC 6455, section 10.2).
type originCheck struct {
	any      bool
	patterns []originPattern
}

func newOriginCheck(patterns []string) (check originCheck) {
	for _, pattern := range patterns {
		if pattern == "*" {
			check.any = true
			continue
		}
		scheme, host, ok := splitOrigin(pattern)
		host, wild := strings.CutPrefix(host, "*")
		if !ok || strings.Contains(host, "*") || wild && (len(host) < 2 || host[0] != '.') {
			panic(fmt.Sprintf("websocket: an origin is \"https://host\", \"https://*.host\" or \"*\", and not %q", pattern))
		}
		check.patterns = append(check.patterns, originPattern{scheme, host, wild})
	}
	return check
}

// allows reports whether a page of the origin may connect to the host. asked is the scheme with which the client has requested the host.
func (o *originCheck) allows(origin, host, asked string) bool {
	if o.any {
		return true
	}
	scheme, page, ok := splitOrigin(origin)
	if !ok {
		return false
	}
	// The origin's scheme may be https although asked is http: a proxy may have terminated TLS.
	if page == trimPort(strings.ToLower(host), scheme) && (scheme == "https" || asked == "http") {
		return true
	}
	for _, p := range o.patterns {
		if p.scheme != scheme {
			continue
		}
		if !p.wild && p.host == page {
			return true
		}
		if label, below := strings.CutSuffix(page, p.host); p.wild && below && label != "" && !strings.Contains(label, ".") {
			return true
		}
	}
	return false
}

// splitOrigin splits a serialized origin (RFC 6454, section 6.2), converts it to lower case and drops the scheme's default port.
func splitOrigin(origin string) (scheme, host string, ok bool) {
	scheme, host, ok = strings.Cut(strings.ToLower(origin), "://")
	if !ok || scheme != "http" && scheme != "https" || host == "" || strings.ContainsAny(host, "/?#@\\ \t,") {
		return "", "", false
	}
	return scheme, trimPort(host, scheme), true
}

// trimPort cuts off the scheme's default port, and a colon without a port (RFC 3986, section 6.2.3).
func trimPort(host, scheme string) string {
	port := ":80"
	if scheme == "https" {
		port = ":443"
	}
	return strings.TrimSuffix(strings.TrimSuffix(host, port), ":")
}
