package otel_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/otel"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/servertest"
)

func TestMetrics(t *testing.T) {
	const duration, request, response, active = "http.server.request.duration{", "http.server.request.body.size{",
		"http.server.response.body.size{", "http.server.active_requests{"
	for _, test := range []struct {
		sentence, request, body string
		fields                  []string
		attributes              string   // of all but the active requests
		sizes                   []string // count and sum of the request's and the response's body, "" if not measured
	}{
		{"a route", "GET /users/7?a=b", "", []string{"User-Agent: agent"},
			"http.request.method=GET,http.response.status_code=200,http.route=/users/{id},network.protocol.version=1.1,url.scheme=http", []string{"1 0", "1 5"}},
		{"no route", "GET /nowhere", "", nil,
			"http.request.method=GET,http.response.status_code=404,network.protocol.version=1.1,url.scheme=http", []string{"1 0", "1 10"}},
		{"an unknown method", "BREW /any", "", nil,
			"http.request.method=_OTHER,http.response.status_code=204,http.route=/any,network.protocol.version=1.1,url.scheme=http", []string{"1 0", "1 0"}},
		{"an error of the server's", "GET /unavailable", "", nil,
			"error.type=503,http.request.method=GET,http.response.status_code=503,http.route=/unavailable,network.protocol.version=1.1,url.scheme=http", []string{"1 0", "1 20"}},
		{"no answer", "GET /aborting", "", nil,
			"error.type=aborted,http.request.method=GET,http.route=/aborting,network.protocol.version=1.1,url.scheme=http", []string{"1 0", ""}},
		{"an answer that is broken off", "GET /breaking", "", nil,
			"error.type=broken_off,http.request.method=GET,http.response.status_code=200,http.route=/breaking,network.protocol.version=1.1,url.scheme=http", []string{"1 0", "1 4"}},
		{"a body", "POST /upload", "0123456789", nil,
			"http.request.method=POST,http.response.status_code=204,http.route=/upload,network.protocol.version=1.1,url.scheme=http", []string{"1 10", "1 0"}},
		{"a body without a known size", "POST /upload", "1\r\na\r\n0\r\n\r\n", []string{"Transfer-Encoding: chunked"},
			"http.request.method=POST,http.response.status_code=204,http.route=/upload,network.protocol.version=1.1,url.scheme=http", []string{"", "1 0"}},
		{"an answer that is going to be read", "GET /reader", "", nil,
			"http.request.method=GET,http.response.status_code=200,http.route=/reader,network.protocol.version=1.1,url.scheme=http", []string{"1 0", ""}},
		{"HEAD sends no body", "HEAD /users/7", "", nil,
			"http.request.method=HEAD,http.response.status_code=200,http.route=/users/{id},network.protocol.version=1.1,url.scheme=http", []string{"1 0", "1 0"}},
	} {
		for place, wrap := range map[string]func(filo.Middleware) filo.Handler{"in the router": within, "around it": around} {
			o := serve(t, wrap)
			o.ask(t, test.request, test.body, test.fields...)
			o.spans(t, 1)
			method, _, _ := strings.Cut(test.attributes[strings.Index(test.attributes, "http.request.method="):], ",")
			want := []string{active + method + ",url.scheme=http} 0", duration + test.attributes + "} 1"}
			for i, name := range []string{request, response} {
				if test.sizes[i] != "" {
					want = append(want, name+test.attributes+"} "+test.sizes[i])
				}
			}
			got := o.metrics(t)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s:\n got %s\nwant %s", test.sentence, place, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
			}
		}
	}
}

func TestMetricsUnits(t *testing.T) {
	o := serve(t, around)
	o.ask(t, "GET /any", "")
	o.spans(t, 1)
	var data metricdata.ResourceMetrics
	if err := o.reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	units := make(map[string]string)
	for _, metric := range data.ScopeMetrics[0].Metrics {
		units[metric.Name] = metric.Unit
		if h, ok := metric.Data.(metricdata.Histogram[float64]); ok {
			if want := []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}; !slices.Equal(h.DataPoints[0].Bounds, want) {
				t.Errorf("%s has the bounds %v, want the recommended %v", metric.Name, h.DataPoints[0].Bounds, want)
			}
			// The exemplar links the duration to the trace.
			if e := h.DataPoints[0].Exemplars; len(e) != 1 || fmt.Sprintf("%x", e[0].TraceID) != o.spans(t, 1)[0].SpanContext().TraceID().String() {
				t.Errorf("exemplars %v", e)
			}
		}
	}
	for name, unit := range map[string]string{
		"http.server.request.duration": "s", "http.server.active_requests": "{request}",
		"http.server.request.body.size": "By", "http.server.response.body.size": "By",
	} {
		if units[name] != unit {
			t.Errorf("%s is in %q, want %q", name, units[name], unit)
		}
	}
}

