package cache_test

import (
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/servertest"
)

// Two requests get the same answer if the fields by which it varies differ only in insignificant white space (RFC 9111, section 4.1). The
// order, the case and the first line may matter to a handler.
func TestSelectingFields(t *testing.T) {
	for _, test := range []struct {
		name, first, second string // values with "|" between the lines of a field
		same                bool
	}{
		{"Accept-Language", "en, de", "en,de", true},
		{"Accept-Language", "en;q=1, de ; q=0.5", "en ;q=1,de;q=0.5", true},
		{"Accept-Language", "de-DE", "DE-de", false},
		{"Accept-Language", "en;q=1", "en;Q=1", false},
		{"Accept-Language", "en, de", "en|de", false},
		{"Accept-Language", "en|de", "en|de", true},
		{"Accept-Language", "en, de", "de, en", false},
		{"Accept-Language", "en, de", "en-de", false},
		{"Accept-Language", "en de", "ende", false},
		{"Accept-Encoding", "gzip, br", "gzip,br", true},
		{"Accept-Encoding", "gzip", "GZIP", false},
		{"Accept", "text/html|application/json", "text/html, application/json", false},
		{"Accept-Encoding", "gzip", "", false},
		{"Accept", "text/html , a/b", "text/html,a/b", true},
		{"Accept", `a/b;x="1, 2"`, `a/b;x="1,2"`, false},
		{"Accept", `a/b;x="\", 2"`, `a/b;x="\",2"`, false},
		{"Accept", `a/b;x="1; 2"`, `a/b;x="1;2"`, false},
		{"Accept", "a/b;x=Y", "a/b;x=y", false},
		{"Accept", `a/b;x=" , c/d`, `a/b;x=",c/d`, false},
		{"User-Agent", "a, b", "a,b", false},
		{"Foo", "A", "a", false},
		{"Foo", "a, b", "a|b", false},
	} {
		h := &mwtest.Counting{Fields: []string{"Cache-Control: max-age=60", "Vary: " + test.name}}
		s := servertest.New(t, cache.New()(h.Serve))
		for _, value := range []string{test.first, test.second} {
			var fields []string
			for line := range strings.SplitSeq(value, "|") {
				if line != "" {
					fields = append(fields, test.name+": "+line)
				}
			}
			s.Do(t, "GET /", fields...)
		}
		if got := h.Calls.Load() == 1; got != test.same {
			t.Errorf("%s: %q and %q are the same: %t", test.name, test.first, test.second, got)
		}
	}
}

// An answer is stored for the fields that the client has sent, even if the handler changes them.
func TestFieldsChangedInside(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		for _, test := range []struct{ first, control, vary string }{
			{"Authorization: ann", "max-age=60", ""},
			{"Cookie: user=ann", "", ""},
			{"X-Tenant: ann", "max-age=60", "X-Tenant"},
			{"X-Tenant: ann", "max-age=60", "X-TENANT, Accept"},
			{"If-None-Match: \"a\"", "max-age=60", ""},
		} {
			name, _, _ := strings.Cut(test.first, ":")
			s := servertest.New(t, cache.New(in(cache.Options{TTL: time.Minute}))(func(c *filo.Ctx) error {
				value := c.Request.Header.Get(name)
				c.Request.Header.Del(name)
				if test.control != "" {
					c.Response.Header.Set("Cache-Control", test.control)
				}
				if test.vary != "" {
					c.Response.Header.Set("Vary", test.vary)
				}
				if value == `"a"` {
					return c.Redirect(301, "/for-ann")
				}
				return c.Text(200, "for "+value)
			}))
			s.Do(t, "GET /", test.first)
			for range 2 {
				if got := s.Do(t, "GET /"); got.Body != "for " {
					t.Errorf("%s: another client gets %v", test.first, got)
				}
			}
			if got := s.Do(t, "GET /", test.first); test.vary != "" && got.Header.Get("Age") == "" {
				t.Errorf("%s: the stored answer isn't found: %v", test.first, got)
			}
		}
	})
}
