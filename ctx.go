package filo

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/requestctx"
	"github.com/filohttp/filo/internal/requestlog"
)

// Handler answers a request. It may block. If it returns an error, the server's ErrorHandler turns the error into a response. The Ctx, and
// every []byte obtained from it, is borrowed until the handler returns; a string belongs to the handler.
//
// The goroutine of a handler serves other requests afterwards. A handler that calls runtime.LockOSThread must unlock the thread before it
// returns. Otherwise thread switches slow those requests down. If the thread can't be used any more, the handler must end the goroutine
// with runtime.Goexit.
type Handler func(*Ctx) error

// Middleware wraps a handler.
type Middleware func(Handler) Handler

// Ctx is one request and its response. It belongs to the goroutine that runs the handler, and the server reuses it when the
// handler has returned. Using it after that may panic, and always does in builds with the race detector.
//
// Its fields Request and Response hold the request and the response. The methods of Ctx, by purpose:
//
// # Reading the request
//
//   - Its line: [Ctx.Method], [Ctx.Host], [Ctx.Path], [Ctx.Query], [Ctx.Param], and borrowed [Ctx.HostBytes], [Ctx.PathBytes],
//     [Ctx.ParamBytes]; [Ctx.Route] is the pattern that matched. Header fields and cookies: [Request].
//   - Its body: [Ctx.Body], [Ctx.BodyReader], [Ctx.FormFile], [Ctx.SetMaxBodyBytes], [Ctx.DecodeJSON]. Forms: [Request.Form]. Package bind
//     decodes requests into structs.
//   - Its connection: [Ctx.RemoteAddr], [Ctx.RemoteAddrPort], [Ctx.LocalAddr], [Ctx.TLS], [Ctx.ProxyHeader].
//
// # Answering
//
//   - At once: [Ctx.Text], [Ctx.JSON], [Ctx.HTML], [Ctx.XML], [Ctx.Bytes], [Ctx.BytesNoCopy], [Ctx.NoContent], [Ctx.Redirect],
//     [Ctx.Render]. To choose by the Accept field: [Ctx.Negotiate].
//   - From files and readers: [Ctx.File], [Ctx.Attachment], [Ctx.Reader]. Package static serves directories.
//   - Before the answer: [Ctx.EarlyHints], [Ctx.Informational].
//   - By an error: a handler returns [Error] or another error. For middleware: [Ctx.RenderError], [Ctx.ErrorRendered].
//   - The state of the answer, for middleware: [Ctx.Status], [Ctx.BytesWritten], [Ctx.Committed], [Ctx.Hijacked].
//
// # Answers that go on, and connections that leave HTTP
//
// These five methods differ in what filo sends, in which goroutine writes afterwards, and in what an idle connection costs:
//
//	            filo sends            then writes    a wait costs  HTTP/2
//	Stream      your head             the handler    a worker      yes
//	ParkStream  your head             any goroutine  memory        yes
//	Park        101 (nothing for "")  any goroutine  memory        by extended CONNECT
//	Upgrade     101                   any goroutine  a goroutine   by extended CONNECT
//	Hijack      nothing               any goroutine  a goroutine   no
//
// [Ctx.Stream] is for answers that are produced while they are sent. [Ctx.Upgrade] and [Ctx.Hijack] return a net.Conn, for a library that
// wants one. For parked connections ([Ctx.Park], [Ctx.ParkStream]) filo calls a function when data arrives; the blocking driver also needs
// a goroutine for each of them. Package sse (events) and contrib/websocket are built on parked connections, and easier to use.
//
// # Time, and clients that leave
//
//   - [Ctx.Context] ends when nobody waits for the answer any more. [Ctx.SetDeadline] bounds it, and [Ctx.SetContext] replaces it.
//   - [Ctx.SetTimeout] bounds how long the client waits for the handler; [Ctx.SetReadDeadline] and [Ctx.SetWriteDeadline] bound transfers.
//   - [Ctx.ShuttingDown] tells a handler that streams endlessly to return.
//   - [Ctx.Go] runs a function in the background, without delaying the answer.
//
// # Values, logs and the server
//
//   - [Ctx.Set] and [Ctx.Get] store values for later handlers; a [Key] has a type.
//   - [Ctx.Logger] has the request's attributes, and [Ctx.AddLogAttributes] adds to them.
//   - [Ctx.Server] is the server.
type Ctx struct {
	// Request is the request that the client sent.
	Request Request
	// Response is the response that the client will get.
	Response Response

	exchange *exchange // the request's exchange; nil after the handler has returned
	stream   StreamWriter
	context  *requestctx.Context
	room     budget.Room // of the request's body
	deadline time.Time
	timeout  *handlerTimeout // nil until a timeout is set; reused by the next request
	// readUntil and writeUntil are the deadlines that the handler has set; 0 means none.
	readUntil, writeUntil clock.Time
	hurries               bool // writeUntil is the server's: see beginWriting
	// clientGone says that the request's context has ended because the client left, or could no longer be written to. It stays
	// false if nobody has asked for the context.
	clientGone bool
	// abandoned says that the handler's error isn't answered, since the client has left: see exchange.abandon.
	abandoned bool
	claimed   bool // the answer is being sent, or the handler has returned: no timeout can be set any more
	rendered  bool // an error was turned into the response, which is final
	returned  bool // the handler has returned
	always    bool // the handler has entered a class that may run in the reserve: see admit.Always

	match    hooks.Match
	values   []ctxValue
	override context.Context // returned by Context if it isn't nil
	// logger caches the result of Logger while the route is loggedRoute. It is nil until Logger is called, and after attributes were added.
	logger      *slog.Logger
	loggedRoute string
	// logAttributes append the attributes of Logger.
	logAttributes []func(*Ctx, []slog.Attr) []slog.Attr
}

