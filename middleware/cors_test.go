package middleware_test

import (
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

func ExampleCORS() {
	cors := middleware.CORS(middleware.CORSOptions{
		AllowOrigins: []string{"https://app.example.com", "https://*.example.org"},
		AllowHeaders: []string{"Content-Type"},
		MaxAge:       time.Hour,
	})
	fields := []string{"Vary", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Access-Control-Max-Age"}
	mwtest.Show(cors(mwtest.Hello), fields, "OPTIONS /", "Origin: https://app.example.com",
		"Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: content-type")
	mwtest.Show(cors(mwtest.Hello), fields, "GET /", "Origin: https://any.example.org")
	// Output:
	// 204
	// Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers
	// Access-Control-Allow-Origin: https://app.example.com
	// Access-Control-Allow-Methods: GET, HEAD, POST, PUT, PATCH, DELETE
	// Access-Control-Allow-Headers: Content-Type
	// Access-Control-Max-Age: 3600
	// 200 hello
	// Vary: Origin
	// Access-Control-Allow-Origin: https://any.example.org
}

// corsAnswer returns an answer's status and its CORS fields, such as "204 vary=Origin origin=*".
func corsAnswer(got servertest.Answer) string {
	var b strings.Builder
	for _, each := range []struct{ short, name string }{
		{"vary", "Vary"}, {"origin", "Access-Control-Allow-Origin"}, {"credentials", "Access-Control-Allow-Credentials"},
		{"methods", "Access-Control-Allow-Methods"}, {"headers", "Access-Control-Allow-Headers"}, {"expose", "Access-Control-Expose-Headers"},
		{"age", "Access-Control-Max-Age"}, {"private", "Access-Control-Allow-Private-Network"},
	} {
		if values := got.Header.Values(each.name); len(values) > 0 {
			b.WriteString(" " + each.short + "=" + strings.ReplaceAll(strings.Join(values, "|"), ", ", ","))
		}
	}
	return strings.TrimSpace(b.String())
}

func TestCORS(t *testing.T) {
	some := middleware.CORSOptions{
		AllowOrigins:  []string{"https://a.test", "https://*.b.test:8443", "http://[::1]:3000"},
		AllowMethods:  []string{"GET", "PUT"},
		AllowHeaders:  []string{"Content-Type", "X-Own"},
		ExposeHeaders: []string{"X-One", "X-Two"},
	}
	all := middleware.CORSOptions{AllowOrigins: []string{"*"}, AllowHeaders: []string{"*"}}
	withCredentials := some
	withCredentials.AllowCredentials, withCredentials.AllowHeaders, withCredentials.AllowPrivateNetwork = true, []string{"*"}, true
	byFunc := middleware.CORSOptions{MaxAge: -1, AllowMethods: []string{"GET"},
		AllowOriginFunc: func(c *filo.Ctx, origin []byte) bool { return string(origin) == "null" }}
	const (
		put      = "Access-Control-Request-Method: PUT"
		varyFull = "vary=Origin,Access-Control-Request-Method,Access-Control-Request-Headers"
	)
	for _, test := range []struct {
		sentence string
		options  middleware.CORSOptions
		request  string
		fields   []string
		want     string
	}{
		{"an allowed origin", some, "GET /", []string{"Origin: https://a.test"}, "vary=Origin origin=https://a.test expose=X-One,X-Two"},
		{"Vary also without Origin, for caches", some, "GET /", nil, "vary=Origin"},
		{"what isn't allowed has no fields", some, "GET /", []string{"Origin: https://evil.test"}, "vary=Origin"},
		{"the scheme counts", some, "GET /", []string{"Origin: http://a.test"}, "vary=Origin"},
		{"the port counts", some, "GET /", []string{"Origin: https://a.test:444"}, "vary=Origin"},
		{"an IPv6 origin", some, "GET /", []string{"Origin: http://[::1]:3000"}, "vary=Origin origin=http://[::1]:3000 expose=X-One,X-Two"},
		{"a host below", some, "GET /", []string{"Origin: https://x.b.test:8443"}, "vary=Origin origin=https://x.b.test:8443 expose=X-One,X-Two"},
		{"a wildcard stands for one label, as in a certificate", some, "GET /", []string{"Origin: https://x.y.b.test:8443"}, "vary=Origin"},
		{"even if it is empty", some, "GET /", []string{"Origin: https://x..b.test:8443"}, "vary=Origin"},
		{"a wildcard isn't the domain itself", some, "GET /", []string{"Origin: https://b.test:8443"}, "vary=Origin"},
		{"nor one with an empty label", some, "GET /", []string{"Origin: https://.b.test:8443"}, "vary=Origin"},
		{"a wildcard ends at a dot", some, "GET /", []string{"Origin: https://evilb.test:8443"}, "vary=Origin"},
		{"a wildcard stands for a host", some, "GET /", []string{"Origin: https://evil.test/x.b.test:8443"}, "vary=Origin"},
		{"a wildcard stands for a host", some, "GET /", []string{"Origin: https://evil.test:1@x.b.test:8443"}, "vary=Origin"},
		{"null is anybody's", some, "GET /", []string{"Origin: null"}, "vary=Origin"},
		{"but a function may have it", byFunc, "GET /", []string{"Origin: null"}, "vary=Origin origin=null"},
		{"and no other", byFunc, "GET /", []string{"Origin: https://a.test"}, "vary=Origin"},
		{"everybody: nothing varies", all, "GET /", []string{"Origin: https://any.test"}, "origin=*"},
		{"everybody: nothing varies", all, "GET /", nil, ""},
		{"credentials", withCredentials, "GET /", []string{"Origin: https://a.test"}, "vary=Origin origin=https://a.test credentials=true expose=X-One,X-Two"},
		{"credentials are for allowed origins", withCredentials, "GET /", []string{"Origin: https://evil.test"}, "vary=Origin"},

		{"a preflight", some, "OPTIONS /", []string{"Origin: https://a.test", put}, varyFull + " origin=https://a.test methods=GET,PUT headers=Content-Type,X-Own"},
		{"with fields, in any case", some, "OPTIONS /", []string{"Origin: https://a.test", put, "Access-Control-Request-Headers: x-own,,CONTENT-type"},
			varyFull + " origin=https://a.test methods=GET,PUT headers=Content-Type,X-Own"},
		{"a field that isn't allowed", some, "OPTIONS /", []string{"Origin: https://a.test", put, "Access-Control-Request-Headers: x-own, x-other"}, varyFull},
		{"a field that isn't allowed, in another line", some, "OPTIONS /", []string{"Origin: https://a.test", put, "Access-Control-Request-Headers: x-own", "Access-Control-Request-Headers: x-other"}, varyFull},
		{"a method that isn't allowed", some, "OPTIONS /", []string{"Origin: https://a.test", "Access-Control-Request-Method: DELETE"}, varyFull},
		{"methods are case-sensitive", some, "OPTIONS /", []string{"Origin: https://a.test", "Access-Control-Request-Method: put"}, varyFull},
		{"QUERY isn't allowed unless it is named", all, "OPTIONS /", []string{"Origin: https://a.test", "Access-Control-Request-Method: QUERY"}, varyFull},
		{"an origin that isn't allowed", some, "OPTIONS /", []string{"Origin: https://evil.test", put}, varyFull},
		{"everybody and every field", all, "OPTIONS /", []string{"Origin: https://any.test", put, "Access-Control-Request-Headers: authorization, x-any"},
			varyFull + " origin=* methods=GET,HEAD,POST,PUT,PATCH,DELETE headers=authorization,x-any"},
		{"but nothing that is no field", all, "OPTIONS /", []string{"Origin: https://any.test", put, "Access-Control-Request-Headers: a b"}, varyFull},
		{"and none of endless length", all, "OPTIONS /", []string{"Origin: https://any.test", put, "Access-Control-Request-Headers: " + strings.Repeat("a", 200)}, varyFull},
		{"a private network, if it is asked for", withCredentials, "OPTIONS /", []string{"Origin: https://a.test", put, "Access-Control-Request-Private-Network: true"},
			varyFull + ",Access-Control-Request-Private-Network origin=https://a.test credentials=true methods=GET,PUT private=true"},
		{"a private network, unless it isn't", withCredentials, "OPTIONS /", []string{"Origin: https://a.test", put},
			varyFull + ",Access-Control-Request-Private-Network origin=https://a.test credentials=true methods=GET,PUT"},
		{"a negative age is none", byFunc, "OPTIONS /", []string{"Origin: null", "Access-Control-Request-Method: GET"}, varyFull + " origin=null methods=GET age=0"},
	} {
		got := mwtest.Do(t, middleware.CORS(test.options)(mwtest.Hello), test.request, test.fields...)
		preflight := strings.HasPrefix(test.request, "OPTIONS")
		if text := corsAnswer(got); text != test.want || (got.Status == 204) != preflight || (got.Body == "hello") == preflight {
			t.Errorf("%s: %q %q: %d %s\nwant %s", test.sentence, test.request, test.fields, got.Status, text, test.want)
		}
	}
}

// A request that looks like a preflight only in part reaches the handler.
func TestCORSIsNoPreflight(t *testing.T) {
	h := middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://a.test"}})(mwtest.Hello)
	for _, test := range []struct {
		request string
		fields  []string
	}{
		{"OPTIONS /", []string{"Origin: https://a.test"}},
		{"OPTIONS /", []string{"Access-Control-Request-Method: PUT"}},
		{"GET /", []string{"Origin: https://a.test", "Access-Control-Request-Method: PUT"}},
	} {
		if got := mwtest.Do(t, h, test.request, test.fields...); got.Body != "hello" {
			t.Errorf("%s %q: %d", test.request, test.fields, got.Status)
		}
	}
}

func TestCORSOptions(t *testing.T) {
	with := func(options middleware.CORSOptions) func() {
		return func() { middleware.CORS(options) }
	}
	origin := []string{"https://a.test"}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"nobody":                   with(middleware.CORSOptions{}),
		"everybody's credentials":  with(middleware.CORSOptions{AllowOrigins: []string{"*"}, AllowCredentials: true}),
		"no scheme":                with(middleware.CORSOptions{AllowOrigins: []string{"a.test"}}),
		"a path":                   with(middleware.CORSOptions{AllowOrigins: []string{"https://a.test/"}}),
		"upper case":               with(middleware.CORSOptions{AllowOrigins: []string{"https://A.test"}}),
		"the scheme's own port":    with(middleware.CORSOptions{AllowOrigins: []string{"https://a.test:443"}}),
		"the scheme's own port 80": with(middleware.CORSOptions{AllowOrigins: []string{"http://a.test:80"}}),
		"a user":                   with(middleware.CORSOptions{AllowOrigins: []string{"https://u@a.test"}}),
		"null":                     with(middleware.CORSOptions{AllowOrigins: []string{"null"}}),
		"two wildcards":            with(middleware.CORSOptions{AllowOrigins: []string{"https://*.*.test"}}),
		"half a wildcard":          with(middleware.CORSOptions{AllowOrigins: []string{"https://a*.test"}}),
		"a line break":             with(middleware.CORSOptions{AllowOrigins: []string{"https://a.test\r\n"}}),
		"no method":                with(middleware.CORSOptions{AllowOrigins: origin, AllowMethods: []string{"A\r\nX: y"}}),
		"no field":                 with(middleware.CORSOptions{AllowOrigins: origin, AllowHeaders: []string{"A\r\nX: y"}}),
		"no exposed field":         with(middleware.CORSOptions{AllowOrigins: origin, ExposeHeaders: []string{"A\r\nX: y"}}),
	})
}

