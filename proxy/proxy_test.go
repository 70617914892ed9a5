package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/proxy"
	"github.com/filohttp/filo/servertest"
)

// patience is how long a test waits for something that must happen.
const patience = 60 * time.Second

var quiet = slog.New(slog.DiscardHandler)

// front is a filo server on TCP that passes all requests on.
type front struct {
	t      testing.TB
	server *filo.Server
	proxy  *proxy.Proxy
	addr   string
	url    string
}

func newFront(t testing.TB, options proxy.Options) *front {
	t.Helper()
	if options.Logger == nil {
		options.Logger = quiet
	}
	p := proxy.New(options)
	s := &filo.Server{Handler: p.Serve, Logger: quiet}
	t.Cleanup(func() { p.Close() }) // runs after the server has ended
	address := tcptest.Serve(t, s)
	return &front{t, s, p, address, "http://" + address}
}

// do sends a request, and returns the answer with its body.
func (f *front) do(method, path, body string, fields ...string) (*http.Response, string) {
	f.t.Helper()
	r, err := http.NewRequest(method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response, string(text)
}

// raw sends a text that net/http's client wouldn't send, and returns the bytes of all answers.
func (f *front) raw(text string) string {
	f.t.Helper()
	return f.rawConn(text, func(conn *net.TCPConn) { conn.CloseWrite() })
}

// rawConn is like raw, but calls the function then between sending the request and reading the answer.
func (f *front) rawConn(text string, then func(*net.TCPConn)) string {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, text)
	then(conn.(*net.TCPConn))
	answer, err := io.ReadAll(conn)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(answer)
}

func backend(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// dead is the URL of a server that doesn't exist: no system assigns this port by itself.
const dead = "http://127.0.0.1:1"

// echo answers with a description of the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %q %d %v\n", r.Method, r.RequestURI, body, r.ContentLength, err)
}

// Requests and answers arrive as they were sent.
func TestPassesOn(t *testing.T) {
	f := newFront(t, proxy.Options{Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Upstream", "yes")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "gone")
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(201)
		echo(w, r)
		w.Header().Set("X-Sum", "7")
	})}})
	for _, test := range []struct{ method, path, body, want string }{
		{"GET", "/a%20b/%2C?x=1&y=%20", "", `GET /a%20b/%2C?x=1&y=%20 "" 0 <nil>` + "\n"},
		{"POST", "/", "hello", `POST / "hello" 5 <nil>` + "\n"},
		{"PURGE", "/p", "", `PURGE /p "" 0 <nil>` + "\n"},
	} {
		response, body := f.do(test.method, test.path, test.body)
		if response.StatusCode != 201 || body != test.want || response.Header.Get("X-Upstream") != "yes" || response.Trailer.Get("X-Sum") != "7" {
			t.Errorf("%s %s: %d %q %v %v", test.method, test.path, response.StatusCode, body, response.Header, response.Trailer)
		}
		if response.Header.Get("X-Hop") != "" {
			t.Error("a field of the connection was passed on")
		}
	}
	large := strings.Repeat("x", 300<<10)
	if _, body := f.do("POST", "/large", large); !strings.Contains(body, large) {
		t.Errorf("a large body doesn't arrive: %d bytes", len(body))
	}
}

// Max-Forwards limits how many proxies pass OPTIONS and TRACE on. It has no meaning for other methods.
func TestMaxForwards(t *testing.T) {
	f := newFront(t, proxy.Options{Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q", r.Header["Max-Forwards"])
	})}})
	for _, test := range []struct {
		method, limit string
		status        int
		body          string
	}{
		{"OPTIONS", "2", 200, `["1"]`}, {"OPTIONS", "1", 200, `["0"]`}, {"OPTIONS", "0", 204, ""}, {"OPTIONS", "many", 200, `["many"]`},
		{"TRACE", "1", 200, `["0"]`}, {"TRACE", "0", 501, "Not Implemented: this proxy doesn't show requests\n"}, {"GET", "0", 200, `["0"]`},
	} {
		if got, body := f.do(test.method, "/", "", "Max-Forwards", test.limit); got.StatusCode != test.status || body != test.body {
			t.Errorf("%s with %s: %d %q", test.method, test.limit, got.StatusCode, body)
		}
	}
	if got, body := f.do("OPTIONS", "/", ""); got.StatusCode != 200 || body != "[]" {
		t.Errorf("without Max-Forwards: %d %q", got.StatusCode, body)
	}
}

