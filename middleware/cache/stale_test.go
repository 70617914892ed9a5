package cache_test

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/servertest"
)

// A stale answer is validated: a 304 makes it fresh again, with the fields of the 304. Any other answer replaces it.
func TestValidation(t *testing.T) {
	date := "Mon, 01 Feb 2021 03:04:05 GMT"
	eachStore(t, func(t *testing.T, in kind) {
		for _, test := range []struct {
			why              string
			fields           string // of the first answer
			request          string // of the second
			validated, fresh bool   // the second request validates the answer, and the third is answered without the handler
		}{
			{"an entity tag", `ETag: "a"`, "", true, true},
			{"a weak one", `ETag: W/"a"`, "", true, true},
			{"a date", "Last-Modified: " + date, "", true, true},
			{"what varies", "ETag: \"a\"\nVary: Accept", "Accept: b", true, true},
			{"no-cache", "ETag: \"a\"\nCache-Control: no-cache", "", true, false},
			{"max-age=0", "ETag: \"a\"\nCache-Control: max-age=0", "", true, false},
			{"no-cache that is private", "ETag: \"a\"\nCache-Control: no-cache, private", "", false, false},
			{"no-cache for a user", "ETag: \"a\"\nCache-Control: no-cache", "Authorization: x", false, false},
			{"nothing to recognize it by", "A: b", "", false, true},
			{"the client has conditions itself", `ETag: "a"`, `If-None-Match: "b"`, false, true},
		} {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				s := servertest.New(t, cache.New(in(cache.Options{}))(func(c *filo.Ctx) error {
					calls++
					h, asked := &c.Response.Header, &c.Request.Header
					h.Set("Cache-Control", "max-age=10")
					for line := range strings.Lines(test.fields) {
						name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
						h.Set(name, value)
					}
					if asked.Has("If-None-Match") && !asked.Has("Own") || asked.Has("If-Modified-Since") {
						if got := asked.Get("If-None-Match") + asked.Get("If-Modified-Since"); got != h.Get("ETag")+h.Get("Last-Modified") {
							return c.Text(200, "conditions of the client")
						}
						h.Set("Renewed", "yes")
						h.Set("Content-Type", "text/x")
						c.Response.SetStatus(304)
						return nil
					}
					h.Set("Age", "3")
					return c.Text(200, "one")
				}))
				var request []string
				if test.request != "" {
					request = []string{test.request}
				}
				ask := func() servertest.Answer { return s.Do(t, "GET /", request...) }
				s.Do(t, "GET /", "Accept: b")
				time.Sleep(20 * time.Second)
				second := ask()
				if second.Status != 200 || (second.Header.Get("Renewed") == "yes") != test.validated || test.validated && second.Body != "one" {
					t.Errorf("%s: %d %q %v, want it validated: %t", test.why, second.Status, second.Body, second.Header, test.validated)
				}
				if test.validated && (second.Header.Get("Age") != "" || second.Header.Get("Content-Type") != "text/plain; charset=utf-8") {
					t.Errorf("%s: the validated answer has %v", test.why, second.Header)
				}
				if strings.Contains(test.request, "If-") {
					return
				}
				before := calls
				third := ask()
				if fresh := calls == before; fresh != test.fresh || third.Status != 200 || (third.Header.Get("Renewed") == "yes") != test.validated {
					t.Errorf("%s: %d %v afterwards, want it fresh: %t", test.why, third.Status, third.Header, test.fresh)
				}
			})
		}
	})
}

// If a client asks for a new answer (no-cache), the cache validates the stored one.
func TestValidationForNoCache(t *testing.T) {
	h := &mwtest.Counting{Fields: []string{"Cache-Control: max-age=10", `ETag: "a"`}}
	s := servertest.New(t, mwtest.Wrap(h.Serve, cache.New(), middleware.ETag()))
	s.Do(t, "GET /")
	if got := s.Do(t, "GET /", "Cache-Control: no-cache"); got.Status != 200 || got.Body != "1" || h.Calls.Load() != 2 {
		t.Errorf("%v after %d calls, want what was stored, which the handler says is the same", got, h.Calls.Load())
	}
}

