package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/filohttp/filo/internal/syntax"
)

// limitUpgrades lets a client ask an upstream to switch to one of the protocols in Options.Upgrades, and to no other. Upgrades in HTTP/1.0
// requests are ignored (RFC 9110, section 7.8).
func (p *Proxy) limitUpgrades(r *http.Request) {
	if asked := r.Header["Upgrade"]; len(asked) > 0 {
		if protocol := chooseUpgrade(asked, p.options.Upgrades); protocol != "" && r.ProtoAtLeast(1, 1) {
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

// drainKey is the key of the channel that is closed when the server starts to shut down, in the context of a request that asks for an upgrade.
type drainKey struct{}

// endUpgraded closes an upgraded connection to an upstream when the server shuts down or the proxy is closed, and at the latest when its
// request has ended. ReverseProxy then closes the client's connection, which is hijacked, so that the server itself doesn't end it.
func (p *Proxy) endUpgraded(ctx context.Context, upstream io.Closer) {
	drain, _ := ctx.Value(drainKey{}).(<-chan struct{})
	select {
	case <-drain:
	case <-p.closing.Done():
	case <-ctx.Done():
	}
	upstream.Close()
}

var errSwitched = errors.New("proxy: the upstream has switched protocols, but not as the request asked")

// switched reports whether a 101 switches to the protocol that its request asks for.
func switched(r *http.Response) bool {
	_, isConn := r.Body.(io.ReadWriteCloser)
	protocol := upgradeOf(r.Header)
	return isConn && protocol != "" && r.Request != nil && syntax.EqualFold(protocol, upgradeOf(r.Request.Header))
}

// upgradeOf returns the field Upgrade, or "" if Connection doesn't list it.
func upgradeOf(h http.Header) string {
	for _, list := range h["Connection"] {
		if syntax.ListHasToken([]byte(list), "Upgrade") {
			return h.Get("Upgrade")
		}
	}
	return ""
}