// A client's claims about its identity aren't passed on, unless the client is a trusted proxy.
func TestForwarded(t *testing.T) {
	show := backend(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "Forwarded", "X-Real-Ip"} {
			fmt.Fprintf(w, "%q ", r.Header[name])
		}
		fmt.Fprint(w, r.Host)
	})
	forged := []string{"X-Forwarded-For", "6.6.6.6", "x-forwarded-host", "evil", "X-Forwarded-Proto", "https", "X-Forwarded-Port", "666",
		"Forwarded", "for=6.6.6.6", "X-Real-IP", "6.6.6.6", "X-Forwarded-For", "7.7.7.7"}
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	realIP := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: local, TrustHost: true, TrustProto: true})
	for _, test := range []struct {
		name    string
		options proxy.Options
		want    string // HOST stands for the front's host, BACK for the backend's
	}{
		{"nothing is believed", proxy.Options{}, `["127.0.0.1"] ["HOST"] ["http"] [] [] [] BACK`},
		{"nothing is believed of others than the trusted", proxy.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
			`["127.0.0.1"] ["HOST"] ["http"] [] [] [] BACK`},
		{"trusted proxies are", proxy.Options{TrustedProxies: local}, `["6.6.6.6, 7.7.7.7, 127.0.0.1"] ["evil"] ["https"] ["666"] [] [] BACK`},
		{"Forwarded is made", proxy.Options{Forwarded: true, PreserveHost: true},
			`["127.0.0.1"] ["HOST"] ["http"] [] ["for=127.0.0.1;host=\"HOST\";proto=http"] [] HOST`},
		{"Forwarded is added to", proxy.Options{Forwarded: true, TrustedProxies: local},
			`["6.6.6.6, 7.7.7.7, 127.0.0.1"] ["evil"] ["https"] ["666"] ["for=6.6.6.6, for=127.0.0.1;host=\"HOST\";proto=http"] [] BACK`},
	} {
		// Behind middleware.RealIP, the same is passed on: the connection decides who is trusted.
		for name, outer := range map[string]filo.Middleware{test.name: nil, test.name + ", behind RealIP": realIP} {
			t.Run(name, func(t *testing.T) {
				test.options.Upstreams = []string{show}
				f := newFront(t, test.options)
				if outer != nil {
					f.addr = tcptest.Serve(t, &filo.Server{Handler: outer(f.proxy.Serve), Logger: quiet})
					f.url = "http://" + f.addr
				}
				want := strings.NewReplacer("HOST", f.addr, "BACK", strings.TrimPrefix(show, "http://")).Replace(test.want)
				// Nor can a client remove the proxy's own fields by naming them in Connection.
				for _, connection := range []string{"", "x-forwarded-for, X-FORWARDED-HOST,x-forwarded-proto , X-Forwarded-Port, forwarded, x-real-ip, host"} {
					fields := slices.Clone(forged)
					if connection != "" {
						fields = append(fields, "Connection", connection)
					}
					if _, body := f.do("GET", "/", "", fields...); body != want {
						t.Errorf("Connection: %s: got  %s\nwant %s", connection, body, want)
					}
				}
			})
		}
	}
}

