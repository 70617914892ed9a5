package prometheus_test

import (
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/prometheus"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

// A handler that fails because its client has left has no status, and doesn't count as an error.
func TestClientLeaves(t *testing.T) {
	clients, ended := make(chan *servertest.Conn, 1), make(chan struct{}, 1)
	s, registry := serve(t, func(m filo.Middleware) filo.Handler { return watched(clients, ended)(within(m)) })
	leaving(t, s, ended, clients)
	wantLines(t, "a client that leaves", settled(t, registry), `http_request_duration_seconds_count{method="GET",paced="",route="/leaving",status="none"} 1`,
		`http_request_errors_total{method="GET",route="/leaving"} 0.0`)
}

func TestMiddleware(t *testing.T) {
	count := func(method, route, status string) string {
		return fmt.Sprintf(`http_request_duration_seconds_count{method=%q,paced="",route=%q,status=%q} 1`, method, route, status)
	}
	countPaced := func(method, route, status string) string {
		return strings.Replace(count(method, route, status), `paced=""`, `paced="client"`, 1)
	}
	total := func(what, method, route string, n float64) string {
		return fmt.Sprintf(`http_request_%s_total{method=%q,route=%q} %.1f`, what, method, route, n)
	}
	for _, test := range []struct {
		sentence, request, body string
		fields                  []string
		want                    []string
	}{
		{"a route is its pattern and not the path", "GET /users/7?a=b", "", nil, []string{
			count("GET", "/users/{id}", "2xx"), total("panics", "GET", "/users/{id}", 0), total("errors", "GET", "/users/{id}", 0)}},
		{"HEAD is a method of its own on GET's route", "HEAD /users/7", "", nil, []string{
			count("HEAD", "/users/{id}", "2xx"), `http_response_size_bytes_sum{method="HEAD",route="/users/{id}"} 0.0`}},
		{"a pattern's host is a part of the route", "GET http://example.com/hosted", "", nil, []string{count("GET", "example.com/hosted", "2xx")}},
		{"a host without a pattern is no label", "GET http://evil.example/users/7", "", nil, []string{count("GET", "/users/{id}", "2xx")}},
		{"what has no route has one label in common", "GET /nowhere/7", "", nil, []string{count("GET", "_UNMATCHED", "4xx"),
			total("errors", "GET", "_UNMATCHED", 0)}},
		{"405 has no route", "PUT /users/7", "", nil, []string{count("PUT", "_UNMATCHED", "4xx")}},
		{"a redirect of the router has no route", "GET /slash", "", nil, []string{count("GET", "_UNMATCHED", "3xx")}},
		{"OPTIONS of the router has no route", "OPTIONS /users/7", "", nil, []string{count("OPTIONS", "_UNMATCHED", "2xx")}},
		{"an unknown method is _OTHER", "BREW /any", "", nil, []string{count("_OTHER", "/any", "2xx")}},
		{"methods are case-sensitive", "get /any", "", nil, []string{count("_OTHER", "/any", "2xx")}},
		{"an error of the client's is none of the server's", "GET /missing", "", nil, []string{count("GET", "/missing", "4xx"),
			total("errors", "GET", "/missing", 0)}},
		{"an error is what it is answered with", "GET /failing", "", nil, []string{count("GET", "/failing", "5xx"),
			total("errors", "GET", "/failing", 1), total("panics", "GET", "/failing", 0)}},
		{"a panic is answered with 500", "GET /panicking", "", nil, []string{count("GET", "/panicking", "5xx"),
			total("errors", "GET", "/panicking", 1), total("panics", "GET", "/panicking", 1)}},
		{"an aborted request has no status", "GET /aborting", "", nil, []string{count("GET", "/aborting", "none"),
			total("errors", "GET", "/aborting", 1), `http_response_size_bytes_count{method="GET",route="/aborting"} 0`}},
		{"a panic that aborts is no panic", "GET /panicabort", "", nil, []string{count("GET", "/panicabort", "none"),
			total("errors", "GET", "/panicabort", 1), total("panics", "GET", "/panicabort", 0)}},
		{"an answer that is broken off is an error with the status that was sent", "GET /breaking", "", nil, []string{
			countPaced("GET", "/breaking", "2xx"), total("errors", "GET", "/breaking", 1)}},
		{"so is one that a panic breaks off", "GET /halfpanic", "", nil, []string{countPaced("GET", "/halfpanic", "2xx"),
			total("errors", "GET", "/halfpanic", 1), total("panics", "GET", "/halfpanic", 1)}},
		{"101 is the status of a connection that switches protocols", "GET /upgrade", "",
			[]string{"Upgrade: echo", "Connection: upgrade"}, []string{countPaced("GET", "/upgrade", "1xx")}},
		{"one that can't switch has what it is answered with", "GET /upgrade", "", nil, []string{count("GET", "/upgrade", "4xx")}},
		{"sizes are those of bodies", "POST /upload", strings.Repeat("x", 1000), nil, []string{
			`http_request_size_bytes_sum{method="POST",route="/upload"} 1000.0`,
			`http_request_size_bytes_bucket{method="POST",route="/upload",le="256.0"} 0`,
			`http_request_size_bytes_bucket{method="POST",route="/upload",le="1024.0"} 1`,
			`http_response_size_bytes_sum{method="POST",route="/upload"} 0.0`,
			`http_response_size_bytes_count{method="POST",route="/upload"} 1`}},
		{"the size of an answer is counted", "GET /users/7", "", nil, []string{`http_response_size_bytes_sum{method="GET",route="/users/{id}"} 5.0`}},
		{"a body without a known size isn't one of 0 bytes", "POST /upload", "1\r\na\r\n0\r\n\r\n", []string{"Transfer-Encoding: chunked"},
			[]string{`http_request_size_bytes_count{method="POST",route="/upload"} 0`, countPaced("POST", "/upload", "2xx")}},
		{"a small body is no wait for the client", "POST /upload", strings.Repeat("x", 64<<10), nil, []string{count("POST", "/upload", "2xx")}},
		{"a large one is", "POST /upload", strings.Repeat("x", 64<<10+1), nil, []string{countPaced("POST", "/upload", "2xx")}},
		{"nor is one that is going to be read", "GET /reader", "", nil, []string{`http_response_size_bytes_count{method="GET",route="/reader"} 0`}},
	} {
		for place, wrap := range map[string]func(filo.Middleware) filo.Handler{
			"in the router": within, "around it": around,
			"with Recover": func(m filo.Middleware) filo.Handler {
				return m(middleware.Recover(middleware.RecoverOptions{Logger: quiet})(routes().Serve))
			},
		} {
			s, registry := serve(t, wrap)
			ask(t, s, test.request, test.body, test.fields...)
			wantLines(t, test.sentence+", "+place, settled(t, registry), test.want...)
			lint(t, registry)
		}
	}
}

// A panic continues through the middleware, so the client gets the same answer as without the middleware.
func TestMiddlewareAnswers(t *testing.T) {
	s, _ := serve(t, within)
	if answer := s.Do(t, "GET /panicking"); answer.Status != 500 {
		t.Errorf("a panic is answered with %d", answer.Status)
	}
	if raw := ask(t, s, "GET /panicabort", ""); raw != "" {
		t.Errorf("an aborted request got %q", raw)
	}
}

func TestMiddlewareGoexit(t *testing.T) {
	s, registry := serve(t, func(m filo.Middleware) filo.Handler {
		return m(func(*filo.Ctx) error { runtime.Goexit(); return nil })
	})
	ask(t, s, "GET /", "")
	wantLines(t, "a handler that ends its goroutine fails, and doesn't panic", settled(t, registry),
		`http_request_duration_seconds_count{method="GET",paced="",route="_UNMATCHED",status="5xx"} 1`,
		`http_request_errors_total{method="GET",route="_UNMATCHED"} 1.0`, `http_request_panics_total{method="GET",route="_UNMATCHED"} 0.0`)
}

func TestMiddlewareTimeout(t *testing.T) {
	s, registry := serve(t, func(m filo.Middleware) filo.Handler {
		return m(func(c *filo.Ctx) error {
			c.SetTimeout(time.Millisecond, nil)
			<-c.Context().Done()
			return c.NoContent()
		})
	})
	if answer := s.Do(t, "GET /"); answer.Status != 503 {
		t.Errorf("%d", answer.Status)
	}
	wantLines(t, "an answer of the time-out's is counted as such", settled(t, registry),
		`http_request_duration_seconds_count{method="GET",paced="",route="_UNMATCHED",status="5xx"} 1`)
}

func TestMiddlewareInFlight(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s, registry := serve(t, func(m filo.Middleware) filo.Handler {
		return m(func(c *filo.Ctx) error {
			entered <- struct{}{}
			<-leave
			return c.NoContent()
		})
	})
	c := s.Dial(t)
	if _, err := io.WriteString(c, servertest.Request("GET /", "")); err != nil {
		t.Fatal(err)
	}
	<-entered
	wantLines(t, "a handler that runs is in flight", exposed(t, registry), "http_requests_in_flight 1.0")
	close(leave)
}

// Labels contain no values that clients make up, only the program's routes and the known methods.
func TestMiddlewareCardinality(t *testing.T) {
	s, registry := serve(t, around)
	for i := range 300 {
		target := fmt.Sprintf("/users/made-up-%d?made-up=%d", i, i)
		if i%3 == 0 {
			target = fmt.Sprintf("/made-up-%d%%0a%%22", i)
		}
		ask(t, s, fmt.Sprintf("MADE-UP-%d http://made-up-%d.example%s", i, i, target), "", fmt.Sprintf("User-Agent: made-up-%d", i))
		ask(t, s, fmt.Sprintf("GET http://made-up-%d.example%s", i, target), "", fmt.Sprintf("X-Forwarded-Host: made-up-%d", i))
	}
	text := settled(t, registry)
	if strings.Contains(strings.ToLower(text), "made-up") {
		t.Errorf("a label has what a client has made up:\n%s", text)
	}
	if methods := labelValues(text, "method"); len(methods) != 2 || !methods["_OTHER"] || !methods["GET"] {
		t.Errorf("methods %v", methods)
	}
	if routes := labelValues(text, "route"); len(routes) != 2 || !routes["_UNMATCHED"] || !routes["/users/{id}"] {
		t.Errorf("routes %v", routes)
	}
}

// A handler that sets paths as routes creates at most MaxRoutes labels.
func TestMiddlewareMaxRoutes(t *testing.T) {
	const more = 100
	s, registry := serve(t, func(m filo.Middleware) filo.Handler {
		return m(func(c *filo.Ctx) error {
			inside.Match(c).Route = c.Path()
			return c.NoContent()
		})
	}, func(o *prometheus.Options) { o.SizeBuckets = []float64{} })
	var requests strings.Builder
	for i := range prometheus.MaxRoutes + more {
		requests.WriteString(servertest.Request(fmt.Sprintf("GET /%d/%%ff", i), ""))
	}
	requests.WriteString(servertest.Request("GET /0/%ff", "", "Connection: close"))
	c := s.Dial(t)
	go io.WriteString(c, requests.String())
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatal(err)
	}
	text := settled(t, registry)
	if routes := labelValues(text, "route"); len(routes) != prometheus.MaxRoutes+1 {
		t.Errorf("%d routes", len(routes))
	}
	if strings.Contains(text, "http_response_size_bytes") {
		t.Error("sizes that were left out")
	}
	for _, line := range []string{
		fmt.Sprintf(`http_request_duration_seconds_count{method="GET",paced="",route="_OTHER",status="2xx"} %d`, more),
		`http_request_duration_seconds_count{method="GET",paced="",route="/0/` + "\uFFFD" + `",status="2xx"} 2`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %s", line)
		}
	}
}

