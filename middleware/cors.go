package middleware

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
	"golang.org/x/net/http/httpguts"
)

// CORSOptions configures CORS. AllowOrigins or AllowOriginFunc is required.
type CORSOptions struct {
	// AllowOrigins are the origins whose scripts may read answers. "https://example.com" is one origin, with a port if it isn't the scheme's
	// default. "https://*.example.com" allows all hosts one label below example.com, such as a.example.com, but not a.b.example.com: a deeper
	// host often belongs to somebody else. "*" allows every origin, and can't be combined with AllowCredentials.
	AllowOrigins []string
	// AllowOriginFunc, if set, decides about origins that AllowOrigins doesn't contain. The origin is passed as the client sent it, and is borrowed.
	AllowOriginFunc func(c *filo.Ctx, origin []byte) bool
	// AllowMethods are the methods that scripts may use. Default GET, HEAD, POST, PUT, PATCH and DELETE. If you set AllowMethods, list GET
	// too: otherwise a GET that needs a preflight, such as one with a field of AllowHeaders, is refused. List QUERY only if no handler
	// changes anything when it serves QUERY, including handlers for every method: CSRF doesn't check QUERY.
	AllowMethods []string
	// AllowHeaders are the request fields that scripts may set, in addition to those that an HTML form can set. Scripts that send JSON need
	// Content-Type. "*" allows all. Default none.
	AllowHeaders []string
	// ExposeHeaders are the response fields that scripts may read, in addition to those that the Fetch standard considers safe.
	ExposeHeaders []string
	// AllowCredentials lets every page of the allowed origins send requests with the user's cookies, and read the answers.
	AllowCredentials bool
	// MaxAge is how long a browser may cache the answer to a preflight, in whole seconds. 0 leaves it to the browser, usually 5
	// seconds; a negative value forbids caching.
	MaxAge time.Duration
	// AllowPrivateNetwork lets pages of the public internet use a server on a private network, if the browser's preflight asks for permission.
	AllowPrivateNetwork bool
}

// CORS tells browsers which scripts of other origins may use the server, and answers their preflight requests with 204 (Fetch standard,
// section 3.2). CORS refuses no request: a request from an origin that isn't allowed is answered, too, but without the fields that let a
// script read the answer. To refuse requests, use CSRF.
//
// Put it outside of everything that could refuse a request, such as authentication and rate limits: a preflight has no
// credentials, and a script can't read an error without CORS fields.
func CORS(options CORSOptions) filo.Middleware {
	p := newCORSPolicy(&options)
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			if p.answer(c) {
				return c.NoContent()
			}
			return next(c)
		}
	}
}

// corsPolicy is the prepared form of CORSOptions. It is never changed.
type corsPolicy struct {
	any         bool                   // every origin is allowed
	origins     map[string]*filo.Field // the fields for the named origins
	wildcards   []originWildcard
	allowOrigin func(c *filo.Ctx, origin []byte) bool
	methods     map[string]bool
	headers     map[string]bool // the names of allowed request fields, in lower case
	anyHeader   bool

	// credentials and expose are sent in all answers to allowed origins; allowMethods, allowHeaders and maxAge only in answers to preflights.
	credentials, expose                                *filo.Field
	allowMethods, allowHeaders, maxAge, vary, varyFull *filo.Field
	privateNetwork                                     bool
}

// originWildcard is "https://*.example.com:8443" without the asterisk.
type originWildcard struct{ prefix, suffix string }

func (w originWildcard) match(origin []byte) bool {
	if len(origin) <= len(w.prefix)+len(w.suffix) || string(origin[:len(w.prefix)]) != w.prefix ||
		string(origin[len(origin)-len(w.suffix):]) != w.suffix {
		return false
	}
	for _, b := range origin[len(w.prefix) : len(origin)-len(w.suffix)] {
		if b == '.' || !isHostByte(b) {
			return false
		}
	}
	return true
}

func newCORSPolicy(options *CORSOptions) *corsPolicy {
	check(len(options.AllowOrigins) > 0 || options.AllowOriginFunc != nil, "CORS: no AllowOrigins")
	p := &corsPolicy{origins: make(map[string]*filo.Field), allowOrigin: options.AllowOriginFunc, privateNetwork: options.AllowPrivateNetwork}
	for _, origin := range options.AllowOrigins {
		p.addOrigin(origin)
	}
	check(!p.any || !options.AllowCredentials, `CORS: AllowCredentials with "*" would let every site act on behalf of its visitors`)

	methods := options.AllowMethods
	if len(methods) == 0 {
		methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
	}
	setup.CheckMethods(check, "CORSOptions.AllowMethods", methods)
	p.methods = stringSet(methods)
	p.allowMethods = prepare("Access-Control-Allow-Methods", strings.Join(methods, ", "))

	p.anyHeader = slices.Contains(options.AllowHeaders, "*")
	p.headers = make(map[string]bool)
	for _, name := range options.AllowHeaders {
		checkFieldName("CORSOptions.AllowHeaders", name)
		p.headers[strings.ToLower(name)] = true
	}
	p.allowHeaders = prepare("Access-Control-Allow-Headers", strings.Join(options.AllowHeaders, ", "))
	for _, name := range options.ExposeHeaders {
		checkFieldName("CORSOptions.ExposeHeaders", name)
	}
	p.expose = prepare("Access-Control-Expose-Headers", strings.Join(options.ExposeHeaders, ", "))
	if options.AllowCredentials {
		p.credentials = prepare("Access-Control-Allow-Credentials", "true")
	}
	if options.MaxAge != 0 {
		p.maxAge = prepare("Access-Control-Max-Age", strconv.FormatInt(max(int64(options.MaxAge/time.Second), 0), 10))
	}
	vary := "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
	if p.privateNetwork {
		vary += ", Access-Control-Request-Private-Network"
	}
	p.vary, p.varyFull = prepare("Vary", "Origin"), prepare("Vary", vary)
	return p
}

