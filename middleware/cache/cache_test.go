package cache_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// Answers are stored as RFC 9111, section 3, allows.
func TestStores(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		for _, test := range []struct {
			why     string
			status  int
			fields  []string
			request []string
			kept    bool
		}{
			{"nothing is said", 200, nil, nil, false},
			{"max-age", 200, []string{"Cache-Control: max-age=60"}, nil, true},
			{"max-age in quotes, in capitals", 200, []string{`Cache-Control: Max-Age="60"`}, nil, true},
			{"among other directives and fields", 200, []string{"Cache-Control: foo", "Cache-Control: public , max-age=60"}, nil, true},
			{"s-maxage goes before max-age", 200, []string{"Cache-Control: max-age=0, s-maxage=60"}, nil, true},
			{"s-maxage goes before max-age, the other way", 200, []string{"Cache-Control: max-age=60, s-maxage=0"}, nil, false},
			{"max-age=0", 200, []string{"Cache-Control: max-age=0"}, nil, false},
			{"max-age that isn't a number", 200, []string{"Cache-Control: max-age=-1"}, nil, false},
			{"max-age without end", 200, []string{"Cache-Control: max-age=99999999999999999999999"}, nil, true},
			{"max-age goes before Expires", 200, []string{"Cache-Control: max-age=0", "Expires: Tue, 01 Feb 2050 03:04:05 GMT"}, nil, false},
			{"Expires", 200, []string{"Expires: Tue, 01 Feb 2050 03:04:05 GMT"}, nil, true},
			{"Expires in the past", 200, []string{"Expires: Tue, 01 Feb 2000 03:04:05 GMT"}, nil, false},
			{"Expires that isn't a date", 200, []string{"Expires: 0"}, nil, false},
			{"Expires with two spaces", 200, []string{"Expires: Tue, 01  Feb  2050 03:04:05 GMT"}, nil, false},
			{"Expires with an hour of one digit", 200, []string{"Expires: Tue, 01 Feb 2050 3:04:05 GMT"}, nil, false},
			{"Expires with both, as long as a date", 200, []string{"Expires: Tue, 01  Feb 2050 3:04:05 GMT"}, nil, false},
			{"Expires with a fraction", 200, []string{"Expires: Tue, 01 Feb 2050 03:04:05.5 GMT"}, nil, false},
			{"Expires in another zone", 200, []string{"Expires: Tuesday, 01-Feb-50 03:04:05 CET"}, nil, false},
			{"Expires in the older forms", 200, []string{"Expires: Tuesday, 01-Feb-50 03:04:05 GMT"}, nil, true},
			{"Expires in the form of asctime", 200, []string{"Expires: Tue Feb  1 03:04:05 2050"}, nil, true},
			{"Expires in capitals, on the wrong day", 200, []string{"Expires: SUN, 01 FEB 2050 03:04:05 GMT"}, nil, true},
			{"a directive in a quoted string is none", 200, []string{`Cache-Control: ext="a, max-age=60, b"`}, nil, false},
			{"nor is one behind a quoted quote", 200, []string{`Cache-Control: max-age=60, ext="a\", no-store, b"`}, nil, true},
			{"but one behind a quoted string is", 200, []string{`Cache-Control: max-age=60, ext="a, b", no-store`}, nil, false},
			{"Expires by the answer's Date", 200, []string{"Date: Tue, 01 Feb 2050 03:04:05 GMT", "Expires: Tue, 01 Feb 2050 03:04:05 GMT"}, nil, false},
			{"no-store", 200, []string{"Cache-Control: max-age=60, no-store"}, nil, false},
			{"private", 200, []string{"Cache-Control: max-age=60, private"}, nil, false},
			{"private fields", 200, []string{`Cache-Control: max-age=60, private="x"`}, nil, false},
			{"no-cache", 200, []string{"Cache-Control: max-age=60, no-cache"}, nil, false},
			{"a cookie", 200, []string{"Cache-Control: max-age=60", "Set-Cookie: a=b"}, nil, false},
			{"Vary: *", 200, []string{"Cache-Control: max-age=60", "Vary: Accept, *"}, nil, false},
			{"an error that says so", 404, []string{"Cache-Control: max-age=60"}, nil, true},
			{"an error that may not", 503, []string{"Cache-Control: max-age=60"}, nil, false},
			{"a part", 206, []string{"Cache-Control: max-age=60", "Content-Range: bytes 0-0/1"}, nil, false},
			{"it is as old as it may get", 200, []string{"Cache-Control: max-age=60", "Age: 60"}, nil, false},
			{"the first of several ages counts", 200, []string{"Cache-Control: max-age=60", "Age: 7200, 0"}, nil, false},
			{"it is nearly so", 200, []string{"Cache-Control: max-age=60", "Age: 30"}, nil, true},
			{"the client wants nothing stored", 200, []string{"Cache-Control: max-age=60"}, []string{"Cache-Control: no-store"}, false},
			{"Authorization", 200, []string{"Cache-Control: max-age=60"}, []string{"Authorization: x"}, false},
			{"Authorization, public", 200, []string{"Cache-Control: max-age=60, public"}, []string{"Authorization: x"}, true},
			{"Authorization, s-maxage", 200, []string{"Cache-Control: s-maxage=60"}, []string{"Authorization: x"}, true},
			{"Authorization, must-revalidate", 200, []string{"Cache-Control: max-age=60, must-revalidate"}, []string{"Authorization: x"}, true},
			{"a part is asked for", 200, []string{"Cache-Control: max-age=60"}, []string{"Range: bytes=0-0"}, false},
		} {
			h := &mwtest.Counting{Status: test.status, Fields: test.fields}
			s := servertest.New(t, cache.New(in(cache.Options{}))(h.Serve))
			first := s.Do(t, "GET /", test.request...)
			second := s.Do(t, "GET /", test.request...)
			if kept := second.Body == first.Body; kept != test.kept || kept != (second.Header.Get("Age") != "" && len(second.Header.Values("Age")) == 1 && first.Header.Get("Age") != second.Header.Get("Age") || kept && second.Header.Get("Age") == "30") {
				t.Errorf("%s: %v and %v, want it kept: %t", test.why, first, second, test.kept)
			}
			if second.Status != first.Status {
				t.Errorf("%s: %d, then %d", test.why, first.Status, second.Status)
			}
		}
	})
}

