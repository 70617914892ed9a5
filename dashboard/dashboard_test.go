package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/dashboard"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

func everybody(*filo.Ctx) bool { return true }

// watched serves a dashboard at /dash, and a few routes that it measures.
func watched(t testing.TB, options dashboard.Options) *servertest.Server {
	if options.Token == "" && options.Allow == nil {
		options.Allow = everybody
	}
	r := router.New()
	server := &filo.Server{Handler: r.Serve, Logger: slog.New(slog.DiscardHandler), HTTP2: filo.HTTP2Options{Unencrypted: true}}
	d := dashboard.New(server, options)
	r.Use(d.Middleware())
	r.Mount("/dash", d.Serve)
	r.GET("/hello/{name}", func(c *filo.Ctx) error { return c.Text(200, "hello") })
	r.GET("/fails", func(c *filo.Ctx) error { return filo.Error(500, "") })
	r.GET("/waits", func(c *filo.Ctx) error {
		time.Sleep(30 * time.Millisecond)
		return c.NoContent()
	})
	return servertest.NewServer(t, server)
}

// snapshot is an event of the page, with the members that the tests check.
type snapshot struct {
	Sample struct {
		N                                         uint64
		T                                         int64
		Answers                                   []float64
		Latency                                   []float64
		ConnsActive, ConnsIdle, ConnsParked       int
		Streams                                   int
		WorkersRunning, WorkersReady              int
		Goroutines, Heap, Memory                  float64
		ConnsAccepted, Refused, Handoffs, Retakes float64
	}
	Routes []struct {
		Name                       string
		Rate, Errors, Median, Slow float64
		Total                      uint64
	}
	Classes []struct{ Name, Kind string }
}

// watcher reads the events that a page gets.
type watcher struct {
	t      testing.TB
	conn   *servertest.Conn
	reader *bufio.Reader
}

func watch(t testing.TB, s *servertest.Server) *watcher {
	t.Helper()
	c := s.Dial(t)
	if _, err := io.WriteString(c, servertest.Request("GET /dash/events", "")); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" || response.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("events: %d %v", response.StatusCode, response.Header)
	}
	return &watcher{t, c, bufio.NewReader(response.Body)}
}

// Over HTTP/2, pages share a connection, and each of their event streams is counted.
func TestHTTP2Streams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watched(t, dashboard.Options{})
		transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) {
			return s.Dial(t), nil
		}}
		transport.Protocols.SetUnencryptedHTTP2(true)
		defer transport.CloseIdleConnections()
		var last *watcher
		for range 3 {
			response, err := (&http.Client{Transport: transport}).Get("http://filo.test/dash/events")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.Proto != "HTTP/2.0" || response.StatusCode != 200 {
				t.Fatalf("answered %s %s", response.Proto, response.Status)
			}
			last = &watcher{t: t, reader: bufio.NewReader(response.Body)}
		}
		synctest.Wait()
		if got := last.next().Sample; got.Streams != 3 || got.ConnsActive+got.ConnsIdle+got.ConnsParked != 1 {
			t.Errorf("%+v, want 3 streams on a connection", got)
		}
	})
}

// next returns the next event.
func (w *watcher) next() (s snapshot) {
	w.t.Helper()
	for {
		line, err := w.reader.ReadString('\n')
		if err != nil {
			w.t.Fatal(err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &s); err != nil {
				w.t.Fatalf("%v in %q", err, data)
			}
			return s
		}
	}
}

// past returns the document with the earlier samples, with which a page begins.
func past(t testing.TB, s *servertest.Server) (document struct {
	About   struct{ Title string }
	Samples []struct{ N uint64 }
}) {
	t.Helper()
	got := s.Do(t, "GET /dash/history")
	if err := json.Unmarshal([]byte(got.Body), &document); err != nil || got.Status != 200 {
		t.Fatalf("history: %d %v in %.200q", got.Status, err, got.Body)
	}
	return document
}

