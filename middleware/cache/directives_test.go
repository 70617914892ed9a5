package cache_test

import (
	"net/url"
	"slices"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/servertest"
)

// A targeted field replaces Cache-Control and Expires (RFC 9213), except where these contain a decision of middleware.
func TestTargetedFields(t *testing.T) {
	const past, future = "Expires: Tue, 01 Feb 2000 03:04:05 GMT", "Expires: Tue, 01 Feb 2050 03:04:05 GMT"
	for _, test := range []struct {
		why    string
		status int
		fields []string
		kept   bool
	}{
		{"it alone", 200, []string{"Own: max-age=60"}, true},
		{"it allows more", 200, []string{"Own: max-age=60", "Cache-Control: no-store", past}, true},
		{"it allows less", 200, []string{"Own: no-store", "Cache-Control: max-age=60", future}, false},
		{"it says nothing of a lifetime", 200, []string{"Own: public", future}, false},
		{"the first that is listed counts", 200, []string{"Other: max-age=60", "Own: no-store"}, false},
		{"the second, if there is no other", 200, []string{"Other: max-age=60", "Cache-Control: no-store"}, true},
		{"one that isn't listed", 200, []string{"CDN-Cache-Control: max-age=60"}, false},
		{"lines are joined", 200, []string{"Own: public", "Own: max-age=60"}, true},
		{"the last of a name counts", 200, []string{"Own: max-age=60, max-age=0"}, false},
		{"also of several lines", 200, []string{"Own: max-age=0", "Own: max-age=60"}, true},
		{"parameters mean nothing", 200, []string{"Own: max-age=60;a=b, no-store=?0"}, true},
		{"a private answer", 200, []string{"Own: max-age=60, private"}, false},
		{"private fields", 200, []string{`Own: max-age=60, private="a"`}, false},
		{"private by Cache-Control", 200, []string{"Own: max-age=60", "Cache-Control: private"}, false},
		{"a time that is a string", 200, []string{`Own: max-age="60"`}, false},
		{"a time that is a decimal", 200, []string{"Own: max-age=60.0"}, false},
		{"a time without a value", 200, []string{"Own: max-age", "Cache-Control: max-age=60"}, false},
		{"a failure", 503, []string{"Own: max-age=60"}, false},
		{"what isn't found, and is said not to be stored", 404, []string{"Own: max-age=60", "Cache-Control: no-store"}, false},
		{"what isn't found, alone", 404, []string{"Own: max-age=60"}, false},
		{"what isn't found, by both", 404, []string{"Own: max-age=60", "Cache-Control: max-age=60"}, true},
		{"what isn't found, and not stored", 404, []string{"Own: no-store", "Cache-Control: max-age=60"}, false},
		{"what isn't found, and private", 404, []string{"Own: max-age=60, private", "Cache-Control: max-age=60"}, false},
		{"what isn't found, and for no time", 404, []string{"Own: max-age=0", "Cache-Control: max-age=60"}, false},
		{"what is gone, and to be validated", 410, []string{"Own: no-cache", "Cache-Control: max-age=60"}, false},
		{"a cookie", 200, []string{"Own: max-age=60", "Set-Cookie: a=b"}, false},
		// In these cases the targeted field is ignored.
		{"it is empty", 200, []string{"Own: ", "Cache-Control: max-age=60"}, true},
		{"it is no dictionary", 200, []string{"Own: no-store, &", "Cache-Control: max-age=60"}, true},
		{"it has capitals", 200, []string{"Own: Max-Age=60", "Cache-Control: no-store"}, false},
		{"one of its lines is wrong", 200, []string{"Own: max-age=60", "Own: ,", "Cache-Control: no-store"}, false},
		{"then the next counts", 200, []string{"Own: no-store,", "Other: max-age=60"}, true},
	} {
		h := &mwtest.Counting{Status: test.status, Fields: test.fields}
		s := servertest.New(t, cache.New(cache.Options{TargetedFields: []string{"Own", "other"}})(h.Serve))
		s.Do(t, "GET /")
		s.Do(t, "GET /")
		if got := h.Calls.Load() == 1; got != test.kept {
			t.Errorf("%s: %q is kept: %t", test.why, test.fields, got)
		}
	}
}