// A client can't make other clients get a failure: the failure of its request isn't stored, and doesn't replace a stored answer.
func TestPoisoning(t *testing.T) {
	date := "Mon, 01 Feb 2021 03:04:05 GMT"
	fresh := func(next filo.Handler) filo.Handler { // makes every answer storable
		return func(c *filo.Ctx) error {
			err := next(c)
			if err != nil {
				c.RenderError(err)
			}
			c.Response.Header.Set("Cache-Control", "max-age=60")
			return nil
		}
	}
	tagged := mwtest.Wrap(func(c *filo.Ctx) error {
		c.Response.Header.Set("Last-Modified", mwtest.SomeDate)
		return mwtest.Hello(c)
	}, middleware.ETag())
	for _, test := range []struct {
		why      string
		handler  filo.Handler
		request  []string
		poisoned int
	}{
		{"If-Match", tagged, []string{`If-Match: "x"`}, 412},
		{"If-Unmodified-Since", tagged, []string{"If-Unmodified-Since: " + date}, 412},
		{"If-None-Match: *", tagged, []string{"If-None-Match: *"}, 304},
		{"If-Modified-Since", tagged, []string{"If-Modified-Since: " + mwtest.SomeDate}, 304},
		{"a precondition that is answered in another way", func(c *filo.Ctx) error {
			if middleware.Precondition(c, `"a"`, time.Time{}) == 412 {
				return filo.Error(404, "")
			}
			return mwtest.Hello(c)
		}, []string{`If-Match: "x"`}, 404},
		{"a field that can't be bound", func(c *filo.Ctx) error {
			var v struct {
				Page int `header:"X-Page"`
			}
			if err := bind.Header(c, &v); err != nil {
				return err
			}
			return mwtest.Hello(c)
		}, []string{"X-Page: x"}, 400},
		{"a malformed field", refusing("X-Bad", 400), []string{"X-Bad: 1"}, 400},
		{"a range", refusing("Range", 416), []string{"Range: bytes=9-"}, 416},
		{"what isn't acceptable", refusing("X-Bad", 406), []string{"X-Bad: 1"}, 406},
		{"too many requests", refusing("X-Bad", 429), []string{"X-Bad: 1"}, 429},
		{"what is forbidden", refusing("X-Bad", 403), []string{"X-Bad: 1"}, 403},
		{"a failure", refusing("X-Bad", 500), []string{"X-Bad: 1"}, 500},
	} {
		for _, options := range []cache.Options{{}, {IgnoreRequestDirectives: true, TTL: time.Minute}} {
			h := mwtest.Wrap(test.handler, cache.New(options), fresh)
			s := servertest.New(t, h)
			if got := s.Do(t, "GET /first", test.request...); got.Status != test.poisoned {
				t.Errorf("%s: %v, want %d", test.why, got, test.poisoned)
			}
			if got := s.Do(t, "GET /first"); got.Status != 200 || got.Body != "hello" {
				t.Errorf("%s: another client gets %v", test.why, got)
			}
			s.Do(t, "GET /second")
			s.Do(t, "GET /second", append(test.request, "Cache-Control: no-cache")...)
			if got := s.Do(t, "GET /second"); got.Status != 200 || got.Header.Get("Age") == "" {
				t.Errorf("%s: what was stored before is %v", test.why, got)
			}
		}
	}
}