// Every path of the dashboard is behind the guard.
func TestGuarded(t *testing.T) {
	r := router.New()
	server := &filo.Server{Handler: r.Serve, ForOperator: true}
	d := dashboard.New(server)
	r.Mount("/dash", d.Serve)
	s, others := servertest.NewServer(t, server), servertest.New(t, r.Serve)
	local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:1"))
	for _, path := range append(files(t), "", "history", "events", "nothing") {
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
			if got := s.Do(t, method+" http://localhost/dash/"+path); got.Status != 404 || got.Header.Get("Content-Security-Policy") != "" || got.Header.Get("Allow") != "" {
				t.Errorf("%s %s for a stranger: %d %v", method, path, got.Status, got.Header)
			}
		}
		if got := s.DoFrom(t, local, "GET http://evil.test/dash/"+path); got.Status != 404 {
			t.Errorf("%s for a name that somebody has given this address: %d", path, got.Status)
		}
		if got := s.DoFrom(t, local, "GET http://localhost/dash/"+path, "X-Forwarded-For: ::1"); got.Status != 404 {
			t.Errorf("%s through a proxy: %d", path, got.Status)
		}
		if got := others.DoFrom(t, local, "GET http://localhost/dash/"+path); got.Status != 404 {
			t.Errorf("%s by a server that isn't the operator's: %d", path, got.Status)
		}
		if got := s.DoFrom(t, local, "HEAD http://localhost/dash/"+path); got.Status != 200 && path != "nothing" {
			t.Errorf("%s for this machine: %d", path, got.Status)
		}
	}
	if got := watched(t, dashboard.Options{Token: "0123456789abcdef"}).Do(t, "GET /dash/"); got.Status != 401 {
		t.Errorf("without the token: %d", got.Status)
	}
}

// files returns the names of the files that the page is made of.
func files(t testing.TB) (names []string) {
	t.Helper()
	entries, err := fs.ReadDir(os.DirFS("assets"), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != "index.html" {
			names = append(names, entry.Name())
		}
	}
	return names
}

// Every file is served with its type, and with a policy that lets pages load nothing from other hosts.
func TestPage(t *testing.T) {
	s := watched(t, dashboard.Options{})
	policy := "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
		"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	outside := regexp.MustCompile(`(?i)https?://|//[a-z0-9-]+\.[a-z]|@import|innerHTML|insertAdjacentHTML|\beval\b| on[a-z]+="|style="`)
	for _, path := range append(files(t), "") {
		got := s.Do(t, "GET /dash/"+path)
		contentType := "text/html; charset=utf-8"
		switch {
		case strings.HasSuffix(path, ".js"):
			contentType = "text/javascript; charset=utf-8"
		case strings.HasSuffix(path, ".css"):
			contentType = "text/css; charset=utf-8"
		case strings.HasSuffix(path, ".svg"):
			contentType = "image/svg+xml"
		}
		if got.Status != 200 || got.Header.Get("Content-Type") != contentType || got.Header.Get("Content-Security-Policy") != policy ||
			got.Header.Get("Cache-Control") != "no-store" || got.Header.Get("X-Frame-Options") != "DENY" || len(got.Body) == 0 {
			t.Errorf("%q: %d %v", path, got.Status, got.Header)
		}
		text := strings.ReplaceAll(got.Body, "http://www.w3.org/2000/svg", "") // the name of a namespace
		if found := outside.FindString(text); found != "" {
			t.Errorf("%q has %q, which its policy forbids", path, found)
		}
	}
	for _, request := range []string{"POST /dash/", "GET /dash/assets/app.js", "GET /dash/index.html", "GET /dash/../dashboard.go"} {
		if got := s.Do(t, request); got.Status < 300 {
			t.Errorf("%s: %d", request, got.Status)
		}
	}
}

