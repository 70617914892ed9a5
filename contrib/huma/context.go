package humafilo

import (
	"context"
	"crypto/tls"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
)

// operationContext is the huma.Context of one request. Like the filo.Ctx it belongs to the goroutine that runs the handler.
type operationContext struct {
	c         *filo.Ctx
	operation *huma.Operation
	response  responseBody
	request   requestBody
}

var _ huma.Context = (*operationContext)(nil)

// Unwrap returns the filo.Ctx of a huma context, even if huma.WithContext or huma.WithValue derived the context from another
// one. It panics if the context belongs to another adapter.
func Unwrap(ctx huma.Context) *filo.Ctx {
	for {
		switch x := ctx.(type) {
		case *operationContext:
			return x.c
		case interface{ Unwrap() huma.Context }:
			ctx = x.Unwrap()
		default:
			panic("humafilo: not a context of this adapter")
		}
	}
}

// requestContext is the context.Context of an operation.
type requestContext struct {
	context.Context
	c *filo.Ctx
}

type ctxKey struct{}

func (r *requestContext) Value(key any) any {
	if key == (ctxKey{}) {
		return r.c
	}
	return r.Context.Value(key)
}

// FromContext returns the filo.Ctx of an operation, and whether there is one. ctx is the context that was passed to the operation, or is
// derived from it. The filo.Ctx is lent until the operation returns, and may be used only by the operation's goroutine.
func FromContext(ctx context.Context) (*filo.Ctx, bool) {
	c, ok := ctx.Value(ctxKey{}).(*filo.Ctx)
	return c, ok
}

func (x *operationContext) Operation() *huma.Operation { return x.operation }

func (x *operationContext) Context() context.Context {
	return &requestContext{x.c.Context(), x.c}
}

func (x *operationContext) TLS() *tls.ConnectionState { return x.c.TLS() }

func (x *operationContext) Version() huma.ProtoVersion {
	v := huma.ProtoVersion{Proto: x.c.Request.Proto()}
	v.ProtoMajor, v.ProtoMinor, _ = http.ParseHTTPVersion(v.Proto)
	return v
}

func (x *operationContext) Method() string     { return x.c.Method() }
func (x *operationContext) Host() string       { return middleware.Host(x.c) }
func (x *operationContext) RemoteAddr() string { return x.c.RemoteAddr().String() }

// escapes encodes the bytes that a request's path may contain but a URI can't. If RawPath had such a byte, url.URL would ignore RawPath and
// encode the decoded path, in which an encoded slash has become a plain slash.
var escapes = strings.NewReplacer(`"`, "%22", "<", "%3C", ">", "%3E", `\`, "%5C", "^", "%5E", "`", "%60", "{", "%7B", "|", "%7C", "}", "%7D")

// URL returns the path and the query, as a net/http server does. It contains scheme and host only if the client sent them in the request target.
func (x *operationContext) URL() url.URL {
	if u, err := url.ParseRequestURI(x.c.Request.Target()); err == nil {
		u.RawPath = escapes.Replace(u.RawPath)
		return *u
	}
	// filo parses targets itself, so there is a path even if net/url refuses the target.
	uri := x.c.Request.URI()
	return url.URL{Path: uri.Path(), RawPath: escapes.Replace(uri.RawPath()), RawQuery: uri.RawQuery()}
}

func (x *operationContext) Param(name string) string  { return x.c.Param(identifier(name)) }
func (x *operationContext) Query(name string) string  { return x.c.Query(name) }
func (x *operationContext) Header(name string) string { return x.c.Request.Header.Get(name) }

// EachHeader calls f with each field. The names have net/http's canonical form, whatever case the client has used.
func (x *operationContext) EachHeader(f func(name, value string)) {
	for name, value := range x.c.Request.Header.All() {
		f(textproto.CanonicalMIMEHeaderKey(string(name)), string(value))
	}
}

func (x *operationContext) BodyReader() io.Reader {
	if x.request.reader == nil {
		x.request.reader = x.c.BodyReader()
	}
	return &x.request
}

func (x *operationContext) GetMultipartForm() (*multipart.Form, error) {
	if limit := x.operation.MaxBodyBytes; limit > 0 {
		x.c.SetMaxBodyBytes(limit) // huma limits other bodies to the same size
	}
	form, err := x.c.Request.MultipartForm()
	x.request.note(err)
	return form, err
}

func (x *operationContext) SetReadDeadline(deadline time.Time) error {
	return x.c.SetReadDeadline(deadline)
}

func (x *operationContext) SetStatus(code int)              { x.c.Response.SetStatus(code) }
func (x *operationContext) Status() int                     { return x.c.Status() }
func (x *operationContext) SetHeader(name, value string)    { x.c.Response.Header.Set(name, value) }
func (x *operationContext) AppendHeader(name, value string) { x.c.Response.Header.Add(name, value) }

func (x *operationContext) BodyWriter() io.Writer {
	x.response.c = x.c
	return &x.response
}

// failure returns the error with which filo must answer instead of huma: an error of reading the request's body that huma has replaced by
// another error, because huma doesn't know the status.
func (x *operationContext) failure() error {
	if x.request.err != nil && x.c.Status() >= 400 && !x.c.Committed() {
		return x.request.err
	}
	return nil
}