// An answer that was validated before a change isn't stored after the change, nor is it served instead of a failure.
func TestChangeWhileRefreshed(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		for _, fails := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				value := "old"
				reading, answer := make(chan struct{}), make(chan struct{})
				s := servertest.New(t, cache.New(in(cache.Options{}))(func(c *filo.Ctx) error {
					h := &c.Response.Header
					h.Set("Cache-Control", "max-age=10, stale-if-error=100")
					h.Set("ETag", `"`+value+`"`)
					switch {
					case c.Method() == "PUT":
						value = "new"
						return c.NoContent()
					case c.Request.Header.Get("If-None-Match") == `"old"` && value == "old":
						reading <- struct{}{}
						<-answer
						if fails {
							return errors.New("failed")
						}
						c.Response.SetStatus(304)
						return nil
					}
					return c.Text(200, value)
				}))
				s.Do(t, "GET /")
				time.Sleep(20 * time.Second)
				slow := make(chan servertest.Answer)
				go func() { slow <- s.Do(t, "GET /") }()
				<-reading
				s.Do(t, "PUT /")
				answer <- struct{}{}
				if got := <-slow; fails && got.Status != 500 || !fails && got.Body != "old" {
					t.Errorf("fails %t: %v", fails, got)
				}
				if got := s.Do(t, "GET /"); got.Body != "new" {
					t.Errorf("fails %t: %v behind the change", fails, got)
				}
			})
		}
	})
}

// A stale answer is served while a new answer is made, or if making a new answer fails, provided that the handler has allowed this, and for
// as long as it has allowed it.
func TestServesStale(t *testing.T) {
	const failing = "failing"
	eachStore(t, func(t *testing.T, in kind) {
		for _, test := range []struct {
			why, directives string
			after           time.Duration
			status          int // of the second answer; 0 is an error
			request         string
			while, failed   bool // the stale answer is served
		}{
			{"nothing is said", "max-age=10", 15 * time.Second, 503, "", false, false},
			{"while it is made anew", "max-age=10, stale-while-revalidate=10", 15 * time.Second, 503, "", true, false},
			{"too late", "max-age=10, stale-while-revalidate=10", 21 * time.Second, 503, "", false, false},
			{"if that fails", "max-age=10, stale-if-error=10", 15 * time.Second, 503, "", false, true},
			{"by an error", "max-age=10, stale-if-error=10", 15 * time.Second, 0, "", false, true},
			{"not for a client's failure", "max-age=10, stale-if-error=10", 15 * time.Second, 404, "", false, false},
			{"too late for that", "max-age=10, stale-if-error=10", 21 * time.Second, 503, "", false, false},
			{"must-revalidate", "max-age=10, must-revalidate, stale-while-revalidate=10, stale-if-error=10", 15 * time.Second, 503, "", false, false},
			{"proxy-revalidate", "max-age=10, proxy-revalidate, stale-while-revalidate=10, stale-if-error=10", 15 * time.Second, 503, "", false, false},
			{"s-maxage", "s-maxage=10, stale-while-revalidate=10, stale-if-error=10", 15 * time.Second, 503, "", false, false},
			{"the client wants another", "max-age=10, stale-if-error=10", 15 * time.Second, 503, "Cache-Control: no-cache", false, false},
			{"the client wants one that isn't so old", "max-age=10, stale-if-error=10", 15 * time.Second, 503, "Cache-Control: max-age=14", false, false},
		} {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				calls, hold := 0, make(chan struct{})
				s := servertest.New(t, mwtest.Wrap(func(c *filo.Ctx) error {
					mu.Lock()
					calls++
					first := calls == 1
					mu.Unlock()
					if first {
						c.Response.Header.Set("Cache-Control", test.directives)
						return c.Text(200, "stale")
					}
					<-hold
					c.Response.Header.Set("Failing", "yes")
					c.Response.Trailer.Set("Failing", "yes")
					io.WriteString(c.Stream(), failing)
					if test.status == 0 {
						return errors.New("failed")
					}
					return c.Text(test.status, failing)
				}, func(next filo.Handler) filo.Handler {
					return func(c *filo.Ctx) error {
						err := next(c)
						if c.Response.Trailer.Len() > 0 {
							c.Response.Header.Set("Failing", "in the trailer")
						}
						return err
					}
				}, cache.New(in(cache.Options{}))))
				s.Do(t, "GET /")
				time.Sleep(test.after)
				answers := make(chan servertest.Answer, 2)
				var request []string
				if test.request != "" {
					request = []string{test.request}
				}
				go func() { answers <- s.Do(t, "GET /", request...) }()
				synctest.Wait()
				go func() { answers <- s.Do(t, "GET /", request...) }()
				synctest.Wait()
				if while := len(answers) == 1; while != test.while {
					t.Errorf("%s: an answer while another is made: %t", test.why, while)
				} else if while {
					if got := <-answers; got.Body != "stale" || got.Header.Get("Age") != "15" {
						t.Errorf("%s: %v while another is made", test.why, got)
					}
					answers <- servertest.Answer{}
				}
				close(hold)
				got, other := <-answers, <-answers
				if got.Status == 0 {
					got = other
				}
				if stale := got.Body == "stale"; stale != test.failed || got.Header.Get("Failing") != "" && stale {
					t.Errorf("%s: %v %v, want the stale one: %t", test.why, got, got.Header, test.failed)
				}
			})
		}
	})
}

