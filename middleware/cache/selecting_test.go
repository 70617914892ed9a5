package cache_test

import (
	"strings"
	"testing"

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
