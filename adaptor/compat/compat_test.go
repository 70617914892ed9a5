package compat_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/http/pprof"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/h2test"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/router"
)

// start serves h on TCP until the test ends, and returns its URL.
func start(t *testing.T, h filo.Handler) string {
	t.Helper()
	return "http://" + tcptest.Serve(t, &filo.Server{Handler: h, Logger: slog.New(slog.DiscardHandler)})
}

func get(t *testing.T, url string, fields ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// Prometheus scrapes filo, compressed or not, while requests are counted by its own middleware.
func TestPromhttp(t *testing.T) {
	registry := prometheus.NewRegistry()
	count := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total"}, []string{"code", "method"})
	length := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "response_size_bytes"}, []string{})
	registry.MustRegister(count, length)
	r := router.New()
	r.GET("/metrics", adaptor.FromHTTP(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	r.GET("/work", func(c *filo.Ctx) error { return c.Text(201, "done") }, adaptor.Middleware(func(next http.Handler) http.Handler {
		return promhttp.InstrumentHandlerCounter(count, promhttp.InstrumentHandlerResponseSize(length, next))
	}))
	url := start(t, r.Serve)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 25 {
				get(t, url+"/work")
				get(t, url+"/metrics")
			}
		})
	}
	all.Wait()
	for _, encoding := range []string{"identity", "gzip"} {
		response, body := get(t, url+"/metrics", "Accept-Encoding", encoding)
		if encoding == "gzip" {
			r, err := gzip.NewReader(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			body = string(plain)
		}
		for _, want := range []string{`requests_total{code="201",method="get"} 100`, "response_size_bytes_sum 400"} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %v %q has no %q", encoding, response.Header, body, want)
			}
		}
	}
}

// The profiles of net/http/pprof work, including those that run for some seconds.
func TestPprof(t *testing.T) {
	r := router.New()
	for path, h := range map[string]http.HandlerFunc{
		"/debug/pprof/{name...}": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		r.GET(path, adaptor.FromHTTP(h))
	}
	url := start(t, r.Serve)
	for path, want := range map[string]string{
		"/": "Types of profiles available", "/goroutine?debug=1": "goroutine profile:", "/cmdline": ".test", "/symbol": "num_symbols",
		"/heap": "\x1f\x8b", "/profile?seconds=1": "\x1f\x8b", "/trace?seconds=0.05": "go 1.",
	} {
		response, body := get(t, url+"/debug/pprof"+path, "Accept-Encoding", "identity")
		if response.StatusCode != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d, %d bytes without %q", path, response.StatusCode, len(body), want)
		}
	}
}

// httputil.ReverseProxy passes on bodies, streams, trailers and errors.
func TestReverseProxy(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/abort":
			io.WriteString(w, strings.Repeat("x", 10000))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/hints":
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(103)
		}
		w.Header().Set("Trailer", "X-Sum")
		body, _ := io.ReadAll(r.Body) // read the body first: net/http drops its unread part when an answer begins
		w.Write(body)
		w.Header().Set("X-Sum", r.Header.Get("X-Forwarded-For"))
	}))
	defer backend.Close()
	at, _ := url.Parse(backend.URL)
	front := start(t, adaptor.FromHTTP(httputil.NewSingleHostReverseProxy(at)))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for _, size := range []int{0, 10, 5000, 200000} {
				sent := strings.Repeat("b", size)
				response, err := http.Post(front+"/echo", "text/plain", strings.NewReader(sent))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(response.Body)
				response.Body.Close()
				if string(got) != sent || err != nil || response.Trailer.Get("X-Sum") != "127.0.0.1" {
					t.Errorf("%d of %d bytes, %v, trailer %v", len(got), size, err, response.Trailer)
				}
			}
		})
	}
	all.Wait()
	if response, _ := get(t, front+"/hints"); response.StatusCode != 200 {
		t.Errorf("hints: %d", response.StatusCode)
	}
	response, err := http.Get(front + "/abort")
	if err == nil {
		_, err = io.ReadAll(response.Body)
		response.Body.Close()
	}
	if err == nil {
		t.Error("an answer that was broken off looks whole")
	}
}