// Special characters in a route are escaped.
func TestMiddlewareRouteText(t *testing.T) {
	s, registry := serve(t, func(m filo.Middleware) filo.Handler {
		return m(func(c *filo.Ctx) error {
			inside.Match(c).Route = "GET /a\"} 1\nb\\"
			return c.NoContent()
		})
	})
	s.Do(t, "GET /")
	wantLines(t, "quotes, line breaks and backslashes are escaped", settled(t, registry),
		`http_request_duration_seconds_count{method="GET",paced="",route="/a\"} 1\nb\\",status="2xx"} 1`)
}

func TestMiddlewareConcurrent(t *testing.T) {
	const clients, each = 8, 50
	s, registry := serve(t, within)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			c := s.Dial(t)
			for j := range each {
				request := servertest.Request(fmt.Sprintf("GET /users/%d", i*each+j), "", "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
				if j == each-1 {
					request = strings.Replace(request, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)
				}
				if _, err := io.WriteString(c, request); err != nil {
					t.Error(err)
				}
				if j%10 == 0 {
					exposed(t, registry)
				}
			}
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	text := settled(t, registry)
	if want := fmt.Sprintf(`http_request_duration_seconds_count{method="GET",paced="",route="/users/{id}",status="2xx"} %d`, clients*each); !strings.Contains(text, want) {
		t.Errorf("no line %s in\n%s", want, text)
	}
}

// With the loop driver, whose handlers share a goroutine until one may block, everything is counted as with other drivers.
func TestLoopDriver(t *testing.T) {
	const clients, each = 4, 50
	registry := client.NewPedanticRegistry()
	server := &filo.Server{Handler: routes(prometheus.Middleware(prometheus.Options{Registerer: registry})).Serve, Logger: quiet}
	registry.MustRegister(prometheus.Collector(server))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(ln)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			requests := strings.Repeat(servertest.Request("GET /users/7", ""), each-1) + servertest.Request("GET /users/7", "", "Connection: close")
			if _, err := io.WriteString(c, requests); err != nil {
				t.Error(err)
			}
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantLines(t, "all requests", settled(t, registry),
		fmt.Sprintf(`http_request_duration_seconds_count{method="GET",paced="",route="/users/{id}",status="2xx"} %d`, clients*each),
		fmt.Sprintf(`filo_requests_total{status="2xx"} %d.0`, clients*each), fmt.Sprintf("filo_connections_accepted_total %d.0", clients))
}

func TestMiddlewareOptions(t *testing.T) {
	registry := client.NewRegistry()
	m := prometheus.Middleware(prometheus.Options{
		Registerer:       client.WrapRegistererWithPrefix("shop_", registry),
		Buckets:          []float64{},
		NativeHistograms: true,
		Methods:          []string{"GET", "BREW"},
		Skip:             func(c *filo.Ctx) bool { return c.Route() == "GET /missing" && c.Status() == 404 },
	})
	s := servertest.New(t, routes(m).Serve)
	s.Do(t, "BREW /any")
	s.Do(t, "POST /any")
	s.Do(t, "GET /missing")
	text := settled(t, registry)
	wantLines(t, "options", text,
		`shop_http_request_duration_seconds_count{method="BREW",paced="",route="/any",status="2xx"} 1`,
		`shop_http_request_duration_seconds_count{method="_OTHER",paced="",route="/any",status="2xx"} 1`,
		"shop_http_requests_in_flight 0.0")
	if strings.Contains(text, "missing") {
		t.Errorf("a request that is to be left out is in\n%s", text)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "shop_http_request_duration_seconds" {
			if h := family.GetMetric()[0].GetHistogram(); h.Schema == nil || len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) > 0 {
				t.Errorf("no native histogram: %v", h)
			}
		}
	}
}

func TestMiddlewarePanics(t *testing.T) {
	taken := client.NewRegistry()
	prometheus.Middleware(prometheus.Options{Registerer: taken})
	for sentence, options := range map[string]prometheus.Options{
		"the names are taken":              {Registerer: taken},
		"bounds decrease":                  {Buckets: []float64{2, 1}},
		"a bound is there twice":           {SizeBuckets: []float64{1, 1}},
		"a bound is no number":             {Buckets: []float64{math.NaN()}},
		"no buckets":                       {Buckets: []float64{}},
		"a method without a name":          {Methods: []string{""}},
		"a method that is there twice":     {Methods: []string{"GET", "GET"}},
		"a method that can't be in labels": {Methods: []string{"\xff"}},
	} {
		if options.Registerer == nil {
			options.Registerer = client.NewRegistry()
		}
		func() {
			defer func() {
				if message, _ := recover().(string); !strings.HasPrefix(message, "prometheus: ") {
					t.Errorf("%s: panics with %q", sentence, message)
				}
			}()
			prometheus.Middleware(options)
		}()
	}
}