// released is the panic value when a Ctx is used after its handler has returned.
const released = "filo: Ctx used after its handler returned: copy what is needed later before it returns (see Ctx.Go for work that is left to be done)"

func init() {
	hooks.Enter = (*Ctx).enter
	hooks.Routed = (*Ctx).routed
	hooks.KeepFields = (*Ctx).keepFields
	hooks.Inherit = (*Ctx).inherit
	hooks.Carry = (*Server).carry
	hooks.Serve = (*Server).serveCarried
	hooks.Configure = (*Server).configure
	hooks.Base = func(s *Server) context.Context { return s.life.Base }
	hooks.HTTP3 = func(s *Server) *hooks.HTTP3Counts { return &s.http3 }
	hooks.TakeBody = (*Ctx).duplex
	hooks.WholeBody = (*Ctx).wholeBody
	hooks.Upgrade = (*Ctx).upgrade
	hooks.Leftover = (*Server).leftover
	hooks.Overdue = (*Server).overdue
	hooks.MaxHeaderFields = func(c *Ctx) int { return c.exchange.server.config.head.Fields }
	hooks.TakeRoom = func(c *Ctx, n int64) error { return c.exchange.takeDecoderRoom(n) }
	hooks.GiveRoom = func(c *Ctx, n int64) { c.exchange.giveRoom(n) }
	hooks.TakeEncoder = func(c *Ctx, n int64, must bool) bool { return c.exchange.server.takeEncoder(n, must) }
	hooks.GiveEncoder = func(c *Ctx, n int64) { c.exchange.server.encoders.Add(-n) }
}

// check panics if the Ctx has no request. In builds with the race detector, the Ctx loses its request as soon as the handler has returned;
// in other builds, when the connection has no further request to handle.
func (c *Ctx) check() {
	if c.exchange == nil {
		panic(released)
	}
}

// begin prepares the Ctx for the request with the head h, which lies in b.
func (c *Ctx) begin(h *http1.RequestHead, b []byte, f http1.Framing) {
	h.GiveFields(&c.Request.Header.list, b)
	c.Request.begin(c, h, b, f)
	c.Request.body.limit = bodyLimit(c.exchange.server.config.maxBody)
	c.Response.ctx = c
	c.Response.reset()
}

// end releases what the request held.
func (c *Ctx) end() {
	c.stopWatch()
	c.endBody()
	c.Request.end()
	if c.stream.used {
		c.stream.reset()
	}
	c.stopWatch() // again: the program's Close may have started a watch
	c.exchange.scratch.running.End()
	c.deadline, c.clientGone, c.abandoned, c.claimed = time.Time{}, false, false, false
	c.readUntil, c.writeUntil, c.hurries = 0, 0, false
	c.rendered, c.returned, c.always, c.match.Route, c.override, c.logger = false, false, false, "", nil, nil
	if len(c.logAttributes) > 0 {
		clear(c.logAttributes)
		c.logAttributes = c.logAttributes[:0]
	}
	if c.timeout != nil {
		c.timeout.forget()
	}
	if c.match.Len() > 0 {
		c.match.Reset()
	}
	if len(c.Response.wraps) > 0 {
		c.Response.forgetWraps()
	}
	if len(c.values) > 0 {
		clear(c.values)
		c.values = c.values[:0]
	}
}

