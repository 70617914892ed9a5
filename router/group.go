package router

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/prerouting"
)

// Group is a set of routes that share a path prefix, middleware, or both. A Router is also its own outermost group.
type Group struct{ group }

// group holds the methods that Router and Group share. It isn't exported, so that go doc lists its methods under both types.
type group struct {
	router     *Router
	parent     *group            // nil for the router's own group
	host, path string            // the prefix, including those of the enclosing groups
	middleware []filo.Middleware // guarded by Router.mu
}

// Handle registers a handler for a pattern. The middleware applies to this route only, the first one outermost. Handle panics if the
// pattern is malformed or conflicts with that of another route. In a group, an empty path stands for the group's prefix itself. The path
// "/" panics in a group with a prefix: other frameworks read it as the prefix itself, while here it would match every path below the
// prefix.
func (g *group) Handle(pattern string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add(inText, pattern, h, middleware, nil)
}

// GET is like Handle, for the method GET, which includes HEAD. GET and the methods below take a pattern without a method, usually only a path.
func (g *group) GET(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("GET", path, h, middleware, nil)
}

// HEAD is like Handle, for the method HEAD, which GET's handler would answer otherwise.
func (g *group) HEAD(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("HEAD", path, h, middleware, nil)
}

// POST is like Handle, for the method POST.
func (g *group) POST(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("POST", path, h, middleware, nil)
}

// PUT is like Handle, for the method PUT.
func (g *group) PUT(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("PUT", path, h, middleware, nil)
}

// PATCH is like Handle, for the method PATCH.
func (g *group) PATCH(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("PATCH", path, h, middleware, nil)
}

// DELETE is like Handle, for the method DELETE.
func (g *group) DELETE(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("DELETE", path, h, middleware, nil)
}

// OPTIONS is like Handle, for the method OPTIONS, which the router would answer otherwise.
func (g *group) OPTIONS(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("OPTIONS", path, h, middleware, nil)
}

// QUERY is like Handle, for the method QUERY (RFC 10008). Such a request changes nothing, like GET, and carries its query in the body. The
// route answers a request without a Content-Type with 400. See also Route.AcceptQuery.
func (g *group) QUERY(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("QUERY", path, h, middleware, nil)
}

// Any is like Handle, for every method.
func (g *group) Any(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("", path, h, middleware, nil)
}

// Use adds middleware to all routes of the group and of its inner groups, including routes registered earlier. A group's
// middleware runs outside the middleware of its inner groups and routes. The router's middleware is outermost, and also covers
// the router's own answers. Use panics after the router's first request.
//
// To build the chains, the router calls each middleware function when it begins to serve, once or more for each route. State that
// requests share must therefore be created outside the middleware function.
func (g *group) Use(middleware ...filo.Middleware) {
	mustNotBeNil(middleware)
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	g.router.mustNotServe("Use")
	if g.parent == nil || g.hasRoutes() {
		mustRunInside(middleware)
	}
	g.middleware = append(g.middleware, middleware...)
}