// refusing returns a handler that answers a request that has the field with the status, and any other request with hello.
func refusing(field string, status int) filo.Handler {
	return func(c *filo.Ctx) error {
		if c.Request.Header.Has(field) {
			return filo.Error(status, "")
		}
		return mwtest.Hello(c)
	}
}

// A stored answer is used only for requests for which RFC 9111, sections 4 and 5.2.1, allows it.
func TestAnswers(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		for _, test := range []struct {
			why     string
			options cache.Options
			fields  []string // of the answer
			request string
			asks    []string
			status  int
			hit     bool
		}{
			{"the same again", cache.Options{}, nil, "GET /", nil, 200, true},
			{"HEAD", cache.Options{}, nil, "HEAD /", nil, 200, true},
			{"another target", cache.Options{}, nil, "GET /?", nil, 200, false},
			{"another host", cache.Options{}, nil, "GET http://other.test/", nil, 200, false},
			{"the same host in other letters", cache.Options{}, nil, "GET http://FILO.test/", nil, 200, true},
			{"another method", cache.Options{}, nil, "POST /", nil, 200, false},
			{"a body", cache.Options{}, nil, "GET /", []string{"Content-Length: 0"}, 200, true},
			{"no-cache", cache.Options{}, nil, "GET /", []string{"Cache-Control: no-cache"}, 200, false},
			{"Pragma", cache.Options{}, nil, "GET /", []string{"Pragma: no-cache"}, 200, false},
			{"no-cache of who isn't listened to", cache.Options{IgnoreRequestDirectives: true}, nil, "GET /", []string{"Cache-Control: no-cache"}, 200, true},
			{"Pragma of who isn't listened to", cache.Options{IgnoreRequestDirectives: true}, nil, "GET /", []string{"Pragma: no-cache"}, 200, true},
			{"not too old", cache.Options{}, nil, "GET /", []string{"Cache-Control: max-age=10"}, 200, true},
			{"too old", cache.Options{}, nil, "GET /", []string{"Cache-Control: max-age=9"}, 200, false},
			{"fresh for long enough", cache.Options{}, nil, "GET /", []string{"Cache-Control: min-fresh=50"}, 200, true},
			{"not fresh for long enough", cache.Options{}, nil, "GET /", []string{"Cache-Control: min-fresh=51"}, 200, false},
			{"the stored answer or none", cache.Options{}, nil, "GET /", []string{"Cache-Control: only-if-cached"}, 200, true},
			{"there is none", cache.Options{}, nil, "GET /other", []string{"Cache-Control: only-if-cached"}, 504, false},
			{"Authorization", cache.Options{}, nil, "GET /", []string{"Authorization: x"}, 200, false},
			{"Authorization, public", cache.Options{}, []string{"Cache-Control: public"}, "GET /", []string{"Authorization: x"}, 200, true},
			{"the client has it", cache.Options{}, []string{`ETag: "a"`}, "GET /", []string{`If-None-Match: "a"`}, 304, true},
			{"the client has another", cache.Options{}, []string{`ETag: "a"`}, "GET /", []string{`If-None-Match: "b"`}, 200, true},
			{"it would have another", cache.Options{}, []string{`ETag: "a"`}, "GET /", []string{`If-Match: "b"`}, 412, true},
			{"not modified", cache.Options{}, []string{"Last-Modified: " + mwtest.SomeDate}, "GET /", []string{"If-Modified-Since: " + mwtest.SomeDate}, 304, true},
			{"not modified since it was made", cache.Options{}, nil, "GET /", []string{"If-Modified-Since: Sat, 01 Jan 2000 00:00:01 GMT"}, 304, true},
			{"made in that second, as another may be", cache.Options{}, nil, "GET /", []string{"If-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT"}, 200, true},
			{"made since", cache.Options{}, nil, "GET /", []string{"If-Modified-Since: Fri, 31 Dec 1999 23:59:59 GMT"}, 200, true},
			{"nobody knows whether it was modified", cache.Options{}, nil, "GET /", []string{"If-Unmodified-Since: Fri, 31 Dec 1999 23:59:59 GMT"}, 200, true},
			{"the client has another, that isn't older", cache.Options{}, []string{`ETag: "a"`}, "GET /",
				[]string{`If-None-Match: "b"`, "If-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT"}, 200, true},
			{"the same Accept", cache.Options{}, []string{"Vary: Accept"}, "GET /", []string{"Accept: a", "X: y"}, 200, true},
			{"another Accept", cache.Options{}, []string{"Vary: Accept"}, "GET /", []string{"Accept: b"}, 200, false},
		} {
			synctest.Test(t, func(t *testing.T) {
				h := &mwtest.Counting{Fields: append([]string{"Cache-Control: max-age=60"}, test.fields...)}
				s := servertest.New(t, cache.New(in(test.options))(h.Serve))
				var accept []string
				if len(test.fields) > 0 && strings.HasPrefix(test.fields[0], "Vary") {
					accept = []string{"Accept: a"}
				}
				s.Do(t, "GET /", accept...)
				time.Sleep(10 * time.Second)
				got := s.Do(t, test.request, test.asks...)
				if hit := got.Header.Get("Age") == "10" || got.Status == 412; hit != test.hit || got.Status != test.status {
					t.Errorf("%s: %v, want %d from the cache: %t", test.why, got, test.status, test.hit)
				}
				if test.hit && h.Calls.Load() != 1 {
					t.Errorf("%s: the handler was called %d times", test.why, h.Calls.Load())
				}
			})
		}
	})
}

