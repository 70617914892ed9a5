package router

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/asked"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/inside"
)

// Router finds the handler for a request. Register its routes and set its fields before it serves its first request: afterwards
// it can't be changed. A Router is also its own outermost Group. New creates a Router.
type Router struct {
	group

	// DisableSlashRedirect turns off the redirect from a path without a route to the same path with a trailing slash.
	DisableSlashRedirect bool
	// DisablePathRedirect turns off the redirect of paths with empty segments, "." or ".." to their clean form. The router then
	// matches such paths as they are, so a pattern with {name...} or a trailing slash may pass them to its handler.
	DisablePathRedirect bool
	// DisableOptions turns off the router's answers to OPTIONS, and so to CORS preflights. Only routes for OPTIONS, or for every
	// method, then answer them.
	DisableOptions bool
	// DisableMethodNotAllowed answers 404 instead of 405 where the path only has routes for other methods.
	DisableMethodNotAllowed bool

	// What mu guards is constant once frozen is set.
	mu               sync.Mutex
	frozen           bool              // the first request has come; guarded by mu
	routes           []*Route          // guarded by mu
	named            map[string]*Route // guarded by mu
	index            map[string]*index // by host; guarded by mu
	notFound         filo.Handler      // guarded by mu
	methodNotAllowed filo.Handler      // guarded by mu

	// table answers requests. The first request creates it, and holds freezing while it does.
	table    atomic.Pointer[table]
	freezing sync.Mutex
}

// New returns a router without routes.
func New() *Router {
	r := &Router{named: make(map[string]*Route), index: make(map[string]*index)}
	r.router = r
	return r
}

// NotFound sets the handler for requests whose path has no route. The default is an error with the status 404.
func (r *Router) NotFound(h filo.Handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustNotServe("NotFound")
	r.notFound = h
}

// MethodNotAllowed sets the handler for requests whose path has routes for other methods only. The default is an error with the
// status 405. The response already has an Allow field when h runs.
func (r *Router) MethodNotAllowed(h filo.Handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustNotServe("MethodNotAllowed")
	r.methodNotAllowed = h
}

// mustNotServe panics if the router serves. The caller must hold mu.
func (r *Router) mustNotServe(what string) {
	if r.frozen {
		panic("router: " + what + " while the router serves: everything must be registered before the first request")
	}
}

func (r *Router) register(route *Route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := route.pattern
	r.mustNotServe(p.String())
	x := r.index[p.host]
	if x == nil {
		x = &index{}
		r.index[p.host] = x
	}
	if other := x.conflict(p); other != nil {
		panic(fmt.Sprintf("router: %s conflicts with %s: %s", p, other, describeConflict(p, other)))
	}
	x.add(p)
	r.routes = append(r.routes, route)
}

// table holds a router's routes while it serves. Its fields don't change.
type table struct {
	router  *Router
	anyHost methods
	// literals is a shortcut to the routes of anyHost whose paths are literals. It is empty if any route has a host, since that
	// route would come first.
	literals *literals
	hosts    map[string]*methods // by name in lower case, perhaps with "*." in front; nil if no route has a host
	starred  bool                // some hosts have a star

	unmatched                  filo.Handler // for requests without a route, with the router's middleware
	notFound, methodNotAllowed filo.Handler
	// class measures the router's own answers, together with the NotFound and MethodNotAllowed handlers, which may take any time.
	class class.Class
}

// freeze builds the table and the middleware chains. It doesn't hold mu when it calls the program's middleware functions, because these may
// call methods of the router, such as Routes and URL.
func (r *Router) freeze() *table {
	r.freezing.Lock()
	defer r.freezing.Unlock()
	if t := r.table.Load(); t != nil {
		return t
	}
	r.mu.Lock()
	r.frozen = true
	r.mu.Unlock()
	t := &table{router: r, literals: new(literals), notFound: r.notFound, methodNotAllowed: r.methodNotAllowed}
	t.class.Name = "no route"
	t.unmatched = t.entered(r.wrap(t.answer))
	preflights := make(map[*group]filo.Handler)
	for _, route := range r.routes {
		g := route.group
		given := route.given
		if route.pattern.method == "QUERY" {
			given = route.query
		}
		route.handler = g.wrap(wrap(given, route.middleware))
		if preflights[g] == nil {
			preflights[g] = t.entered(g.wrap(t.answer))
		}
		route.preflight = preflights[g]
		if len(route.middleware) > 0 {
			route.preflight = t.entered(g.wrap(wrap(t.answer, route.middleware)))
		}
		t.methods(route.pattern.host).add(route)
	}
	for _, tree := range t.trees() {
		tree.order()
	}
	if t.hosts == nil {
		t.literals = newLiterals(r.routes)
	}
	r.table.Store(t)
	return t
}