// chi's middleware works in filo as it does with chi: it changes requests, wraps answers, recovers from panics and enforces
// limits.
func TestChiMiddleware(t *testing.T) {
	var logged strings.Builder
	var mu sync.Mutex
	logger := middleware.RequestLogger(&middleware.DefaultLogFormatter{NoColor: true, Logger: printer(func(v ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&logged, v...)
	})})
	r := router.New()
	r.Use(
		adaptor.Middleware(middleware.RequestID),
		//lint:ignore SA1019 who may say what the address is doesn't matter here, but that it changes does
		adaptor.Middleware(middleware.RealIP),
		adaptor.Middleware(logger),
		adaptor.Middleware(middleware.Recoverer),
		adaptor.Middleware(middleware.Compress(5)),
		adaptor.Middleware(middleware.Heartbeat("/ping")),
		adaptor.Middleware(middleware.SetHeader("X-Set", "1")),
		adaptor.Middleware(middleware.NoCache),
	)
	r.GET("/ip/{name}", func(c *filo.Ctx) error {
		return c.Text(200, fmt.Sprint(c.RemoteAddr(), " ", c.Param("name"), " ", middleware.GetReqID(c.Context()) != ""))
	})
	r.GET("/large", func(c *filo.Ctx) error { return c.Text(200, strings.Repeat("compress me ", 1000)) })
	r.GET("/stream", func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Type", "text/plain")
		w := c.Stream()
		for range 10 {
			w.WriteString(strings.Repeat("piece ", 100))
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return nil
	})
	r.GET("/panic", func(c *filo.Ctx) error { panic("oh") })
	r.GET("/throttled", func(c *filo.Ctx) error { return c.Text(200, "in time") },
		adaptor.Middleware(middleware.Throttle(1)), adaptor.Middleware(middleware.Timeout(time.Minute)))
	url := start(t, r.Serve)

	if _, body := get(t, url+"/ip/me", "X-Real-IP", "192.0.2.1"); body != "192.0.2.1:0 me true" {
		t.Errorf("got %q", body)
	}
	for path, want := range map[string]string{
		"/large": strings.Repeat("compress me ", 1000), "/stream": strings.Repeat("piece ", 1000),
	} {
		response, body := get(t, url+path, "Accept-Encoding", "gzip")
		if response.Header.Get("Content-Encoding") != "gzip" || response.Header.Get("X-Set") != "1" || response.Header.Get("Expires") == "" {
			t.Errorf("%s: fields %v", path, response.Header)
		}
		r, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := io.ReadAll(r); string(plain) != want || err != nil {
			t.Errorf("%s: %d bytes, %v", path, len(plain), err)
		}
	}
	for path, status := range map[string]int{"/panic": 500, "/ping": 200, "/none": 404, "/throttled": 200} {
		if response, body := get(t, url+path); response.StatusCode != status {
			t.Errorf("%s: %d %q", path, response.StatusCode, body)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if got := logged.String(); !strings.Contains(got, "/ip/me HTTP/1.1\" from 192.0.2.1:0 - 200 ") || !strings.Contains(got, "- 404 ") {
		t.Errorf("the log is %q", got)
	}
}

type printer func(v ...any)

func (p printer) Print(v ...any) { p(v...) }

// A whole router of chi runs below a path of a filo router, and filo's handlers run in a router of chi.
func TestChiRouter(t *testing.T) {
	theirs := chi.NewRouter()
	theirs.Get("/chi/users/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "chi ", chi.URLParam(r, "id")) })
	theirs.Mount("/chi/filo", adaptor.ToHTTP(func(c *filo.Ctx) error { return c.Text(200, "filo "+c.Path()) }))
	r := router.New()
	r.Handle("/chi/{path...}", adaptor.FromHTTP(theirs))
	url := start(t, r.Serve)
	for path, want := range map[string]string{"/chi/users/7": "chi 7", "/chi/filo/deep": "filo /chi/filo/deep", "/chi/none": "404 page not found\n"} {
		if _, body := get(t, url+path); body != want {
			t.Errorf("%s: got %q, want %q", path, body, want)
		}
	}
}

// A WebSocket library for net/http takes connections over from filo.
func TestWebSocket(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		for {
			kind, message, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			if err := conn.Write(r.Context(), kind, message); err != nil {
				return
			}
		}
	})
	for name, h := range map[string]filo.Handler{
		"in filo":                 adaptor.FromHTTP(echo),
		"behind chi's middleware": adaptor.Middleware(middleware.RequestID)(adaptor.FromHTTP(echo)),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			conn, _, err := websocket.Dial(ctx, start(t, h), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.CloseNow()
			for _, message := range []string{"hello", strings.Repeat("long ", 2000)} {
				if err := conn.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
					t.Fatal(err)
				}
				if _, got, err := conn.Read(ctx); string(got) != message || err != nil {
					t.Fatalf("got %d bytes, %v", len(got), err)
				}
			}
			conn.Close(websocket.StatusNormalClosure, "")
		})
	}
}

// The WebSocket library also works over HTTP/2, for a client that opens WebSockets with extended CONNECT.
func TestWebSocketHTTP2(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		kind, message, err := conn.Read(r.Context())
		if err != nil {
			t.Error(err)
			return
		}
		conn.Write(r.Context(), kind, message)
		conn.Close(websocket.StatusNormalClosure, "")
	})
	address := tcptest.Serve(t, &filo.Server{Handler: adaptor.FromHTTP(echo), Logger: slog.New(slog.DiscardHandler),
		HTTP2: filo.HTTP2Options{Unencrypted: true, ExtendedConnect: true}})
	tcp, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	tcp.SetDeadline(time.Now().Add(time.Minute))
	c, err := h2test.New(tcp)
	if err != nil {
		t.Fatal(err)
	}
	s := c.Connect("websocket", "/", "sec-websocket-version", "13")
	if status, err := s.Status(); status != 200 || err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	s.Write([]byte("\x81\x85\x00\x00\x00\x00hello"))
	got := make([]byte, 7)
	if _, err := io.ReadFull(s, got); string(got) != "\x81\x05hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	s.Write([]byte("\x88\x82\x00\x00\x00\x00\x03\xe8"))
	if got, err := io.ReadAll(s); string(got) != "\x88\x02\x03\xe8" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
