// Package inside offers functions of the root to filo's own packages alone: to routers, and to adaptors to other servers. The root leaves
// the functions in package hooks.
package inside

import (
	"net"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/hooks"
)

var (
	enter    = hooks.Enter.(func(c *filo.Ctx, class *class.Class, route string) error)
	routed   = hooks.Routed.(func(*filo.Ctx) *hooks.Match)
	inherit  = hooks.Inherit.(func(c, from *filo.Ctx))
	carry    = hooks.Carry.(func(*filo.Server, hooks.Transport, filo.Handler) error)
	serve    = hooks.Serve.(func(*filo.Server, hooks.Transport) error)
	config   = hooks.Configure.(func(*filo.Server))
	http3    = hooks.HTTP3.(func(*filo.Server) *hooks.HTTP3Counts)
	takeBody = hooks.TakeBody.(func(*filo.Ctx) (hooks.Duplex, bool))
	whole    = hooks.WholeBody.(func(*filo.Ctx) ([]byte, bool, error))
	upgrade  = hooks.Upgrade.(func(*filo.Ctx) (net.Conn, []byte, error))

	leftover = hooks.Leftover.(func(*filo.Server) string)
	overdue  = hooks.Overdue.(func(*filo.Server, func(hooks.OverdueWait)))

	keepFields      = hooks.KeepFields.(func(*filo.Ctx))
	maxHeaderFields = hooks.MaxHeaderFields.(func(*filo.Ctx) int)
)

// Leftover describes what a server still counts although no connection and no request is open, "" if nothing is left. It is for tests.
func Leftover(s *filo.Server) string { return leftover(s) }

// Overdue calls found for each connection that waits although its input or room is there, and for the queue if a request waits in it although a
// place is free. If such a wait makes no progress, somebody was never woken. Connections also tell whether their loop looks for events meanwhile.
// It is for tests.
func Overdue(s *filo.Server, found func(hooks.OverdueWait)) { overdue(s, found) }

// Match returns the routing result of the request, for a router to fill in.
func Match(c *filo.Ctx) *hooks.Match { return routed(c) }

// KeepFields says that middleware has run, and may have set fields: see filo.Ctx.SetTimeout.
func KeepFields(c *filo.Ctx) { keepFields(c) }

// Enter says to which class the rest of the handler belongs. If that class may block, and the handler runs where its request was read, the
// loop driver gives the loop to another worker first. A router calls it with the class of the route that it has found, before the route's
// first middleware. The part of the handler that has run before belongs to the class that was entered before, or to the server's own class.
// If the handler of a server has called Enter once, the server expects that the handler always does so and, as long as measurements agree,
// that the handler is quick until then.
//
// The error is a 503 for the handler to return: Concurrency has been reached.
func Enter(c *filo.Ctx, class *class.Class) error { return enter(c, class, "") }

// EnterRoute is Enter with the class of a route, which Ctx.Route returns from then on.
func EnterRoute(c *filo.Ctx, class *class.Class, route string) error { return enter(c, class, route) }

// Inherit gives c's request the path parameters, the route, the values and the limit for bodies of another request, and also whether an
// error was rendered there. It is for adaptors that run a part of a chain of handlers with a separate Ctx, and afterwards let the outer Ctx
// inherit from the separate one in turn. Then the inner Ctx ends, and is reused for another request: no value that was stored by Set may
// hold a Ctx.
func Inherit(c, from *filo.Ctx) { inherit(c, from) }

// Carry runs h on the request that t carries, with the settings of the server, which needn't be serving. The server's limits for sizes, for
// bodies and for requests apply, unless t says that the request is a part of one that the server handles already. Its limits for
// connections and for time don't apply, and its Handler runs only if it is h.
//
// It returns nil when the answer is complete, and also when h has hijacked the connection. An error means that the answer couldn't be
// completed, and that nothing more of it will be written. A panic of h isn't recovered.
func Carry(s *filo.Server, t hooks.Transport, h filo.Handler) error { return carry(s, t, h) }

// Serve is Carry for a protocol of the server's own whose connections another module has. The server's Handler answers as it does by
// HTTP/2: the ErrorHandler answers its panics, and the server answers OPTIONS *. A request for a host that demands another client
// certificate gets 421.
func Serve(s *filo.Server, t hooks.Transport) error { return serve(s, t) }

// Configure applies the defaults of the server's fields. The fields must no longer change. Stats returns the limits from then on.
func Configure(s *filo.Server) { config(s) }

// HTTP3 returns the counts of the server's connections and requests of HTTP/3, for their module to change.
func HTTP3(s *filo.Server) *hooks.HTTP3Counts { return http3(s) }

// TakeBody returns a reader of the request's body that another goroutine may use while the Ctx sends the answer, and takes the body from the
// Ctx. It reports false and changes nothing in two cases: the protocol can't do both at once, as in HTTP/1.1, or a part of the body was
// already read.
func TakeBody(c *filo.Ctx) (hooks.Duplex, bool) { return takeBody(c) }

// WholeBody is filo.Ctx.Body for middleware that distinguishes requests by their bodies. It reports false if Body doesn't return all that
// was sent, because the body was read before by other means, such as BodyReader or MultipartForm.
func WholeBody(c *filo.Ctx) (body []byte, ok bool, err error) { return whole(c) }

// Upgrade is filo.Ctx.Upgrade for a handler that has agreed on the protocol itself: the 101 has the response's fields as they are.
func Upgrade(c *filo.Ctx) (conn net.Conn, buffered []byte, err error) { return upgrade(c) }

// MaxHeaderFields returns filo.Server.MaxHeaderFields, or its default if that isn't set.
func MaxHeaderFields(c *filo.Ctx) int { return maxHeaderFields(c) }

// Offload makes the rest of a handler run like a filo.Offload handler. A handler calls it when it finds that it will wait, for a file or
// for its turn. It returns the errors of Enter.
func Offload(c *filo.Ctx) error { return offload(c) }

var offload = filo.Offload(func(*filo.Ctx) error { return nil })