// If a trusted proxy sends an empty X-Forwarded field, this proxy sends its own value, so an upstream sees the same host and scheme as
// middleware.RealIP in front of the proxy.
func TestForwardedEmpty(t *testing.T) {
	saw := make(chan [2]string, 2)
	see := func(c *filo.Ctx) { saw <- [2]string{middleware.Host(c), middleware.Scheme(c)} }
	realIP := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TrustHost: true, TrustProto: true})
	upstream := backend(t, adaptor.ToHTTP(realIP(func(c *filo.Ctx) error {
		see(c)
		return nil
	})).ServeHTTP)
	p := proxy.New(proxy.Options{Upstreams: []string{upstream}, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	defer p.Close()
	trusted := middleware.RealIP(middleware.RealIPOptions{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, TrustHost: true, TrustProto: true})
	s := servertest.New(t, trusted(func(c *filo.Ctx) error {
		see(c)
		return p.Serve(c)
	}))
	for _, test := range []struct {
		fields []string
		want   [2]string
	}{
		{[]string{"X-Forwarded-Host: shop.example", "X-Forwarded-Proto: https"}, [2]string{"shop.example", "https"}},
		{[]string{"X-Forwarded-Host: ", "X-Forwarded-Proto: "}, [2]string{"filo.test", "http"}},
		{[]string{"X-Forwarded-Host: , ", "X-Forwarded-Proto: ,", "X-Forwarded-Host: "}, [2]string{"filo.test", "http"}},
		{[]string{"X-Forwarded-Host: shop.example, ", "X-Forwarded-Proto: https,\t"}, [2]string{"shop.example", "https"}},
		{[]string{"X-Forwarded-Host: shop.example", "X-Forwarded-Host: "}, [2]string{"shop.example", "http"}},
	} {
		if got := s.DoFrom(t, &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 1}, "GET /", test.fields...); got.Status != 200 {
			t.Fatal(got)
		}
		for _, where := range []string{"front", "upstream"} {
			if got := <-saw; got != test.want {
				t.Errorf("%q: the %s saw %q, want %q", test.fields, where, got, test.want)
			}
		}
	}
}

// A field that claims an identity isn't passed on in other spellings either, since an upstream might treat them as the same field.
// Other fields are passed on.
func TestClaims(t *testing.T) {
	names := make(chan []string, 1)
	f := newFront(t, proxy.Options{
		Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) { names <- slices.Sorted(maps.Keys(r.Header)) })},
		// Even a trusted proxy must use the common spelling of these fields.
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	for _, test := range []struct {
		name string
		want bool // the field is passed on
	}{
		{"X_Forwarded_For", false}, {"x_forwarded-host", false}, {"X.Forwarded.Proto", false}, {"X_Real_IP", false}, {"X-Real-IP", false},
		{"X-Original-URL", false}, {"X_ORIGINAL_URL", false}, {"X-Rewrite-Url", false}, {"CF_Connecting_IP", false},
		{"X-Forwarded", false}, {"X-Forwarded-User", false}, {"X-Forwarded-Email", false}, {"X-Forwarded-Groups", false},
		{"X-Forwarded-Preferred-Username", false}, {"X-Forwarded-Access-Token", false}, {"X-Forwarded-Client-Cert", false},
		{"X-Forwarded-Tls-Client-Cert", false}, {"X-Original-Host", false}, {"X_Original_Method", false}, {"X-Envoy-External-Address", false},
		{"X-Envoy-Internal", false}, {"X-Host", false}, {"Front-End-Https", false}, {"Fly-Client-Ip", false}, {"Fastly-Client-Ip", false},
		{"Remote-User", false}, {"Remote_Groups", false}, {"X-Remote-User", false}, {"X-Auth-Request-Email", false},
		{"Client-Cert", false}, {"Ssl-Client-Verify", false}, {"X-Ms-Client-Principal", false}, {"Tailscale-User-Login", false},
		{"X_Request_Id", true}, {"X_Real", true}, {"Via", true}, {"Cdn-Loop", true}, {"Cf-Ray", true}, {"X-Amzn-Trace-Id", true},
		{"Authorization", true}, {"Traceparent", true}, {"X-Client-Version", true},
	} {
		f.do("GET", "/", "", test.name, "6.6.6.6")
		if got := <-names; slices.Contains(got, http.CanonicalHeaderKey(test.name)) != test.want {
			t.Errorf("%s: the upstream has got %q", test.name, got)
		}
	}
}