func TestExpiry(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		synctest.Test(t, func(t *testing.T) {
			h := &mwtest.Counting{}
			s := servertest.New(t, cache.New(in(cache.Options{TTL: time.Minute}))(h.Serve))
			first := s.Do(t, "GET /")
			time.Sleep(59 * time.Second)
			if got := s.Do(t, "GET /"); got.Body != "1" || got.Header.Get("Age") != "59" || got.Header.Get("Date") != first.Header.Get("Date") {
				t.Errorf("within its TTL: %v", got)
			}
			time.Sleep(time.Second)
			if got := s.Do(t, "GET /"); got.Body != "2" || got.Header.Get("Age") != "" {
				t.Errorf("stale: %v", got)
			}
			if got := s.Do(t, "GET /?q"); got.Body != "3" {
				t.Errorf("another target: %v", got)
			}
			h.Status = 503
			s.Do(t, "GET /error")
			if got := s.Do(t, "GET /error"); got.Body != "5" {
				t.Errorf("TTL isn't for every status: %v", got)
			}
		})
	})
}

// Several responses that vary are stored at the same time. Once they vary by other fields, the earlier responses aren't found any more.
func TestVary(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		vary := "Accept-Language"
		calls := 0
		s := servertest.New(t, cache.New(in(cache.Options{TTL: time.Minute}))(func(c *filo.Ctx) error {
			calls++
			c.Response.Header.Set("Vary", vary)
			return c.Text(200, fmt.Sprintln(calls, c.Request.Header.Get("Accept-Language"), c.Request.Header.Get("X")))
		}))
		for i, step := range []struct {
			vary   string
			fields []string
			want   string
		}{
			{"Accept-Language", []string{"Accept-Language: de"}, "1 de"},
			{"Accept-Language", []string{"Accept-Language: en"}, "2 en"},
			{"Accept-Language", []string{"Accept-Language: de"}, "1 de"},
			{"Accept-Language", []string{"Accept-Language: en"}, "2 en"},
			{"Accept-Language", nil, "3 "},
			{"x, accept-language", []string{"Accept-Language: fr", "X: 1"}, "4 fr 1"},
			{"Accept-Language,X", []string{"Accept-Language: fr", "X: 2"}, "5 fr 2"},
			{"Accept-Language,X", []string{"Accept-Language: fr", "X: 1"}, "4 fr 1"},
			{"Accept-Language", []string{"Accept-Language: de"}, "6 de"},
		} {
			vary = step.vary
			if got := s.Do(t, "GET /", step.fields...); strings.Join(strings.Fields(got.Body), " ") != strings.TrimSpace(step.want) {
				t.Errorf("%d: %q, want %q", i, got.Body, step.want)
			}
		}
	})
}

