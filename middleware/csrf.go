package middleware

import (
	"bytes"
	"fmt"
	"net/url"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
)

// CSRFOptions are the options of CSRF.
type CSRFOptions struct {
	// TrustedOrigins may send requests across origins: "scheme://host", with ":port" if it isn't the scheme's, as browsers
	// write them in Origin.
	TrustedOrigins []string
	// Bypass lets a request through whatever it is, such as one for a route that proves in another way that it is meant.
	Bypass func(c *filo.Ctx) bool
}

// CSRF refuses, with 403 (Forbidden), requests that a browser sends across origins and that may change something: those
// with methods other than GET, HEAD and OPTIONS. It goes by what browsers say themselves, and needs no tokens: by the
// Sec-Fetch-Site field, which all have sent since 2023, and for those before by Origin, which must be of the host that the
// request is for (see Host). A request with neither isn't a browser's. These are the rules of net/http's CrossOriginProtection.
//
// GET, HEAD and OPTIONS must change nothing. It belongs in front of everything that does, behind CORS, whose preflights it
// leaves alone: an origin that may send more than simple requests by CORS must be trusted here as well. It panics if a
// trusted origin isn't one.
func CSRF(options ...CSRFOptions) filo.Middleware {
	guard := newCSRFGuard(setup.One("middleware: CSRF", options))
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if guard.crossOrigin(c) && !guard.exempt(c) {
				return errCrossOrigin
			}
			return next(c)
		}
	}
}

type csrfGuard struct {
	trusted map[string]bool
	bypass  func(c *filo.Ctx) bool
}

var errCrossOrigin = filo.Error(403, "cross-origin request refused")

func newCSRFGuard(options CSRFOptions) *csrfGuard {
	g := &csrfGuard{trusted: make(map[string]bool), bypass: options.Bypass}
	for _, origin := range options.TrustedOrigins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			panic(fmt.Sprintf(`middleware: CSRF with the trusted origin %q: it must be "scheme://host" or "scheme://host:port"`, origin))
		}
		g.trusted[origin] = true
	}
	return g
}

// crossOrigin reports whether a request may be one that another site has its visitor's browser send.
func (g *csrfGuard) crossOrigin(c *filo.Ctx) bool {
	switch string(c.Request.MethodBytes()) {
	case "GET", "HEAD", "OPTIONS":
		return false
	}
	h := &c.Request.Header
	if site := h.GetBytes("Sec-Fetch-Site"); len(site) > 0 {
		return string(site) != "same-origin" && string(site) != "none"
	}
	origin := h.GetBytes("Origin")
	if len(origin) == 0 {
		return false
	}
	// The scheme can't be compared, since a proxy may have taken TLS off: Strict-Transport-Security is against that.
	scheme, host, _ := bytes.Cut(origin, []byte("://"))
	return string(scheme) != "http" && string(scheme) != "https" || !bytes.EqualFold(host, HostBytes(c))
}

func (g *csrfGuard) exempt(c *filo.Ctx) bool {
	return g.trusted[string(c.Request.Header.GetBytes("Origin"))] || g.bypass != nil && g.bypass(c)
}
