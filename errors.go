package filo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/linger"
	"github.com/filohttp/filo/internal/requestctx"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/valyala/bytebufferpool"
)

// Errors to test for with errors.Is.
var (
	// ErrServerClosed is returned by Serve and its variants after Shutdown or Close, and is the cause of a request context that Shutdown or
	// Close has ended. For programs that were written for net/http, errors.Is also reports that it is http.ErrServerClosed.
	ErrServerClosed error = serverClosed{}
	// ErrClientGone is the cause of a request context that ended because the client closed the connection.
	ErrClientGone = requestctx.ErrClientGone
	// ErrAbort makes the server close the connection without an answer or a log record, if a handler returns it or panics with it.
	ErrAbort = errors.New("filo: request aborted by its handler")
	// ErrHijacked is returned by methods that answer or use the connection, after the handler has taken the connection over by Hijack, Upgrade
	// or Park. The server logs it when the handler returns it.
	ErrHijacked = errors.New("filo: the connection was taken over before, by Hijack, Upgrade or Park")
	// ErrHeadSent is returned by methods that would change an answer whose head has been sent.
	ErrHeadSent = errors.New("filo: the response head has been sent")
	// ErrBodyNotAllowed is returned by a write to a response that can have no body: an answer to HEAD, 1xx, 204, 205 or 304.
	ErrBodyNotAllowed = errors.New("filo: a response to HEAD, or with the status 1xx, 204, 205 or 304, can have no body")
	// ErrContentLength is returned by a write beyond the Content-Length that the handler has set.
	ErrContentLength = errors.New("filo: write beyond the announced Content-Length")
	// ErrHandlerTimeout is returned by writes to a response, and by reads of a body that hasn't arrived, after the handler's timeout has
	// answered: see Ctx.SetTimeout.
	ErrHandlerTimeout = errors.New("filo: the handler's time-out has answered")
	// ErrBodyTooLarge is wrapped by the 413 error of a request body over its limit.
	ErrBodyTooLarge = errors.New("filo: request body over its limit, which Server.MaxBodyBytes and Ctx.SetMaxBodyBytes set")
	// ErrBusy is wrapped by the 503 error of a request that Concurrency or middleware refused because of overload. The server
	// logs such errors only if LogAllErrors is set, since logging would add load.
	ErrBusy = errors.New("filo: too much to do at once")
)

// serverClosed is the type of ErrServerClosed.
type serverClosed struct{}

// Error implements error.
func (serverClosed) Error() string { return "filo: server closed" }

// Is reports whether target is http.ErrServerClosed, which is known by its text, so that filo needn't import net/http.
func (serverClosed) Is(target error) bool { return target.Error() == "http: Server closed" }

// HTTPError is an error with a status, which the server's ErrorHandler turns into a response. Handlers return HTTPErrors, and so do filo's
// own methods, for example for a body over its limit. The server answers a malformed request itself, without the ErrorHandler. Type, Title,
// Status, Detail and Instance are the members of problem details in RFC 9457, section 3.1.
type HTTPError struct {
	// Status is the response status, 400 to 599.
	Status int
	// Detail explains this occurrence of the problem. The client sees it.
	Detail string
	// Type is a URI reference that identifies the problem type, "about:blank" if empty.
	Type string
	// Title is a short summary of the problem type, the status text if empty.
	Title string
	// Instance is a URI reference that identifies this occurrence. It is omitted if empty.
	Instance string
	// Extensions are additional members of the problem details.
	Extensions map[string]any
	// Err is the cause. It is logged, and the client never sees it.
	Err error
}

// Error returns an error with a status and a detail that the client sees.
func Error(status int, detail string) *HTTPError { return &HTTPError{Status: status, Detail: detail} }

// Error returns the status, the detail and the cause in one line.
func (e *HTTPError) Error() string {
	text := strconv.Itoa(e.Status) + " " + http1.StatusText(e.Status)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *HTTPError) Unwrap() error { return e.Err }

// LogValue implements slog.LogValuer: it makes logs of every format contain the text of Error. Without it slog's JSONHandler would call
// MarshalJSON, which leaves out the cause.
func (e *HTTPError) LogValue() slog.Value { return slog.StringValue(e.Error()) }

// MarshalJSON encodes the error as problem details (RFC 9457), without the cause.
func (e *HTTPError) MarshalJSON() ([]byte, error) {
	members := make(map[string]any, len(e.Extensions)+5)
	for name, value := range e.Extensions {
		members[name] = value
	}
	members["status"] = e.Status
	members["title"] = e.Title
	if e.Title == "" {
		members["title"] = http1.StatusText(e.Status)
	}
	for name, value := range map[string]string{"type": e.Type, "detail": e.Detail, "instance": e.Instance} {
		if value != "" {
			members[name] = value
		}
	}
	return json.Marshal(members)
}

