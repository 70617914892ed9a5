// Package inside offers unexported functions of the root package to filo's own packages, such as router and adaptor. The root package stores the
// functions in package hooks.
package inside

import (
	"context"
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
	base     = hooks.Base.(func(*filo.Server) context.Context)
	http3    = hooks.HTTP3.(func(*filo.Server) *hooks.HTTP3Counts)
	takeBody = hooks.TakeBody.(func(*filo.Ctx) (hooks.Duplex, bool))
	whole    = hooks.WholeBody.(func(*filo.Ctx) ([]byte, bool, error))
	upgrade  = hooks.Upgrade.(func(*filo.Ctx) (net.Conn, []byte, error))

	leftover = hooks.Leftover.(func(*filo.Server) string)
	overdue  = hooks.Overdue.(func(*filo.Server, func(hooks.OverdueWait)))

	keepFields      = hooks.KeepFields.(func(*filo.Ctx))
	maxHeaderFields = hooks.MaxHeaderFields.(func(*filo.Ctx) int)

	takeRoom = hooks.TakeRoom.(func(c *filo.Ctx, n int64) error)
	giveRoom = hooks.GiveRoom.(func(c *filo.Ctx, n int64))

	takeEncoder = hooks.TakeEncoder.(func(c *filo.Ctx, n int64, must bool) bool)
	giveEncoder = hooks.GiveEncoder.(func(c *filo.Ctx, n int64))
)

// Leftover describes the counters of a server that should be 0 when no connection and no request is open, but aren't. It returns "" if there are
// none. It is for tests.
func Leftover(s *filo.Server) string { return leftover(s) }

// Overdue calls the function found for each connection that waits although its socket has the input or the room for which it waits. It also calls found
// for the queue, if a request waits there although a place is free. If such a wait makes no progress, a wake-up was lost. For a connection,
// OverdueWait.Looks says how often its loop has looked for events. Overdue is for tests.
func Overdue(s *filo.Server, found func(hooks.OverdueWait)) { overdue(s, found) }

// Match returns the request's routing result, which the router fills in.
func Match(c *filo.Ctx) *hooks.Match { return routed(c) }

// KeepFields records that middleware has run and may have set response fields: see filo.Ctx.SetTimeout.
func KeepFields(c *filo.Ctx) { keepFields(c) }

// Enter records to which class the rest of the handler belongs. If that class may block, and the handler runs in the leader that has read its
// request, the loop driver gives the loop to another worker first. A router calls Enter with the class of the route that it has found, before
// the route's first middleware. The time before that call counts for the class that was entered before, or for the server's own class. Once the
// handler of a server has called Enter, the server expects that the handler always calls Enter. As long as measurements agree, it also expects
// that the handler is quick until that call.
//
// If Concurrency has been reached, Enter returns a 503 error, which the handler must return.
func Enter(c *filo.Ctx, class *class.Class) error { return enter(c, class, "") }

// EnterRoute is Enter with the class of a route, which Ctx.Route returns from then on.
func EnterRoute(c *filo.Ctx, class *class.Class, route string) error { return enter(c, class, route) }

// Inherit gives c's request the path parameters, the route, the values and the limit for bodies of another request, and also whether an error was
// rendered for that request. It is for adaptors that run a part of a chain of handlers with an inner Ctx. Afterwards the outer Ctx inherits from the
// inner one, which is then reused for another request. So a value that was stored with Set must not refer to a Ctx.
func Inherit(c, from *filo.Ctx) { inherit(c, from) }

// Carry runs h on the request that t carries, with the settings of the server s. s itself needn't be serving. The server's limits for sizes, for
// bodies and for requests apply, unless t says that the request is a part of a request that the server is already handling. The server's limits for
// connections and for time don't apply. Its Handler isn't called, unless h is that Handler.
//
// Carry returns nil when the answer is complete, and also when h has hijacked the connection. If the answer couldn't be completed, Carry returns an
// error and writes nothing more. A panic of h isn't recovered.
func Carry(s *filo.Server, t hooks.Transport, h filo.Handler) error { return carry(s, t, h) }

// Serve is Carry for a protocol of the server whose connections another module implements, such as HTTP/3. It runs the server's Handler as for a
// request over HTTP/2: the ErrorHandler answers panics, and the server answers OPTIONS *. A request for a host that demands another client
// certificate is answered with 421.
func Serve(s *filo.Server, t hooks.Transport) error { return serve(s, t) }

// Configure applies the defaults of the server's fields. The fields must not change afterwards. From then on Stats returns the limits.
func Configure(s *filo.Server) { config(s) }

// Base returns the parent of the contexts of the server's requests. It ends when the server is closed, and when a shutdown is complete or has
// given up. Call it after Configure.
func Base(s *filo.Server) context.Context { return base(s) }

// HTTP3 returns the counts of the server's HTTP/3 connections and requests, which the module for HTTP/3 updates.
func HTTP3(s *filo.Server) *hooks.HTTP3Counts { return http3(s) }

// TakeBody returns a reader of the request's body that another goroutine may use while the Ctx sends the answer, and takes the body from the
// Ctx. It reports false and changes nothing in two cases: the protocol can't receive the body and send the answer at the same time, as with HTTP/1.1,
// or a part of the body was already read.
func TakeBody(c *filo.Ctx) (hooks.Duplex, bool) { return takeBody(c) }

// WholeBody is filo.Ctx.Body for middleware that distinguishes requests by their bodies. It reports false if Body can't return the whole body,
// because it was already read by other means, such as BodyReader or MultipartForm.
func WholeBody(c *filo.Ctx) (body []byte, ok bool, err error) { return whole(c) }

// Upgrade is filo.Ctx.Upgrade for a handler that has negotiated the protocol itself: the 101 has exactly the fields that the handler has set.
func Upgrade(c *filo.Ctx) (conn net.Conn, buffered []byte, err error) { return upgrade(c) }

// MaxHeaderFields returns filo.Server.MaxHeaderFields, or the default if the field isn't set.
func MaxHeaderFields(c *filo.Ctx) int { return maxHeaderFields(c) }

// TakeRoom counts n more bytes for the request's body against filo.Server.MaxBufferedBodies. If there is no room, the error is a 503, which wraps
// filo.ErrBusy. At the end of the request, the bytes that GiveRoom hasn't given back are given back.
func TakeRoom(c *filo.Ctx, n int64) error { return takeRoom(c, n) }

// GiveRoom gives back n bytes that TakeRoom has counted.
func GiveRoom(c *filo.Ctx, n int64) { giveRoom(c, n) }

// TakeEncoder counts n bytes for the encoder of a stream, and reports whether there is room. If must is true, there is twice as much. All of a server's
// encoders may take as much as filo.Server.MaxBufferedAnswers, apart from the answers that it limits.
func TakeEncoder(c *filo.Ctx, n int64, must bool) bool { return takeEncoder(c, n, must) }

// GiveEncoder gives back n bytes that TakeEncoder has counted.
func GiveEncoder(c *filo.Ctx, n int64) { giveEncoder(c, n) }

// Offload makes the rest of a handler run like a filo.Offload handler. A handler calls it when it is about to wait, for example for a file. It
// returns the same errors as Enter.
func Offload(c *filo.Ctx) error { return offload(c) }

var offload = filo.Offload(func(*filo.Ctx) error { return nil })
