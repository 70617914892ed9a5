package otel

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// MaxRoutes is the number of routes that a Middleware distinguishes. Requests of further routes are recorded as if they had no route. A
// router has a fixed number of routes, but a program may make routers while it serves.
const MaxRoutes = 1000

// route holds the names and attributes that all requests of a route share. They are made once.
type route struct {
	path  string   // http.route: the pattern without method and host, "" if there is none
	names []string // names of spans, by method
	// sets holds sets of attributes for the metrics. A set is created when it is first needed: under routes.mu, a copy with one more set then
	// replaces the map.
	sets atomic.Pointer[map[setKey]*measurement]
}

// routes holds the known routes. Looking up a route or a set takes no lock.
type routes struct {
	mu sync.Mutex // held while a map is replaced by a copy with one more entry
	// known is indexed by the result of Ctx.Route.
	known atomic.Pointer[map[string]*route]
}

func (r *routes) init() { r.known.Store(&map[string]*route{}) }

// find returns the route for a pattern, in the form that Ctx.Route returns. Beyond MaxRoutes, it returns the route of requests without a route.
func (r *routes) find(pattern string, methods []string) *route {
	if found := (*r.known.Load())[pattern]; found != nil {
		return found
	}
	return r.add(pattern, methods)
}

func (r *routes) add(pattern string, methods []string) *route {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := *r.known.Load()
	if len(known) >= MaxRoutes {
		pattern = ""
	}
	if found := known[pattern]; found != nil {
		return found
	}
	known = maps.Clone(known)
	added := newRoute(pattern, methods)
	known[strings.Clone(pattern)] = added
	r.known.Store(&known)
	return added
}

func newRoute(pattern string, methods []string) *route {
	added := &route{path: routePath(pattern)}
	added.sets.Store(&map[setKey]*measurement{})
	for _, method := range methods {
		added.names = append(added.names, spanName(method, added.path))
	}
	return added
}

// spanName returns the span's name by the conventions. Unknown methods share one name.
func spanName(method, path string) string {
	if method == semconv.HTTPRequestMethodOther.Value.AsString() {
		method = "HTTP"
	}
	if path == "" {
		return method
	}
	return method + " " + path
}

// routePath returns the path of a pattern such as "GET example.com/users/{id}".
func routePath(pattern string) string {
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		pattern = pattern[i:]
	}
	return valid(pattern)
}

// valid returns a text as valid UTF-8. If a text were invalid, the exporter would drop everything that it sends together with that text.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
