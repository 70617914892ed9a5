package humafilo

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/router"
)

// New returns an API whose operations are routes of r. Operations can be registered until r serves.
func New(r *router.Router, config huma.Config) huma.API {
	return huma.NewAPI(config, &adapter{routes: r, whole: adaptor.ToHTTP(r.Serve)})
}

// NewWithGroup is New for routes in a group of r, with the group's prefix and middleware. The paths in the OpenAPI document don't have the
// prefix: add it to config.Servers, as in &huma.Server{URL: "/v1"}, so that readers of the document find the operations.
func NewWithGroup(r *router.Router, g *router.Group, config huma.Config) huma.API {
	return huma.NewAPI(config, &adapter{routes: g, whole: adaptor.ToHTTP(r.Serve)})
}

// adapter is a huma.Adapter. It is immutable.
type adapter struct {
	// routes is where operations are registered: a *router.Router or a *router.Group.
	routes interface {
		Handle(pattern string, h filo.Handler, middleware ...filo.Middleware) *router.Route
	}
	// whole serves requests with the whole router. Tests and huma's autopatch send such requests through the API instead of the network.
	whole http.Handler
}

// Handle registers an operation. It panics if the router's Handle panics.
func (a *adapter) Handle(op *huma.Operation, handler func(huma.Context)) {
	a.routes.Handle(pattern(op), func(c *filo.Ctx) error {
		x := &operationContext{c: c, operation: op}
		raiseBodyLimit(c, op.MaxBodyBytes)
		handler(x)
		return x.failure()
	})
}

// ServeHTTP serves a net/http request with the router.
func (a *adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.whole.ServeHTTP(w, r) }

// raiseBodyLimit raises the server's limit for the body to the operation's limit, if that is larger. A smaller limit is enforced by huma
// itself, with a better answer.
func raiseBodyLimit(c *filo.Ctx, limit int64) {
	server := cmp.Or(c.Server().MaxBodyBytes, filo.DefaultMaxBodyBytes)
	if limit < 0 || server > 0 && limit > server {
		c.SetMaxBodyBytes(limit)
	}
}

// pattern returns the router's pattern for an operation.
func pattern(op *huma.Operation) string {
	var b strings.Builder
	b.WriteString(strings.ToUpper(op.Method))
	b.WriteByte(' ')
	for rest := op.Path; rest != ""; {
		literal, inside, found := strings.Cut(rest, "{")
		b.WriteString(literal)
		if !found {
			break
		}
		name, behind, _ := strings.Cut(inside, "}")
		b.WriteString("{" + identifier(name) + "}")
		rest = behind
	}
	// In a pattern of the router, a slash at the end matches all paths below. In OpenAPI it matches only itself.
	if strings.HasSuffix(op.Path, "/") {
		b.WriteString("{$}")
	}
	return b.String()
}

// identifier returns the router's name for a parameter. OpenAPI allows more characters in names than Go does, mainly "-".
func identifier(name string) string {
	return strings.ReplaceAll(name, "-", "_")
}
