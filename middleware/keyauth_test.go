package middleware_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/servertest"
)

func ExampleKeyAuth() {
	auth := middleware.KeyAuth(middleware.KeyAuthOptions{Keys: []string{"c2FtcGxlLWtleS1vbmU"}})
	h := auth(func(c *filo.Ctx) error { return c.Text(200, "welcome") })
	mwtest.Show(h, []string{"WWW-Authenticate"}, "GET /", "Authorization: Bearer guessed")
	mwtest.Show(h, nil, "GET /", "Authorization: Bearer c2FtcGxlLWtleS1vbmU")
	// Output:
	// 401 Unauthorized
	// WWW-Authenticate: Bearer realm="Restricted", error="invalid_token"
	// 200 welcome
}

// EqualSecret is for a Check of your own.
func ExampleEqualSecret() {
	keys := map[string]string{"gopher": "c2FtcGxlLWtleS1vbmU"}
	tenant := filo.NewKey[string]("tenant")
	auth := middleware.KeyAuth(middleware.KeyAuthOptions{
		Header: "X-API-Key",
		Check: func(c *filo.Ctx, key []byte) (bool, error) {
			name := c.Request.Header.Get("X-Tenant")
			tenant.Set(c, name)
			return middleware.EqualSecret(key, keys[name]), nil
		},
	})
	h := auth(func(c *filo.Ctx) error {
		name, _ := tenant.Get(c)
		return c.Text(200, "welcome, "+name)
	})
	mwtest.Show(h, nil, "GET /", "X-Tenant: gopher", "X-API-Key: c2FtcGxlLWtleS1vbmU")
	mwtest.Show(h, nil, "GET /", "X-Tenant: other", "X-API-Key: c2FtcGxlLWtleS1vbmU")
	// Output:
	// 200 welcome, gopher
	// 401 Unauthorized
}

func TestKeyAuth(t *testing.T) {
	keys := []string{"first", "second"}
	bearer := middleware.KeyAuthOptions{Keys: keys}
	header := middleware.KeyAuthOptions{Keys: keys, Header: "X-API-Key", Realm: `a "b"`}
	query := middleware.KeyAuthOptions{Keys: keys, Query: "key"}
	cookie := middleware.KeyAuthOptions{Keys: keys, Cookie: "key"}
	broken := middleware.KeyAuthOptions{Check: func(*filo.Ctx, []byte) (bool, error) { return true, errors.New("no database") }}
	const missing, invalid = `Bearer realm="Restricted"`, `Bearer realm="Restricted", error="invalid_token"`
	const ownMissing, defaultMissing = `ApiKey realm="a \"b\""`, `ApiKey realm="Restricted"`
	for _, test := range []struct {
		sentence  string
		options   middleware.KeyAuthOptions
		request   string
		field     string
		status    int
		challenge string
	}{
		{"a valid key", bearer, "GET /", "Authorization: Bearer second", 200, ""},
		{"schemes are compared without regard to case", bearer, "GET /", "authorization: bearer first", 200, ""},
		{"RFC 6750, 3.1: without a token no error code", bearer, "GET /", "A: b", 401, missing},
		{"nothing behind the scheme", bearer, "GET /", "Authorization: Bearer", 401, missing},
		{"another scheme", bearer, "GET /", "Authorization: Basic first", 401, missing},
		{"RFC 6750, 3.1: invalid_token", bearer, "GET /", "Authorization: Bearer third", 401, invalid},
		{"a beginning of a key", bearer, "GET /", "Authorization: Bearer firs", 401, invalid},
		{"a key and more", bearer, "GET /", "Authorization: Bearer first ,second", 401, invalid},
		{"keys are compared with regard to case", bearer, "GET /", "Authorization: Bearer First", 401, invalid},
		{"too long for a key", bearer, "GET /", "Authorization: Bearer " + strings.Repeat("a", 5000), 401, missing},
		{"a field of its own has no scheme", header, "GET /", "X-API-Key: first", 200, ""},
		{"and no other place is looked at", header, "GET /?X-API-Key=first", "Authorization: Bearer first", 401, ownMissing},
		{"a parameter of the query", query, "GET /?a=b&key=%66irst", "A: b", 200, ""},
		{"a wrong one", query, "GET /?a=b&key=none", "A: b", 401, defaultMissing},
		{"a cookie", cookie, "GET /", "Cookie: a=b; key=first", 200, ""},
		{"a wrong one", cookie, "GET /?key=first", "Cookie: key=none", 401, defaultMissing},
		{"an error of Check goes first", broken, "GET /", "Authorization: Bearer a", 500, ""},
		{"a scheme of one's own", middleware.KeyAuthOptions{Keys: keys, Scheme: "Token"}, "GET /", "Authorization: token first", 200, ""},
		{"a scheme of one's own", middleware.KeyAuthOptions{Keys: keys, Scheme: "Token"}, "GET /", "Authorization: Bearer first", 401, `Token realm="Restricted"`},
	} {
		got := mwtest.Do(t, middleware.KeyAuth(test.options)(mwtest.Hello), test.request, test.field)
		if got.Status != test.status || got.Header.Get("WWW-Authenticate") != test.challenge || (got.Body == "hello") != (test.status == 200) {
			t.Errorf("%s: %q: %d %v %q", test.sentence, test.field, got.Status, got.Header, got.Body)
		}
	}
}