// entered returns a handler that enters t.class, the class of requests without a route, and then calls h.
func (t *table) entered(h filo.Handler) filo.Handler {
	h = rendered(h)
	return func(c *filo.Ctx) error {
		if err := inside.Enter(c, &t.class); err != nil {
			return err
		}
		return h(c)
	}
}

// methods returns the trees of a host, making them if there are none.
func (t *table) methods(host string) *methods {
	if host == "" {
		return &t.anyHost
	}
	if t.hosts == nil {
		t.hosts = make(map[string]*methods)
	}
	if t.hosts[host] == nil {
		t.hosts[host] = &methods{}
		t.starred = t.starred || host[0] == '*'
	}
	return t.hosts[host]
}

func (t *table) trees() (trees []*node) {
	trees = t.anyHost.trees()
	for _, m := range t.hosts {
		trees = append(trees, m.trees()...)
	}
	return trees
}

// Serve handles a request: it is the router's filo.Handler. The first call freezes the routes.
func (r *Router) Serve(c *filo.Ctx) error {
	t := r.table.Load()
	if t == nil {
		t = r.freeze()
	}
	path := requestPath(c)
	s := search{refuseDots: !r.DisablePathRedirect}
	s.setMethod(c.Request.MethodBytes())
	var mount *mountPoint
	if c.Route() != "" {
		// Another router has set the route. If this router isn't mounted there, the other router's parameters no longer belong to the
		// request.
		if mount, _ = mountedAt.Get(c); mount == nil {
			inside.Match(c).Truncate(0)
		}
	}
	if mount == nil && t.literals.mayHave(s.known, path) {
		if route := t.literals.find(s.known, path); route != nil {
			return route.run(c, route.class.Name)
		}
	}
	s.match = inside.Match(c)
	if mount == nil {
		s.match.Truncate(0)
	} else {
		mount.found()
		s.before = s.match.Len()
		path = mount.cut(path)
	}
	if bytes.IndexByte(path, '%') >= 0 {
		return t.serveEncoded(c, &s, mount, path)
	}
	return t.serve(c, &s, mount, path)
}

// serveEncoded serves a path with percent-encoding.
func (t *table) serveEncoded(c *filo.Ctx, s *search, mount *mountPoint, path []byte) error {
	// Dot segments are refused before decoding: encoded dots are ordinary values, as in ServeMux.
	if s.refuseDots && !isClean(path[1:]) {
		return t.unmatched(c)
	}
	s.refuseDots = false
	s.scratch = scratches.Get().(*scratch)
	defer s.scratch.release(s.match)
	s.scratch.path = appendCanonical(s.scratch.path[:0], path)
	return t.serve(c, s, mount, s.scratch.path)
}

// serve serves a path in canonical form.
func (t *table) serve(c *filo.Ctx, s *search, mount *mountPoint, path []byte) error {
	route := t.find(s, c, path)
	if t.redirectsToSlash(s) {
		route = nil
	}
	if asked := t.asked(s, c, path, route); asked != nil {
		s.match.Truncate(s.before)
		return asked.preflight(c)
	}
	if route == nil {
		s.match.Truncate(s.before)
		return t.unmatched(c)
	}
	if s.scratch != nil {
		s.scratch.decode(s.match, s.before)
	}
	if mount == nil {
		s.match.SetNames(route.names)
		s.match.Route = route.class.Name
		return route.run(c, "")
	}
	place := route.placement(mount)
	s.match.SetNames(place.names)
	s.match.Route = place.text
	return route.run(c, "")
}