// A value that is a valid structured field means the same in a targeted field as in Cache-Control, for each kind of request.
func TestTargetedFieldsAgree(t *testing.T) {
	for _, value := range []string{
		"max-age=60", "s-maxage=60", "max-age=0, s-maxage=60", "max-age=60, s-maxage=0", "max-age=60, public", "max-age=60, must-revalidate",
		"max-age=60, no-cache", `max-age=60, no-cache="a"`, "max-age=60, no-store", "max-age=60, must-understand, no-store",
		"max-age=60, private", "public", "max-age=-1", "max-age=60, proxy-revalidate, stale-if-error=5", "foo, max-age=60, bar=(1 2);c",
	} {
		for _, request := range [][]string{nil, {"Cookie: a=b"}, {"Authorization: x"}, {"Cache-Control: max-age=30"}} {
			var calls [2]int64
			for i, fields := range [][]string{{"Cache-Control: " + value}, {"Own: " + value, "Cache-Control: no-store, max-age=7"}} {
				h := &mwtest.Counting{Fields: fields}
				s := servertest.New(t, cache.New(cache.Options{TargetedFields: []string{"Own"}})(h.Serve))
				for _, fields := range [][]string{request, request, nil, request} {
					s.Do(t, "GET /", fields...)
				}
				calls[i] = h.Calls.Load()
			}
			if calls[0] != calls[1] {
				t.Errorf("%q, requests with %q: the handler is called %d times by Cache-Control, %d times by the field", value, request, calls[0], calls[1])
			}
		}
	}
}

// For a failure both fields apply: a stored failure answers only requests that it would answer under each of the fields alone.
func TestTargetedFieldsOfFailures(t *testing.T) {
	calls := 0
	s := servertest.New(t, cache.New(cache.Options{TargetedFields: []string{"Own"}})(func(c *filo.Ctx) error {
		calls++
		for _, name := range []string{"Cache-Control", "Own"} {
			if value := c.Request.Query().Get(name); value != "" {
				c.Response.Header.Set(name, value)
			}
		}
		return c.Text(404, "")
	}))
	values := []string{"max-age=60", "no-store", "private", "max-age=0", "no-cache", "s-maxage=60", "public"}
	for _, request := range []string{"Foo: a", "Cookie: a=b", "Authorization: x"} {
		kept := func(says url.Values) bool {
			says.Set("request", request)
			calls = 0
			s.Do(t, "GET /?"+says.Encode(), request)
			s.Do(t, "GET /?"+says.Encode(), request)
			return calls < 2 // 0 if an earlier request has stored the answer
		}
		for _, one := range values {
			for _, other := range values {
				want := kept(url.Values{"Cache-Control": {one}}) && kept(url.Values{"Cache-Control": {other}})
				if got := kept(url.Values{"Cache-Control": {one}, "Own": {other}}); got != want {
					t.Errorf("Cache-Control %q, the field %q, requests with %q: is kept: %t", one, other, request, got)
				}
			}
		}
	}
}

// The middleware copies the list of names, and New panics if one of them isn't a valid field name.
func TestTargetedFieldsOption(t *testing.T) {
	names := []string{"Own"}
	h := &mwtest.Counting{Fields: []string{"Own: max-age=60"}}
	s := servertest.New(t, cache.New(cache.Options{TargetedFields: names})(h.Serve))
	names[0] = "Other"
	s.Do(t, "GET /")
	if s.Do(t, "GET /"); h.Calls.Load() != 1 {
		t.Error("the list is changed from outside")
	}
	for _, wrong := range []string{"", "a b", "a:"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is accepted", wrong)
				}
			}()
			cache.New(cache.Options{TargetedFields: slices.Concat(names, []string{wrong})})
		}()
	}
}