// endBody releases what the request's body holds, apart from the decoded form of a body in the read buffer.
func (c *Ctx) endBody() {
	r := &c.Request
	if r.multipart != nil {
		if err := r.multipart.RemoveAll(); err != nil {
			c.Logger().Error("removing the temporary files of a multipart form failed", "error", err)
		}
		r.multipart = nil
	}
	if r.replaced != nil {
		r.replaced.end()
		r.replaced = nil
	}
	if r.body.large != nil {
		c.exchange.dropBody(r.body.large)
		r.body.large, r.body.whole, r.body.wholeErr = nil, nil, errBodyEnded
	}
	if n := c.room.Bytes(); n != 0 {
		c.exchange.giveRoom(n) // gives back the room of a form's body
	}
}

// endBodyEarly calls endBody before the answer waits for its client, so that a slow client doesn't keep the room of its request's body. It
// does nothing if the answer lies in the body's memory. The handler has returned.
func (c *Ctx) endBodyEarly() {
	r, answer := &c.Request, &c.Response
	if r.body.large == nil && r.multipart == nil && r.replaced == nil {
		return
	}
	if answer.source == bodyString || answer.source == bodyRef {
		b := answer.bodyBytes()
		if overlap(b, r.body.large) {
			return
		}
		for body := r.replaced; body != nil; body = body.before {
			if overlap(b, body.whole) {
				return
			}
		}
	}
	c.endBody()
}

// Method returns the request's method.
func (c *Ctx) Method() string { c.check(); return c.Request.Method() }

// Path returns the request's path, percent-decoded. Dot segments are kept as sent.
func (c *Ctx) Path() string { c.check(); return c.Request.URI().Path() }

// PathBytes returns the result of Path as borrowed bytes.
func (c *Ctx) PathBytes() []byte { c.check(); return c.Request.URI().PathBytes() }

// Host returns the host and port that the request is for.
func (c *Ctx) Host() string { c.check(); return c.Request.Host() }

// HostBytes returns the result of Host as borrowed bytes.
func (c *Ctx) HostBytes() []byte { c.check(); return c.Request.HostBytes() }

// Body reads the whole request body: see Request.Body.
func (c *Ctx) Body() ([]byte, error) { return c.Request.Body() }

// BodyReader returns a reader of the request body: see Request.BodyReader.
func (c *Ctx) BodyReader() io.Reader { return c.Request.BodyReader() }

// SetMaxBodyBytes replaces the server's MaxBodyBytes for this request; a negative n means no limit. Call it before reading the
// body.
func (c *Ctx) SetMaxBodyBytes(n int64) { c.check(); c.Request.body.limit = bodyLimit(n) }

// Param returns the percent-decoded value of a wildcard in the route's pattern, or "" if the pattern has no wildcard of that
// name.
func (c *Ctx) Param(name string) string { c.check(); return string(c.match.Get(name)) }

// ParamBytes returns the result of Param as bytes, which are borrowed until the handler returns.
func (c *Ctx) ParamBytes(name string) []byte { c.check(); return c.match.Get(name) }

// Query returns the first value of a query parameter, decoded, or "" if there is no parameter of that name.
func (c *Ctx) Query(name string) string { c.check(); return c.Request.Query().Get(name) }

// Route returns the pattern of the route that matched the request, such as "GET /users/{id}", or "" if none did.
func (c *Ctx) Route() string { c.check(); return c.match.Route }

// routed returns the router's match of the request.
func (c *Ctx) routed() *hooks.Match { c.check(); return &c.match }

// RemoteAddr returns the address of the client's end of the connection.
func (c *Ctx) RemoteAddr() net.Addr { c.check(); return c.exchange.wire.remoteAddr() }

// RemoteAddrPort returns the address and port of the client's end, with an IPv4-mapped IPv6 address as IPv4. It is invalid if the
// connection isn't an IP connection. Unlike RemoteAddr it allocates nothing.
func (c *Ctx) RemoteAddrPort() netip.AddrPort {
	c.check()
	return c.exchange.wire.remote()
}

