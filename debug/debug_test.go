package debug_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"expvar"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/debug"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

const token = "0123456789abcdef"

// mounted serves the pages below /debug to everybody.
func mounted(t testing.TB, options debug.Options) *servertest.Server {
	if options.Token == "" {
		options.Allow = func(*filo.Ctx) bool { return true }
	}
	r := router.New()
	r.Mount("/debug", debug.Handler(options))
	return servertest.NewServer(t, &filo.Server{Handler: r.Serve, Logger: slog.New(slog.DiscardHandler)})
}

// The guard protects every page, and every path without a page.
func TestGuarded(t *testing.T) {
	paths := []string{"", "style.css", "pprof/", "pprof/cmdline", "pprof/symbol", "pprof/profile?seconds=1", "pprof/trace?seconds=1",
		"pprof/heap", "pprof/nothing", "metrics", "stats", "requests", "clients", "build", "vars", "nothing", "pprof"}
	r := router.New()
	r.Mount("/debug", debug.Handler(debug.Options{Vars: adaptor.FromHTTP(expvar.Handler())}))
	s := servertest.NewServer(t, &filo.Server{Handler: r.Serve, ForOperator: true})
	for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS", "DELETE"} {
		for _, path := range paths {
			if got := s.Do(t, method+" http://localhost/debug/"+path); got.Status != 404 || strings.Contains(got.Body, "pprof") || got.Header.Get("Allow") != "" {
				t.Errorf("%s %s for a stranger: %d %v %q", method, path, got.Status, got.Header, got.Body)
			}
		}
	}
	local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:1"))
	if got := s.DoFrom(t, local, "GET http://localhost/debug/"); got.Status != 200 || got.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("for this machine: %d %v", got.Status, got.Header)
	}
	if got := servertest.New(t, r.Serve).DoFrom(t, local, "GET http://localhost/debug/"); got.Status != 404 {
		t.Errorf("by a server that isn't the operator's: %d", got.Status)
	}
	if got := s.DoFrom(t, local, "GET http://localhost/debug/", "X-Forwarded-For: 127.0.0.1"); got.Status != 404 {
		t.Errorf("through a proxy: %d", got.Status)
	}
	if got := s.DoFrom(t, local, "GET http://evil.test/debug/"); got.Status != 404 {
		t.Errorf("for a name that somebody has given this address: %d", got.Status)
	}
	if got := mounted(t, debug.Options{Token: token}).Do(t, "GET /debug/stats"); got.Status != 401 {
		t.Errorf("without the token: %d", got.Status)
	}
}

// The package adds nothing to http.DefaultServeMux. (Package expvar, which this test imports, does.)
func TestDefaultServeMux(t *testing.T) {
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/heap"} {
		if _, pattern := http.DefaultServeMux.Handler(&http.Request{Method: "GET", URL: mustURL(path)}); pattern != "" {
			t.Errorf("%s is served by %q of http.DefaultServeMux", path, pattern)
		}
	}
}

