package middleware

import (
	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/asked"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/syntax"
)

// CSRFOptions configures CSRF.
type CSRFOptions struct {
	// TrustedOrigins are the origins whose pages may send requests across origins. They are written as in CORSOptions.AllowOrigins, such as
	// "https://example.com", or "https://*.example.com" for all hosts one label below example.com, but "*" isn't allowed.
	TrustedOrigins []string
	// Bypass, if set, is called for requests that CSRF would refuse, and admits those for which it returns true: for example, on a route
	// that proves the client's intent in another way.
	Bypass func(c *filo.Ctx) bool
}

// CSRF refuses, with 403 (Forbidden), requests that a browser sends across origins and that may change something: all methods except the safe
// ones, GET, HEAD, OPTIONS, TRACE and QUERY. It needs no tokens, because browsers themselves tell where a request comes from. All browsers
// have sent Sec-Fetch-Site since 2023. For older browsers CSRF compares Origin with the host of the request (see Host), and refuses a request
// over https that a page loaded over http has sent (see Scheme). A request with neither field doesn't come from a browser, so it is admitted.
// Except for the schemes, TRACE and QUERY, net/http's CrossOriginProtection has the same rules.
//
// Requests with safe methods must therefore change nothing. Put CSRF in front of everything that changes something, and inside of CORS, whose
// preflights it admits. If CORS allows an origin more than simple requests, list that origin in TrustedOrigins, too. CSRF panics if a trusted
// origin is malformed.
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
	trusted   map[string]bool
	wildcards []originWildcard
	bypass    func(c *filo.Ctx) bool
}

var errCrossOrigin = filo.Error(403, "cross-origin request refused")

func newCSRFGuard(options CSRFOptions) *csrfGuard {
	g := &csrfGuard{trusted: make(map[string]bool), bypass: options.Bypass}
	for _, origin := range options.TrustedOrigins {
		if w, wildcard := parseOrigin("CSRF", origin); wildcard {
			g.wildcards = append(g.wildcards, w)
		} else {
			g.trusted[origin] = true
		}
	}
	return g
}

// crossOrigin reports whether a page of another site may have made its visitor's browser send the request.
func (g *csrfGuard) crossOrigin(c *filo.Ctx) bool {
	if syntax.IsSafe(c.Request.MethodBytes()) {
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
	return !asked.SameOrigin(c, origin)
}

func (g *csrfGuard) exempt(c *filo.Ctx) bool {
	origin := c.Request.Header.GetBytes("Origin")
	if g.trusted[string(origin)] {
		return true
	}
	for _, w := range g.wildcards {
		if w.match(origin) {
			return true
		}
	}
	return g.bypass != nil && g.bypass(c)
}