// The client gets 502 for an upstream that can't be reached, 504 for a slow one, and 503 if all upstreams are sick. The answers
// contain no details.
func TestErrors(t *testing.T) {
	hang := backend(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	reset := backend(t, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	go func() {
		for {
			conn, err := garbage.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "garbage\r\n\r\n")
			conn.Close()
		}
	}()
	fine := backend(t, echo)
	for _, test := range []struct {
		name, method string
		options      proxy.Options
		status       int
		want         string
	}{
		{"not there", "GET", proxy.Options{Upstreams: []string{dead}}, 502, "Bad Gateway: the upstream server can't be reached\n"},
		{"not there, for HEAD", "HEAD", proxy.Options{Upstreams: []string{dead}}, 502, ""},
		{"slow", "GET", proxy.Options{Upstreams: []string{hang}, ResponseTimeout: 20 * time.Millisecond}, 504, "Gateway Timeout: the upstream server took too long\n"},
		{"breaks off", "GET", proxy.Options{Upstreams: []string{reset}}, 502, "Bad Gateway: the upstream server gave no valid answer\n"},
		{"speaks no HTTP", "GET", proxy.Options{Upstreams: []string{"http://" + garbage.Addr().String()}}, 502, "Bad Gateway: the upstream server gave no valid answer\n"},
		{"answer refused", "GET", proxy.Options{Upstreams: []string{fine}, ModifyResponse: func(*http.Response) error { return errors.New("secret") }},
			502, "Bad Gateway: the upstream server gave no valid answer\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			response, body := newFront(t, test.options).do(test.method, "/", "")
			if response.StatusCode != test.status || body != test.want {
				t.Errorf("got %d %q, want %d %q", response.StatusCode, body, test.status, test.want)
			}
		})
	}
}

// A request whose connection failed is sent to another upstream if it may be repeated, with its body.
func TestRetries(t *testing.T) {
	var attempts atomic.Int32
	drop := backend(t, func(w http.ResponseWriter, r *http.Request) {
		attempts.Add(1)
		io.ReadAll(r.Body)
		panic(http.ErrAbortHandler)
	})
	fine := backend(t, func(w http.ResponseWriter, r *http.Request) { attempts.Add(1); echo(w, r) })
	large := strings.Repeat("x", 100<<10)
	for _, test := range []struct {
		name, method, body string
		first              string
		retries            int
		fields             []string
		status             int
		attempts           int32
	}{
		{"GET", "GET", "", drop, 0, nil, 200, 2},
		{"PUT with a small body", "PUT", "hello", drop, 0, nil, 200, 2},
		{"QUERY with a small body", "QUERY", "hello", drop, 0, nil, 200, 2},
		{"PUT with a large body isn't", "PUT", large, drop, 0, nil, 502, 1},
		{"POST isn't", "POST", "hello", drop, 0, nil, 502, 1},
		{"POST with a key is", "POST", "hello", drop, 0, []string{"Idempotency-Key", "1"}, 200, 2},
		{"POST is if there was no connection", "POST", "hello", "", 0, nil, 200, 1},
		{"no retries", "GET", "", drop, -1, nil, 502, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			attempts.Store(0)
			if test.first == "" {
				test.first = dead
			}
			f := newFront(t, proxy.Options{Upstreams: []string{test.first, fine}, Retries: test.retries})
			response, body := f.do(test.method, "/", test.body, test.fields...)
			if response.StatusCode != test.status || test.status == 200 && !strings.Contains(body, fmt.Sprintf("%q", test.body)) {
				t.Errorf("got %d %q, want %d", response.StatusCode, body, test.status)
			}
			if got := attempts.Load(); got != test.attempts {
				t.Errorf("%d attempts have arrived, want %d", got, test.attempts)
			}
		})
	}
}

