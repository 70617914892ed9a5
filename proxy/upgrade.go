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
	delete(r.Header, "Http2-Settings") // RFC 7540, section 3.2.1: the field is for this connection alone, and not all clients list it in Connection
}

// chooseUpgrade returns the client's most preferred protocol among those that are allowed, "" if there is none. Only this protocol is
// passed on, so that the upstream's answer can be checked against it.
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