// asked returns the route about which a CORS preflight asks. The result is nil for other requests, and if the preflight has a route itself:
// one for OPTIONS, or one for every method that also matches the request about which the preflight asks. The argument route is the one that
// was found for the preflight, or nil.
func (t *table) asked(s *search, c *filo.Ctx, path []byte, route *Route) *Route {
	if string(s.method) != "OPTIONS" || t.router.DisableOptions || route != nil && route.pattern.method != "" {
		return nil
	}
	method := c.Request.Header.GetBytes("Access-Control-Request-Method")
	if len(method) == 0 {
		return nil
	}
	other := search{match: s.match, before: s.match.Len(), refuseDots: s.refuseDots, scratch: s.scratch}
	other.setMethod(method)
	asked := t.find(&other, c, path)
	s.match.Truncate(other.before)
	if asked == route {
		return nil
	}
	return asked
}

// redirectsToSlash reports whether a path that matches a route for a whole subtree is redirected to the same path with a trailing
// slash, because the path with the slash has a more specific route.
func (t *table) redirectsToSlash(s *search) bool {
	return s.beyond && s.withSlash != nil && !t.router.DisableSlashRedirect
}

// rootPath is the path of a request whose target has none, such as CONNECT. It is also what remains of a path that is no longer
// than a mount point's prefix.
var rootPath = []byte("/")

// requestPath returns the path as sent. CONNECT, which has no path, is matched as if its path were "/".
func requestPath(c *filo.Ctx) []byte {
	if target := c.Request.TargetBytes(); target[0] == '/' {
		if i := bytes.IndexByte(target, '?'); i >= 0 {
			return target[:i:i]
		}
		return target
	}
	if path := c.Request.URI().RawPathBytes(); len(path) > 0 {
		return path
	}
	return rootPath
}

// find returns the route for a request, nil if there is none. Patterns with a host come first.
func (t *table) find(s *search, c *filo.Ctx, path []byte) *Route {
	if t.hosts != nil {
		for _, m := range t.ofHost(c) {
			if m == nil {
				continue
			}
			if route := m.find(s, path); route != nil {
				return route
			}
		}
	}
	return t.anyHost.find(s, path)
}

// ofHost returns the trees of the request's host, and those of the host pattern with a star that matches it. Either may be nil.
func (t *table) ofHost(c *filo.Ctx) (trees [2]*methods) {
	host := bytes.TrimSuffix(withoutPort(asked.Host(c)), []byte{'.'}) // without port and final dot, as middleware.HostCheck compares it
	if trees[0] = t.hosts[string(host)]; trees[0] != nil && !t.starred {
		return trees // most clients send the host in lower case
	}
	var lower [256]byte // a domain name has at most 253 bytes
	if len(host) > len(lower) {
		return trees
	}
	// RFC 9110, section 4.2.3: "The scheme and host are case-insensitive".
	for i, b := range host {
		if b >= 'A' && b <= 'Z' {
			b |= 0x20
		}
		lower[i] = b
	}
	name := lower[:len(host)]
	trees[0] = t.hosts[string(name)]
	if dot := bytes.IndexByte(name, '.'); dot > 0 && t.starred {
		name[dot-1] = '*'
		trees[1] = t.hosts[string(name[dot-1:])]
	}
	return trees
}

// scratch is memory for the path of a request with percent-encoding; it is used until the request's handler has returned.
type scratch struct {
	path   []byte   // in canonical form
	value  []byte   // decoded, for a constraint
	values [][]byte // the route's values, as parts of path
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// maxKeptScratch is the size of the largest scratch that goes back to the pool.
const maxKeptScratch = 8 << 10

// release returns the scratch to the pool. The match's values may lie in it.
func (s *scratch) release(match *hooks.Match) {
	match.Keep()
	clear(s.values)
	if cap(s.path)+cap(s.value) <= maxKeptScratch {
		scratches.Put(s)
	}
}

// decode decodes the value at the index first and all values after it, in place.
func (s *scratch) decode(match *hooks.Match, first int) {
	s.values = s.values[:0]
	for i := first; i < match.Len(); i++ {
		_, value := match.At(i)
		s.values = append(s.values, value)
	}
	match.Truncate(first)
	for _, value := range s.values {
		match.Append(decodeCanonical(value))
	}
}