// The proxy avoids an upstream for a while after several failures in a row.
func TestPassiveHealth(t *testing.T) {
	var asked atomic.Int32
	bad := backend(t, func(w http.ResponseWriter, r *http.Request) { asked.Add(1); panic(http.ErrAbortHandler) })
	fine := backend(t, echo)
	f := newFront(t, proxy.Options{Upstreams: []string{bad, fine}, MaxFailures: 2, FailTime: time.Hour})
	for range 12 {
		if response, _ := f.do("GET", "/", ""); response.StatusCode != 200 {
			t.Errorf("got %d", response.StatusCode)
		}
	}
	if got := asked.Load(); got != 2 {
		t.Errorf("the bad upstream was asked %d times, want 2", got)
	}
	alone := newFront(t, proxy.Options{Upstreams: []string{bad}, MaxFailures: 1, FailTime: time.Hour, Retries: -1})
	for range 3 {
		if response, _ := alone.do("GET", "/", ""); response.StatusCode != 502 {
			t.Errorf("got %d", response.StatusCode)
		}
	}
	if got := asked.Load(); got != 5 {
		t.Errorf("the only upstream was asked %d times, want 3", got-2)
	}
}

// A failed request is sent to the same upstream again only if there is no other upstream, not even an avoided one.
func TestRetryElsewhere(t *testing.T) {
	for _, balance := range []proxy.Balance{proxy.RoundRobin, proxy.LeastConnections} {
		var bad [2]atomic.Bool
		var upstreams []string
		for i := range bad {
			upstreams = append(upstreams, backend(t, func(w http.ResponseWriter, r *http.Request) {
				if bad[i].Load() {
					panic(http.ErrAbortHandler)
				}
			}))
		}
		f := newFront(t, proxy.Options{Upstreams: upstreams, Balance: balance, MaxFailures: 2, FailTime: time.Hour})
		bad[0].Store(true)
		for range 6 {
			if response, _ := f.do("GET", "/", ""); response.StatusCode != 200 {
				t.Fatalf("one is bad: got %d", response.StatusCode)
			}
		}
		bad[0].Store(false) // the proxy doesn't notice, since it avoids this upstream
		bad[1].Store(true)
		for range 6 {
			if response, _ := f.do("GET", "/", ""); response.StatusCode != 200 {
				t.Errorf("the other one is bad: got %d", response.StatusCode)
			}
		}
	}
}

// The proxy stops avoiding an upstream that passes a check.
func TestPassedCheckEndsRest(t *testing.T) {
	var bad atomic.Bool
	var asked atomic.Int32
	bad.Store(true)
	rested := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			return
		}
		if bad.Load() {
			panic(http.ErrAbortHandler)
		}
		asked.Add(1)
	})
	var records mwtest.Log
	f := newFront(t, proxy.Options{
		Upstreams: []string{rested, backend(t, func(http.ResponseWriter, *http.Request) {})}, MaxFailures: 1, FailTime: time.Hour,
		HealthCheck: &proxy.HealthCheck{Path: "/health", Interval: 2 * time.Millisecond, Timeout: patience},
		Logger:      slog.New(slog.NewTextHandler(&records, nil)),
	})
	ask := func() {
		if response, _ := f.do("GET", "/", ""); response.StatusCode != 200 {
			t.Fatalf("got %d", response.StatusCode)
		}
	}
	until(t, "an upstream is left alone", func() bool { ask(); return strings.Contains(records.String(), "left alone") })
	bad.Store(false)
	until(t, "a request for the upstream that was left alone", func() bool { ask(); return asked.Load() > 0 })
}