// The format of an error depends on the request: a client that asks for JSON doesn't cause other clients to get JSON.
func TestErrorForm(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		calls := 0
		r := router.New()
		r.Use(cache.New(in(cache.Options{TTL: time.Minute})))
		r.GET("/", func(c *filo.Ctx) error {
			calls++
			c.Response.Header.Set("Vary", "X")
			return filo.Error(404, "none")
		})
		s := servertest.New(t, r.Serve)
		asJSON, sendsJSON := "Accept: application/json", "Content-Type: application/json"
		for i, step := range []struct {
			field, contentType string
			calls              int
		}{
			{asJSON, "application/problem+json", 1},
			{"Y: 1", "text/plain; charset=utf-8", 2},
			{sendsJSON, "application/problem+json", 3},
			{asJSON, "application/problem+json", 3},
			{"Y: 2", "text/plain; charset=utf-8", 3},
			{sendsJSON, "application/problem+json", 3},
			{"X: 1", "text/plain; charset=utf-8", 4},
		} {
			got := s.Do(t, "GET /", step.field)
			if got.Header.Get("Content-Type") != step.contentType || calls != step.calls {
				t.Errorf("%d: %s: %v by call %d, want %s by call %d", i, step.field, got, calls, step.contentType, step.calls)
			}
			if vary := strings.Join(got.Header.Values("Vary"), ", "); vary != "X, Accept" {
				t.Errorf("%d: %s: Vary is %q, which other caches go by", i, step.field, vary)
			}
		}
	})
}

// A request that may change something removes the answer, if it succeeds (RFC 9111, section 4.4).
func TestInvalidation(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		for _, test := range []struct {
			request string
			kept    bool
		}{{"POST /", false}, {"DELETE /", false}, {"POST /fail", true}, {"OPTIONS /", true}, {"POST /other", true}} {
			h := &mwtest.Counting{}
			s := servertest.New(t, cache.New(in(cache.Options{TTL: time.Minute}))(func(c *filo.Ctx) error {
				if c.Path() == "/fail" {
					return filo.Error(400, "")
				}
				return h.Serve(c)
			}))
			s.Do(t, "GET /")
			s.Do(t, test.request)
			if got := s.Do(t, "GET /"); (got.Body == "1") != test.kept {
				t.Errorf("%s: %v, want it kept: %t", test.request, got, test.kept)
			}
		}
	})
}

// If a handler's time-out has answered, or its answer has streamed, the answers are removed when the handler returns: its change may have
// come after its answer.
func TestLateInvalidation(t *testing.T) {
	for _, test := range []struct {
		name string
		put  filo.Handler
		end  error
	}{
		{"a time-out", func(c *filo.Ctx) error { <-c.Context().Done(); return nil }, nil},
		{"a time-out and an error", func(c *filo.Ctx) error { <-c.Context().Done(); return nil }, errors.New("late")},
		{"a stream", func(c *filo.Ctx) error {
			w := c.Stream()
			io.WriteString(w, "soon")
			return w.Flush()
		}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			value, change := "old", make(chan struct{})
			s := servertest.New(t, mwtest.Wrap(func(c *filo.Ctx) error {
				if c.Method() == "GET" {
					return c.Text(200, value)
				}
				if err := test.put(c); err != nil {
					return err
				}
				<-change
				value = "new"
				return test.end
			}, cache.New(cache.Options{TTL: time.Hour}), middleware.Timeout(middleware.TimeoutOptions{Timeout: time.Second})))
			conn := s.Dial(t)
			io.WriteString(conn, servertest.Request("PUT /", "new"))
			time.Sleep(2 * time.Second)
			if got := s.Do(t, "GET /"); got.Body != "old" {
				t.Errorf("%s: before the change: %v", test.name, got)
			}
			close(change)
			synctest.Wait()
			if got := s.Do(t, "GET /"); got.Body != "new" {
				t.Errorf("%s: after the change: %v", test.name, got)
			}
		})
	}
}

// A change that is refused by a streamed answer leaves the stored answers as they are.
func TestStreamedRefusalInvalidatesNothing(t *testing.T) {
	value := "old"
	s := servertest.New(t, cache.New(cache.Options{TTL: time.Hour})(func(c *filo.Ctx) error {
		if c.Method() == "GET" {
			return c.Text(200, value)
		}
		c.Response.SetStatus(403)
		w := c.Stream()
		io.WriteString(w, "no")
		return w.Flush()
	}))
	for range 2 {
		if got := s.Do(t, "GET /"); got.Body != "old" {
			t.Errorf("got %v", got)
		}
		if got := s.DoBody(t, "PUT /", "new"); got.Status != 403 {
			t.Errorf("the change: %v", got)
		}
		value = "new"
	}
}