func TestMetricsActive(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	o := serve(t, inHandler(func(c *filo.Ctx) error {
		entered <- struct{}{}
		<-leave
		return c.NoContent()
	}))
	go o.ask(t, "GET /", "")
	<-entered
	if got := o.metrics(t); len(got) != 1 || got[0] != "http.server.active_requests{http.request.method=GET,url.scheme=http} 1" {
		t.Errorf("%v", got)
	}
	close(leave)
	o.spans(t, 1)
}

// No attribute of a metric and no name of a span contains values that clients make up.
func TestMetricsCardinality(t *testing.T) {
	o := serve(t, around)
	const n = 100
	for i := range n {
		target := fmt.Sprintf("/users/made-up-%d?made-up=%d", i, i)
		if i%3 == 0 {
			target = fmt.Sprintf("/made-up-%d%%0a%%22", i)
		}
		o.ask(t, fmt.Sprintf("MADE-UP-%d http://made-up-%d.example%s", i, i, target), "", fmt.Sprintf("User-Agent: made-up-%d", i))
		o.ask(t, fmt.Sprintf("GET http://made-up-%d.example%s", i, target), "", fmt.Sprintf("X-Forwarded-Host: made-up-%d", i))
	}
	names := make(map[string]bool)
	for _, span := range o.spans(t, 2*n) {
		names[span.Name()] = true
	}
	if len(names) != 3 || !names["GET"] || !names["HTTP"] || !names["GET /users/{id}"] {
		t.Errorf("names %v", names)
	}
	metrics := o.metrics(t)
	if all := strings.Join(metrics, "\n"); strings.Contains(strings.ToLower(all), "made-up") || len(metrics) > 20 {
		t.Errorf("metrics\n%s", all)
	}
}

// If a handler sets paths as routes, MaxRoutes of them are distinguished. Further paths are recorded as no route.
func TestMaxRoutes(t *testing.T) {
	const more = 20
	o := serve(t, inHandler(func(c *filo.Ctx) error {
		inside.Match(c).Route = c.Path()
		return c.NoContent()
	}))
	var requests strings.Builder
	for i := range otel.MaxRoutes + more {
		requests.WriteString(servertest.Request(fmt.Sprintf("GET /%d/%%ff", i), ""))
	}
	requests.WriteString(servertest.Request("GET /0/%ff", "", "Connection: close"))
	c := o.Dial(t)
	go io.WriteString(c, requests.String())
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatal(err)
	}
	names := make(map[string]int)
	for _, span := range o.spans(t, otel.MaxRoutes+more+1) {
		names[span.Name()]++
	}
	// One place is kept for requests without a route.
	if len(names) > otel.MaxRoutes+1 || names["GET"] < more || names["GET /0/\uFFFD"] != 2 {
		t.Errorf("%d names, %d without a route, %d of the first one", len(names), names["GET"], names["GET /0/\uFFFD"])
	}
}

func TestConcurrent(t *testing.T) {
	const clients, each = 8, 50
	o := serve(t, within)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for j := range each {
				o.ask(t, fmt.Sprintf("GET /users/%d", i*each+j), "", "Traceparent: 00-"+traceID+"-"+parentID+"-01", "Baggage: a=b")
				if j%10 == 0 {
					o.metrics(t)
				}
			}
		})
	}
	wg.Wait()
	o.spans(t, clients*each)
	want := fmt.Sprintf("http.server.request.duration{http.request.method=GET,http.response.status_code=200,http.route=/users/{id},network.protocol.version=1.1,url.scheme=http} %d", clients*each)
	if got := o.metrics(t); !slices.Contains(got, want) {
		t.Errorf("no %s in\n%s", want, strings.Join(got, "\n"))
	}
}
