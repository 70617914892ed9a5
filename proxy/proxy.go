// Package proxy passes requests on to other servers.
//
//	p := proxy.New(proxy.Options{Upstreams: []string{"http://10.0.0.1:8080", "http://10.0.0.2:8080"}})
//	defer p.Close()
//	r.Handle("/api/{path...}", p.Serve)
//
// It is net/http/httputil's ReverseProxy, run through package adaptor, with several upstreams: their requests are
// balanced, those that fail to take connections are left alone for a while, and requests that may be repeated are.
//
// # What upstreams are told
//
// The fields by which clients could claim to be somebody else, or to want something else, are dropped, also where X_Real_IP is
// written for X-Real-IP: Forwarded and X-Forwarded-*, X-Real-IP and the other names of a client's address, X-Original-*, X-Envoy-*,
// X-Host, Front-End-Https, client certificates (Client-Cert, X-SSL-*, SSL-Client-*), and the users of proxies that authenticate them:
// Remote-*, Remote-User among them, X-Remote-*, X-Auth-Request-*, and those of several products and clouds. Of one of TrustedProxies
// X-Forwarded-For, -Host, -Proto, -Port and -Prefix are kept, and Forwarded if that is sent at all. The upstream gets
// X-Forwarded-For, X-Forwarded-Host and X-Forwarded-Proto of the proxy's own making.
//
// Whoever authenticates users in front of the proxy sets the field for it in Rewrite, which comes after the dropping, and there
// deletes it where nobody is logged in if its name is one's own, such as X-User: such names can't be known here.
//
// The path is passed on as it is, percent-encoding included, behind that of the upstream's URL. One with a dot segment is refused
// with 400: it would reach what the routes in front of the proxy, or the path of the upstream's URL, don't let through. That holds
// for dots and slashes that are percent-encoded once or more often, or are in overlong UTF-8, for a backslash in place of a slash, and
// for dots before a semicolon or NUL. No tunnels are made: CONNECT is 501, and a connection is upgraded only to one of Upgrades.
//
// # What clients are told
//
// An upstream that can't be reached, or whose answer makes no sense, is a 502 error, one that takes too long a 504, and if none
// is left a 503; a request whose body ends early is a 400, and not held against the upstream. They are *filo.HTTPError, for the
// server's ErrorHandler; the cause is logged and not shown. An upstream that fails in the middle of its answer has the client's
// connection broken off, so that nobody takes the part for the whole.
package proxy

import (
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

// Options are how a Proxy works. For those with a default, zero is the default and a negative value is none.
type Options struct {
	// Upstreams are the servers that requests go to, as URLs of scheme http or https, with a path to put before the
	// requests' own if there is one, and without user information. Required.
	Upstreams []string

	// Balance is how an upstream is chosen. Default RoundRobin.
	Balance Balance

	// PreserveHost sends the client's Host, and not that of the upstream's URL.
	PreserveHost bool

	// TrustedProxies are the addresses of proxies in front of this one. What they say about their clients is passed on, and added
	// to. Default none.
	TrustedProxies []netip.Prefix

	// Forwarded sends a Forwarded field (RFC 7239) besides X-Forwarded-*.
	Forwarded bool

	// Upgrades are the protocols, names of RFC 9110, section 7.8, that a client and an upstream may switch a connection to. What
	// goes through it then passes by routes and middleware. Default "websocket" if nil; an empty one is none.
	Upgrades []string

	// DialTimeout is how long connecting may take, TLS handshake aside. Default 5 s.
	DialTimeout time.Duration

	// ResponseTimeout is how long an upstream may take until the head of its answer. Default 60 s.
	ResponseTimeout time.Duration

	// Retries is how many more times a request is sent, to other upstreams first, that failed because of the connection.
	// Only those are whose method is idempotent, or that can't have arrived since no connection was made, and whose body can
	// be replayed. Default 1.
	Retries int

	// MaxReplayBytes is how large a body, of announced length, may be to be replayed: it is read before the first
	// attempt. Default 64 KB.
	MaxReplayBytes int64

	// MaxFailures is after how many failed attempts in a row an upstream is left alone, for FailTime or until it passes a
	// HealthCheck, unless there is no other that a request wasn't sent to. Default 3, and 10 s.
	MaxFailures int
	FailTime    time.Duration

	// HealthCheck asks the upstreams now and then how they are. Default not.
	HealthCheck *HealthCheck

	// Rewrite changes the request for the upstream, after the proxy has. The upstream isn't chosen yet: scheme and host of
	// its URL are still to be set.
	Rewrite func(*httputil.ProxyRequest)

	// ModifyResponse changes the upstream's answer. Its error is answered with 502.
	ModifyResponse func(*http.Response) error

	// Transport sends the requests. Default one of the proxy's own, for HTTP/1.1, that Close closes.
	Transport http.RoundTripper

	// Logger gets what the proxy has to say of upstreams. Default slog.Default.
	Logger *slog.Logger
}

// Balance is how an upstream is chosen.
type Balance int

const (
	// RoundRobin takes them in turn.
	RoundRobin Balance = iota
	// LeastConnections takes the one with the fewest requests, and upgraded connections, at the moment.
	LeastConnections
)

// Proxy passes requests on. Make one with New.
type Proxy struct {
	options   Options
	transport http.RoundTripper
	handler   filo.Handler
	upstreams []*upstream
	turn      atomic.Uint32

	closing context.Context // done when Close was called
	close   context.CancelFunc
	checks  sync.WaitGroup
}

// New makes a proxy. Wrong options panic. It must be closed in the end.
func New(options Options) *Proxy {
	if len(options.Upstreams) == 0 {
		panic("proxy: no upstreams")
	}
	if options.Balance != RoundRobin && options.Balance != LeastConnections {
		panic("proxy: unknown Balance")
	}
	options.setDefaults()
	p := &Proxy{options: options}
	for _, text := range options.Upstreams {
		at, err := url.Parse(text)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.RawQuery != "" || at.Fragment != "" {
			panic("proxy: an upstream must be a URL such as http://10.0.0.1:8080, without a query: " + text)
		}
		if at.User != nil {
			panic("proxy: an upstream's URL can't have user information, Rewrite can set Authorization: " + at.Redacted())
		}
		p.upstreams = append(p.upstreams, &upstream{url: at})
	}
	p.closing, p.close = context.WithCancel(context.Background())
	if p.transport = options.Transport; p.transport == nil {
		p.transport = newTransport(&options)
	}
	p.handler = filo.Offload(adaptor.FromHTTP(upgrades{options.Upgrades, &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      (*balancer)(p),
		ModifyResponse: options.ModifyResponse,
		ErrorHandler:   p.fail,
		ErrorLog:       log.New(io.Discard, "", 0), // what it says comes to fail as well, or is a client that has left
		BufferPool:     &copyBuffers,
	}}))
	if options.HealthCheck != nil {
		p.startChecks()
	}
	return p
}