// Fields that middleware outside sets belong to the current request, not to the request whose answer was stored.
func TestOuterFields(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		id := 0
		outside := func(next filo.Handler) filo.Handler {
			return func(c *filo.Ctx) error {
				id++
				c.Response.Header.Set("X-Request-Id", fmt.Sprint(id))
				c.Response.Header.Set("Vary", "Origin")
				c.Response.Header.Set("Cache-Control", "no-store")
				return next(c)
			}
		}
		s := servertest.New(t, mwtest.Wrap(func(c *filo.Ctx) error {
			c.Response.Header.Set("Cache-Control", "max-age=60")
			c.Response.Header.Add("Vary", "Accept")
			c.Response.Header.Add("Link", "<a>")
			c.Response.Header.Add("Link", "<b>")
			c.Response.Header.Set("Connection", "X-Hop")
			return mwtest.Hello(c)
		}, outside, cache.New()))
		for i := range 3 {
			got := s.Do(t, "GET /")
			if got.Header.Get("X-Request-Id") != fmt.Sprint(i+1) || strings.Join(got.Header.Values("Vary"), ",") != "Origin,Accept" ||
				strings.Join(got.Header.Values("Cache-Control"), ",") != "max-age=60" || strings.Join(got.Header.Values("Link"), ",") != "<a>,<b>" {
				t.Errorf("%d: %v", i, got.Header)
			}
			if i > 0 && (got.Header.Get("Age") != "0" || got.Header.Get("Connection") != "") {
				t.Errorf("%d: %v, want it from the cache", i, got.Header)
			}
		}
	})
}

// Of many simultaneous requests for one answer only the first reaches the handler. If its answer isn't stored, the requests don't wait for
// each other any more.
func TestSingleFlight(t *testing.T) {
	for _, test := range []struct {
		why   string
		ttl   time.Duration
		fail  string
		calls int64
		took  time.Duration
	}{
		{"kept", time.Minute, "", 1, time.Second},
		{"not kept", 0, "", 20, 2 * time.Second},
		{"an error", time.Minute, "error", 20, 2 * time.Second},
		{"a panic", time.Minute, "panic", 20, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			s := servertest.New(t, cache.New(cache.Options{TTL: test.ttl})(func(c *filo.Ctx) error {
				n := calls.Add(1)
				time.Sleep(time.Second)
				if test.fail != "" && n == 1 {
					if test.fail == "panic" {
						panic("in the handler")
					}
					return filo.Error(500, "")
				}
				if test.fail != "" {
					return filo.Error(500, "")
				}
				return mwtest.Hello(c)
			}))
			start := time.Now()
			var wait sync.WaitGroup
			for range 20 {
				wait.Go(func() {
					if got := s.Do(t, "GET /"); got.Status != 200 && test.fail == "" {
						t.Errorf("%s: %v", test.why, got)
					}
				})
			}
			wait.Wait()
			if took := time.Since(start); took > test.took || test.fail != "panic" && calls.Load() != test.calls {
				t.Errorf("%s: %d calls in %v, want %d in %v", test.why, calls.Load(), took, test.calls, test.took)
			}
		})
	}
}

// An answer that streams isn't kept. Requests that wait for it continue when it begins, since it may never end.
func TestStream(t *testing.T) {
	for _, vary := range []string{"", "Accept"} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			begin, end := make(chan struct{}), make(chan struct{})
			s := servertest.New(t, cache.New(cache.Options{TTL: time.Minute})(func(c *filo.Ctx) error {
				c.Response.Header.Set("Vary", vary)
				if c.Request.Header.Get("Accept") == "other" || calls.Add(1) > 1 {
					return mwtest.Hello(c)
				}
				<-begin
				err := c.Stream().Flush()
				<-end
				return err
			}))
			s.Do(t, "GET /", "Accept: other") // stores the rule by which the answers vary
			if vary == "" {
				s.Do(t, "POST /", "Accept: other")
			}
			first := make(chan servertest.Answer)
			go func() { first <- s.Do(t, "GET /") }()
			synctest.Wait()
			var wait sync.WaitGroup
			start := time.Now()
			for range 10 {
				wait.Go(func() {
					if got := s.Do(t, "GET /"); got.Body != "hello" {
						t.Errorf("who has waited: %v", got)
					}
				})
			}
			synctest.Wait()
			close(begin)
			wait.Wait()
			if got := s.Do(t, "GET /"); got.Body != "hello" || time.Since(start) > 0 {
				t.Errorf("who comes later: %v, after %v", got, time.Since(start))
			}
			close(end)
			<-first
		})
	}
}

// No request waits for longer than 5 seconds. When a request has waited in vain, later requests don't wait.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		end := make(chan struct{})
		s := servertest.New(t, cache.New(cache.Options{TTL: time.Minute})(func(c *filo.Ctx) error {
			if calls.Add(1) == 1 {
				<-end
			}
			return c.Text(200, fmt.Sprint(calls.Load()))
		}))
		first := make(chan servertest.Answer)
		go func() { first <- s.Do(t, "GET /") }()
		synctest.Wait()
		start := time.Now()
		if got := s.Do(t, "GET /"); got.Body != "2" || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %v, want it after 5 seconds", got, time.Since(start))
		}
		if got := s.Do(t, "GET /"); got.Header.Get("Age") != "0" || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %v, want it from the cache", got, time.Since(start))
		}
		close(end)
		<-first
	})
}