func addrPortOf(address net.Addr) netip.AddrPort {
	if ip, ok := address.(interface{ AddrPort() netip.AddrPort }); ok {
		address := ip.AddrPort()
		return netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
	}
	return netip.AddrPort{}
}

// LocalAddr returns the address of the server's end of the connection.
func (c *Ctx) LocalAddr() net.Addr { c.check(); return c.exchange.wire.localAddr() }

// TLS returns the state of a TLS connection, or nil without TLS. The caller must not change it.
func (c *Ctx) TLS() *tls.ConnectionState {
	c.check()
	return c.exchange.tlsState
}

// Server returns the server that serves the request.
func (c *Ctx) Server() *Server { c.check(); return c.exchange.server }

// Logger returns the server's logger with attributes that identify the request: "route", if a route was found, and those of
// AddLogAttributes, such as "request_id" of middleware.RequestID and "trace_id" and "span_id" of contrib/otel. The logger is built on
// the first call, and again when attributes were added. The logger may be kept, and any goroutine may use it. Only the handler's goroutine
// may call Logger itself, like all methods of Ctx.
func (c *Ctx) Logger() *slog.Logger {
	c.check()
	route := c.match.Route
	if c.logger != nil && c.loggedRoute == route {
		return c.logger
	}
	c.logger, c.loggedRoute = c.exchange.server.logger(), route
	if route == "" && len(c.logAttributes) == 0 {
		return c.logger
	}
	c.logger = slog.New(c.logger.Handler().WithAttrs(c.attributes()))
	return c.logger
}

// attributes returns the attributes that identify the request. Nothing in them is borrowed.
func (c *Ctx) attributes() []slog.Attr {
	attributes := make([]slog.Attr, 0, 4)
	if route := c.match.Route; route != "" {
		attributes = append(attributes, slog.String("route", route))
	}
	for _, appendTo := range c.logAttributes {
		attributes = appendTo(c, attributes)
	}
	return attributes
}

// AddLogAttributes adds attributes to the request's Logger, for middleware. The server calls the function only when a handler calls Logger.
// The function appends its attributes to the slice and returns the result. These attributes must not refer to borrowed bytes, and the
// function must not call Logger.
func (c *Ctx) AddLogAttributes(appendTo func(c *Ctx, attributes []slog.Attr) []slog.Attr) {
	c.check()
	if appendTo == nil {
		panic("filo: AddLogAttributes with a nil function")
	}
	c.logAttributes, c.logger = append(c.logAttributes, appendTo), nil
}

// LogHandler returns a handler that adds to each record the attributes of the request in whose context it is logged, and passes the record
// on to next. Ctx.Logger has the same attributes: "route", and what middleware has added, such as "request_id" and "trace_id". LogHandler
// is for code that has a context.Context but no Ctx:
//
//	slog.SetDefault(slog.New(filo.LogHandler(slog.NewJSONHandler(os.Stderr, nil))))
//	…
//	slog.InfoContext(ctx, "paid", "order", id) // ctx comes from Ctx.Context or Ctx.Go
//
// A context has the attributes that were known when Ctx.Context was last called, so middleware that adds attributes must run before the
// code that calls Ctx.Context. The attributes stay in the context after the request has ended, and contexts that are derived from it have
// them too. An attribute that the record or its logger already has isn't added. The added attributes are placed outside of a logger's
// groups. Create the LogHandler before the server starts: a context that Ctx.Context returned earlier has no attributes. Once there is a
// LogHandler, each request that asks for its context allocates its attributes.
func LogHandler(next slog.Handler) slog.Handler {
	if next == nil {
		panic("filo: LogHandler with a nil handler")
	}
	return requestlog.NewHandler(next)
}

// requestLog returns the attributes that a LogHandler adds now, or nil if there are none. The argument last is the previous result for the
// request, or nil.
func (c *Ctx) requestLog(last *requestlog.Attributes) *requestlog.Attributes {
	if c.match.Route == "" && len(c.logAttributes) == 0 {
		return nil
	}
	if last != nil && last.Route == c.match.Route && last.Added == len(c.logAttributes) {
		return last
	}
	return &requestlog.Attributes{List: c.attributes(), Route: c.match.Route, Added: len(c.logAttributes)}
}

// ShuttingDown returns a channel that is closed when the server starts to shut down. A handler that streams endlessly should
// return then.
func (c *Ctx) ShuttingDown() <-chan struct{} { c.check(); return c.exchange.server.life.DrainBegun }

