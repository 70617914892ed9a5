package proxy_test

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/proxy"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// A path that an upstream could resolve to a path outside of the route isn't passed on. Every other path is passed on as it was sent.
func TestPaths(t *testing.T) {
	f := newFront(t, proxy.Options{EncodedSlashes: true, Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.RequestURI)
	}) + "/app"}})
	for _, test := range []struct{ target, want string }{ // "" means that the path is refused
		{"/api/../secret", ""},
		{"/api/..", ""},
		{"/api/./x", ""},
		{"/api/%2e%2e/%2E%2e/secret", ""},
		{"/api/.%2e/x", ""},
		{"/api/..%2f..%2fsecret", ""},
		{"/api/%2e%2e%5csecret", ""},
		{"/api/a\\..\\secret", ""},
		{"/api/..;/secret", ""},
		{"/api/..;a=b%2Fsecret", ""},
		{"/api/%2e%2e%3b/secret", ""},
		{"http://a/api/../x", ""},
		{"/", "/app/"},
		{"http://a", "/app/"},
		{"http://a?q", "/app/?q"},
		{"/api/...", "/app/api/..."},
		{"/api/..x/x../.x/x.", "/app/api/..x/x../.x/x."},
		{"/api//a%2Fb;c=%20", "/app/api//a%2Fb;c=%20"},
		{"/api/%252e%252e/x", ""},
		{"/api/%2525252e./x", ""},
		{"/api/..%25252fx", ""},
		{"/api/%c0%ae%c0%ae/x", ""},
		{"/api/%e0%80%ae./x", ""},
		{"/api/..%c0%afsecret", ""},
		{"/api/..%c1%9csecret", ""},
		{"/api/%25c0%25ae./x", ""},
		{"/api/..%00/x", ""},
		{"/api/..%2500a", ""},
		{"/api/100%25/%252/%2525zz/%25252e%25252", "/app/api/100%25/%252/%2525zz/%25252e%25252"},
		{"/api/%252e%252e%252ex/%00/x%c0%ae", "/app/api/%252e%252e%252ex/%00/x%c0%ae"},
		{"/api/%c3%a0%c0/%e0%80", "/app/api/%c3%a0%c0/%e0%80"},
		{"/api/x?file=../x", "/app/api/x?file=../x"},
	} {
		got := f.raw("GET " + test.target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		_, body, _ := strings.Cut(got, "\r\n\r\n")
		switch {
		case test.want == "" && !strings.HasPrefix(got, "HTTP/1.1 400 "):
			t.Errorf("%s isn't refused: %q", test.target, got)
		case test.want != "" && body != test.want:
			t.Errorf("%s has arrived as %q, want %q", test.target, body, test.want)
		}
	}
}

// If a guard in front of the proxy takes a part of a path for one segment, the upstream can't take it for a path with several segments.
// Such a path is refused or, with EncodedSlashes, passed on as it was sent.
func TestGuardedPaths(t *testing.T) {
	for _, passes := range []bool{false, true} {
		p := proxy.New(proxy.Options{EncodedSlashes: passes, Logger: quiet, Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.RequestURI)
		})}})
		defer p.Close()
		r := router.New()
		r.Any("/admin/{rest...}", func(*filo.Ctx) error { return filo.Error(401, "") })
		r.Any("/{page...}", p.Serve)
		s := servertest.New(t, r.Serve)
		for _, test := range []struct{ path, want string }{ // "" means that the path is refused unless EncodedSlashes is set
			{"/admin%2Fx", ""}, {"/admin%2fx", ""}, {"/adm%69n%2Fx", ""}, {"/admin%5Cx", ""}, {"/admin%5cx", ""}, {`/admin\x`, ""},
			{"/admin%00/x", ""}, {"/admin%2Fusers%2F|", ""}, {"/admin%2F^%20", ""},
			{"/admin;a/x", "/admin;a/x"}, {"/admin%252Fx", "/admin%252Fx"}, {"/admin%255Cx", "/admin%255Cx"}, {"/admin%2500x", "/admin%2500x"},
			{"/a%7Cb|c/%2", "400"}, {"/a%7Cb|c", "/a%7Cb%7Cc"}, {"/x?a=%2F\\%00%5C", "/x?a=%2F\\%00%5C"}, {"/admin/x", "401"},
		} {
			got := s.Raw(t, "GET "+test.path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			_, body, _ := strings.Cut(got, "\r\n\r\n")
			want := test.want
			switch {
			case want == "" && passes:
				want = mwtest.EscapedTarget(test.path)
			case want == "":
				want = "400"
			}
			if body != want && got[len("HTTP/1.1 "):][:3] != want {
				t.Errorf("EncodedSlashes %t: %s has arrived as %q, want %q", passes, test.path, got, want)
			}
		}
	}
}