// until polls until done returns true.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time: " + what)
		}
	}
}

// An upstream that a check finds sick gets no requests until another check finds it healthy.
func TestActiveHealth(t *testing.T) {
	var sick atomic.Bool
	var got atomic.Int32
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/base/health" {
			if sick.Load() {
				w.WriteHeader(500)
			}
			return
		}
		got.Add(1)
	}
	f := newFront(t, proxy.Options{
		Upstreams:   []string{backend(t, h) + "/base"},
		HealthCheck: &proxy.HealthCheck{Path: "/health", Interval: 2 * time.Millisecond, Timeout: patience},
	})
	status := func() int { response, _ := f.do("GET", "/", ""); return response.StatusCode }
	if got := status(); got != 200 {
		t.Errorf("got %d", got)
	}
	sick.Store(true)
	until(t, "503", func() bool { return status() == 503 })
	before := got.Load()
	if status(); got.Load() != before {
		t.Error("a sick upstream has got a request")
	}
	sick.Store(false)
	until(t, "200", func() bool { return status() == 200 })
}

// Requests are spread over the upstreams: in turn, or to the upstream with the fewest requests.
func TestBalance(t *testing.T) {
	release := make(chan struct{})
	var counts [3]atomic.Int32
	var upstreams []string
	for i := range counts {
		upstreams = append(upstreams, backend(t, func(w http.ResponseWriter, r *http.Request) {
			counts[i].Add(1)
			if r.URL.Path == "/hold" {
				w.(http.Flusher).Flush()
				<-release
			}
		}))
	}
	f := newFront(t, proxy.Options{Upstreams: upstreams})
	for range 9 {
		f.do("GET", "/", "")
	}
	for i := range counts {
		if n := counts[i].Swap(0); n != 3 {
			t.Errorf("upstream %d has got %d of 9", i, n)
		}
	}
	for _, turn := range []uint32{1<<31 - 2, 1<<32 - 4} { // just before the number exceeds an int of 32 bits, and just before it wraps around
		f.proxy.SetTurn(turn)
		for range 3 {
			f.do("GET", "/", "")
		}
		for i := range counts {
			if n := counts[i].Swap(0); n != 1 {
				t.Errorf("after %d turns upstream %d has got %d of 3", turn, i, n)
			}
		}
	}
	f = newFront(t, proxy.Options{Upstreams: upstreams, Balance: proxy.LeastConnections})
	var held sync.WaitGroup
	for range 2 {
		response, err := http.Get(f.url + "/hold")
		if err != nil {
			t.Fatal(err)
		}
		held.Go(func() { io.Copy(io.Discard, response.Body); response.Body.Close() })
	}
	free := -1
	for i := range counts {
		if counts[i].Swap(0) == 0 {
			free = i
		}
	}
	for range 6 {
		f.do("GET", "/", "")
	}
	if free < 0 || counts[free].Load() != 6 {
		t.Errorf("the free upstream %d has got %d of 6", free, counts[max(free, 0)].Load())
	}
	close(release)
	held.Wait()
}

// A stream passes through the proxy as it is written, and the upstream notices when the client leaves.
func TestStreams(t *testing.T) {
	next, left := make(chan struct{}), make(chan struct{})
	f := newFront(t, proxy.Options{Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
		<-r.Context().Done()
		close(left)
	})}})
	ctx, cancel := context.WithCancel(context.Background())
	r, _ := http.NewRequestWithContext(ctx, "GET", f.url, nil)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(response.Body)
	for i := range 3 {
		if line, err := lines.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("got %q, %v", line, err)
		}
		lines.ReadString('\n')
		next <- struct{}{}
	}
	time.Sleep(100 * time.Millisecond) // if the client left at once, filo would take that for a half-close
	cancel()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the upstream wasn't told that the client has left")
	}
}