// Each second a page gets the rates of that second, the latencies of the routes, and the state of the server.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watched(t, dashboard.Options{})
		w := watch(t, s)
		synctest.Wait()
		for i := range 20 {
			s.Do(t, fmt.Sprint("GET /hello/", i))
		}
		for range 4 {
			s.Do(t, "GET /fails")
		}
		s.Do(t, "GET /nothing")
		for range 3 {
			s.Do(t, "GET /waits")
		}
		first := w.next()
		if a := first.Sample.Answers; a[2] != 23 && a[2] != 24 || a[4] != 1 || a[5] != 4 {
			t.Errorf("answers per second: %v, want 23 (or 24 with the stream) of 2xx, 1 of 4xx, 4 of 5xx", a)
		}
		if first.Sample.ConnsParked != 1 || first.Sample.Goroutines < 1 || first.Sample.Heap < 1 || first.Sample.Memory < first.Sample.Heap {
			t.Errorf("%+v", first.Sample)
		}
		rates := map[string][2]float64{}
		for _, route := range first.Routes {
			rates[route.Name] = [2]float64{route.Rate, route.Errors}
			if route.Name == "GET /waits" && (route.Median < 28000 || route.Median > 32000) {
				t.Errorf("the median of 30 ms is %v µs", route.Median)
			}
		}
		for name, want := range map[string][2]float64{"GET /hello/{name}": {20, 0}, "GET /fails": {4, 4}, "no route": {1, 0}, "GET /waits": {3, 0}} {
			if rates[name] != want {
				t.Errorf("%s: %v requests and errors per second, want %v", name, rates[name], want)
			}
		}
		for name := range rates {
			if strings.Contains(name, "/dash") {
				t.Errorf("the dashboard shows its own route %s", name)
			}
		}
		if l := first.Sample.Latency; len(l) != 4 || l[0] > l[1] || l[1] > l[2] || l[2] > l[3] || l[3] < 28000 {
			t.Errorf("latencies: %v", l)
		}
		if len(first.Classes) == 0 {
			t.Error("no classes")
		}
		second := w.next()
		if second.Sample.N != first.Sample.N+1 || second.Sample.T-first.Sample.T != 1000 || second.Sample.Latency != nil || second.Sample.Answers[2] > 1 {
			t.Errorf("a second later, without requests: %+v", second.Sample)
		}
	})
}

// A page that is opened again finds the earlier samples, as long as they are kept. After that the sampler has ended.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watched(t, dashboard.Options{Title: "a <b> c", History: 10 * time.Second})
		if document := past(t, s); len(document.Samples) != 0 || document.About.Title != "a <b> c" {
			t.Errorf("before somebody watches: %+v", document)
		}
		w := watch(t, s)
		for range 5 {
			w.next()
		}
		w.conn.Close()
		time.Sleep(2500 * time.Millisecond)
		if n := len(past(t, s).Samples); n != 7 {
			t.Errorf("%d samples after 7.5 s", n)
		}
		time.Sleep(6 * time.Second)
		document := past(t, s)
		if n := len(document.Samples); n < 10 || n > 11 {
			t.Errorf("%d samples, of which 10 s are kept", n)
		}
		last := document.Samples[len(document.Samples)-1].N
		time.Sleep(time.Minute)
		if n := len(past(t, s).Samples); n != 0 {
			t.Errorf("%d samples when nobody has watched for a minute", n)
		}
		// The sampler starts anew for the next page: the first sample doesn't count the requests of the previous minute.
		next := watch(t, s).next()
		if next.Sample.N <= last || next.Sample.Answers[2] > 3 {
			t.Errorf("after a pause: %+v, the last one before was %d", next.Sample, last)
		}
	})
}

// With Always even the first page finds earlier samples.
func TestAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watched(t, dashboard.Options{Always: true, History: 5 * time.Second})
		time.Sleep(20*time.Second + 500*time.Millisecond)
		if n := len(past(t, s).Samples); n < 5 || n > 6 {
			t.Errorf("%d samples, of which 5 s are kept", n)
		}
	})
}

// At most MaxWatchers pages are open, and a page that is closed makes room for another.
func TestMaxWatchers(t *testing.T) {
	s := watched(t, dashboard.Options{MaxWatchers: 2})
	first := watch(t, s)
	watch(t, s)
	if got := s.Do(t, "GET /dash/events"); got.Status != 503 {
		t.Errorf("a third: %d", got.Status)
	}
	first.conn.Close()
	for deadline := time.Now().Add(time.Minute); ; {
		c := s.Dial(t)
		io.WriteString(c, servertest.Request("GET /dash/events", ""))
		status := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, status); err != nil {
			t.Fatal(err)
		}
		if string(status) == "HTTP/1.1 200" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %s when one has left", status)
		}
	}
}

