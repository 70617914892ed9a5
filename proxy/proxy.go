// Package proxy passes requests on to other servers.
//
//	p := proxy.New(proxy.Options{Upstreams: []string{"http://10.0.0.1:8080", "http://10.0.0.2:8080"}})
//	defer p.Close()
//	r.Handle("/api/{path...}", p.Serve)
//
// It runs the ReverseProxy of net/http/httputil through package adaptor. In addition it balances requests between several
// upstreams, avoids an upstream for a while after its connections fail, and repeats failed requests where that is safe.
//
// # What upstreams are told
//
// The proxy drops fields by which clients could claim a false identity or a false target, including spellings with underscores such as X_Real_IP:
// Forwarded and X-Forwarded-*, X-Real-IP and the other names for a client's address, X-Original-*, X-Envoy-*, X-Host, Front-End-Https, client
// certificates (Client-Cert, X-SSL-*, SSL-Client-*), and the users of authenticating proxies: Remote-* (such as Remote-User), X-Remote-*,
// X-Auth-Request-*, and those of several products and clouds. From one of TrustedProxies it keeps X-Forwarded-For, -Host, -Proto, -Port and -Prefix
// unless they are empty, and also Forwarded if Options.Forwarded is set. The proxy itself generates X-Forwarded-For, X-Forwarded-Host and
// X-Forwarded-Proto for the upstream. An upstream that uses filo reads these fields with middleware.RealIP and its options TrustHost and
// TrustProto. Without RealIP, it mistakes the host of its own URL for the host that the client has asked for. Then it refuses the forms and
// WebSockets of the site's own pages. PreserveHost prevents that too.
//
// The proxy appends itself to Via, such as "1.1 filo". Some servers send no compressed answers to requests with this field, such as nginx
// without gzip_proxied; Rewrite can delete it. The proxy decrements the Max-Forwards of OPTIONS and TRACE. If it is 0, the proxy answers
// OPTIONS with 204 and TRACE with 501 itself.
//
// If you authenticate users in front of the proxy, set the field for the user in Rewrite, which runs after the proxy has dropped these
// fields. The proxy doesn't know a field with a name of your own, such as X-User, so Rewrite must also delete such a field when nobody
// is logged in.
//
// The path is appended to the path of the upstream's URL unchanged, including percent-encoding. Only the bytes "<>\^`{|}, which a URI
// can't hold, are percent-encoded if the client sent them unencoded. A path with a dot segment is refused with 400, because it could
// bypass the routes in front of the proxy, or leave the path of the upstream's URL. That includes dots and slashes that are
// percent-encoded once or more often, or in overlong UTF-8, a backslash in place of a slash, and dots before a semicolon or NUL.
// Unless Options.EncodedSlashes is set, a path with %2F, a backslash, %5C or %00 is refused too: a router takes "/admin%2Fx" for one
// segment, and the upstream may take it for "/admin/x". Paths with a semicolon or %25 are passed on, such as "/admin;a/x" and
// "/admin%252Fx". An upstream must check paths itself if it ignores the part of a segment after a semicolon, as Java servers do, or
// decodes a path twice.
//
// The query is passed on unchanged, except ";", which is sent as "%3B", and "%" without two hexadecimal digits, which is sent as "%25".
// As a result, upstreams that split a query at ";" find the same parameters as Ctx.Query. For the same reason a query with more than
// 1000 parameters is refused with 400. The proxy makes no tunnels: CONNECT gets 501, and a connection is upgraded only to one of
// Upgrades.
//
// # HTTP/2
//
// Clients may speak HTTP/2 whatever the upstream speaks. Options.HTTP2 selects the protocol for upstreams. Trailers, interim answers
// and cancellation pass through in each combination. The exception is the trailer of an answer with a Content-Length, which can't be
// sent over HTTP/1.1. If both sides speak HTTP/2, a request's body and its answer flow at the same time, as in gRPC's streams:
//
//	p := proxy.New(proxy.Options{Upstreams: []string{"http://10.0.0.1:50051"}, HTTP2: true})
//	r.Handle("/chat.Chat/{method}", func(c *filo.Ctx) error {
//		c.SetMaxBodyBytes(-1)                            // a stream has no size,
//		c.SetReadDeadline(time.Now().Add(8 * time.Hour)) // and its client may be silent
//		return p.Serve(c)
//	})
//
// If a client sends nothing for ReadTimeout, even within a stream, its request ends as too slow, unless SetReadDeadline is called.
//
// # What clients are told
//
// If both the upstream and middleware in front of the proxy set a field, the upstream's value is sent, just as a handler's value would
// replace the middleware's. If the upstream sets an Access-Control-* field, its Access-Control-* fields replace all of the middleware's,
// since these fields belong together. Set-Cookie, Vary, Link, Server-Timing and Via are sent with the values of both. ModifyResponse can
// delete a field of the upstream, so that the middleware's value is sent.
//
// An unreachable upstream or an invalid answer is a 502 error, a timeout is 504, and no available upstream is 503. A request whose body
// ends early is 400, and doesn't count against the upstream. All are *filo.HTTPError, for the server's ErrorHandler; the cause is logged
// but not sent to the client. If an upstream fails in the middle of its answer, the proxy aborts the client's connection, so that the
// client doesn't mistake the received part for the whole answer.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/asked"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/syntax"
)