// A request for a range is answered from a stored complete answer.
func TestRanges(t *testing.T) {
	date := "Mon, 01 Feb 1999 03:04:05 GMT"
	eachStore(t, func(t *testing.T, in kind) {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			s := servertest.New(t, cache.New(in(cache.Options{}))(func(c *filo.Ctx) error {
				calls++
				h := &c.Response.Header
				h.Set("Cache-Control", "max-age=60")
				h.Set("ETag", `"a"`)
				h.Set("Last-Modified", date)
				return c.Text(200, "0123456789")
			}))
			s.Do(t, "GET /")
			for _, test := range []struct {
				value, condition, body string
				status                 int
				hit                    bool
			}{
				{"bytes=0-1", "", "01", 206, true},
				{"bytes=8-", "", "89", 206, true},
				{"bytes=-1", "", "9", 206, true},
				{"bytes=5-99", "", "56789", 206, true},
				{"bytes=0-1", `If-Range: "a"`, "01", 206, true},
				{"bytes=0-1", `If-Range: "b"`, "0123456789", 200, true},
				{"bytes=0-1", `If-Range: W/"a"`, "0123456789", 200, true},
				{"bytes=0-1", "If-Range: " + date, "01", 206, true},
				{"bytes=0-1", "If-Range: Mon, 01 Feb 1999 03:04:06 GMT", "0123456789", 200, true},
				{"bytes=0-1", `If-None-Match: "a"`, "", 304, true},
				{"bytes=0-1", `If-Match: "b"`, "Precondition Failed", 412, true},
				{"bytes=0-1", "Cache-Control: no-cache", "0123456789", 200, false},
				{"bytes=0-1,4-5", "", "0123456789", 200, false}, // this handler ignores Range
				{"bytes=10-", "", "0123456789", 200, false},
				{"pages=1", "", "0123456789", 200, false},
			} {
				before := calls
				got := s.Do(t, "GET /", append([]string{"Range: " + test.value}, strings.Split(test.condition, "\n")...)...)
				if got.Status != test.status || !strings.Contains(got.Body, test.body) || (calls == before) != test.hit {
					t.Errorf("%s, %s: %v, called %d times; want %d %q", test.value, test.condition, got, calls-before, test.status, test.body)
				}
				if want := test.status == 206; (got.Header.Get("Content-Range") != "") != want || want && len(got.Body) != len(test.body) {
					t.Errorf("%s, %s: %v", test.value, test.condition, got.Header)
				}
			}
			if got := s.Do(t, "HEAD /", "Range: bytes=0-1"); got.Status != 200 || got.Header.Get("Content-Length") != "10" {
				t.Errorf("HEAD: %v %v", got, got.Header)
			}
			if got := s.Do(t, "GET /"); got.Body != "0123456789" || got.Header.Get("Content-Range") != "" {
				t.Errorf("the whole afterwards: %v", got)
			}
		})
	})
}

// Cache-Status says how the cache has handled the request (RFC 9211).
func TestCacheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &mwtest.Counting{Fields: []string{"Cache-Control: max-age=10, stale-if-error=10", "Vary: Accept", "Cache-Status: Origin; hit"}}
		s := servertest.New(t, cache.New()(h.Serve))
		for i, test := range []struct {
			wait    time.Duration
			request string
			want    string
		}{
			{0, "Accept: a", "filo; fwd=uri-miss; stored"},
			{time.Second, "Accept: a", "filo; hit; ttl=9"},
			{0, "Accept: b", "filo; fwd=vary-miss; stored"},
			{0, "Cache-Control: no-store", ""},
			{10 * time.Second, "Accept: a", "filo; fwd=stale; stored"},
			{0, "Accept: a\nCache-Control: no-cache", "filo; fwd=request; stored"},
		} {
			time.Sleep(test.wait)
			got := s.Do(t, "GET /", strings.Split(test.request, "\n")...).Header.Values("Cache-Status")
			if len(got) == 0 || got[0] != "Origin; hit" || strings.Join(got[1:], ", ") != test.want {
				t.Errorf("%d, %s: %q, want %q", i, test.request, got, test.want)
			}
		}
	})
}