func TestPages(t *testing.T) {
	s := mounted(t, debug.Options{Vars: adaptor.FromHTTP(expvar.Handler())})
	for _, test := range []struct {
		request, contentType, has string
		status                    int
	}{
		{"GET /debug/", "text/html; charset=utf-8", `href="pprof/goroutine?debug=2"`, 200},
		{"GET /debug/pprof/", "text/html; charset=utf-8", `href="../pprof/heap"`, 200},
		{"GET /debug/style.css", "text/css; charset=utf-8", "body {", 200},
		{"GET /debug/pprof/cmdline", "text/plain; charset=utf-8", "-test.", 200},
		{"GET /debug/pprof/goroutine?debug=2", "text/plain; charset=utf-8", "goroutine ", 200},
		{"GET /debug/pprof/heap?debug=1&gc=1", "text/plain; charset=utf-8", "heap profile: ", 200},
		{"GET /debug/pprof/heap", "application/octet-stream", "\x1f\x8b", 200},
		{"HEAD /debug/pprof/profile", "application/octet-stream", "", 200},
		{"HEAD /debug/pprof/heap?seconds=100", "application/octet-stream", "", 200},
		{"GET /debug/build", "text/plain; charset=utf-8", "go\t", 200},
		{"GET /debug/vars", "application/json; charset=utf-8", `"memstats"`, 200},

		{"GET /debug/pprof/nothing", "text/plain; charset=utf-8", "no profile", 404},
		{"GET /debug/pprof/heap?debug=1&seconds=1", "text/plain; charset=utf-8", "don't go together", 400},
		{"GET /debug/pprof/heap?debug=many", "text/plain; charset=utf-8", "0 to 255", 400},
		{"GET /debug/pprof/heap?debug=-1", "text/plain; charset=utf-8", "0 to 255", 400},
		{"GET /debug/pprof/heap?gc=a", "text/plain; charset=utf-8", "0 to 255", 400},
		{"GET /debug/pprof/heap?seconds=", "text/plain; charset=utf-8", "0.001 to 120", 400},
		{"GET /debug/pprof/profile?seconds=0", "text/plain; charset=utf-8", "0.001 to 120", 400},
		{"GET /debug/pprof/profile?seconds=-1", "text/plain; charset=utf-8", "0.001 to 120", 400},
		{"GET /debug/pprof/profile?seconds=121", "text/plain; charset=utf-8", "0.001 to 120", 400},
		{"GET /debug/pprof/profile?seconds=NaN", "text/plain; charset=utf-8", "0.001 to 120", 400},
		{"GET /debug/pprof/profile?seconds=Inf", "text/plain; charset=utf-8", "0.001 to 120", 400},
		{"GET /debug/pprof/profile?seconds=1e99", "text/plain; charset=utf-8", "0.001 to 120", 400},
		{"GET /debug/pprof/trace?seconds=a", "text/plain; charset=utf-8", "0.001 to 120", 400},
		{"POST /debug/pprof/heap", "text/plain; charset=utf-8", "", 405},
	} {
		got := s.Do(t, test.request)
		if got.Status != test.status || got.Header.Get("Content-Type") != test.contentType || !strings.Contains(got.Body, test.has) {
			t.Errorf("%s: %d, %q, %.200q", test.request, got.Status, got.Header.Get("Content-Type"), got.Body)
		}
		if got.Header.Get("Cache-Control") != "no-store" || got.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", test.request, got.Header)
		}
	}
	if got := s.Do(t, "GET /debug/"); !strings.HasPrefix(got.Header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'self'") {
		t.Errorf("the page's policy: %v", got.Header)
	}
}

// A page of another site can lead a browser to the pages, but can't make it start a profile.
func TestProfileOfAnotherSite(t *testing.T) {
	s := mounted(t, debug.Options{Allow: func(*filo.Ctx) bool { return true }})
	for path, status := range map[string]int{
		"/debug/": 200, "/debug/pprof/": 200, "/debug/build": 200,
		"/debug/pprof/profile?seconds=0.01": 403, "/debug/pprof/trace?seconds=0.01": 403, "/debug/pprof/heap?gc=1": 403,
		"/debug/pprof/heap?seconds=0.01": 403,
	} {
		for _, site := range []string{"cross-site", "same-site", "none", "same-origin", ""} {
			want := status
			if site != "cross-site" && site != "same-site" {
				want = 200
			}
			fields := []string{"Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate", "Connection: close"}
			if site != "" {
				fields = append(fields, "Sec-Fetch-Site: "+site)
			}
			if got := s.Do(t, "GET "+path, fields...); got.Status != want {
				t.Errorf("%s from %q: %d, want %d", path, site, got.Status, want)
			}
		}
	}
}

// The name of a profile that the program has made can't add a field to the response's header.
func TestProfileName(t *testing.T) {
	const name = "a\"; filename=\"b\r\nC: d"
	if pprof.Lookup(name) == nil {
		pprof.NewProfile(name)
	}
	got := mounted(t, debug.Options{}).Do(t, "GET /debug/pprof/a%22;%20filename=%22b%0D%0AC:%20d")
	if got.Status != 200 || got.Header.Get("C") != "" || strings.Count(got.Header.Get("Content-Disposition"), `"`) != 2 {
		t.Errorf("%d %v", got.Status, got.Header)
	}
}