// addOrigin adds an element of AllowOrigins, which must have the form that browsers send.
func (p *corsPolicy) addOrigin(origin string) {
	if origin == "*" {
		p.any = true
		return
	}
	if w, wildcard := parseOrigin("CORS", origin); wildcard {
		p.wildcards = append(p.wildcards, w)
	} else {
		p.origins[origin] = prepare("Access-Control-Allow-Origin", origin)
	}
}

// parseOrigin checks an origin in an option of a middleware. If the origin has a wildcard, parseOrigin returns the wildcard, and true.
func parseOrigin(middleware, origin string) (w originWildcard, wildcard bool) {
	prefix, suffix, wildcard := strings.Cut(origin, "://*.")
	plain := origin
	if wildcard {
		plain = prefix + "://" + suffix
	}
	u, err := url.Parse(plain)
	check(err == nil && u.Scheme != "" && isHost(u.Host) && u.Scheme+"://"+u.Host == plain && strings.ToLower(plain) == plain,
		`%s: %q isn't an origin such as "https://example.com" or "https://*.example.com", in lower case and without a path`, middleware, origin)
	check(!(u.Scheme == "https" && u.Port() == "443") && !(u.Scheme == "http" && u.Port() == "80"),
		"%s: %q has the default port of its scheme, which browsers leave out", middleware, origin)
	return originWildcard{prefix + "://", "." + suffix}, wildcard
}

func stringSet(members []string) map[string]bool {
	set := make(map[string]bool, len(members))
	for _, member := range members {
		set[member] = true
	}
	return set
}

func (p *corsPolicy) allows(c *filo.Ctx, origin []byte) bool {
	if p.any || p.origins[string(origin)] != nil {
		return true
	}
	for _, w := range p.wildcards {
		if w.match(origin) {
			return true
		}
	}
	return p.allowOrigin != nil && p.allowOrigin(c, origin)
}

// answer sets the response fields. It reports whether the request is a preflight, whose answer consists of these fields alone.
func (p *corsPolicy) answer(c *filo.Ctx) (preflight bool) {
	request, response := &c.Request.Header, &c.Response.Header
	origin := request.GetBytes("Origin")
	var method []byte
	if len(origin) > 0 && string(c.Request.MethodBytes()) == "OPTIONS" {
		method = request.GetBytes("Access-Control-Request-Method")
	}
	switch {
	case len(method) > 0:
		response.AddField(p.varyFull)
	case !p.any:
		// Answers to requests without Origin vary too: a cache mustn't give such an answer, which has no CORS fields, to a client that
		// sends an Origin.
		response.AddField(p.vary)
	}
	if len(origin) == 0 {
		return false
	}
	allowed := p.allows(c, origin)
	if len(method) > 0 {
		if allowed {
			p.preflight(c, origin, method)
		}
		return true
	}
	if allowed {
		p.setOrigin(c, origin)
		setPrepared(c, p.expose)
	}
	return false
}

func (p *corsPolicy) setOrigin(c *filo.Ctx, origin []byte) {
	if p.any {
		c.Response.Header.Set("Access-Control-Allow-Origin", "*")
		return
	}
	if f := p.origins[string(origin)]; f != nil {
		c.Response.Header.SetField(f)
	} else {
		c.Response.Header.SetBytes("Access-Control-Allow-Origin", origin)
	}
	setPrepared(c, p.credentials)
}

// preflight sets the fields of the answer to a preflight from an allowed origin. It sets none if the preflight asks for a method or field
// that isn't allowed.
func (p *corsPolicy) preflight(c *filo.Ctx, origin, method []byte) {
	if !p.methods[string(method)] {
		return
	}
	for list := range c.Request.Header.Values("Access-Control-Request-Headers") {
		if !p.allowsHeaders(list) {
			return
		}
	}
	p.setOrigin(c, origin)
	setPrepared(c, p.allowMethods)
	if p.anyHeader {
		// The answer repeats the requested names instead of "*": with credentials, "*" is an ordinary field name, and "*" never includes
		// Authorization.
		for list := range c.Request.Header.Values("Access-Control-Request-Headers") {
			c.Response.Header.AddBytes("Access-Control-Allow-Headers", list)
		}
	} else {
		setPrepared(c, p.allowHeaders)
	}
	setPrepared(c, p.maxAge)
	if p.privateNetwork && string(c.Request.Header.GetBytes("Access-Control-Request-Private-Network")) == "true" {
		c.Response.Header.Set("Access-Control-Allow-Private-Network", "true")
	}
}

// maxFieldName is how long the name of an allowed request field may be.
const maxFieldName = 128

// allowsHeaders reports whether a script may set all fields of a list.
func (p *corsPolicy) allowsHeaders(list []byte) bool {
	for len(list) > 0 {
		var name []byte
		name, list, _ = bytes.Cut(list, []byte{','})
		name = bytes.TrimSpace(name)
		var memory [maxFieldName]byte
		switch {
		case len(name) == 0:
		case len(name) > maxFieldName:
			return false
		case p.anyHeader && httpguts.ValidHeaderFieldName(borrowedString(name)):
		case !p.headers[string(appendLower(memory[:0], name))]:
			return false
		}
	}
	return true
}