func BenchmarkCORS(b *testing.B) {
	h := middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://app.example.com"}, AllowCredentials: true, AllowHeaders: []string{"Content-Type"}})(mwtest.Hello)
	b.Run("same origin", func(b *testing.B) { mwtest.Benchmark(b, h, "GET /") })
	b.Run("other origin", func(b *testing.B) { mwtest.Benchmark(b, h, "GET /", "Origin: https://app.example.com") })
	b.Run("preflight", func(b *testing.B) {
		mwtest.Benchmark(b, h, "OPTIONS /", "Origin: https://app.example.com", "Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: content-type")
	})
}

// If CORS with its default methods lets another origin's page use a method, with cookies and after a preflight, CSRF refuses that method,
// unless a page may use it even without CORS. Otherwise a page could cause a change through a handler for all methods (Any) that treats only
// GET and HEAD as safe.
func TestCORSBesideCSRF(t *testing.T) {
	cors := middleware.CORS(middleware.CORSOptions{AllowOrigins: []string{"https://partner.test"}, AllowCredentials: true})
	s := servertest.New(t, cors(middleware.CSRF()(mwtest.Hello)))
	for _, method := range syntax.Methods {
		origin := "Origin: https://partner.test"
		preflight := s.Do(t, "OPTIONS /", origin, "Access-Control-Request-Method: "+method)
		if method == "GET" || method == "HEAD" || preflight.Header.Get("Access-Control-Allow-Origin") == "" {
			continue
		}
		if got := s.Do(t, method+" /", origin, "Sec-Fetch-Site: cross-site", "Cookie: a=b"); got.Status != 403 {
			t.Errorf("a cross-site %s passes CORS and CSRF: %d", method, got.Status)
		}
	}
}
