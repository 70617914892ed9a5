package router

import (
	"bytes"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/syntax"
)

// answer responds to a request that matches no route: with a redirect, 204 for OPTIONS, 405 or 404. A CORS preflight passes through the
// middleware of the route that it asks about before it comes here. answer runs inside the middleware, where the result of the router's
// first search is no longer available, so it repeats the search.
func (t *table) answer(c *filo.Ctx) error {
	r := t.router
	full := requestPath(c)
	below := full
	mount, _ := mountedAt.Get(c)
	if mount != nil {
		below = mount.cut(full)
	}
	method := c.Request.MethodBytes()
	connect := string(method) == "CONNECT"
	cleaned := below
	if !connect && !r.DisablePathRedirect && !isClean(below[1:]) {
		cleaned = clean(below)
	}

	s := search{match: inside.Match(c), scratch: &scratch{}}
	s.before = s.match.Len()
	s.setMethod(method)
	decoded := appendCanonical(nil, cleaned)
	route := t.find(&s, c, decoded)
	s.match.Truncate(s.before)
	slash := !connect && s.withSlash != nil && (route == nil || s.beyond) && !r.DisableSlashRedirect
	if slash || len(cleaned) != len(below) {
		location := slices.Concat(full[:len(full)-len(below)], cleaned)
		if slash {
			location = append(location, '/')
		}
		return redirect(c, location)
	}

	allowed, query := t.allowed(c, decoded)
	if len(allowed) == 0 {
		return t.answerNotFound(c)
	}
	options := string(method) == "OPTIONS" && !r.DisableOptions
	if !options && r.DisableMethodNotAllowed {
		return t.answerNotFound(c)
	}
	if route == nil { // a preflight may have a route for every method, too
		c.Response.Header.Set("Allow", strings.Join(allowed, ", "))
	}
	if query != nil && query.queries != nil {
		c.Response.Header.SetField(&query.queries.field)
	}
	switch {
	case options:
		return c.NoContent()
	case t.methodNotAllowed != nil:
		return t.methodNotAllowed(c)
	}
	return filo.Error(405, "")
}

func (t *table) answerNotFound(c *filo.Ctx) error {
	if t.notFound != nil {
		return t.notFound(c)
	}
	return filo.Error(404, "")
}

// redirect sends the client to another path, with the same query.
func redirect(c *filo.Ctx, path []byte) error {
	// If the location began with two slashes, clients would take the text after them for a host. That can't happen: a path with an
	// empty first segment is either cleaned or matches no route. Browsers take a backslash for a slash, so it is escaped, like all
	// bytes that a URI must not contain.
	location := syntax.EscapePath(string(path))
	if query := c.Request.URI().RawQueryBytes(); len(query) > 0 {
		location += "?" + string(query)
	}
	// RFC 9110, section 15.4.2: after a 301 clients may change POST to GET, which 308 forbids. More clients know 301.
	status := 308
	if method := c.Method(); method == "GET" || method == "HEAD" {
		status = 301
	}
	return c.Redirect(status, location)
}

// clean returns p without empty segments and dot segments. It keeps a trailing slash.
func clean(p []byte) []byte {
	cleaned := path.Clean(string(p))
	if bytes.HasSuffix(p, rootPath) && cleaned != "/" {
		cleaned += "/"
	}
	return []byte(cleaned)
}

// allowed returns the sorted methods for which a path in canonical form has routes, and the path's route for QUERY, or nil.
func (t *table) allowed(c *filo.Ctx, path []byte) (methods []string, query *Route) {
	found := make(map[string]*Route)
	if t.hosts != nil {
		for _, m := range t.ofHost(c) {
			if m != nil {
				m.allowed(t.router, c, path, found)
			}
		}
	}
	t.anyHost.allowed(t.router, c, path, found)
	if found["GET"] != nil {
		found["HEAD"] = found["GET"]
	}
	query = found["QUERY"]
	if len(found) > 0 && !t.router.DisableOptions {
		found["OPTIONS"] = nil
	}
	return slices.Sorted(maps.Keys(found)), query
}

// allowed adds to found each method for which m has a route to the path, or to the path with a slash appended if the router redirects
// there. It keeps the entries that a more specific host has added. Patterns without a method are skipped: if one matched the path, every
// method would have a route.
func (m *methods) allowed(r *Router, c *filo.Ctx, path []byte, found map[string]*Route) {
	for method, tree := range m.byMethod() {
		s := search{match: inside.Match(c), scratch: &scratch{}}
		s.before = s.match.Len()
		route := tree.find(&s, path)
		s.match.Truncate(s.before)
		if route == nil && !r.DisableSlashRedirect {
			route = s.withSlash
		}
		if route != nil && found[method] == nil {
			found[method] = route
		}
	}
}
