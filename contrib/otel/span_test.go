package otel_test

import (
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/contrib/otel"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

// base are the attributes that the spans of the tests' requests have in common.
const base = "client.address=192.0.2.7,network.peer.address=192.0.2.7,network.peer.port=4711,network.protocol.version=1.1," +
	"server.address=filo.test,url.scheme=http"

// with returns base with attributes added or replaced. It removes an attribute whose new value is empty.
func with(change string) string {
	values := make(map[string]string)
	for part := range strings.SplitSeq(base+","+change, ",") {
		key, value, _ := strings.Cut(part, "=")
		values[key] = value
	}
	var parts []string
	for key, value := range values {
		if value != "" {
			parts = append(parts, key+"="+value)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func TestSpan(t *testing.T) {
	for _, test := range []struct {
		sentence, request, body string
		fields                  []string
		name, attributes        string
		status                  codes.Code
		exception               string // type and message
	}{
		{"the name is method and route", "GET /users/7", "", []string{"User-Agent: agent/1"}, "GET /users/{id}",
			"http.request.method=GET,http.response.status_code=200,http.route=/users/{id},url.path=/users/7,user_agent.original=agent/1", codes.Unset, ""},
		{"without a route it is the method", "GET /nowhere", "", nil, "GET",
			"http.request.method=GET,http.response.status_code=404,url.path=/nowhere", codes.Unset, ""},
		{"405 has no route", "PUT /users/7", "", nil, "PUT", "http.request.method=PUT,http.response.status_code=405,url.path=/users/7", codes.Unset, ""},
		{"nor has a redirect of the router", "GET /slash", "", nil, "GET", "http.request.method=GET,http.response.status_code=301,url.path=/slash", codes.Unset, ""},
		{"HEAD is GET's route", "HEAD /users/7", "", nil, "HEAD /users/{id}",
			"http.request.method=HEAD,http.response.status_code=200,http.route=/users/{id},url.path=/users/7", codes.Unset, ""},
		{"an unknown method is _OTHER, and HTTP in the name", "BREW /any", "", nil, "HTTP /any",
			"http.request.method=_OTHER,http.request.method_original=BREW,http.response.status_code=204,http.route=/any,url.path=/any", codes.Unset, ""},
		{"methods are case-sensitive", "get /any", "", nil, "HTTP /any",
			"http.request.method=_OTHER,http.request.method_original=get,http.response.status_code=204,http.route=/any,url.path=/any", codes.Unset, ""},
		{"the route has no host, the server's address has", "GET http://example.com/hosted", "", nil, "GET /hosted",
			"server.address=example.com,http.request.method=GET,http.response.status_code=204,http.route=/hosted,url.path=/hosted", codes.Unset, ""},
		{"a port is the server's", "GET http://filo.test:8080/any", "", nil, "GET /any",
			"server.port=8080,http.request.method=GET,http.response.status_code=204,http.route=/any,url.path=/any", codes.Unset, ""},
		{"an IPv6 address has no brackets", "GET http://[2001:db8::1]:8080/any", "", nil, "GET /any",
			"server.address=2001:db8::1,server.port=8080,http.request.method=GET,http.response.status_code=204,http.route=/any,url.path=/any", codes.Unset, ""},
		{"nor without a port", "GET http://[2001:db8::1]/any", "", nil, "GET /any",
			"server.address=2001:db8::1,http.request.method=GET,http.response.status_code=204,http.route=/any,url.path=/any", codes.Unset, ""},
		{"the path is as it was sent, the query isn't recorded", "GET /users/a%20b?secret=1", "", nil, "GET /users/{id}",
			"http.request.method=GET,http.response.status_code=200,http.route=/users/{id},url.path=/users/a%20b", codes.Unset, ""},
		{"4xx is the client's error", "GET /missing", "", nil, "GET /missing",
			"http.request.method=GET,http.response.status_code=404,http.route=/missing,url.path=/missing", codes.Unset, ""},
		{"5xx is an error, and what led to it an exception", "GET /failing", "", nil, "GET /failing",
			"error.type=500,http.request.method=GET,http.response.status_code=500,http.route=/failing,url.path=/failing", codes.Error, "*errors.errorString: no \uFFFDdatabase"},
		{"its type is the status", "GET /unavailable", "", nil, "GET /unavailable",
			"error.type=503,http.request.method=GET,http.response.status_code=503,http.route=/unavailable,url.path=/unavailable", codes.Error, "*filo.HTTPError: 503 Service Unavailable"},
		{"a panic is an exception, answered with 500", "GET /panicking", "", nil, "GET /panicking",
			"error.type=500,http.request.method=GET,http.response.status_code=500,http.route=/panicking,url.path=/panicking", codes.Error, "string: ouch \uFFFD"},
		{"an aborted request has no status", "GET /aborting", "", nil, "GET /aborting",
			"error.type=aborted,http.request.method=GET,http.route=/aborting,url.path=/aborting", codes.Error, ""},
		{"a panic may abort it as well", "GET /panicabort", "", nil, "GET /panicabort",
			"error.type=aborted,http.request.method=GET,http.route=/panicabort,url.path=/panicabort", codes.Error, ""},
		{"an answer that is broken off has the status that was sent", "GET /breaking", "", nil, "GET /breaking",
			"error.type=broken_off,http.request.method=GET,http.response.status_code=200,http.route=/breaking,url.path=/breaking", codes.Error, "*errors.errorString: and no \uFFFDmore"},
		{"so has one that a panic breaks off", "GET /halfpanic", "", nil, "GET /halfpanic",
			"error.type=broken_off,http.request.method=GET,http.response.status_code=200,http.route=/halfpanic,url.path=/halfpanic", codes.Error, "string: and no more"},
		{"101 is the status of a connection that switches protocols", "GET /upgrade", "", []string{"Upgrade: echo", "Connection: upgrade"}, "GET /upgrade",
			"http.request.method=GET,http.response.status_code=101,http.route=/upgrade,url.path=/upgrade", codes.Unset, ""},
		{"one that can't has that of its refusal", "GET /upgrade", "", nil, "GET /upgrade",
			"http.request.method=GET,http.response.status_code=426,http.route=/upgrade,url.path=/upgrade", codes.Unset, ""},
		{"what isn't UTF-8 becomes so", "GET /any", "", []string{"User-Agent: a\xffb"}, "GET /any",
			"http.request.method=GET,http.response.status_code=204,http.route=/any,url.path=/any,user_agent.original=a\uFFFDb", codes.Unset, ""},
	} {
		for place, wrap := range map[string]func(filo.Middleware) filo.Handler{
			"in the router": within, "around it": around,
			"with Recover": func(m filo.Middleware) filo.Handler {
				return m(middleware.Recover(middleware.RecoverOptions{Logger: quiet})(routes().Serve))
			},
		} {
			o := serve(t, wrap)
			o.ask(t, test.request, test.body, test.fields...)
			span := o.spans(t, 1)[0]
			if span.Name() != test.name || span.SpanKind() != trace.SpanKindServer || span.Status().Code != test.status {
				t.Errorf("%s, %s: %q, %v, %v", test.sentence, place, span.Name(), span.SpanKind(), span.Status())
			}
			if got, want := text(span.Attributes()), with(test.attributes); got != want {
				t.Errorf("%s, %s:\n got %s\nwant %s", test.sentence, place, got, want)
			}
			if got := exception(t, span); got != test.exception {
				t.Errorf("%s, %s: exception %q", test.sentence, place, got)
			}
			if scope := span.InstrumentationScope(); scope.Name != "github.com/filohttp/filo/contrib/otel" || !strings.HasSuffix(scope.SchemaURL, "/1.43.0") {
				t.Errorf("scope %v", scope)
			}
		}
	}
}

// If a handler fails because its client has left, its span has no http.response.status_code, and isn't marked as an error.
func TestClientLeaves(t *testing.T) {
	clients, ended := make(chan *servertest.Conn, 1), make(chan struct{}, 1)
	o := serve(t, func(m filo.Middleware) filo.Handler { return watched(clients, ended)(within(m)) })
	leaving(t, o.Server, ended, clients)
	span := o.spans(t, 1)[0]
	if got := text(span.Attributes()); span.Status().Code != codes.Unset || strings.Contains(got, "error.type") || strings.Contains(got, "status_code") || exception(t, span) != "" {
		t.Errorf("%v, %s, exception %q", span.Status(), got, exception(t, span))
	}
}

// exception returns the type and the message of a span's only event, or "" if it has none.
func exception(t *testing.T, span sdktrace.ReadOnlySpan) string {
	t.Helper()
	events := span.Events()
	if len(events) == 0 {
		return ""
	}
	var kind, message string
	for _, each := range events[0].Attributes {
		switch value := each.Value.AsString(); {
		case !utf8.ValidString(value):
			t.Errorf("%s isn't UTF-8: %q", each.Key, value)
		case each.Key == "exception.type":
			kind = value
		case each.Key == "exception.message":
			message = value
		}
	}
	if len(events) != 1 || events[0].Name != "exception" {
		t.Errorf("events %v", events)
	}
	return kind + ": " + message
}

// The recorded stack of a panic contains the function that has panicked, whether the panic is recovered inside or by the server.
func TestSpanPanicStack(t *testing.T) {
	for place, wrap := range map[string]func(filo.Middleware) filo.Handler{
		"by the server": around,
		"inside": func(m filo.Middleware) filo.Handler {
			return m(middleware.Recover(middleware.RecoverOptions{Logger: quiet})(routes().Serve))
		},
	} {
		o := serve(t, wrap)
		if raw := o.ask(t, "GET /panicking", ""); !strings.HasPrefix(raw, "HTTP/1.1 500 ") {
			t.Errorf("recovered %s: answered with %q", place, raw)
		}
		stack := ""
		for _, each := range o.spans(t, 1)[0].Events()[0].Attributes {
			if each.Key == "exception.stacktrace" {
				stack = each.Value.AsString()
			}
		}
		if !strings.Contains(stack, "otel_test.routes.func") {
			t.Errorf("recovered %s: %s", place, stack)
		}
	}
}

func TestSpanGoexit(t *testing.T) {
	o := serve(t, around)
	o.ask(t, "GET /goexit", "")
	span := o.spans(t, 1)[0]
	if got, want := text(span.Attributes()), with("error.type=500,http.request.method=GET,http.response.status_code=500,http.route=/goexit,url.path=/goexit"); got != want || len(span.Events()) > 0 {
		t.Errorf("got %s, %v", got, span.Events())
	}
}

// The span's status has a description if the answer was broken off. It has no description if the answer's status says what happened, as the
// conventions require.
func TestSpanStatusDescription(t *testing.T) {
	o := serve(t, around)
	o.ask(t, "GET /breaking", "")
	o.ask(t, "GET /failing", "")
	for i, want := range []string{"and no \uFFFDmore", ""} {
		if got := o.spans(t, 2)[i].Status().Description; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The attributes that a sampler may need are set when the span starts.
func TestSpanSampler(t *testing.T) {
	seen := make(chan string, 1)
	o := serve(t, around, func(o *otel.Options) {
		o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler(func(p sdktrace.SamplingParameters) {
			seen <- p.Name + " " + p.Kind.String() + " " + text(p.Attributes)
		})))
		o.Query = true
	})
	o.ask(t, "GET /users/7?a=b", "", "User-Agent: agent")
	if got, want := <-seen, "GET server "+with("http.request.method=GET,url.path=/users/7,url.query=a=b,user_agent.original=agent"); got != want {
		t.Errorf("the sampler got\n%s, want\n%s", got, want)
	}
}

// sampler drops all spans.
type sampler func(sdktrace.SamplingParameters)

func (f sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	f(p)
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}
func (sampler) Description() string { return "drops" }

func TestSpanHTTP10(t *testing.T) {
	o := serve(t, around)
	c := o.Dial(t)
	if _, err := c.Write([]byte("GET /any HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	got := text(o.spans(t, 1)[0].Attributes())
	want := "http.request.method=GET,http.response.status_code=204,http.route=/any,network.protocol.version=1.0,url.path=/any,url.scheme=http"
	if got != want {
		t.Errorf("without a host and an address:\n got %s\nwant %s", got, want)
	}
}

// Of a long host a part is recorded, with and without a port.
func TestSpanLongHost(t *testing.T) {
	long := strings.Repeat("a", 3000)
	for port, recorded := range map[string]string{"": "", ":80": "server.port=80,"} {
		o := serve(t, around)
		o.ask(t, "GET http://"+long+port+"/any", "")
		if got, want := text(o.spans(t, 1)[0].Attributes()), with("server.address="+long[:1024]+","+recorded+
			"http.request.method=GET,http.response.status_code=204,http.route=/any,url.path=/any"); got != want {
			t.Errorf(" got %s\nwant %s", got, want)
		}
	}
}

// With RealIP outside, the client's address is the address that RealIP has found, and the peer's address is still the proxy's.
func TestSpanBehindProxy(t *testing.T) {
	proxies := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")}, TrustProto: true, TrustHost: true})
	o := serve(t, func(m filo.Middleware) filo.Handler { return proxies(m(routes().Serve)) })
	o.ask(t, "GET /any", "", "X-Forwarded-For: 2001:db8::7", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop.example:8443")
	if got, want := text(o.spans(t, 1)[0].Attributes()), with("client.address=2001:db8::7,url.scheme=https,server.address=shop.example,server.port=8443,"+
		"http.request.method=GET,http.response.status_code=204,http.route=/any,url.path=/any"); got != want {
		t.Errorf(" got %s\nwant %s", got, want)
	}
	if metrics := strings.Join(o.metrics(t), "\n"); !strings.Contains(metrics, "url.scheme=https} 1") {
		t.Errorf("the scheme of the metrics: %s", metrics)
	}
}

// Without RealIP, fields that claim another client are ignored.
func TestSpanForgedFields(t *testing.T) {
	o := serve(t, around)
	o.ask(t, "GET /any", "", "X-Forwarded-For: 2001:db8::7", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop.example:8443", "Forwarded: for=1.2.3.4")
	if got, want := text(o.spans(t, 1)[0].Attributes()), with("http.request.method=GET,http.response.status_code=204,http.route=/any,url.path=/any"); got != want {
		t.Errorf(" got %s\nwant %s", got, want)
	}
}

func TestSpanQuery(t *testing.T) {
	o := serve(t, around, func(o *otel.Options) {
		o.Query = true
		o.Redact = []string{"PIN"}
	})
	for i, test := range []struct{ query, want string }{
		{"", ""},
		{"a=b&c", "a=b&c"},
		{"sig=abc&Signature=d&AWSAccessKeyId=e&X-Goog-Signature=f&x=y", "sig=REDACTED&Signature=REDACTED&AWSAccessKeyId=REDACTED&X-Goog-Signature=REDACTED&x=y"},
		{"access_token=a=b", "access_token=REDACTED"},
		{"pin=1234&pinned=yes&=x&&", "pin=REDACTED&pinned=yes&=x&&"},
		{"s%69g=abc&s%zzig=d", "s%69g=REDACTED&s%zzig=d"},
		{"SIG=", "SIG=REDACTED"},
		{"sig", "sig"},
	} {
		o.ask(t, "GET /any?"+test.query, "")
		got := ""
		for _, each := range o.spans(t, i+1)[i].Attributes() {
			if each.Key == "url.query" {
				got = each.Value.AsString()
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.query, got, test.want)
		}
	}
}

func TestSpanOptions(t *testing.T) {
	o := serve(t, around, func(o *otel.Options) {
		o.Methods = []string{"GET", "BREW"}
		o.Filter = func(c *filo.Ctx) bool { return c.Path() != "/missing" }
		o.Attributes = func(c *filo.Ctx, attributes []attribute.KeyValue) []attribute.KeyValue {
			return append(attributes, attribute.Int("size", int(c.BytesWritten())))
		}
	})
	o.ask(t, "GET /missing", "")
	o.ask(t, "BREW /any", "")
	o.ask(t, "POST /any", "")
	for i, want := range []string{"BREW /any", "HTTP /any"} {
		span := o.spans(t, 2)[i]
		if span.Name() != want || !strings.Contains(text(span.Attributes()), ",size=0,") {
			t.Errorf("%s %v", span.Name(), span.Attributes())
		}
	}
	if metrics := strings.Join(o.metrics(t), "\n"); strings.Contains(metrics, "missing") {
		t.Errorf("a request that is to be left out is in\n%s", metrics)
	}
}

func TestOptionsPanic(t *testing.T) {
	for sentence, methods := range map[string][]string{
		"without a name": {""}, "there twice": {"GET", "GET"}, "not UTF-8": {"\xff"},
	} {
		func() {
			defer func() {
				if message, _ := recover().(string); !strings.HasPrefix(message, "otel: ") {
					t.Errorf("a method %s: panics with %q", sentence, message)
				}
			}()
			otel.Middleware(otel.Options{Methods: methods})
		}()
	}
}

// OpenTelemetry's global providers do nothing until they are set, and neither does the middleware.
func TestDefaults(t *testing.T) {
	h := otel.Middleware()(func(c *filo.Ctx) error {
		if otel.SpanOf(c).IsRecording() || otel.TraceID(c) != "" {
			t.Error("a span of nobody's")
		}
		return c.NoContent()
	})
	o := serve(t, func(filo.Middleware) filo.Handler { return h })
	if raw := o.ask(t, "GET /", ""); !strings.HasPrefix(raw, "HTTP/1.1 204 ") {
		t.Errorf("%q", raw)
	}
	runtime.KeepAlive(h)
}

// Middleware accepts no options or one Options.
func TestOptionsOnce(t *testing.T) {
	otel.Middleware()
	defer func() {
		if message, _ := recover().(string); !strings.HasPrefix(message, "otel: Middleware takes one Options at most") {
			t.Errorf("panics with %q", message)
		}
	}()
	otel.Middleware(otel.Options{}, otel.Options{})
}

// The span of a request that another server has received over HTTP/3 has HTTP/3 as its protocol.
func TestSpanHTTP3(t *testing.T) {
	o := serve(t, around)
	r := httptest.NewRequest("GET", "/any", nil)
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/3.0", 3, 0
	adaptor.ToHTTPServer(o.Config).ServeHTTP(httptest.NewRecorder(), r)
	if got := text(o.spans(t, 1)[0].Attributes()); !strings.Contains(got, "network.protocol.version=3,") {
		t.Errorf("got %s", got)
	}
}