// PanicError is the error that ErrorHandler gets when a handler has panicked.
type PanicError struct {
	// Value is the value passed to panic.
	Value any
	// Stack is the stack of the goroutine at the panic, as runtime/debug.Stack formats it.
	Stack []byte
}

// loggedMethod and loggedPath return the request's method and path, cut to the maximum length in a log record: otherwise a client could
// fill the log cheaply, since over HTTP/2 it needs only a few bytes to repeat a long path.
func (c *Ctx) loggedMethod() string {
	return syntax.Excerpt(c.Request.Method(), syntax.MaxLoggedMethod)
}
func (c *Ctx) loggedPath() string { return syntax.Excerpt(c.Request.URI().Path(), syntax.MaxLogged) }

// logPanic logs a panic that the server has recovered from. The arguments known are further attributes, as pairs of keys and values.
func logPanic(logger *slog.Logger, message string, value any, stack []byte, known ...any) {
	known = append([]any{"value", syntax.Excerpt(fmt.Sprint(value), syntax.MaxLogged)}, known...)
	logger.Error(message, append(known, "stack", string(stack))...)
}

// Error returns the value as text, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic in handler: %v", e.Value) }

// Unwrap returns the value if it is an error, or nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// faultErrors are the errors that answer malformed requests, by fault. They are shared: nothing may change them.
var faultErrors = func() (errs [http1.FaultCount]*HTTPError) {
	for fault := http1.NoFault + 1; fault < http1.FaultCount; fault++ {
		errs[fault] = Error(fault.Status(), fault.String())
	}
	return errs
}()

// These errors are the refusals for all other reasons. errTooManyConns, errNoPlace, errEnding and errConnsPerIP refuse connections, the other
// errors refuse requests. A handler that reads its body may also get errSlowBody, errTooLarge, an error with errTruncated's detail, or errBusy
// if reading needs a worker's place and there is none. These errors are shared, too: nothing may change them.
var (
	errTruncated    = Error(400, "the connection ended inside the request")
	errSlowHead     = Error(408, "the request head took too long to arrive")
	errSlowBody     = &HTTPError{Status: 408, Detail: "the request body arrived too slowly", Err: errDeadline}
	errTooLarge     = &HTTPError{Status: 413, Detail: "request body too large", Err: ErrBodyTooLarge}
	errTooManyConns = Error(503, "too many connections") // over MaxConns
	errNoPlace      = Error(503, "too many connections") // over Concurrency
	errEnding       = Error(503, "the server is shutting down")
	errBusy         = &HTTPError{Status: 503, Detail: "too many requests at once", Err: ErrBusy}               // over Concurrency
	errAnswersFull  = &HTTPError{Status: 503, Detail: "too many answers wait for their clients", Err: ErrBusy} // over MaxBufferedAnswers
	errQueueFull    = &HTTPError{Status: 503, Detail: "too many requests at once", Err: ErrBusy}               // over Concurrency, and Queue is full
	errQueueTimeout = &HTTPError{Status: 503, Detail: "too many requests at once", Err: ErrBusy}               // over Concurrency, and QueueTimeout has passed
	errConnsPerIP   = Error(429, "too many connections from this address")
)

// statusOf returns the HTTPError to answer err with: the one that err wraps, or a 500.
func statusOf(err error) *HTTPError {
	var httpError *HTTPError
	if errors.As(err, &httpError) && httpError.Status >= 400 && httpError.Status <= 599 {
		return httpError
	}
	return Error(500, "")
}

var (
	fieldNoStore = NewField("Cache-Control", "no-store")
	fieldNoSniff = NewField("X-Content-Type-Options", "nosniff")
)

// keepNoPromises sets Cache-Control to no-store if a field or directive allows caches to store the answer, since caches must not store a
// failure. no-store then also replaces the other directives, such as private. keepNoPromises always removes Expires, and the fields that
// some caches read instead of Cache-Control.
func (h *Header) keepNoPromises() {
	promised := h.Has("Expires")
	h.Del("Expires")
	for i := 0; i < h.list.Len(); {
		if name := h.list.Name(i); syntax.IsTargeted(name) {
			promised = true
			h.Del(string(name))
		} else {
			i++
		}
	}
	for value := range h.Values("Cache-Control") {
		value = bytes.ToLower(value)
		promised = promised || bytes.Contains(value, []byte("max-age")) || bytes.Contains(value, []byte("s-maxage")) || syntax.ListHasToken(value, "public")
	}
	if promised {
		h.SetField(&fieldNoStore)
	}
}

// DefaultErrorHandler answers with the error's status, or 500 if it has none. The body is problem details (RFC 9457) if the
// client's Accept prefers JSON. It is also problem details if Accept has no preference and either the request body was JSON or
// the response's Content-Type is JSON. Otherwise it is a line of text. The answer has "Vary: Accept", since caches may store some errors,
// such as a 404. The previous body is dropped. Header fields that the handler set stay, except those that describe the body or allow
// caching: Expires, Surrogate-Control and those whose names end with "-Cache-Control", such as CDN-Cache-Control, are removed. If one of
// these was set, or Cache-Control had public, max-age or s-maxage, Cache-Control becomes no-store.
func DefaultErrorHandler(c *Ctx, err error) { answerError(c, err, false) }