// If an upstream aborts an answer, the client's connection is aborted, too.
func TestBreaksOff(t *testing.T) {
	f := newFront(t, proxy.Options{Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("x", 10<<10))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})}})
	response, err := http.Get(f.url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Error("a part of an answer was taken for the whole")
	}
}

// upgrade opens an upgraded connection through a front to an upstream that echoes lines.
func upgrade(t *testing.T, f *front) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
	r := bufio.NewReader(conn)
	response, err := http.ReadResponse(r, nil)
	if err != nil || response.StatusCode != 101 || response.Header.Get("Upgrade") != "lines" {
		t.Fatalf("got %v, %v", response, err)
	}
	return conn, r
}

// A connection can be upgraded through the proxy. It ends when the server shuts down or the proxy is closed.
func TestUpgrade(t *testing.T) {
	lines := backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		w.WriteHeader(101)
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.Copy(conn, rw)
	})
	for name, end := range map[string]func(f *front){
		"the server ends": func(f *front) { f.server.Shutdown(context.Background()) },
		"the proxy ends":  func(f *front) { f.proxy.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t, proxy.Options{Upstreams: []string{lines}, Upgrades: []string{"Lines"}})
			conn, r := upgrade(t, f)
			for _, line := range []string{"one\n", "two\n"} {
				io.WriteString(conn, line)
				if got, err := r.ReadString('\n'); got != line {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			end(f)
			if rest, err := io.ReadAll(r); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("at the end %q, %v", rest, err)
			}
		})
	}
}

// Each of many concurrent requests gets its own answer.
func TestConcurrent(t *testing.T) {
	f := newFront(t, proxy.Options{Upstreams: []string{backend(t, echo), backend(t, echo)}, Balance: proxy.LeastConnections})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 20 {
				body := fmt.Sprintf("body %d %d", i, j)
				if _, got := f.do("POST", "/", body); !strings.Contains(got, body) {
					t.Errorf("got %q for %q", got, body)
				}
			}
		})
	}
	all.Wait()
}

// Rewrite runs last, after the proxy's own changes to the request.
func TestRewrite(t *testing.T) {
	f := newFront(t, proxy.Options{
		Upstreams: []string{backend(t, echo) + "/base/"},
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Path = strings.TrimPrefix(r.Out.URL.Path, "/api") },
	})
	if _, body := f.do("GET", "/api/users?q=1", ""); !strings.HasPrefix(body, "GET /base/users?q=1 ") {
		t.Errorf("got %q", body)
	}
}

// New panics for invalid options.
func TestOptions(t *testing.T) {
	for name, options := range map[string]proxy.Options{
		"no upstreams":    {},
		"no scheme":       {Upstreams: []string{"10.0.0.1:80"}},
		"another scheme":  {Upstreams: []string{"ftp://10.0.0.1"}},
		"no host":         {Upstreams: []string{"http://"}},
		"a query":         {Upstreams: []string{"http://a/?b"}},
		"a user":          {Upstreams: []string{"http://user:secret@a/"}},
		"a protocol":      {Upstreams: []string{"http://a"}, Upgrades: []string{"websocket, h2c"}},
		"no protocol":     {Upstreams: []string{"http://a"}, Upgrades: []string{""}},
		"no version":      {Upstreams: []string{"http://a"}, Upgrades: []string{"lines/"}},
		"unknown balance": {Upstreams: []string{"http://a"}, Balance: 7},
		"two transports":  {Upstreams: []string{"http://a"}, HTTP2: true, Transport: http.DefaultTransport},
		"health path":     {Upstreams: []string{"http://a"}, HealthCheck: &proxy.HealthCheck{Path: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if value, _ := recover().(string); !strings.HasPrefix(value, "proxy: ") || strings.Contains(value, "secret") {
					t.Errorf("panic %q", value)
				}
			}()
			proxy.New(options).Close()
		})
	}
}