// Defaults of Options.
const (
	DefaultDialTimeout     = 5 * time.Second
	DefaultResponseTimeout = 60 * time.Second
	DefaultRetries         = 1
	DefaultMaxReplayBytes  = 64 << 10
	DefaultMaxFailures     = 3
	DefaultFailTime        = 10 * time.Second
)

// Options configures a Proxy. In fields with a default, zero means the default and a negative value means none.
type Options struct {
	// Upstreams are the URLs of the servers that receive the requests. Their scheme is http or https, and they have no user information. If
	// the URL has a path, it is put before the path of the request. Required.
	Upstreams []string

	// Balance selects how the proxy chooses an upstream. Default RoundRobin.
	Balance Balance

	// PreserveHost sends the client's Host instead of that of the upstream's URL.
	PreserveHost bool

	// EncodedSlashes passes on paths with an encoded slash (%2F), a backslash, raw or as %5C, or an encoded NUL (%00), instead of
	// refusing them with 400. Set it only if the upstream and the routes and middleware in front of the proxy read such a path alike: to a
	// router "/admin%2Fx" is one segment, outside of the group "/admin". Default off.
	EncodedSlashes bool

	// TrustedProxies are the addresses of proxies in front of this one. The proxy keeps the fields in which they describe their clients,
	// and appends its own values to these fields. Default none.
	TrustedProxies []netip.Prefix

	// Forwarded also sends a Forwarded field (RFC 7239), besides X-Forwarded-*.
	Forwarded bool

	// Upgrades are the protocols, as in RFC 9110, section 7.8, to which a client and an upstream may switch a connection. Data on
	// that connection bypasses routes and middleware. Default "websocket" if nil; an empty slice allows none.
	Upgrades []string

	// DialTimeout is the maximum time for connecting, without the TLS handshake. Default 5 s.
	DialTimeout time.Duration

	// ResponseTimeout is the maximum time until an upstream sends the head of its answer. Default 60 s.
	ResponseTimeout time.Duration

	// Retries is how many more times a request is sent if its connection fails; upstreams that weren't tried come first. A request is
	// repeated only if its body can be replayed. In addition, its method must be idempotent, or the attempt must have failed to connect, so
	// that the request can't have arrived. Default 1.
	Retries int

	// MaxReplayBytes is the maximum size of a body that can be replayed; its length must be announced. The proxy reads it before
	// the first attempt. Default 64 KB.
	MaxReplayBytes int64

	// MaxFailures is how many attempts in a row must fail before the proxy avoids an upstream, for FailTime or until it passes a
	// HealthCheck. The proxy still sends it a request that was already sent to all other upstreams. Default 3 attempts, and 10 s.
	MaxFailures int
	FailTime    time.Duration

	// HealthCheck configures regular checks of the upstreams. Default none.
	HealthCheck *HealthCheck

	// Rewrite changes the request for the upstream, after the proxy's own changes. It runs before the upstream is chosen: the
	// scheme and host of the URL aren't set yet.
	Rewrite func(*httputil.ProxyRequest)

	// ModifyResponse changes the upstream's answer. If it returns an error, the client gets 502.
	ModifyResponse func(*http.Response) error

	// HTTP2 lets the proxy speak HTTP/2 with upstreams, as gRPC requires. Over https, the proxy uses HTTP/2 with upstreams that select it
	// in the TLS handshake; over http, with all upstreams. Upstreams with http must accept unencrypted HTTP/2 with prior knowledge (h2c),
	// as filo does with HTTP2.Unencrypted. Upgraded connections still use HTTP/1.1. For a client that reads slowly, the proxy holds up to
	// 128 KB of the upstream's answer, besides what the server itself holds of an answer; no budget of the server counts these bytes.
	// Default off: only HTTP/1.1. HTTP2 can't be set together with Transport.
	HTTP2 bool

	// Transport sends the requests. The default is a transport that belongs to the proxy; Close closes its idle connections.
	Transport http.RoundTripper

	// Logger receives the proxy's records about upstreams. Default slog.Default.
	Logger *slog.Logger
}

