package router

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/inside"
)

// Route is a registered pattern with its handler.
type Route struct {
	// The next two fields are set when the router begins to serve, and don't change afterwards.
	handler   filo.Handler // with all middleware
	preflight filo.Handler // the same middleware around the handler that answers OPTIONS

	class     class.Class
	names     []string    // of the wildcards that have a value
	restNamed bool        // the last name belongs to a {name...}
	mount     *mountPoint // the mount point that the route leads to; nil for none

	pattern    *pattern
	group      *group
	given      filo.Handler
	middleware []filo.Middleware
	name       string // guarded by Router.mu
	told       string // "Inline" or "Offload" if that method was called, else ""; guarded by Router.mu, constant once the router serves

	queries *queries // the accepted media types, nil for all; guarded by Router.mu, constant once the router serves

	// placed caches the route's *placement for each *mountPoint at which its router is mounted.
	placed sync.Map
}

// run handles a request whose parameters have been set. name is the route's name, or "" if the caller has set the name of the
// request's route, too.
func (route *Route) run(c *filo.Ctx, name string) error {
	if route.mount == nil || route.told != "" || !route.mount.leadsToRouter() {
		if err := inside.EnterRoute(c, &route.class, name); err != nil {
			return err
		}
	} else {
		if name != "" {
			inside.Match(c).Route = name // until the mounted Router names a route of its own
		}
		if route.mount.mounted.Load() == mountSought {
			defer route.mount.notReached()
		}
	}
	if err := route.handler(c); err != nil {
		return c.RenderError(err)
	}
	return nil
}

// Pattern returns the route's pattern, including the prefixes of its groups.
func (route *Route) Pattern() string { return route.pattern.text }

// Name names the route for Router.URL. It panics if another route has that name.
func (route *Route) Name(name string) *Route {
	r := route.group.router
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustNotServe("Route.Name")
	if other := r.named[name]; other != nil && other != route {
		panic(fmt.Sprintf("router: %s can't be called %q as well: %s is", route.pattern, name, other.pattern))
	}
	if route.name != "" {
		delete(r.named, route.name)
	}
	route.name = name
	r.named[name] = route
	return route
}

// Inline runs the route directly in the loop that reads its requests, from the first request on. Use it for quick routes that must
// answer even when Server.Concurrency is reached, such as probes, and for fast routes that are rarely called. The handler and its
// middleware must not block, and together must not take more than some 10 µs, because the other connections of the loop wait for
// them. Other routes don't need it: filo times them. Inline returns the route, and panics after Offload.
func (route *Route) Inline() *Route {
	route.tell("Inline")
	route.class.SetInline()
	return route
}

// Offload keeps the route out of the loop that reads its requests, from the first request on: another worker takes the loop over
// before the handler runs. Use it for handlers that always wait for something or compute for long. Without Offload, filo times
// the route and decides the same after some calls. Offload returns the route, and panics after Inline.
func (route *Route) Offload() *Route {
	route.tell("Offload")
	route.class.SetOffload()
	return route
}

// Always admits the route's requests even when Server.Concurrency is reached, without a wait in Server.Queue. Requests of all such routes
// that take long share a reserve of 16 places; when the reserve is used up, a further request needs an ordinary place. Use it for operators'
// pages, such as metrics, which matter most when the server is overloaded. Packages debug and dashboard call Always for their own routes, and
// an Inline route doesn't need it. Don't expose such a route to arbitrary clients, which could fill the reserve. Always doesn't determine
// where the route runs, so it can be combined with Inline and Offload. Over HTTP/1.1 such a handler may still be refused if it hijacks or
// parks its connection. Always returns the route.
func (route *Route) Always() *Route {
	r := route.group.router
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustNotServe("Route.Always")
	route.class.SetAlways()
	return route
}

// tell records where the route must run.
func (route *Route) tell(where string) {
	r := route.group.router
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustNotServe("Route." + where)
	if route.told != "" && route.told != where {
		panic(fmt.Sprintf("router: %s can't be %s, it is %s already: a route runs either where its requests are read, or never there",
			route.pattern, where, route.told))
	}
	route.told = where
}

// RouteInfo describes a registered route.
type RouteInfo struct {
	// Method is the route's method, or "" for every method. GET includes HEAD.
	Method string
	// Host is the route's host, "*." and a domain for the hosts directly below it, or "" for every host.
	Host string
	// Path is the path of the pattern.
	Path string
	// Pattern is method, host and path together, as Ctx.Route returns it.
	Pattern string
	// Name is the name that Route.Name gave the route.
	Name string
	// Location is the file and line where the route was registered.
	Location string
	// Handler is the registered handler, without middleware. A handler made by bind.Handler describes itself: see bind.Describe.
	Handler filo.Handler `json:"-"`
}

// Routes lists the routes in the order of their registration.
func (r *Router) Routes() []RouteInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	infos := make([]RouteInfo, len(r.routes))
	for i, route := range r.routes {
		p := route.pattern
		infos[i] = RouteInfo{Method: p.method, Host: p.host, Path: p.path, Pattern: p.text, Name: route.name, Location: p.location, Handler: route.given}
	}
	return infos
}

// URL returns the path of the route called name. The values fill its wildcards in order, and URL escapes them. The value of {name...} may
// have several segments. If the pattern has a host, the result begins with "//" and the host; if that host begins with a star, the first
// value is the label that replaces it. The prefix of a Mount isn't included. URL returns an error for a value that the route wouldn't match.
func (r *Router) URL(name string, values ...string) (string, error) {
	r.mu.Lock()
	route := r.named[name]
	r.mu.Unlock()
	if route == nil {
		return "", fmt.Errorf("router: no route is called %q", name)
	}
	p := route.pattern
	wildcards := len(p.names)
	domain, below := strings.CutPrefix(p.host, "*.")
	if below {
		wildcards++
	}
	if len(values) != wildcards {
		return "", fmt.Errorf("router: %q has %d wildcards, not %d", p.text, wildcards, len(values))
	}
	var b strings.Builder
	if p.host != "" {
		b.WriteString("//")
	}
	if below {
		label := values[0]
		if label == "" || strings.Trim(label, wordBytes+"-") != "" {
			return "", fmt.Errorf("router: the value %q for the star of %q isn't a label of a host", label, p.text)
		}
		b.WriteString(label + ".")
		values = values[1:]
	}
	b.WriteString(domain)
	for _, s := range p.segments {
		b.WriteByte('/')
		switch {
		case s.kind == literal:
			b.WriteString(url.PathEscape(string(decodeCanonical([]byte(s.text)))))
		case s.kind == single || s.text != "":
			if err := writeValue(&b, s, values[0]); err != nil {
				return "", fmt.Errorf("router: the value %q for {%s} of %q %w", values[0], s.text, p.text, err)
			}
			values = values[1:]
		}
	}
	return b.String(), nil
}

func writeValue(b *strings.Builder, s segment, value string) error {
	if s.kind == rest {
		for i, each := range strings.Split(value, "/") {
			if i > 0 {
				b.WriteByte('/')
			}
			b.WriteString(url.PathEscape(each))
		}
		if !isClean([]byte(value)) {
			return errors.New("has an empty segment, or one of dots")
		}
		return nil
	}
	switch {
	case value == "":
		return errors.New("is empty")
	case isDots([]byte(value)):
		return errors.New("would lead to another path")
	case s.constraint != nil && !s.constraint.match([]byte(value)):
		return fmt.Errorf("isn't %s", s.constraint.text)
	}
	b.WriteString(url.PathEscape(value))
	return nil
}