func (o *Options) setDefaults() {
	setDefault(&o.DialTimeout, DefaultDialTimeout)
	setDefault(&o.ResponseTimeout, DefaultResponseTimeout)
	setDefault(&o.Retries, DefaultRetries)
	setDefault(&o.MaxReplayBytes, DefaultMaxReplayBytes)
	setDefault(&o.MaxFailures, DefaultMaxFailures)
	setDefault(&o.FailTime, DefaultFailTime)
	if o.Upgrades == nil {
		o.Upgrades = []string{"websocket"}
	}
	for _, protocol := range o.Upgrades {
		name, version, versioned := strings.Cut(protocol, "/")
		if !httpguts.ValidHeaderFieldName(name) || versioned && !httpguts.ValidHeaderFieldName(version) {
			panic("proxy: an upgrade must be to a protocol such as websocket: " + protocol)
		}
	}
	if o.HealthCheck != nil {
		check := *o.HealthCheck
		check.setDefaults()
		o.HealthCheck = &check
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// setDefault gives an option its default, and makes "none" 0.
func setDefault[T int | int64 | time.Duration](option *T, standard T) {
	switch {
	case *option == 0:
		*option = standard
	case *option < 0:
		*option = 0
	}
}

func newTransport(o *Options) *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: o.DialTimeout}).DialContext,
		TLSHandshakeTimeout:   o.DialTimeout,
		ResponseHeaderTimeout: o.ResponseTimeout,
		ExpectContinueTimeout: time.Second,
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   128,
		IdleConnTimeout:       30 * time.Second,
		DisableCompression:    true, // what the client accepts is the upstream's business
	}
}

// Serve passes a request on. It is a filo.Handler.
func (p *Proxy) Serve(c *filo.Ctx) error {
	switch {
	case c.Method() == "CONNECT":
		return errTunnel
	case hasDotSegment(c.PathBytes()):
		return errDotSegment
	}
	if len(c.Request.Header.GetBytes("Upgrade")) > 0 {
		// The connection may be taken over: it ends when the server, or the proxy, does.
		ctx, cancel := context.WithCancel(c.Context())
		defer cancel()
		defer context.AfterFunc(p.closing, cancel)()
		stop := c.ShuttingDown()
		go func() {
			select {
			case <-stop:
				cancel()
			case <-ctx.Done():
			}
		}()
		c.SetContext(ctx)
	}
	return p.handler(c)
}

// Close ends the checks of upstreams, and the connections to them that are idle or upgraded. Requests that are under way go
// on.
func (p *Proxy) Close() error {
	p.close()
	p.checks.Wait()
	if p.options.Transport == nil {
		p.transport.(*http.Transport).CloseIdleConnections()
	}
	return nil
}

// fail turns an error into that of filo's handler.
func (p *Proxy) fail(_ http.ResponseWriter, r *http.Request, err error) {
	adaptor.Fail(r, problem(r.Context(), err))
}

// problem returns what the client is to be told.
func problem(ctx context.Context, err error) error {
	var known *filo.HTTPError
	var timeout net.Error
	switch {
	case errors.As(err, &known): // of the request's body, or of the balancer
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

// bufferPool lends the buffers by which answers are copied.
type bufferPool struct{ pool sync.Pool }

var copyBuffers = bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte { return p.pool.Get().(*[32 << 10]byte)[:] }

// Put implements httputil.BufferPool.
func (p *bufferPool) Put(b []byte) { p.pool.Put((*[32 << 10]byte)(b)) }
