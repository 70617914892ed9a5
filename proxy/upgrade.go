package proxy

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// limitUpgrades lets a client ask an upstream to switch to one of the protocols in Options.Upgrades, and to no other.
func (p *Proxy) limitUpgrades(r *http.Request) {
	if asked := r.Header["Upgrade"]; len(asked) > 0 {
		if protocol := chooseUpgrade(asked, p.options.Upgrades); protocol != "" {
			r.Header["Upgrade"] = []string{protocol}
		} else {
			delete(r.Header, "Upgrade")
		}
	}
	delete(r.Header, "Http2-Settings") // RFC 7540, section 3.2.1: of this connection alone, and not all clients say so in Connection
}

// chooseUpgrade returns the first of the protocols asked for, in the client's order of preference, that may be switched to, "" if
// there is none. More than one is never passed on: the upstream's answer is held to what it was asked for.
func chooseUpgrade(asked, allowed []string) string {
	for _, list := range asked {
		for protocol := range strings.SplitSeq(list, ",") {
			protocol = textproto.TrimString(protocol)
			if slices.ContainsFunc(allowed, func(p string) bool { return strings.EqualFold(p, protocol) }) {
				return protocol
			}
		}
	}
	return ""
}
