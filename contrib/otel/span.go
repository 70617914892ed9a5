package otel

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
)

// serverSpan is the kind of all spans, as an option.
var serverSpan = trace.WithSpanKind(trace.SpanKindServer)

// memory holds the attributes of a span until the tracer has copied them.
type memory struct {
	attributes []attribute.KeyValue
	options    []trace.SpanStartOption
}

var memories = sync.Pool{New: func() any {
	return &memory{make([]attribute.KeyValue, 0, 16), make([]trace.SpanStartOption, 0, 4)}
}}

func (m *memory) release() {
	clear(m.attributes)
	clear(m.options)
	m.attributes, m.options = m.attributes[:0], m.options[:0]
	memories.Put(m)
}

// begin starts a request's span. It passes all known attributes of the request, since the sampler may decide by them.
func (t *telemetry) begin(c *filo.Ctx, x *exchange) (context.Context, trace.Span) {
	outside := c.Context()
	ctx := t.options.Propagators.Extract(outside, (*carrier)(&c.Request.Header))
	m := memories.Get().(*memory)
	defer m.release()
	m.attributes = t.appendRequest(m.attributes, c, x)
	m.options = append(m.options, serverSpan, trace.WithAttributes(m.attributes...))
	if client := trace.SpanContextFromContext(ctx); !t.options.TrustClients && client.IsValid() && client.IsRemote() {
		m.options = append(m.options, trace.WithLinks(trace.Link{SpanContext: client}))
		// Behind a net/http server, the context may already have a span, which the program itself has started and no client can choose.
		if span := trace.SpanFromContext(outside); span.SpanContext().IsValid() && !span.SpanContext().IsRemote() {
			ctx = trace.ContextWithSpan(ctx, span)
		} else {
			m.options = append(m.options, trace.WithNewRoot())
		}
	}
	ctx, span := t.tracer.Start(ctx, spanName(t.methodLabels[x.method], ""), m.options...)
	c.SetContext(ctx)
	c.Set(spanKey{}, span)
	c.AddLogAttributes(LogAttributes)
	return ctx, span
}

// appendRequest appends the attributes of the request. Their texts are borrowed from the connection, so they are copied, with one
// allocation.
func (t *telemetry) appendRequest(list []attribute.KeyValue, c *filo.Ctx, x *exchange) []attribute.KeyValue {
	var buffer [512]byte
	uri, peer, client := c.Request.URI(), c.RemoteAddrPort(), middleware.ClientIP(c)
	text := appendBounded(buffer[:0], uri.RawPathBytes())
	path := len(text)
	if t.options.Query {
		query := uri.RawQueryBytes()
		text = t.appendRedacted(text, query[:min(len(query), maxText)])
	}
	query := len(text)
	text = appendBounded(text, c.Request.Header.GetBytes("User-Agent"))
	agent := len(text)
	text = appendAddress(text, client)
	address := len(text)
	if peer.Addr() != client {
		text = appendAddress(text, peer.Addr())
	}
	all := string(text)
	peerText := all[address:]
	if peer.Addr() == client {
		peerText = all[agent:address]
	}

	list = append(list,
		semconv.HTTPRequestMethodKey.String(t.methodLabels[x.method]),
		semconv.URLScheme(scheme(x.https)),
		semconv.NetworkProtocolVersion(protocolVersion(c)),
	)
	if x.method == len(t.methods) {
		list = append(list, semconv.HTTPRequestMethodOriginal(string(appendBounded(nil, c.Request.MethodBytes()))))
	}
	list = appendText(list, semconv.URLPathKey, all[:path])
	list = appendText(list, semconv.URLQueryKey, all[path:query])
	list = appendText(list, semconv.UserAgentOriginalKey, all[query:agent])
	list = appendText(list, semconv.ClientAddressKey, all[agent:address])
	if peer.IsValid() {
		list = append(list, semconv.NetworkPeerAddress(peerText), semconv.NetworkPeerPort(int(peer.Port())))
	}
	return appendServer(list, middleware.Host(c))
}

// maxText is how many bytes of a client's path, query, user agent, host or method are recorded. Without a limit, a client could cheaply make
// spans large: in HTTP/2 a single byte repeats a long field.
const maxText = 1024

func appendBounded(text, part []byte) []byte { return append(text, part[:min(len(part), maxText)]...) }

func appendAddress(text []byte, address netip.Addr) []byte {
	if !address.IsValid() {
		return text
	}
	return address.AppendTo(text)
}

func appendText(list []attribute.KeyValue, key attribute.Key, value string) []attribute.KeyValue {
	switch {
	case value == "":
		return list
	case !utf8.ValidString(value):
		value = valid(value)
	}
	return append(list, key.String(value))
}

// appendServer appends the server's name and port as in the client's request.
func appendServer(list []attribute.KeyValue, host string) []attribute.KeyValue {
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.Contains(host[i:], "]") {
		name, port = host[:i], host[i+1:]
	}
	if strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]") {
		name = name[1 : len(name)-1]
	}
	list = appendText(list, semconv.ServerAddressKey, name[:min(len(name), maxText)])
	if port == "" || name == "" {
		return list
	}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		list = append(list, semconv.ServerPort(int(n)))
	}
	return list
}

// complete adds to a span what is known only at the end of its request: attributes, the status and the exception.
func (t *telemetry) complete(c *filo.Ctx, span trace.Span, r *route, x *exchange) {
	m := memories.Get().(*memory)
	defer m.release()
	list := m.attributes
	if r.path != "" {
		span.SetName(r.names[x.method])
		list = append(list, semconv.HTTPRoute(r.path))
	}
	if x.status != 0 {
		list = append(list, semconv.HTTPResponseStatusCode(x.status))
	}
	if errorType := errorType(x.result, x.status); errorType != "" {
		list = append(list, semconv.ErrorTypeKey.String(errorType))
		// For an answered request there is no description: its HTTP status says enough.
		description := ""
		if x.result != resultAnswered && x.cause != nil {
			description = valid(fmt.Sprint(x.cause))
		}
		span.SetStatus(codes.Error, description)
	}
	if t.options.Attributes != nil {
		list = t.options.Attributes(c, list)
	}
	span.SetAttributes(list...)
	if x.cause != nil {
		span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(exception(x)...))
	}
	m.attributes = list
}

// exception returns the attributes of an exception event.
func exception(x *exchange) []attribute.KeyValue {
	list := []attribute.KeyValue{
		semconv.ExceptionType(fmt.Sprintf("%T", x.cause)),
		semconv.ExceptionMessage(valid(fmt.Sprint(x.cause))),
	}
	if x.stack != nil {
		list = append(list, semconv.ExceptionStacktrace(valid(string(x.stack))))
	}
	return list
}