// ProblemErrorHandler is like DefaultErrorHandler, for an API: every client whose Accept doesn't prefer text gets problem details.
func ProblemErrorHandler(c *Ctx, err error) { answerError(c, err, true) }

// answerError answers with an error. asJSON decides the format if the client's Accept has no preference.
func answerError(c *Ctx, err error, asJSON bool) {
	problem := statusOf(err)
	asJSON = asJSON || syntax.IsJSON(c.Response.Header.list.GetID(field.ContentType))
	c.Response.resetBody()
	c.Response.Header.dropContent(problem.Status)
	c.Response.Header.keepNoPromises()
	c.Response.Header.SetField(&fieldNoSniff)
	c.Response.Header.varyByAccept()
	c.Response.SetStatus(problem.Status)
	if prefersJSON(&c.Request.Header, asJSON) {
		buffer := bytebufferpool.Get()
		defer bytebufferpool.Put(buffer)
		if json.NewEncoder(buffer).Encode(problem) == nil {
			c.Response.Header.list.SetID(field.ContentType, "application/problem+json")
			c.Response.SetBody(buffer.B)
			return
		}
	}
	c.Response.Header.list.SetID(field.ContentType, textPlain)
	text := http1.StatusText(problem.Status)
	if problem.Detail != "" {
		text += ": " + problem.Detail
	}
	c.Response.SetBodyString(text + "\n")
}

// retryAfterSeconds is the Retry-After of refusals because of overload.
const retryAfterSeconds = "1"

// refusalFields are the fields of answers that the server gives without a handler, overloadFields those of refusals because of overload.
// Nothing may change them.
var (
	refusalFields = func() (l field.List) {
		l.SetID(field.ContentType, textPlain)
		return l
	}()
	overloadFields = func() (l field.List) {
		l.SetID(field.RetryAfter, retryAfterSeconds)
		l.SetID(field.ContentType, textPlain)
		return l
	}()
)

// dropContent removes the fields that describe the previous body, since an error with this status replaces that body. Content-Type stays,
// since the format of the error depends on it.
func (h *Header) dropContent(status int) {
	for _, name := range field.OfContent {
		h.list.Del(name)
	}
	if status != 416 { // RFC 9110, section 14.4: Content-Range gives the complete length
		h.list.DelID(field.ContentRange)
	}
}

// prepareRefusal turns the fields of a response into the fields of the refusal that the server sends instead.
func (h *Header) prepareRefusal(reason *HTTPError) {
	h.dropContent(reason.Status)
	h.keepNoPromises()
	h.list.SetID(field.ContentType, textPlain)
	if reason == errAnswersFull {
		h.list.SetID(field.RetryAfter, retryAfterSeconds)
	}
}

// refusalFields returns the fields of the refusal that the server sends instead of the response.
func (r *Response) refusalFields(reason *HTTPError) *field.List {
	r.Header.prepareRefusal(reason)
	return &r.Header.list
}

// refuseConn answers a connection that the server refuses, and closes it. The client's address is invalid if it isn't known.
func (s *Server) refuseConn(netConn net.Conn, client netip.AddrPort, reason *HTTPError) {
	s.counts.refused.Add(1)
	s.refusedConn(client, reason)
	s.counts.refusalAnswers[reason.Status/100].Add(1)
	answer := s.appendRefusal(nil, reason, &overloadFields, false)
	if !s.lingerer.Refuse(netConn, answer, refusalHTTP2(reason)) {
		linger.Close(netConn)
	}
}

// refusalHTTP2 is like appendRefusal, for a connection that has negotiated HTTP/2. Its GOAWAY says that no request was or will be served.
func refusalHTTP2(reason *HTTPError) []byte {
	return http2.AppendGoAway(http2.AppendFrameHeader(nil, 0, http2.FrameSettings, 0, 0), 0, http2.NoError, refusalText(reason))
}

// appendRefusal renders an answer that the server gives without a handler. The argument fields is refusalFields or overloadFields. If head is
// set, the request was a HEAD, and the answer has no body. The connection ends after the answer.
func (s *Server) appendRefusal(dst []byte, reason *HTTPError, fields *field.List, head bool) []byte {
	body := refusalText(reason)
	h := http1.Head{
		Status: reason.Status, Length: int64(len(body)), Close: true,
		Server: s.config.serverLine, Date: s.clock.dateLine(),
	}
	dst = h.Append(dst, fields)
	if head {
		return dst
	}
	return append(dst, body...)
}

// refusalText returns the body of an answer that the server gives without a handler.
func refusalText(reason *HTTPError) string {
	text := http1.StatusText(reason.Status)
	if reason.Detail != "" {
		text += ": " + reason.Detail
	}
	return text + "\n"
}
