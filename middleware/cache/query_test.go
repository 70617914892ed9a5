package cache_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/servertest"
)

const jsonType = "Content-Type: application/json"

// RFC 10008, section 2.7: "The cache key for a QUERY request MUST incorporate the request content and related metadata."
func TestQUERY(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		for _, test := range []struct {
			why, request, body string
			fields             []string
			hit                bool
		}{
			{"the same again", "QUERY /", `{"a":1}`, []string{jsonType}, true},
			{"other fields don't matter", "QUERY /", `{"a":1}`, []string{"Accept: a/b", jsonType, "Contents: x"}, true},
			{"nor how a field's name is written", "QUERY /", `{"a":1}`, []string{"content-type: application/json"}, true},
			{"another content", "QUERY /", `{"a":2}`, []string{jsonType}, false},
			{"the same to a parser: nothing is normalized", "QUERY /", `{"a": 1}`, []string{jsonType}, false},
			{"no content", "QUERY /", "", []string{jsonType}, false},
			{"another type", "QUERY /", `{"a":1}`, []string{"Content-Type: application/jsonpath"}, false},
			{"no type", "QUERY /", `{"a":1}`, nil, false},
			{"a coding", "QUERY /", `{"a":1}`, []string{jsonType, "Content-Encoding: gzip"}, false},
			{"a language", "QUERY /", `{"a":1}`, []string{jsonType, "Content-Language: de"}, false},
			{"a field that ends elsewhere", "QUERY /", `{"a":1}`, []string{jsonType + "\x63"}, false},
			{"another target", "QUERY /?a", `{"a":1}`, []string{jsonType}, false},
			{"another host", "QUERY http://other.test/", `{"a":1}`, []string{jsonType}, false},
			{"a length that isn't known", "QUERY /", "7\r\n{\"a\":1}\r\n0\r\n\r\n", []string{jsonType, "Transfer-Encoding: chunked"}, false},
			{"GET", "GET /", "", nil, false},
			{"GET, with content", "GET /", `{"a":1}`, []string{jsonType}, false},
			{"HEAD", "HEAD /", "", nil, false},
			{"another method", "SEARCH /", `{"a":1}`, []string{jsonType}, false},
			{"no-store", "QUERY /", `{"a":1}`, []string{jsonType, "Cache-Control: no-store"}, false},
			{"no-cache", "QUERY /", `{"a":1}`, []string{jsonType, "Cache-Control: no-cache"}, false},
		} {
			h := &mwtest.Counting{}
			s := servertest.New(t, cache.New(in(cache.Options{TTL: time.Minute}))(h.Serve))
			if got := s.DoBody(t, "QUERY /", `{"a":1}`, jsonType); got.Body != "1" || got.Header.Get("Cache-Status") != "filo; fwd=uri-miss; stored" {
				t.Fatalf("%v", got)
			}
			got := s.DoBody(t, test.request, test.body, test.fields...)
			if (h.Calls.Load() == 1) != test.hit || got.Status != 200 {
				t.Errorf("%s: %v, want it stored: %t", test.why, got, test.hit)
			}
		}
	})
}

// The answer to a GET is never used for a QUERY, nor vice versa, whichever comes first. The answers to several queries are stored at the same time.
func TestQUERYBesideGET(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		h := &mwtest.Counting{Fields: []string{"Vary: Accept", "Cache-Control: max-age=60"}}
		s := servertest.New(t, cache.New(in(cache.Options{}))(h.Serve))
		for i, step := range []struct{ request, body, accept, want string }{
			{"GET /", "", "a", "1"}, {"QUERY /", "x", "a", "2"}, {"QUERY /", "", "a", "3"}, {"GET /", "", "a", "1"}, {"QUERY /", "x", "a", "2"},
			{"QUERY /", "x", "b", "4"}, {"QUERY /", "x", "b", "4"}, {"QUERY /", "", "a", "3"}, {"HEAD /", "", "a", ""},
			{"POST /other", "", "a", "5"}, {"QUERY /", "x", "a", "2"},
			{"OPTIONS /", "", "a", "6"}, {"QUERY /", "x", "b", "4"},
			{"PUT /", "", "a", "7"}, {"QUERY /", "x", "a", "8"}, {"QUERY /", "x", "b", "9"}, {"QUERY /", "", "a", "10"}, {"GET /", "", "a", "11"},
			{"QUERY /", "x", "a", "8"}, {"GET /", "", "a", "11"}, {"QUERY /", "", "a", "10"},
		} {
			if got := s.DoBody(t, step.request, step.body, "Accept: "+step.accept); got.Body != step.want {
				t.Errorf("%d: %s %q with %s: %v, want %s", i, step.request, step.body, step.accept, got, step.want)
			}
		}
	})
}

// The handler answers a QUERY whose content is too long to be read, and a conditional QUERY.
func TestQUERYContent(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		var calls atomic.Int64
		s := servertest.New(t, mwtest.Wrap(func(c *filo.Ctx) error {
			calls.Add(1)
			body, err := c.Body()
			if err != nil {
				return err
			}
			return c.Text(200, string(body))
		}, cache.New(in(cache.Options{TTL: time.Minute})), middleware.ETag()))
		for i, step := range []struct {
			body   string
			fields []string
			status int
			want   string
			calls  int64
		}{
			{strings.Repeat("x", 64<<10), nil, 200, strings.Repeat("x", 64<<10), 1},
			{strings.Repeat("x", 64<<10), nil, 200, strings.Repeat("x", 64<<10), 1},
			{strings.Repeat("x", 64<<10+1), nil, 200, strings.Repeat("x", 64<<10+1), 2},
			{strings.Repeat("x", 64<<10+1), nil, 200, strings.Repeat("x", 64<<10+1), 3},
			{"hello", nil, 200, "hello", 4},
			{"hello", []string{"If-None-Match: *"}, 304, "", 4},   // section 2.6
			{"hello", []string{"Range: bytes=1-2"}, 206, "el", 4}, // section 2.8
		} {
			got := s.DoBody(t, "QUERY /", step.body, append(step.fields, jsonType)...)
			if got.Status != step.status || got.Body != step.want || calls.Load() != step.calls {
				t.Errorf("%d: %d %.20q by call %d, want %d %.20q by %d", i, got.Status, got.Body, calls.Load(), step.status, step.want, step.calls)
			}
		}
	})
}

