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

// group holds the methods that Router and Group share. It isn't exported, so that go doc shows its methods as methods of both.
type group struct {
	router     *Router
	parent     *group            // nil for the router's own
	host, path string            // the prefix, with those of the groups around
	middleware []filo.Middleware // guarded by Router.mu
}

// Handle registers a handler for a pattern. The middleware applies to this route only, the first one outermost. Handle panics if
// the pattern is malformed or conflicts with that of another route. In a group, an empty path means the group's prefix. The path "/" alone
// panics: in other frameworks it means the prefix, while here it would match everything below it.
func (g *group) Handle(pattern string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add(inText, pattern, h, middleware, nil)
}

// GET is Handle for GET, and so for HEAD. GET and the methods below take a pattern without a method, usually only a path.
func (g *group) GET(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("GET", path, h, middleware, nil)
}

// HEAD is Handle for HEAD, which GET's handler would answer otherwise.
func (g *group) HEAD(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("HEAD", path, h, middleware, nil)
}

// POST is Handle for POST.
func (g *group) POST(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("POST", path, h, middleware, nil)
}

// PUT is Handle for PUT.
func (g *group) PUT(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("PUT", path, h, middleware, nil)
}

// PATCH is Handle for PATCH.
func (g *group) PATCH(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("PATCH", path, h, middleware, nil)
}

// DELETE is Handle for DELETE.
func (g *group) DELETE(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("DELETE", path, h, middleware, nil)
}

// OPTIONS is Handle for OPTIONS, which the router would answer otherwise.
func (g *group) OPTIONS(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("OPTIONS", path, h, middleware, nil)
}

// QUERY is Handle for QUERY (RFC 10008): a request that changes nothing, like GET, and whose body contains the question. The route answers
// a request without a Content-Type with 400. See also Route.AcceptQuery.
func (g *group) QUERY(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("QUERY", path, h, middleware, nil)
}

// Any is Handle for every method.
func (g *group) Any(path string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("", path, h, middleware, nil)
}

// Use adds middleware to all routes of the group and of its inner groups, including routes registered earlier. The middleware of
// a group stands outside that of its inner groups and routes. The router's middleware is outermost, and also covers the router's
// own answers. Use panics once the router serves.
//
// The router calls each middleware when it begins to serve, once or more for each route. State that requests share must therefore
// be created before, not inside that call.
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

// Mount hands all requests whose path begins with prefix and a slash over to h, whatever their method. If h is the Serve method
// of another Router, the patterns of that router match the path after the prefix, and Ctx.Route and Ctx.Param see prefix and
// pattern as one. Any other handler finds the path as it was sent. Middleware that changes the method or path, such as
// middleware.Rewrite, may stand around h, also in a group that has no other routes. Inline or Offload on the returned Route applies until
// the mounted Router has found its own route.
func (g *group) Mount(prefix string, h filo.Handler, middleware ...filo.Middleware) *Route {
	return g.add("", strings.TrimSuffix(prefix, "/")+"/", h, middleware, &mountPoint{})
}

// inText is passed to add if the pattern's text may contain a method.
const inText = "?"

// add registers a route for a method, "" for every one. It must be called directly by the function that the user has called, because it
// looks up that call's location.
func (g *group) add(method, text string, h filo.Handler, middleware []filo.Middleware, mount *mountPoint) *Route {
	location := "unknown location"
	if _, file, line, ok := runtime.Caller(2); ok {
		location = fmt.Sprintf("%s:%d", file, line)
	}
	mustNotBeNil(middleware)
	if mount == nil { // around a mounted router it runs before that router looks for a route
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

// inlineCode is the code of the handlers that filo.Inline returns. Such a handler never waits, so its route is answered however many
// requests there are. Probes therefore work even if their route wasn't marked.
var inlineCode = reflect.ValueOf(filo.Inline(nil)).Pointer()

// mustNotBeNil panics at the call with the missing argument, instead of at the first request.
func mustNotBeNil(middleware []filo.Middleware) {
	for i, each := range middleware {
		if each == nil {
			panic(fmt.Sprintf("router: middleware %d of %d is nil", i+1, len(middleware)))
		}
	}
}

// mustRunInside panics for middleware that changes method or path: inside of the router, the route is already chosen.
func mustRunInside(middleware []filo.Middleware) {
	for _, each := range middleware {
		if name := prerouting.NameOf(each); name != "" {
			panic(fmt.Sprintf("router: %s must run before the route is chosen, which in a router it can't: "+
				"put it around what the server is given, as in &filo.Server{Handler: %s(options)(r.Serve)}, "+
				"or around a handler that looks for itself, such as a proxy's", name, name))
		}
	}
}

// mustRunInside panics for such middleware of the group, or of a group around it.
func (g *group) mustRunInside() {
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	for ; g != nil; g = g.parent {
		mustRunInside(g.middleware)
	}
}

// hasRoutes reports whether the group, or one in it, has a route that isn't a mounted router. The router's mu is held.
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

// pattern parses a pattern of the group, for the given method unless the method is inText.
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

// wrap puts middleware around h, the first one outermost. It doesn't render the errors of the outermost handler. A middleware that returns
// no handler panics here, where the chains are built; otherwise every request would fail by a nil pointer.
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

// rendered returns a handler that has turned h's error into the response when it returns, so that middleware around it finds
// status, fields and body as they will be. Middleware is wrapped in it too, because it may refuse a request by an error of its own.
func rendered(h filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		inside.KeepFields(c)
		if err := h(c); err != nil {
			return c.RenderError(err)
		}
		return nil
	}
}
