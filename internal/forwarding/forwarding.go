// Package forwarding knows the header fields by which proxies, balancers and content networks describe the clients for which they send a
// request.
package forwarding

import "strings"

// Kind says what a field means to a server behind a proxy.
type Kind uint8

const (
	// None is the kind of all other fields.
	None Kind = iota
	// Trace is the kind of a field that shows that a request was forwarded, and says nothing about the client. Trace fields serve to detect loops and
	// to trace requests.
	Trace
	// Claim is the kind of a field that says who the client is, which URL it has asked for, or with which protocol. Before a server trusts such a
	// field, it must know that a proxy has set it.
	Claim
)

// The names are in lower case, with dashes. None is longer than maxName.
var (
	fields = map[string]Kind{
		"via": Trace, "cdn-loop": Trace, "cf-ray": Trace, "x-amzn-trace-id": Trace, "x-amz-cf-id": Trace, "x-cloud-trace-context": Trace,

		"forwarded": Claim,
		// The client's address.
		"x-real-ip": Claim, "x-client-ip": Claim, "client-ip": Claim, "true-client-ip": Claim, "x-cluster-client-ip": Claim,
		"proxy-client-ip": Claim, "wl-proxy-client-ip": Claim, "x-proxyuser-ip": Claim,
		// The requested target, and the protocol of the request.
		"x-host": Claim, "x-rewrite-url": Claim, "x-scheme": Claim, "x-url-scheme": Claim, "front-end-https": Claim,
		"x-http-host-override": Claim, "x-script-name": Claim,
		// Cloudflare.
		"cf-ipcountry": Claim, "cf-visitor": Claim, "cf-pseudo-ipv4": Claim,
		// The client's identity.
		"x-userinfo": Claim, "x-credential-identifier": Claim,
	}

	claims = [...]string{
		"x-forwarded", "x-original-", "x-envoy-", "x-proxy-", "x-arr-",
		// Addresses that content networks and clouds report.
		"cf-connecting-", "fastly-client", "fly-", "cloudfront-", "x-azure-", "x-appengine-",
		// Client certificates: the fields of RFC 9440, and those that servers which terminate TLS are commonly configured to send.
		"client-cert", "x-client-cert", "x-client-dn", "x-client-verify", "ssl-client-", "x-ssl-", "x-amzn-mtls-",
		// Users that a proxy has authenticated.
		"remote-", "x-remote-", "x-auth-request-", "x-authenticated-", "x-webauth-", "x-consumer-", "x-vouch-", "x-authentik-",
		"x-pomerium-", "oidc-", "tailscale-", "cf-access-", "x-amzn-oidc-", "x-goog-authenticated-user-", "x-goog-iap-",
		"x-ms-client-principal", "x-ms-token-",
	}
)

const maxName = 32

// KindOf returns the kind of the field with that name. It ignores case, and treats every character that is neither a letter nor a digit as a dash:
// programs that get fields as variables, as with CGI, can't tell X_Real_IP from X-Real-IP.
func KindOf[T string | []byte](name T) Kind {
	var memory [maxName + 1]byte // a longer name than any in fields is cut to a length that is in none of them, so it isn't found
	n := min(len(name), len(memory))
	for i := range n {
		c := name[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case (c < 'a' || c > 'z') && (c < '0' || c > '9'):
			c = '-'
		}
		memory[i] = c
	}
	plain := memory[:n]
	if kind, found := fields[string(plain)]; found {
		return kind
	}
	for _, prefix := range claims {
		if strings.HasPrefix(string(plain), prefix) {
			return Claim
		}
	}
	return None
}