// No cache, not even one that belongs to somebody else, gives a client the answer to another client's key.
func TestKeyAuthVary(t *testing.T) {
	keys := []string{"alice", "bob"}
	for _, test := range []struct {
		options middleware.KeyAuthOptions
		request string // with %s for the key
		field   string
		vary    string
	}{
		{middleware.KeyAuthOptions{Keys: keys}, "GET /", "Authorization: Bearer %s", ""},
		{middleware.KeyAuthOptions{Keys: keys, Header: "authorization"}, "GET /", "Authorization: Bearer %s", ""},
		{middleware.KeyAuthOptions{Keys: keys, Header: "X-API-Key"}, "GET /", "X-API-Key: %s", "X-API-Key"},
		{middleware.KeyAuthOptions{Keys: keys, Cookie: "key"}, "GET /", "Cookie: key=%s", "Cookie"},
		{middleware.KeyAuthOptions{Keys: keys, Query: "key"}, "GET /?key=%s", "X: %s", ""},
	} {
		h := new(mwtest.Counting)
		s := servertest.New(t, mwtest.Wrap(h.Serve, middleware.KeyAuth(test.options), cache.New(cache.Options{TTL: time.Minute})))
		for i, key := range keys {
			got := s.Do(t, strings.Replace(test.request, "%s", key, 1), strings.Replace(test.field, "%s", key, 1))
			if got.Status != 200 || got.Body != fmt.Sprint(i+1) || got.Header.Get("Vary") != test.vary {
				t.Errorf("%s of %s: %v, want an answer of its own", test.field, key, got)
			}
		}
		if got := s.Do(t, test.request, test.field); got.Status != 401 ||
			strings.Join(got.Header.Values("Vary"), ",") != strings.TrimPrefix(test.vary+",Accept", ",") {
			t.Errorf("%s: %v, want 401", test.field, got)
		}
	}
}

func TestKeyAuthOptions(t *testing.T) {
	keys := []string{"a"}
	with := func(options middleware.KeyAuthOptions) func() {
		return func() { middleware.KeyAuth(options) }
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"no key":           with(middleware.KeyAuthOptions{}),
		"two ways":         with(middleware.KeyAuthOptions{Keys: keys, Check: func(*filo.Ctx, []byte) (bool, error) { return true, nil }}),
		"an empty key":     with(middleware.KeyAuthOptions{Keys: []string{""}}),
		"a key too long":   with(middleware.KeyAuthOptions{Keys: []string{strings.Repeat("a", 5000)}}),
		"two places":       with(middleware.KeyAuthOptions{Keys: keys, Query: "key", Cookie: "b"}),
		"no field name":    with(middleware.KeyAuthOptions{Keys: keys, Header: "a b"}),
		"no scheme":        with(middleware.KeyAuthOptions{Keys: keys, Scheme: "a\r\nX: y"}),
		"scheme of cookie": with(middleware.KeyAuthOptions{Keys: keys, Cookie: "b", Scheme: "Token"}),
		"no realm":         with(middleware.KeyAuthOptions{Keys: keys, Realm: "a\r\nX: y"}),
	})
}

func TestEqualSecret(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{{"", "", true}, {"a", "a", true}, {"a", "b", false}, {"a", "", false}, {"a", "aa", false}, {"ab", "ba", false}} {
		if middleware.EqualSecret(test.a, []byte(test.b)) != test.want {
			t.Errorf("EqualSecret(%q, %q) isn't %v", test.a, test.b, test.want)
		}
	}
}

func BenchmarkKeyAuth(b *testing.B) {
	auth := middleware.KeyAuth(middleware.KeyAuthOptions{Keys: []string{"c2FtcGxlLWtleS1vbmU", "c2FtcGxlLWtleS10d28"}})
	mwtest.Benchmark(b, auth(mwtest.Hello), "GET /", "Authorization: Bearer c2FtcGxlLWtleS10d28")
}

func TestKeyAuthAllocations(t *testing.T) {
	auth := middleware.KeyAuth(middleware.KeyAuthOptions{Header: "X-API-Key", Keys: []string{"c2FtcGxlLWtleS10d28"}})
	if n := mwtest.Allocations(t, auth(mwtest.Hello), "GET /", "X-API-Key: c2FtcGxlLWtleS10d28"); n != 0 {
		t.Errorf("%v allocations for a request", n)
	}
}

func BenchmarkEqualSecret(b *testing.B) {
	b.ReportAllocs()
	given := []byte("c2FtcGxlLWtleS1vbmU")
	for b.Loop() {
		if !middleware.EqualSecret(given, "c2FtcGxlLWtleS1vbmU") {
			b.Fatal("different")
		}
	}
}