// Balance is a way of choosing an upstream.
type Balance int

const (
	// RoundRobin chooses the upstreams in turn.
	RoundRobin Balance = iota
	// LeastConnections chooses the upstream that currently has the fewest requests and upgraded connections.
	LeastConnections
)

// Proxy passes requests on to upstreams. Make one with New.
type Proxy struct {
	options   Options
	transport http.RoundTripper
	handler   filo.Handler
	reverse   httputil.ReverseProxy // without ModifyResponse, which differs for each request
	upstreams []*upstream
	turn      atomic.Uint32

	closing context.Context // done after Close was called
	close   context.CancelFunc
	checks  sync.WaitGroup
}

// must panics if an argument of New is invalid.
var must = setup.Checker("proxy")

// New returns a proxy. It panics if an option is wrong. Close the proxy when you no longer need it.
func New(options Options) *Proxy {
	must(len(options.Upstreams) > 0, "no upstreams")
	must(options.Balance == RoundRobin || options.Balance == LeastConnections, "unknown Balance")
	must(!options.HTTP2 || options.Transport == nil, "HTTP2 is for the proxy's own transport, and Transport is set")
	options.setDefaults()
	p := &Proxy{options: options}
	for _, text := range options.Upstreams {
		at, err := url.Parse(text)
		must(err == nil && (at.Scheme == "http" || at.Scheme == "https") && at.Host != "" && at.RawQuery == "" && at.Fragment == "",
			"an upstream must be a URL such as http://10.0.0.1:8080, without a query: %s", text)
		must(at.User == nil, "an upstream's URL can't have user information, Rewrite can set Authorization: %s", at.Redacted())
		at.RawPath = syntax.EscapePath(at.RawPath) // otherwise net/url may encode the decoded path instead
		p.upstreams = append(p.upstreams, &upstream{url: at})
	}
	p.closing, p.close = context.WithCancel(context.Background())
	if p.transport = options.Transport; p.transport == nil {
		p.transport = newTransport(&options)
	}
	p.reverse = httputil.ReverseProxy{
		Rewrite:      p.rewrite,
		Transport:    (*balancer)(p),
		ErrorHandler: p.fail,
		ErrorLog:     log.New(io.Discard, "", 0), // a failure that ReverseProxy logs is also returned as an error, or means that a client has left
		BufferPool:   &copyBuffers,
	}
	p.handler = filo.Offload(adaptor.FromHTTP(http.HandlerFunc(p.serveHTTP)))
	if options.HealthCheck != nil {
		p.startChecks()
	}
	return p
}

