package middleware_test

import (
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

func ExampleRewrite() {
	r := router.New()
	r.GET("/v2/users/{id}", func(c *filo.Ctx) error { return c.Text(200, "user "+c.Param("id")+" "+c.Query("format")) })
	rewrite := middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{
		{Prefix: "/api", To: "/v2"},
		{Pattern: `/users/(\d+)\.json`, To: "/v2/users/$1?format=json"},
	}})
	mwtest.Show(rewrite(r.Serve), nil, "GET /api/users/7")
	mwtest.Show(rewrite(r.Serve), nil, "GET /users/8.json")
	// Output:
	// 200 user 7
	// 200 user 8 json
}

func TestRewrite(t *testing.T) {
	rewrite := middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{
		{Prefix: "/old", To: "/new"},
		{Prefix: "/loop", To: "/loop/again"},
		{Prefix: "/strip/", To: "/"},
		{Prefix: "/root", To: "/"},
		{Prefix: "/query", To: "/q?kind=1"},
		{Prefix: "/old/never", To: "/never"},
		{Pattern: `/posts/(?P<year>\d{4})/(.+)`, To: "/blog/${year}-$2?year=$year"},
		{Pattern: `/a|/b`, To: "/ab"},
		{Pattern: `/cut/(.)(.*)`, To: "/x$1/$2"},
	}})
	s := servertest.New(t, rewrite(func(c *filo.Ctx) error { return c.Text(200, c.Request.Target()) }))
	for _, test := range []struct{ sentence, target, want string }{
		{"the prefix itself", "/old", "/new"},
		{"a path below it, as it was sent", "/old/a%20b/%2F/../c", "/new/a%20b/%2F/../c"},
		{"with its query", "/old/a?q=%20&r", "/new/a?q=%20&r"},
		{"not a part of a segment", "/older", "/older"},
		{"nor another case", "/OLD", "/OLD"},
		{"nor what is encoded otherwise", "/%6Fld", "/%6Fld"},
		{"nor elsewhere", "/x/old", "/x/old"},
		{"a rule is applied once", "/loop/a", "/loop/again/a"},
		{"a prefix with a slash", "/strip/a/b", "/a/b"},
		{"isn't the path without it", "/strip", "/strip"},
		{"no slash comes twice", "/root/a", "/a"},
		{"the prefix itself", "/root", "/"},
		{"a query of the rule's own", "/query/a", "/q/a?kind=1"},
		{"and the request's behind it", "/query/a?q=1", "/q/a?kind=1&q=1"},
		{"the first rule that matches", "/old/never/a", "/new/never/a"},
		{"groups, and a query", "/posts/2026/a-b?q=1", "/blog/2026-a-b?year=2026&q=1"},
		{"all of the path must match", "/x/posts/2026/a", "/x/posts/2026/a"},
		{"all of the path must match, for each alternative", "/ax", "/ax"},
		{"all of the path must match, for each alternative", "/x/b", "/x/b"},
		{"either alternative", "/b", "/ab"},
		{"a query is no part of a path", "/c?x=/posts/2026/a", "/c?x=/posts/2026/a"},
		{"what becomes no path is an error", "/cut/%20", "400"},
		{"longer than the memory for it", "/old/" + strings.Repeat("a", 3000), "/new/" + strings.Repeat("a", 3000)},
	} {
		got := s.Do(t, "GET "+test.target)
		if got.Body != test.want && mwtest.StatusText(got.Status) != test.want {
			t.Errorf("%s: %s became %d %s, want %s", test.sentence, test.target, got.Status, got.Body, test.want)
		}
	}
	if raw := s.Raw(t, "GET http://b.test/old HTTP/1.1\r\nHost: a.test\r\n\r\n"); !strings.HasSuffix(raw, "\r\n\r\n/new") {
		t.Errorf("absolute-form: %q", raw)
	}
	if raw := s.Raw(t, "CONNECT b.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n"); !strings.HasSuffix(raw, "\r\n\r\nb.test:443") {
		t.Errorf("CONNECT: %q", raw)
	}
}

// A rewritten path doesn't affect the next request on the connection.
func TestRewriteIsTheRequests(t *testing.T) {
	rewrite := middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{{Prefix: "/old", To: "/new"}}})
	s := servertest.New(t, rewrite(func(c *filo.Ctx) error { return c.Text(200, "<"+c.Path()+">") }))
	raw := s.Raw(t, servertest.Request("GET /old", "")+servertest.Request("GET /a", "")+servertest.Request("GET /old/b", ""))
	for _, want := range []string{"</new>", "</a>", "</new/b>"} {
		if !strings.Contains(raw, want) {
			t.Errorf("no %s in %q", want, raw)
		}
	}
}

func TestRewriteOptions(t *testing.T) {
	with := func(rule middleware.RewriteRule) func() {
		return func() { middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{rule}}) }
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"no rules":              func() { middleware.Rewrite(middleware.RewriteOptions{}) },
		"neither":               with(middleware.RewriteRule{To: "/a"}),
		"both":                  with(middleware.RewriteRule{Prefix: "/a", Pattern: "/a", To: "/b"}),
		"nowhere":               with(middleware.RewriteRule{Prefix: "/a"}),
		"another host":          with(middleware.RewriteRule{Prefix: "/a", To: "http://b.test/"}),
		"a line break":          with(middleware.RewriteRule{Prefix: "/a", To: "/b\r\nX: y"}),
		"a fragment":            with(middleware.RewriteRule{Prefix: "/a", To: "/b#c"}),
		"a prefix without path": with(middleware.RewriteRule{Prefix: "a", To: "/b"}),
		"a prefix with a query": with(middleware.RewriteRule{Prefix: "/a?b", To: "/b"}),
		"no regular expression": with(middleware.RewriteRule{Pattern: "/(", To: "/b"}),
	})
}

func TestRewriteAllocations(t *testing.T) {
	rewrite := middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{{Prefix: "/old", To: "/new"}}})
	if got := mwtest.Allocations(t, rewrite(mwtest.Hello), "GET /other"); got != 0 {
		t.Errorf("%v allocations without a match, want none", got)
	}
}

func BenchmarkRewrite(b *testing.B) {
	rewrite := middleware.Rewrite(middleware.RewriteOptions{Rules: []middleware.RewriteRule{
		{Prefix: "/old", To: "/new"}, {Pattern: `/posts/(\d+)\.html`, To: "/posts/$1"},
	}})
	b.Run("no match", func(b *testing.B) { mwtest.Benchmark(b, rewrite(mwtest.Hello), "GET /users/7") })
	b.Run("prefix", func(b *testing.B) { mwtest.BenchmarkServer(b, rewrite(mwtest.Hello), "GET /old/users/7", "") })
	b.Run("pattern", func(b *testing.B) { mwtest.BenchmarkServer(b, rewrite(mwtest.Hello), "GET /posts/7.html", "") })
}