// TTL doesn't apply to requests with cookies, since an answer that states no lifetime may have been made for one client's cookies.
func TestCookies(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		for _, test := range []struct {
			why           string
			fields        []string
			first, second []string
			hit           bool
		}{
			{"no cookies", nil, nil, nil, true},
			{"the first has some", nil, []string{"Cookie: a=1"}, nil, false},
			{"the second has some", nil, nil, []string{"Cookie: a=1"}, false},
			{"both have the same", nil, []string{"Cookie: a=1"}, []string{"Cookie: a=1"}, false},
			{"it varies by them", []string{"Vary: Accept, Cookie"}, []string{"Cookie: a=1"}, []string{"Cookie: a=1"}, true},
			{"and they are others", []string{"Vary: Accept, Cookie"}, []string{"Cookie: a=1"}, []string{"Cookie: a=2"}, false},
			{"it varies by something else", []string{"Vary: Accept"}, []string{"Cookie: a=1"}, []string{"Cookie: a=1"}, false},
			{"it is public", []string{"Cache-Control: public"}, []string{"Cookie: a=1"}, []string{"Cookie: a=2"}, true},
			{"it has a max-age", []string{"Cache-Control: max-age=9"}, []string{"Cookie: a=1"}, []string{"Cookie: a=2"}, true},
			{"it has an s-maxage", []string{"Cache-Control: s-maxage=9"}, nil, []string{"Cookie: a=2"}, true},
			{"it expires", []string{"Expires: Tue, 01 Feb 2050 03:04:05 GMT"}, []string{"Cookie: a=1"}, nil, true},
		} {
			h := &mwtest.Counting{Fields: test.fields}
			s := servertest.New(t, cache.New(in(cache.Options{TTL: time.Minute}))(h.Serve))
			s.Do(t, "GET /", test.first...)
			if got := s.Do(t, "GET /", test.second...); (got.Header.Get("Age") != "") != test.hit {
				t.Errorf("%s: %v, want it from the cache: %t", test.why, got, test.hit)
			}
		}
	})
}

// A client's directives don't make the cache call the handler more often than for other clients.
func TestIgnoresDirectives(t *testing.T) {
	for _, field := range []string{"Cache-Control: no-store", "Cache-Control: no-cache", "Cache-Control: max-age=0", "Cache-Control: only-if-cached", "Pragma: no-cache", "Range: bytes=0-0"} {
		h := new(mwtest.Counting)
		s := servertest.New(t, cache.New(cache.Options{TTL: time.Minute, IgnoreRequestDirectives: true})(h.Serve))
		for range 3 {
			if got := s.Do(t, "GET /", field); got.Status != 200 || got.Body != "1" {
				t.Errorf("%s: %v", field, got)
			}
		}
	}
}

// A client that requests thousands of targets, each of them once, doesn't displace answers that others request repeatedly.
func TestFlood(t *testing.T) {
	for _, test := range []struct {
		why  string
		kept bool // the answers to the flood are stored
		long int  // the length of its targets in bytes
		n    int
	}{
		{"answers that aren't kept", false, 10, 2000},
		{"targets that are long", false, 4000, 200},
		{"answers that are", true, 10, 2000},
		{"both", true, 4000, 200},
	} {
		calls := make(map[string]int)
		s := servertest.New(t, cache.New(cache.Options{MaxBytes: 100_000})(func(c *filo.Ctx) error {
			calls[c.Path()]++
			if test.kept || strings.HasPrefix(c.Path(), "/popular") {
				c.Response.Header.Set("Cache-Control", "max-age=60")
			}
			return c.Text(200, strings.Repeat("x", 1000))
		}))
		popular := func() {
			for i := range 20 {
				s.Do(t, fmt.Sprintf("GET /popular%d", i))
			}
		}
		popular()
		popular()
		tail := strings.Repeat("x", test.long)
		for i := range test.n {
			s.Do(t, fmt.Sprintf("GET /%d/%s", i, tail))
		}
		popular()
		for i := range 20 {
			if n := calls[fmt.Sprintf("/popular%d", i)]; n != 1 {
				t.Errorf("%s: the handler was called %d times for /popular%d", test.why, n, i)
			}
		}
		if last := fmt.Sprintf("GET /%d/%s", test.n-1, tail); test.kept && s.Do(t, last).Header.Get("Age") == "" {
			t.Errorf("%s: the last answer wasn't kept", test.why)
		}
	}
}