// Of simultaneous equal queries only the first reaches the handler. Different queries all reach it.
func TestQUERYSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &mwtest.Counting{}
		s := servertest.New(t, cache.New(cache.Options{TTL: time.Minute})(func(c *filo.Ctx) error {
			time.Sleep(time.Second)
			return h.Serve(c)
		}))
		var wait sync.WaitGroup
		for i := range 20 {
			wait.Go(func() {
				if got := s.DoBody(t, "QUERY /", []string{"a", "b"}[i%2], jsonType); got.Status != 200 {
					t.Errorf("%v", got)
				}
			})
		}
		wait.Wait()
		if h.Calls.Load() != 2 {
			t.Errorf("%d calls, want 2", h.Calls.Load())
		}
	})
}

// If middleware outside has read some of the content in pieces, the cache can't know that content, so the handler answers.
func TestQUERYReadBefore(t *testing.T) {
	form := func(value string) string {
		return "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + value + "\r\n--x--\r\n"
	}
	for _, test := range []struct {
		why  string
		read func(c *filo.Ctx) error
		hit  bool
	}{
		{"all of it", func(c *filo.Ctx) error { _, err := io.Copy(io.Discard, c.BodyReader()); return err }, false},
		{"a byte", func(c *filo.Ctx) error { _, err := io.ReadFull(c.BodyReader(), make([]byte, 1)); return err }, false},
		{"as a whole", func(c *filo.Ctx) error { _, err := c.Body(); return err }, true},
		{"a byte, and the rest as a whole", func(c *filo.Ctx) error {
			if _, err := io.ReadFull(c.BodyReader(), make([]byte, 1)); err != nil {
				return err
			}
			_, err := c.Body()
			return err
		}, false},
		{"as a whole, and then by a reader", func(c *filo.Ctx) error {
			if _, err := c.Body(); err != nil {
				return err
			}
			_, err := io.Copy(io.Discard, c.BodyReader())
			return err
		}, true},
		{"as a form", func(c *filo.Ctx) error { _, err := c.Request.MultipartForm(); return err }, false},
		{"not at all", func(*filo.Ctx) error { return nil }, true},
	} {
		h := &mwtest.Counting{}
		outer := func(next filo.Handler) filo.Handler {
			return func(c *filo.Ctx) error {
				if err := test.read(c); err != nil {
					return err
				}
				return next(c)
			}
		}
		s := servertest.New(t, mwtest.Wrap(h.Serve, outer, cache.New(cache.Options{TTL: time.Minute})))
		for i, value := range []string{"alice", "bobby", "alice"} {
			want := fmt.Sprint(i + 1)
			if test.hit && i == 2 {
				want = "1"
			}
			got := s.DoBody(t, "QUERY /", form(value), "Content-Type: multipart/form-data; boundary=x")
			if got.Status != 200 || got.Body != want {
				t.Errorf("%s was read: %s gets %v, want %s", test.why, value, got, want)
			}
		}
	}
}

// A stale answer to QUERY isn't validated but made anew, since many handlers would answer 412 to the cache's condition.
func TestQUERYNotValidated(t *testing.T) {
	for _, fields := range [][]string{{"max-age=1", "ETag", `"v1"`}, {"no-cache", "ETag", `"v1"`}, {"max-age=1", "Last-Modified", mwtest.SomeDate}} {
		synctest.Test(t, func(t *testing.T) {
			s := servertest.New(t, cache.New()(func(c *filo.Ctx) error {
				if h := &c.Request.Header; h.Has("If-None-Match") || h.Has("If-Modified-Since") {
					return filo.Error(412, "")
				}
				c.Response.Header.Set("Cache-Control", fields[0])
				c.Response.Header.Set(fields[1], fields[2])
				return c.Text(200, "a")
			}))
			for range 3 {
				if got := s.DoBody(t, "QUERY /", "x", jsonType); got.Status != 200 || got.Body != "a" {
					t.Errorf("%q: %v", fields, got)
				}
				time.Sleep(2 * time.Second)
			}
		})
	}
}

// Changes of other targets don't make the cache forget that equal queries needn't wait for each other.
func TestQUERYBesideOtherChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.New(t, cache.New()(func(c *filo.Ctx) error {
			if c.Method() == "PUT" {
				return c.NoContent()
			}
			time.Sleep(time.Second)
			return c.Text(200, "it states no lifetime")
		}))
		s.DoBody(t, "QUERY /", "x", jsonType)
		s.Do(t, "PUT /other")
		var wait sync.WaitGroup
		for range 3 {
			wait.Go(func() {
				start := time.Now()
				s.DoBody(t, "QUERY /", "x", jsonType)
				if took := time.Since(start); took >= 2*time.Second {
					t.Errorf("a query took %v", took)
				}
			})
		}
		wait.Wait()
	})
}