// Group returns an inner group of g. The paths of its routes begin with g's prefix followed by prefix, which may contain
// wildcards and begin with a host. An empty prefix adds nothing.
func (g *group) Group(prefix string, middleware ...filo.Middleware) *Group {
	mustNotBeNil(middleware)
	inner := &Group{group{router: g.router, parent: g, host: g.host, path: g.path, middleware: slices.Clone(middleware)}}
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

// Mount passes all requests whose path begins with prefix and a slash to h, whatever their method. If h is the Serve method of another
// Router, the patterns of that router match the path after the prefix, and Ctx.Route and Ctx.Param see prefix and pattern as one. Any
// other handler sees the whole path as the client sent it. Middleware that changes the method or path, such as middleware.Rewrite, may
// wrap h, or be the middleware of a group that contains nothing but mounts. Inline or Offload on the returned Route applies until the
// mounted Router has found its own route.
func (g *group) Mount(prefix string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("", strings.TrimSuffix(prefix, "/")+"/", h, middleware, &mountPoint{})
}

// inText is passed to add if the pattern's text may contain a method.
const inText = "?"

// add registers a route for a method, or for every method if method is "". The exported function that the program calls must call add
// directly, because add records the location of its caller's caller.
func (g *group) add(method, text string, h filo.Handler, middleware []filo.Middleware, mount *mountPoint) *Route {
	location := "unknown location"
	if _, file, line, ok := runtime.Caller(2); ok {
		location = fmt.Sprintf("%s:%d", file, line)
	}
	mustNotBeNil(middleware)
	if mount == nil { // middleware around a mounted router runs before that router chooses a route, so it may change the method and path
		mustRunInside(middleware)
		g.mustRunInside()
	}
	p, err := g.pattern(method, text)
	if err == nil && mount == nil {
		err = g.mistakenSubtree(text)
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
	if reflect.ValueOf(h).Pointer() == inlineCode {
		route.class.SetAlways()
	}
	if mount != nil {
		mount.become(p)
		route.mount = mount
		route.given = mount.handler(h)
	}
	g.router.register(route)
	return route
}

// inlineCode is the code pointer of all handlers that filo.Inline returns. Such a handler never waits, so add marks its route as one
// that is answered even under overload. Probes therefore work even if the program doesn't mark their routes.
var inlineCode = reflect.ValueOf(filo.Inline(nil)).Pointer()

// mustNotBeNil panics for a nil middleware at the call that passes it, instead of at the first request.
func mustNotBeNil(middleware []filo.Middleware) {
	for i, each := range middleware {
		if each == nil {
			panic(fmt.Sprintf("router: middleware %d of %d is nil", i+1, len(middleware)))
		}
	}
}

// mustRunInside panics for middleware that changes the method or path: the router's middleware runs after the route is chosen,
// too late for such a change.
func mustRunInside(middleware []filo.Middleware) {
	for _, each := range middleware {
		if name := prerouting.NameOf(each); name != "" {
			panic(fmt.Sprintf("router: %s must run before the route is chosen, which in a router it can't: "+
				"put it around what the server is given, as in &filo.Server{Handler: %s(options)(r.Serve)}, "+
				"or around a handler that looks for itself, such as a proxy's", name, name))
		}
	}
}

// mustRunInside panics if the group or an enclosing group has middleware that changes the method or path.
func (g *group) mustRunInside() {
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	for ; g != nil; g = g.parent {
		mustRunInside(g.middleware)
	}
}

// hasRoutes reports whether the group or one of its inner groups has a route that isn't a mount. The caller holds Router.mu.
func (g *group) hasRoutes() bool {
	for _, route := range g.router.routes {
		for at := route.group; route.mount == nil && at != nil; at = at.parent {
			if at == g {
				return true
			}
		}
	}
	return false
}

// pattern parses a pattern of the group. If method is inText, text may contain the method; otherwise text is only a path, perhaps
// with a host.
func (g *group) pattern(method, text string) (*pattern, error) {
	if method != inText {
		if err := mistakenPath(text); err != nil {
			return nil, err
		}
		text = strings.TrimLeft(method+" "+text, " ")
	}
	full, err := g.prefixed(text)
	if err != nil {
		return nil, err
	}
	return parsePattern(full)
}

// prefixed returns the text of a pattern with the group's prefix.
func (g *group) prefixed(text string) (string, error) {
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
func (g *group) wrap(h filo.Handler) filo.Handler {
	for ; g != nil; g = g.parent {
		h = wrap(h, g.middleware)
	}
	return h
}

// wrap puts middleware around h, the first one outermost. It doesn't render the errors of the outermost handler. wrap panics if a
// middleware returns nil; otherwise every request would fail with a nil pointer dereference.
func wrap(h filo.Handler, middleware []filo.Middleware) filo.Handler {
	for _, each := range slices.Backward(middleware) {
		if h = each(rendered(h)); h == nil {
			panic(fmt.Sprintf("router: the middleware %s returned no handler: it must return one, which calls next", codeOf(each)))
		}
	}
	return h
}

// codeOf returns the name of a middleware's function, and where it is defined.
func codeOf(middleware filo.Middleware) string {
	code := runtime.FuncForPC(reflect.ValueOf(middleware).Pointer())
	file, line := code.FileLine(code.Entry())
	return fmt.Sprintf("%s (%s:%d)", code.Name(), file, line)
}

// rendered returns a handler that turns h's error into the response before it returns, so that the surrounding middleware sees the
// final status, fields and body. wrap also applies rendered to each inner middleware, because a middleware may refuse a request
// with its own error.
func rendered(h filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		inside.KeepFields(c)
		if err := h(c); err != nil {
			return c.RenderError(err)
		}
		return nil
	}
}