// setDefaults gives options their defaults, and replaces negative values, which mean none, with 0.
func (o *Options) setDefaults() {
	o.DialTimeout = max(cmp.Or(o.DialTimeout, DefaultDialTimeout), 0)
	o.ResponseTimeout = max(cmp.Or(o.ResponseTimeout, DefaultResponseTimeout), 0)
	o.Retries = max(cmp.Or(o.Retries, DefaultRetries), 0)
	o.MaxReplayBytes = max(cmp.Or(o.MaxReplayBytes, DefaultMaxReplayBytes), 0)
	o.MaxFailures = max(cmp.Or(o.MaxFailures, DefaultMaxFailures), 0)
	o.FailTime = max(cmp.Or(o.FailTime, DefaultFailTime), 0)
	if o.Upgrades == nil {
		o.Upgrades = []string{"websocket"}
	}
	for _, protocol := range o.Upgrades {
		name, version, versioned := strings.Cut(protocol, "/")
		must(httpguts.ValidHeaderFieldName(name) && (!versioned || httpguts.ValidHeaderFieldName(version)),
			"an upgrade must be to a protocol such as websocket: %s", protocol)
	}
	if o.HealthCheck != nil {
		check := *o.HealthCheck
		check.setDefaults()
		o.HealthCheck = &check
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
}

// Serve passes a request on to an upstream: it is a filo.Handler.
func (p *Proxy) Serve(c *filo.Ctx) error {
	switch {
	case c.Method() == "CONNECT":
		return errTunnel
	case hasDotSegment(c.PathBytes()):
		return errDotSegment
	case !p.options.EncodedSlashes && hidesSlash(c.Request.URI().RawPathBytes()):
		return errHiddenSlash
	}
	if err := checkQuery(c.Request.URI()); err != nil {
		return err
	}
	if method := c.Method(); (method == "OPTIONS" || method == "TRACE") && lastForward(&c.Request.Header) {
		if method == "TRACE" {
			return errTrace
		}
		return c.NoContent()
	}
	if len(c.Request.Header.GetBytes("Upgrade")) > 0 {
		c.SetContext(context.WithValue(c.Context(), drainKey{}, c.ShuttingDown()))
	}
	return p.handler(c)
}

// serveHTTP is the proxy as a handler of net/http.
func (p *Proxy) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if received, ok := r.Context().Value(asked.ReceivedKey{}).(*asked.Received); ok {
		r.Host, r.RemoteAddr = received.Host, received.RemoteAddr // TrustedProxies is about the connection, also behind RealIP
	}
	p.limitUpgrades(r)
	a, reverse := &answer{w, p, r}, p.reverse
	reverse.ModifyResponse = a.modify
	reverse.ServeHTTP(a, r)
}

// Close stops the checks of upstreams, and closes idle and upgraded connections to them. Requests in progress continue.
func (p *Proxy) Close() error {
	p.close()
	p.checks.Wait()
	if p.options.Transport == nil {
		p.transport.(*transport).closeIdle()
	}
	return nil
}

// fail is ReverseProxy's ErrorHandler. It makes filo's handler return the error for the client.
func (p *Proxy) fail(_ http.ResponseWriter, r *http.Request, err error) {
	adaptor.Fail(r, problem(r.Context(), err))
}

// problem returns the error that the client gets.
func problem(ctx context.Context, err error) error {
	var known *filo.HTTPError
	var timeout net.Error
	switch {
	case errors.As(err, &known): // an error of the request's body, or of the balancer
		return known
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return filo.ErrAbort // the client has left
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &filo.HTTPError{Status: 504, Detail: "the upstream server took too long", Err: err}
	case isDialError(err):
		return &filo.HTTPError{Status: 502, Detail: "the upstream server can't be reached", Err: err}
	}
	return &filo.HTTPError{Status: 502, Detail: "the upstream server gave no valid answer", Err: err}
}

// bufferPool lends the buffers for copying answers.
type bufferPool struct{ pool sync.Pool }

var copyBuffers = bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte { return p.pool.Get().(*[32 << 10]byte)[:] }

// Put implements httputil.BufferPool.
func (p *bufferPool) Put(b []byte) { p.pool.Put((*[32 << 10]byte)(b)) }