// Targets arrive as they were sent, except for bytes that must be escaped, whatever protocols the two sides speak.
func TestTargetsArrive(t *testing.T) {
	eachPair(t, []protocol{http1, h2c}, []protocol{http1, h2c}, func(t *testing.T, client, upstream protocol) {
		f := newH2Front(t, client, upstream, proxy.Options{}, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.RequestURI)
		})
		random := rand.New(rand.NewPCG(3, 4))
		refused := 0
		for range 300 {
			target := mwtest.Target(random)
			r := f.request("GET", "/", nil)
			r.URL.Opaque = target
			if strings.HasPrefix(target, "//") {
				r.URL.Opaque = "//" + r.URL.Host + target // as http://host//
			}
			answer := f.do(r)
			got, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			path, query, asked := strings.Cut(mwtest.EscapedTarget(target), "?")
			if upper := strings.ToUpper(path); strings.Contains(upper, "%2F") || strings.Contains(upper, "%5C") || strings.Contains(upper, "%00") {
				if refused++; answer.StatusCode != 400 {
					t.Fatalf("%s isn't refused: %d %q", target, answer.StatusCode, got)
				}
				continue
			}
			if want := path + map[bool]string{true: "?"}[asked] + upstreamQuery(query); string(got) != want {
				t.Fatalf("%s has arrived as\n%s, want\n%s", target, got, want)
			}
		}
		if refused == 0 || refused > 250 {
			t.Errorf("%d of 300 were refused", refused)
		}
	})
}

var badPercent = regexp.MustCompile("%(?:[0-9A-Fa-f]{2})?")

// upstreamQuery returns a query as it must arrive at the upstream.
func upstreamQuery(query string) string {
	return badPercent.ReplaceAllStringFunc(strings.ReplaceAll(query, ";", "%3B"), func(escape string) string {
		if escape == "%" {
			return "%25"
		}
		return escape
	})
}

// An upstream finds the same parameters as a handler in front of the proxy, whether it splits queries as filo does, at semicolons too, or
// as net/url does.
func TestQueries(t *testing.T) {
	var upstream url.Values
	p := proxy.New(proxy.Options{
		Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
			http.AllowQuerySemicolons(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { upstream = r.URL.Query() })).ServeHTTP(w, r)
			fmt.Fprint(w, r.RequestURI)
		})},
		Rewrite: func(r *httputil.ProxyRequest) {
			if query := r.Out.URL.Query(); r.In.URL.RawQuery != "" && len(query) == 0 {
				t.Errorf("Rewrite sees no parameters in %q", r.Out.URL.RawQuery)
			}
		},
		Logger: quiet,
	})
	defer p.Close()
	var front url.Values
	s := servertest.New(t, func(c *filo.Ctx) error {
		front = make(url.Values)
		for key, value := range c.Request.URI().Query().All() {
			front.Add(string(key), string(value))
		}
		return p.Serve(c)
	})
	for _, query := range []string{"q=100%&page=2", "q=a;b", "a=1;admin=1", "%=%&%zz=%2&%a;=1", "b=2&a=1&&b=+%20%e9", "a=%%41%2%35", "a=1&a=%3B;"} {
		s.Do(t, "GET /?"+query)
		if !maps.EqualFunc(front, upstream, slices.Equal) {
			t.Errorf("%s: the front sees %q, the upstream %q", query, front, upstream)
		}
	}
	if got := s.Do(t, "GET /?"+strings.Repeat("a&", 999)+"a=1&&"); got.Status != 200 {
		t.Errorf("1000 parameters are answered with %d", got.Status)
	}
	if got := s.Do(t, "GET /?"+strings.Repeat("a&", 1000)+"a=1"); got.Status != 400 {
		t.Errorf("more than filo's parser keeps are answered with %d", got.Status)
	}
}

// However many times a path is encoded, the time for checking it is proportional to its length. If it were decoded layer by layer, this
// path would take hours.
func TestDeeplyEncodedPath(t *testing.T) {
	depth := strings.Repeat("25", 1<<19)
	for path, want := range map[string]bool{"/%" + depth + "2e./x": true, "/%" + depth + "2e.x/": false} {
		if got := proxy.HasDotSegment([]byte(path)); got != want {
			t.Errorf("a path that ends in %q: %v, want %v", path[len(path)-6:], got, want)
		}
	}
}

// The proxy makes no tunnel for CONNECT, whatever the upstream would answer.
func TestConnect(t *testing.T) {
	f := newFront(t, proxy.Options{Upstreams: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the upstream was sent %s %s", r.Method, r.RequestURI)
	}) + "/app"}})
	if got := f.raw("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 501 ") {
		t.Errorf("answered %q", got)
	}
}
