package proxy

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// upgrades lets clients ask an upstream to switch to one of some protocols, and to no other.
type upgrades struct {
	protocols []string
	next      http.Handler
}

// ServeHTTP implements http.Handler.
func (u upgrades) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if asked := r.Header["Upgrade"]; len(asked) > 0 {
		if protocol := u.choose(asked); protocol != "" {
			r.Header["Upgrade"] = []string{protocol}
		} else {
			delete(r.Header, "Upgrade")
		}
	}
	delete(r.Header, "Http2-Settings") // RFC 7540, section 3.2.1: of this connection alone, and not all clients say so in Connection
	u.next.ServeHTTP(w, r)
}

// choose returns the first of the protocols asked for, in the client's order of preference, that may be switched to, "" if
// there is none. More than one is never passed on: the upstream's answer is held to what it was asked for.
func (u upgrades) choose(asked []string) string {
	for _, list := range asked {
		for protocol := range strings.SplitSeq(list, ",") {
			protocol = textproto.TrimString(protocol)
			if slices.ContainsFunc(u.protocols, func(p string) bool { return strings.EqualFold(p, protocol) }) {
				return protocol
			}
		}
	}
	return ""
}