func TestJSON(t *testing.T) {
	s := mounted(t, debug.Options{})
	var stats filo.Stats
	if err := json.Unmarshal([]byte(s.Do(t, "GET /debug/stats").Body), &stats); err != nil || stats.ConnsAccepted != 1 || len(stats.Classes) == 0 {
		t.Errorf("stats: %+v, %v", stats, err)
	}
	// The statistics are cached, and not gathered for each request.
	if err := json.Unmarshal([]byte(s.Do(t, "GET /debug/stats").Body), &stats); err != nil || stats.ConnsAccepted != 1 {
		t.Errorf("stats again at once: %+v, %v", stats, err)
	}
	var metrics map[string]any
	if err := json.Unmarshal([]byte(s.Do(t, "GET /debug/metrics").Body), &metrics); err != nil {
		t.Fatal(err)
	}
	if goroutines, _ := metrics["/sched/goroutines:goroutines"].(float64); goroutines < 1 {
		t.Errorf("metrics: %v goroutines", goroutines)
	}
	if latencies, _ := metrics["/sched/latencies:seconds"].(map[string]any); latencies["count"] == nil || latencies["buckets"] == nil {
		t.Errorf("metrics: latencies %v", latencies)
	}
}

// The operator's server shows the figures of the clients' server.
func TestStatsOfAnotherServer(t *testing.T) {
	clients := servertest.New(t, func(c *filo.Ctx) error { return c.NoContent() })
	for range 3 {
		clients.Do(t, "GET /")
	}
	s := mounted(t, debug.Options{Server: clients.Config})
	var stats filo.Stats
	if err := json.Unmarshal([]byte(s.Do(t, "GET /debug/stats").Body), &stats); err != nil || stats.Requests[2] != 3 {
		t.Errorf("got %+v, %v", stats, err)
	}
}

// go tool pprof, which asks for symbols, sends a line first to learn whether there are any.
func TestSymbol(t *testing.T) {
	s := mounted(t, debug.Options{})
	const known = "0x1+a+0"
	for _, got := range []servertest.Answer{s.Do(t, "GET /debug/pprof/symbol?"+known), s.DoBody(t, "POST /debug/pprof/symbol", known)} {
		if got.Status != 200 || got.Body != "num_symbols: 1\n" {
			t.Errorf("%d %q", got.Status, got.Body)
		}
	}
	address := fmt.Sprintf("%#x", pcOfTest())
	if got := s.DoBody(t, "POST /debug/pprof/symbol", "0x1+"+address); !strings.Contains(got.Body, address+" ") || !strings.Contains(got.Body, "pcOfTest") {
		t.Errorf("%q", got.Body)
	}
	if got := s.DoBody(t, "POST /debug/pprof/symbol", strings.Repeat("1+", 1<<20)); got.Status != 413 {
		t.Errorf("2 MB of addresses: %d", got.Status)
	}
}

// Only one profile runs at a time. A second request is refused at once, and go tool pprof shows its user the reason.
func TestConflict(t *testing.T) {
	s := mounted(t, debug.Options{})
	for _, path := range []string{"/debug/pprof/profile", "/debug/pprof/trace"} {
		first := begin(t, s, "GET "+path+"?seconds=120")
		waits(t, true)
		got := s.Do(t, "GET "+path+"?seconds=1")
		if got.Status != 409 || got.Header.Get("X-Go-Pprof") != "1" || got.Header.Get("Retry-After") == "" || got.Header.Get("Content-Disposition") != "" {
			t.Errorf("%s: %d %v", path, got.Status, got.Header)
		}
		// The first client leaves, which ends its profile long before its time.
		first.Reset() // a Close could also be the half-close of a client that has sent its whole request
		waits(t, false)
		for deadline := time.Now().Add(time.Minute); got.Status != 200; { // the runtime takes a moment to end the profile
			if got = s.Do(t, "GET "+path+"?seconds=0.001"); time.Now().After(deadline) {
				t.Fatalf("%s: still %d %q", path, got.Status, got.Body)
			}
		}
	}
}

// waits waits until a handler waits for the end of its profile, or until no handler does.
func waits(t *testing.T, want bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		var stacks bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(stacks.String(), "debug.(*watch).wait") == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a handler that waits: want %t", want)
		}
	}
}

// begin sends a request and doesn't wait for the answer.
func begin(t *testing.T, s *servertest.Server, request string) *servertest.Conn {
	t.Helper()
	c := s.Dial(t)
	if _, err := io.WriteString(c, servertest.Request(request, "")); err != nil {
		t.Fatal(err)
	}
	return c
}