// SetReadDeadline sets a deadline for reading the request body, in place of ReadTimeout and MinTransferRate. A read that waits
// at the deadline fails within a quarter of a second with an error that is os.ErrDeadlineExceeded. The zero time restores the
// server's limits. As with http.ResponseController, a deadline that has passed ends the connection.
func (c *Ctx) SetReadDeadline(t time.Time) error {
	c.check()
	if c.exchange.hijacked {
		return ErrHijacked
	}
	c.readUntil = c.exchange.server.clock.At(t)
	return c.exchange.wire.deadlineSet(t, false)
}

// SetWriteDeadline sets a deadline for sending with Stream, in place of WriteTimeout and MinTransferRate: see SetReadDeadline.
// After the handler has returned, the server's limits apply to the rest of the answer.
func (c *Ctx) SetWriteDeadline(t time.Time) error {
	c.check()
	if c.exchange.hijacked {
		return ErrHijacked
	}
	c.writeUntil = c.exchange.server.clock.At(t)
	return c.exchange.wire.deadlineSet(t, true)
}

// ctxValue is a value that was stored for a request.
type ctxValue struct{ key, value any }

// Set stores a value for the rest of the request, for later handlers and middleware. It replaces a value with the same key.
// Keys are compared like map keys: use a key of your own type, or a Key, which also fixes the value's type, to avoid
// collisions.
func (c *Ctx) Set(key, value any) {
	c.check()
	for i := range c.values {
		if c.values[i].key == key {
			c.values[i].value = value
			return
		}
	}
	c.values = append(c.values, ctxValue{key, value})
}

// Get returns the value that Set stored under the key, or nil.
func (c *Ctx) Get(key any) any {
	c.check()
	for i := range c.values {
		if c.values[i].key == key {
			return c.values[i].value
		}
	}
	return nil
}

// Key stores and finds values of one type in requests. Two keys are always distinct, even with the same name.
type Key[T any] struct{ name string }

// NewKey makes a key. The name is for people to read, for example in logs.
func NewKey[T any](name string) *Key[T] { return &Key[T]{name: name} }

// Set stores a value for the rest of the request.
func (k *Key[T]) Set(c *Ctx, value T) { c.Set(k, value) }

// Get returns the request's value and whether Set stored one.
func (k *Key[T]) Get(c *Ctx) (value T, ok bool) {
	value, ok = c.Get(k).(T)
	return value, ok
}

// String returns the key's name.
func (k *Key[T]) String() string { return k.name }

// Status returns the response's current status, or the status of the timeout's answer once a timeout has answered.
func (c *Ctx) Status() int {
	c.check()
	if c.timedOut() {
		return c.timeout.answer.Status
	}
	return c.Response.status
}

// Committed reports whether status and fields can no longer change, since the response's head has been sent, or the handler has taken the
// connection over: see Hijacked.
func (c *Ctx) Committed() bool {
	c.check()
	return c.stream.sent || c.exchange.hijacked || c.timedOut()
}

// BytesWritten returns the current size of the response body, sent or not, or that of the timeout's answer once a timeout has answered.
func (c *Ctx) BytesWritten() int64 {
	c.check()
	if c.timedOut() {
		return c.timeout.bodyBytes
	}
	if c.stream.open {
		return c.stream.written
	}
	return int64(c.Response.size())
}

// RenderError makes the ErrorHandler turn err into the response now rather than after the handler has returned, so that outer
// middleware sees the final response. No error that is returned later changes the response. RenderError returns err, for the
// handler to return. If err is ErrAbort, or if the head has been sent, RenderError only returns err, and the server handles it.
//
// If the context of Ctx.Context has ended because the client left, and no head was sent, there is no answer, unless err is an HTTPError
// with a status below 500. RenderError then returns an error that wraps err and ErrAbort, and also ErrClientGone if err is ErrClientGone or
// context.Canceled.
func (c *Ctx) RenderError(err error) error {
	c.check()
	if err == nil || c.rendered || c.stream.sent || c.exchange.hijacked || c.timedOut() {
		return err
	}
	if err = c.exchange.abandon(c, err); !c.abandoned {
		c.rendered = c.exchange.renderError(c, err)
	}
	return err
}

// ErrorRendered reports whether RenderError has turned an error into the response.
func (c *Ctx) ErrorRendered() bool { c.check(); return c.rendered }