// Requests with different long targets, or with different long values of a field by which an answer varies, don't get each other's answers.
// Their answers take no more memory than answers with short keys.
func TestLongKeys(t *testing.T) {
	long := strings.Repeat("x", 3000)
	h := &mwtest.Counting{Fields: []string{"Cache-Control: max-age=60", "Vary: X"}}
	s := servertest.New(t, cache.New(cache.Options{MaxBytes: 20_000})(h.Serve))
	var requests [][2]string
	for _, target := range []string{"/", "/" + long, "/" + long + "y"} {
		for _, value := range []string{"", long, long + "y"} {
			requests = append(requests, [2]string{target, value})
		}
	}
	for range 2 {
		for i, r := range requests {
			if got := s.Do(t, "GET "+r[0], "X: "+r[1]); got.Body != fmt.Sprint(i+1) {
				t.Errorf("request %d: %v", i, got)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	h := &mwtest.Counting{}
	s := servertest.New(t, cache.New(cache.Options{TTL: time.Minute, MaxBytes: 20_000, MaxBodyBytes: 1000})(func(c *filo.Ctx) error {
		h.Calls.Add(1)
		switch c.Path() {
		case "/large":
			return c.Text(200, strings.Repeat("x", 1001))
		case "/stream":
			w := c.Stream()
			io.WriteString(w, "hello")
			return w.Flush()
		}
		return c.Text(200, strings.Repeat("x", 1000))
	}))
	for _, path := range []string{"/large", "/stream"} {
		for range 2 {
			if got := s.Do(t, "GET "+path); got.Header.Get("Age") != "" {
				t.Errorf("%s was kept", path)
			}
		}
	}
	for i := range 100 {
		s.DoBody(t, fmt.Sprintf("GET /%d", i), "")
	}
	kept := 0
	for i := range 100 {
		if s.DoBody(t, fmt.Sprintf("GET /%d", 99-i), "", "Cache-Control: only-if-cached").Status == 200 {
			kept++
		}
	}
	if kept == 0 || kept > 20 {
		t.Errorf("%d answers of 1000 bytes are kept in 20,000", kept)
	}
	mwtest.MustPanic(t, "cache", map[string]func(){
		"negative MaxBytes":     func() { cache.New(cache.Options{MaxBytes: -1}) },
		"negative MaxBodyBytes": func() { cache.New(cache.Options{MaxBodyBytes: -1}) },
		"a negative TTL":        func() { cache.New(cache.Options{TTL: -1}) },
	})
}

func ExampleNew() {
	calls := 0
	h := cache.New()(func(c *filo.Ctx) error {
		calls++
		c.Response.Header.Set("Cache-Control", "max-age=60")
		return c.Text(200, fmt.Sprint("call ", calls))
	})
	mwtest.Show(h, []string{"Age"}, "GET /")
	mwtest.Show(h, []string{"Age"}, "GET /")
	// Output:
	// 200 call 1
	// 200 call 1
	// Age: 0
}

func BenchmarkNew(b *testing.B) {
	cache := cache.New(cache.Options{TTL: time.Hour})
	b.Run("hit", func(b *testing.B) { mwtest.Benchmark(b, cache(mwtest.Hello), "GET /") })
	b.Run("miss", func(b *testing.B) { mwtest.Benchmark(b, cache(mwtest.Hello), "GET /other", "Cache-Control: no-cache") })
}

// A guard inside of a cache decides about each request. The answer to an admitted request isn't stored, whatever its Cache-Control is, and
// neither is a refusal, since admitted clients would get it.
func TestGuardInside(t *testing.T) {
	const token = "0123456789abcdef"
	for field, guarded := range map[string]middleware.GuardOptions{
		"X-Admin: 1":                     {Allow: func(c *filo.Ctx) bool { return c.Request.Header.Has("X-Admin") }},
		"Authorization: Bearer " + token: {Token: token},
	} {
		for _, control := range []string{"", "max-age=60", "public, max-age=60"} {
			n := 0
			r := router.New() // renders errors innermost
			r.GET("/", func(c *filo.Ctx) error {
				if n++; control != "" {
					c.Response.Header.Set("Cache-Control", control)
				}
				return c.Text(200, fmt.Sprint(n))
			}, cache.New(cache.Options{TTL: time.Minute}), middleware.Guard(guarded))
			s := servertest.New(t, r.Serve)
			refused := s.Do(t, "GET /").Status
			for n := range 2 {
				if got := s.Do(t, "GET /", field); got.Status != 200 || got.Body != fmt.Sprint(n+1) {
					t.Errorf("%s, %q: who is let in gets %v, want a new answer", field, control, got)
				}
			}
			if got := s.Do(t, "GET /"); refused < 400 || got.Status != refused {
				t.Errorf("%s, %q: who isn't let in gets %v, want %d", field, control, got, refused)
			}
		}
	}
}