// Shutdown ends the streams and the sampler: servertest checks that no goroutine is left.
func TestShutdown(t *testing.T) {
	s := watched(t, dashboard.Options{})
	w := watch(t, s)
	w.next()
	if err := s.Config.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(w.reader); err != nil {
		t.Errorf("the stream isn't ended but broken off: %v after %q", err, rest)
	}
}

// Shutdown also ends the streams on a socket, where a stream waits in its loop without a worker.
func TestSocket(t *testing.T) {
	r := router.New()
	server := &filo.Server{Handler: r.Serve, ForOperator: true}
	d := dashboard.New(server)
	r.Use(d.Middleware())
	r.Mount("/dash", d.Serve)
	address := tcptest.Serve(t, server) // its cleanup shuts the server down while the stream is still open
	response, err := http.Get("http://" + address + "/dash/events")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	w := &watcher{t, nil, bufio.NewReader(response.Body)}
	for range 2 {
		if got := w.next(); got.Sample.ConnsParked != 1 || got.Sample.WorkersRunning > 1 {
			t.Errorf("%+v", got.Sample)
		}
	}
}

// However many pages are open, the server is sampled only once a second.
func TestOneSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watched(t, dashboard.Options{})
		a, b := watch(t, s), watch(t, s)
		for range 3 {
			one, other := a.next(), b.next()
			if one.Sample.N != other.Sample.N || one.Sample.T != other.Sample.T {
				t.Errorf("two pages get different samples: %d and %d", one.Sample.N, other.Sample.N)
			}
		}
	})
}

// The page shows a route's name as text, whatever characters it contains.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &filo.Server{}
		d := dashboard.New(server, dashboard.Options{Allow: everybody})
		name := "GET /\r\ndata: x\n\n</script>" + strings.Repeat("\x00é", 500)
		server.Handler = d.Middleware()(func(c *filo.Ctx) error {
			if strings.HasPrefix(c.Path(), "/dash") {
				c.Request.SetTarget(strings.TrimPrefix(c.Path(), "/dash"))
				return d.Serve(c)
			}
			inside.Match(c).Route = name
			return nil
		})
		s := servertest.NewServer(t, server)
		w := watch(t, s)
		synctest.Wait()
		s.Do(t, "GET /")
		got := w.next()
		if len(got.Routes) < 1 || !strings.HasPrefix(got.Routes[0].Name, "GET /\r\ndata: x\n\n</script>") || len(got.Routes[0].Name) > 210 {
			t.Errorf("%+v", got.Routes)
		}
	})
}

func TestOptions(t *testing.T) {
	for name, construct := range map[string]func(){
		"no server":           func() { dashboard.New(nil) },
		"a negative history":  func() { dashboard.New(&filo.Server{}, dashboard.Options{History: -1}) },
		"a long history":      func() { dashboard.New(&filo.Server{}, dashboard.Options{History: 2 * time.Hour}) },
		"negative routes":     func() { dashboard.New(&filo.Server{}, dashboard.Options{MaxRoutes: -1}) },
		"negative watchers":   func() { dashboard.New(&filo.Server{}, dashboard.Options{MaxWatchers: -1}) },
		"a short token":       func() { dashboard.New(&filo.Server{}, dashboard.Options{Token: "short"}) },
		"Allow and Token":     func() { dashboard.New(&filo.Server{}, dashboard.Options{Allow: everybody, Token: "0123456789abcdef"}) },
		"a host with a break": func() { dashboard.New(&filo.Server{}, dashboard.Options{Hosts: []string{"a\r\nb"}}) },
	} {
		message := func() (message string) {
			defer func() { message = fmt.Sprint(recover()) }()
			construct()
			return ""
		}()
		if !strings.HasPrefix(message, "dashboard: ") {
			t.Errorf("%s: panics with %q", name, message)
		}
	}
}