// A profile runs for the requested time, even beyond the time-outs of the server and of outer middleware.
func TestBeyondTimeouts(t *testing.T) {
	for _, request := range []string{"GET /debug/pprof/goroutine?seconds=60"} {
		synctest.Test(t, func(t *testing.T) {
			r := router.New()
			r.Use(middleware.Timeout(middleware.TimeoutOptions{Timeout: time.Second}))
			r.Mount("/debug", debug.Handler(debug.Options{Allow: func(*filo.Ctx) bool { return true }}))
			s := servertest.NewServer(t, &filo.Server{Handler: r.Serve, WriteTimeout: time.Second, ReadTimeout: time.Second, IdleTimeout: time.Second})
			c := begin(t, s, request)
			start := time.Now()
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != 200 || time.Since(start) != time.Minute || !bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
				t.Errorf("%s: after %v: %d, %d bytes, %v", request, time.Since(start), response.StatusCode, len(body), err)
			}
		})
	}
}

// Shutdown doesn't wait for the end of a profile, and the client gets the data so far.
func TestShutdown(t *testing.T) {
	for _, path := range []string{"profile", "trace", "heap"} {
		s := mounted(t, debug.Options{})
		c := begin(t, s, "GET /debug/pprof/"+path+"?seconds=100")
		waits(t, true)
		start := time.Now()
		var group sync.WaitGroup
		group.Go(func() {
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				return
			}
			if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 200 || len(body) == 0 {
				t.Errorf("%s: %d, %d bytes, %v", path, response.StatusCode, len(body), err)
			}
		})
		if err := s.Config.Shutdown(context.Background()); err != nil || time.Since(start) > time.Minute {
			t.Errorf("%s: shut down after %v, %v", path, time.Since(start), err)
		}
		group.Wait()
	}
}

// go tool pprof and go tool trace can read the answers, over a socket.
func TestTools(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go tool here")
	}
	r := router.New()
	r.Mount("/debug", debug.Handler())
	address := "http://" + tcptest.Serve(t, &filo.Server{Handler: r.Serve, ForOperator: true})
	stop := make(chan struct{})
	var group sync.WaitGroup
	defer group.Wait()
	defer close(stop)
	group.Go(func() { burn(stop) })
	for _, test := range []struct{ path, want string }{
		{"profile?seconds=1", "burn"},
		{"heap", "inuse_space"},
		{"allocs?seconds=1", "alloc_space"},
		{"goroutine?seconds=1", "goroutine"},
		{"goroutine", "goroutine"},
	} {
		command := exec.Command(tool, "tool", "pprof", "-top", address+"/debug/pprof/"+test.path)
		command.Env = append(command.Environ(), "PPROF_TMPDIR="+t.TempDir())
		if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), test.want) {
			t.Errorf("go tool pprof %s: %v\n%s", test.path, err, out)
		}
	}
}

// burn keeps a processor busy. If it were inlined, its samples would sometimes be attributed to the caller, and the profile would lack
// the name burn.
//
//go:noinline
func burn(stop chan struct{}) {
	for sum := 0; ; sum++ {
		if sum%1e6 == 0 {
			select {
			case <-stop:
				return
			default:
			}
		}
	}
}

// A trace begins with the header that the tools expect, and a profile is compressed.
func TestFormats(t *testing.T) {
	s := mounted(t, debug.Options{})
	if got := s.Do(t, "GET /debug/pprof/trace?seconds=0.05"); got.Status != 200 || !strings.HasPrefix(got.Body, "go 1.") {
		t.Errorf("trace: %d %.20q", got.Status, got.Body)
	}
	got := s.Do(t, "GET /debug/pprof/profile?seconds=0.05")
	if got.Status != 200 || got.Header.Get("Content-Disposition") != `attachment; filename="profile"` {
		t.Fatalf("profile: %d %v", got.Status, got.Header)
	}
	reader, err := gzip.NewReader(strings.NewReader(got.Body))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, reader); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for name, options := range map[string]debug.Options{
		"a negative duration": {MaxDuration: -1},
		"a short token":       {Token: "short"},
		"Allow and Token":     {Allow: func(*filo.Ctx) bool { return true }, Token: token},
		"a host with a port":  {Hosts: []string{"a.test:80"}},
	} {
		message := func() (message string) {
			defer func() { message = fmt.Sprint(recover()) }()
			debug.Handler(options)
			return ""
		}()
		if !strings.HasPrefix(message, "debug: ") {
			t.Errorf("%s: panics with %q", name, message)
		}
	}
}
