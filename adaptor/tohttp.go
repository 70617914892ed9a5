package adaptor

import (
	"net/http"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
)

// ToHTTP returns a net/http handler that runs a filo handler, with the default settings of a filo.Server: see ToHTTPServer.
func ToHTTP(h filo.Handler) http.Handler {
	if h == nil {
		panic("adaptor: ToHTTP with a nil handler")
	}
	return ToHTTPServer(&filo.Server{Handler: h})
}

// ToHTTPServer returns a net/http handler that runs the server's Handler, with the server's ErrorHandler, logger, Concurrency, Queue, limits
// for sizes and bodies, Stats and Shutdown. net/http's server sets the time-outs and limits of connections, except for parked connections:
// see the package's overview. The request's PathValues are the parameters of the Ctx. The filo server needn't be serving. Its fields must no
// longer change.
func ToHTTPServer(s *filo.Server) http.Handler {
	if s.Handler == nil {
		panic("adaptor: ToHTTPServer with a server that has no handler")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := newCarrier(w, r)
		t.serve(s, func(c *filo.Ctx) error {
			t.lendHeader(c)
			lendPathValues(c, r)
			return s.Handler(c)
		})
	})
}

// lendPathValues makes the values of the pattern by which http.ServeMux has chosen the handler parameters of c. The pattern doesn't become c's
// route: package static would cut it from the path, and http.StripPrefix may have done that.
func lendPathValues(c *filo.Ctx, r *http.Request) {
	if r.Pattern == "" {
		return
	}
	match := inside.Match(c)
	var names []string
	for _, part := range strings.Split(r.Pattern, "{")[1:] {
		name, _, _ := strings.Cut(part, "}")
		name, _, _ = strings.Cut(strings.TrimSuffix(name, "..."), ":") // a route of filo may have a constraint
		if name != "$" {
			names = append(names, name)
			match.Append([]byte(r.PathValue(name)))
		}
	}
	match.SetNames(names)
}

// Middleware turns net/http middleware into filo middleware. The Ctx of next shows the middleware's changes to the request: method, path,
// query, fields, body, remote address and context. The answer of next goes through the ResponseWriter that the middleware passes on. Path
// parameters, route and values of the request are the same on both sides. An error of next is rendered before the middleware sees the
// answer, and returned when the middleware returns. If the middleware makes two concurrent calls of next, one of them may run with the
// request's own Ctx. The Ctx of the other call then lacks the request's values.
func Middleware(middleware func(http.Handler) http.Handler) filo.Middleware {
	if middleware == nil {
		panic("adaptor: Middleware with a nil middleware")
	}
	return func(next filo.Handler) filo.Handler {
		h := middleware(&rest{next: next})
		return func(c *filo.Ctx) error {
			e := newExchange(c)
			r, err := newRequest(c, e)
			if err != nil {
				return err
			}
			e.sent = newSnapshot(r)
			if err = e.run(h, r); err == nil {
				err = e.returned
			}
			return err
		}
	}
}

// rest is the part of filo's chain after a middleware of net/http.
type rest struct{ next filo.Handler }

// exchangeKey is the context key for the exchange in which a handler or middleware of net/http runs.
type exchangeKey struct{}

// orphans is the server for requests whose exchange is unknown, because middleware has given them another context.
var orphans filo.Server

// ServeHTTP implements http.Handler.
func (h *rest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		e = &exchange{ended: true, server: &orphans}
	}
	if w == http.ResponseWriter(&e.writer) && e.serveDirect(r, h.next) {
		return
	}
	t := newCarrier(w, r)
	if e.sent != nil && r.RemoteAddr == e.sent.remote {
		t.proxy = e.proxy
	}
	t.serve(e.server, func(c *filo.Ctx) error {
		t.lendHeader(c)
		e.lend(c)
		err := c.RenderError(h.next(c))
		e.takeBack(c, err)
		return err
	})
}

// lend gives c the route, path parameters, values and body limit of the middleware's Ctx, unless the handler has returned or another call of
// next runs with that Ctx.
func (e *exchange) lend(c *filo.Ctx) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended && e.running == nil {
		inside.Inherit(c, e.ctx)
	}
}

// takeBack copies the route, path parameters, values and body limit from c back to the middleware's Ctx, and stores the error of the rest
// of the chain. It does so under the same conditions as lend.
func (e *exchange) takeBack(c *filo.Ctx, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended && e.running == nil {
		inside.Inherit(e.ctx, c)
		e.returned = err
	}
}
