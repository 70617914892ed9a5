package middleware_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

// basic returns an Authorization field.
func basic(credentials string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(credentials))
}

func ExampleBasicAuth() {
	auth := middleware.BasicAuth(middleware.BasicAuthOptions{
		Users: map[string]string{"gopher": "correct horse battery staple"},
		Realm: "Burrow",
	})
	h := auth(func(c *filo.Ctx) error { return c.Text(200, "hello, "+middleware.BasicAuthUser(c)) })
	mwtest.Show(h, []string{"WWW-Authenticate"}, "GET /")
	mwtest.Show(h, nil, "GET /", basic("gopher:correct horse battery staple"))
	// Output:
	// 401 Unauthorized
	// WWW-Authenticate: Basic realm="Burrow", charset="UTF-8"
	// 200 hello, gopher
}

func TestBasicAuth(t *testing.T) {
	failed := errors.New("no database")
	users := middleware.BasicAuthOptions{Users: map[string]string{"gopher": "sécret:x", "other": "else"}}
	checked := middleware.BasicAuthOptions{Check: func(c *filo.Ctx, user, password string) (bool, error) {
		if user == "broken" {
			return false, failed
		}
		return user == "gopher" && middleware.EqualSecret(password, "sécret:x"), nil
	}}
	tellUser := func(c *filo.Ctx) error { return c.Text(200, "user "+middleware.BasicAuthUser(c)) }
	for _, test := range []struct {
		sentence, field string
		status          int
		body            string
	}{
		{"the right password, which may have colons and be in UTF-8", basic("gopher:sécret:x"), 200, "user gopher"},
		{"schemes are compared without regard to case", strings.Replace(basic("gopher:sécret:x"), "Basic ", "bASIC  ", 1), 200, "user gopher"},
		{"a wrong password", basic("gopher:secret:x"), 401, ""},
		{"another user's password", basic("gopher:else"), 401, ""},
		{"a beginning of the password", basic("gopher:sécret"), 401, ""},
		{"an empty password", basic("gopher:"), 401, ""},
		{"an unknown user", basic("nobody:sécret:x"), 401, ""},
		{"names are compared with regard to case", basic("Gopher:sécret:x"), 401, ""},
		{"no user", basic(":sécret:x"), 401, ""},
		{"no colon", basic("gopher"), 401, ""},
		{"nothing", "Authorization: Basic", 401, ""},
		{"nothing", "Authorization: ", 401, ""},
		{"another scheme", "Authorization: Bearer Z29waGVyOnM=", 401, ""},
		{"no base64", "Authorization: Basic %%%", 401, ""},
		{"no padding", strings.TrimRight(basic("gopher:sécret:xy"), "="), 401, ""},
		{"control characters", basic("gopher:sécret:x\x00"), 401, ""},
		{"too much", basic("gopher:" + strings.Repeat("x", 4000)), 401, ""},
		{"an error of Check", basic("broken:x"), 500, ""},
	} {
		for name, options := range map[string]middleware.BasicAuthOptions{"Users": users, "Check": checked} {
			if test.status == 500 && name == "Users" {
				continue
			}
			got := mwtest.Do(t, middleware.BasicAuth(options)(tellUser), "GET /", test.field)
			if got.Status != test.status || test.body != "" && got.Body != test.body || strings.Contains(got.Body, "user") != (test.status == 200) {
				t.Errorf("%s, %s: %d %q", test.sentence, name, got.Status, got.Body)
			}
			const challenge = `Basic realm="Restricted", charset="UTF-8"`
			if (got.Header.Get("WWW-Authenticate") == challenge) != (test.status == 401) {
				t.Errorf("%s, %s: %v", test.sentence, name, got.Header)
			}
		}
	}
}

func TestBasicAuthOptions(t *testing.T) {
	users := map[string]string{"a": "b"}
	check := func(*filo.Ctx, string, string) (bool, error) { return true, nil }
	with := func(options middleware.BasicAuthOptions) func() {
		return func() { middleware.BasicAuth(options) }
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"nobody":             with(middleware.BasicAuthOptions{}),
		"two ways":           with(middleware.BasicAuthOptions{Users: users, Check: check}),
		"a colon":            with(middleware.BasicAuthOptions{Users: map[string]string{"a:b": "c"}}),
		"a line break":       with(middleware.BasicAuthOptions{Users: map[string]string{"a\r\n": "c"}}),
		"no name":            with(middleware.BasicAuthOptions{Users: map[string]string{"": "c"}}),
		"no password":        with(middleware.BasicAuthOptions{Users: map[string]string{"a": ""}}),
		"a realm with lines": with(middleware.BasicAuthOptions{Users: users, Realm: "a\r\nX: y"}),
	})
	h := middleware.BasicAuth(middleware.BasicAuthOptions{Users: users, Realm: `a "b" \`})(mwtest.Hello)
	if got := mwtest.Do(t, h, "GET /").Header.Get("WWW-Authenticate"); got != `Basic realm="a \"b\" \\", charset="UTF-8"` {
		t.Errorf("quotes in a realm: %s", got)
	}
}

// A request without credentials has no user, even if the request before it on the connection had one.
func TestBasicAuthUserIsTheRequests(t *testing.T) {
	auth := middleware.BasicAuth(middleware.BasicAuthOptions{Users: map[string]string{"a": "b"}})
	s := servertest.New(t, func(c *filo.Ctx) error {
		if c.Path() == "/open" {
			return c.Text(200, "user <"+middleware.BasicAuthUser(c)+">")
		}
		return auth(mwtest.Hello)(c)
	})
	raw := s.Raw(t, servertest.Request("GET /", "", basic("a:b"))+servertest.Request("GET /open", ""))
	if !strings.HasSuffix(raw, "user <>") {
		t.Errorf("%q", raw)
	}
}

func BenchmarkBasicAuth(b *testing.B) {
	users := map[string]string{"gopher": "correct horse battery staple", "b": "b", "c": "c"}
	mwtest.Benchmark(b, middleware.BasicAuth(middleware.BasicAuthOptions{Users: users})(mwtest.Hello), "GET /", basic("gopher:correct horse battery staple"))
}
