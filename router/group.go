package router

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/filohttp/filo"
)

// Group is routes whose paths have a prefix, or whose handlers have middleware, in common. A Router is also its outermost
// group.
type Group struct {
	router     *Router
	parent     *Group            // nil for the router's own
	host, path string            // the prefix, with those of the groups around
	middleware []filo.Middleware // guarded by Router.mu
}

// Handle registers a handler for a pattern, with middleware of its own, the first one outermost. It panics if the pattern is
// malformed, or conflicts with that of another route. In a group, the path may be empty: it is the prefix then.
func (g *Group) Handle(pattern string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add(pattern, h, middleware, nil)
}

// GET is Handle for GET, and so for HEAD.
func (g *Group) GET(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("GET "+path, h, middleware, nil)
}

// HEAD is Handle for HEAD, which GET's handler answers otherwise.
func (g *Group) HEAD(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("HEAD "+path, h, middleware, nil)
}

// POST is Handle for POST.
func (g *Group) POST(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("POST "+path, h, middleware, nil)
}

// PUT is Handle for PUT.
func (g *Group) PUT(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("PUT "+path, h, middleware, nil)
}

// PATCH is Handle for PATCH.
func (g *Group) PATCH(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("PATCH "+path, h, middleware, nil)
}

// DELETE is Handle for DELETE.
func (g *Group) DELETE(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("DELETE "+path, h, middleware, nil)
}

// OPTIONS is Handle for OPTIONS, which the router answers otherwise.
func (g *Group) OPTIONS(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("OPTIONS "+path, h, middleware, nil)
}

// Any is Handle for every method.
func (g *Group) Any(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add(path, h, middleware, nil)
}

// Use adds middleware to all routes of the group and of groups in it, those registered before as well, outside that of inner
// groups and of the routes. The router's own is outermost, and covers what the router answers itself, too. Use panics once
// the router serves.
//
// A middleware is called when the router begins to serve, once or more for each route: what its requests share must be made
// before, not in that call.
func (g *Group) Use(middleware ...filo.Middleware) {
	mustNotBeNil(middleware)
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	g.router.mustNotServe("Use")
	g.middleware = append(g.middleware, middleware...)
}

// Group returns a group in g. Its prefix is put between g's and the paths of its routes. It may have wildcards, and a host in
// front; "" is none.
func (g *Group) Group(prefix string, middleware ...filo.Middleware) *Group {
	mustNotBeNil(middleware)
	inner := &Group{router: g.router, parent: g, host: g.host, path: g.path, middleware: slices.Clone(middleware)}
	if prefix = strings.TrimSuffix(prefix, "/"); prefix == "" {
		return inner
	}
	p, err := parsePattern(prefix + "/")
	switch {
	case err != nil:
		panic(fmt.Sprintf("router: group %q: %v", prefix, err))
	case p.method != "":
		panic(fmt.Sprintf("router: group %q: a prefix has no method", prefix))
	case p.host != "" && (g.host != "" || g.path != ""):
		panic(fmt.Sprintf("router: group %q: the host must come before the prefix of the group around", prefix))
	}
	inner.host, inner.path = g.host+p.host, g.path+strings.TrimSuffix(p.path, "/")
	return inner
}

// Mount hands all requests whose path begins with prefix and a slash over to h, whatever their method. If h is the Serve of
// another Router, that one's patterns match what follows the prefix, and its routes are known by prefix and pattern together
// in Ctx.Route and Ctx.Param; other handlers find the path as it was sent.
func (g *Group) Mount(prefix string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add(strings.TrimSuffix(prefix, "/")+"/", h, middleware, &mountPoint{})
}

// add registers a route. It must be called by what the user has called, whose location it finds out.
func (g *Group) add(text string, h filo.Handler, middleware []filo.Middleware, mount *mountPoint) *Route {
	location := "unknown location"
	if _, file, line, ok := runtime.Caller(2); ok {
		location = fmt.Sprintf("%s:%d", file, line)
	}
	mustNotBeNil(middleware)
	full, err := g.prefixed(text)
	var p *pattern
	if err == nil {
		p, err = parsePattern(full)
	}
	if err != nil {
		panic(fmt.Sprintf("router: pattern %q (registered at %s): %v", text, location, err))
	}
	p.location = location
	if h == nil {
		panic(fmt.Sprintf("router: %s has no handler", p))
	}
	route := &Route{
		pattern: p, group: g, given: h, middleware: slices.Clone(middleware),
		names: p.names, restNamed: p.last().kind == rest && p.last().text != "",
	}
	route.class.Name = p.text
	if mount != nil {
		mount.become(p)
		route.mount = mount
		route.given = mount.handler(h)
	}
	g.router.register(route)
	return route
}

// mustNotBeNil panics at the call that has left something out, instead of at the first request.
func mustNotBeNil(middleware []filo.Middleware) {
	for _, each := range middleware {
		if each == nil {
			panic("router: nil middleware")
		}
	}
}

// prefixed returns the text of a pattern with the group's prefix.
func (g *Group) prefixed(text string) (string, error) {
	if g.path == "" && g.host == "" {
		return text, nil
	}
	method, target := "", text
	if i := strings.IndexAny(text, " \t/"); i >= 0 && text[i] != '/' {
		method, target = text[:i]+" ", strings.TrimLeft(text[i:], " \t")
	}
	host, path := target, ""
	if i := strings.IndexByte(target, '/'); i >= 0 {
		host, path = target[:i], target[i:]
	}
	if host != "" && g.host != "" {
		return "", fmt.Errorf("the group has a host already, %q", g.host)
	}
	if host != "" && path == "" {
		return "", fmt.Errorf("the path %q must begin with a slash", host)
	}
	return method + g.host + host + g.path + path, nil
}

// wrap puts the group's middleware, and that of the groups around it, around h.
func (g *Group) wrap(h filo.Handler) filo.Handler {
	for ; g != nil; g = g.parent {
		h = wrap(h, g.middleware)
	}
	return h
}

// wrap puts middleware around h, the first one outermost. The outermost handler isn't rendered.
func wrap(h filo.Handler, middleware []filo.Middleware) filo.Handler {
	for _, each := range slices.Backward(middleware) {
		h = each(rendered(h))
	}
	return h
}

// rendered returns a handler that has turned h's error into the response when it returns, so that middleware around it finds
// status, fields and body as they will be. It is put around middleware too: that may refuse a request by an error of its own.
func rendered(h filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		if err := h(c); err != nil {
			return c.RenderError(err)
		}
		return nil
	}
}
