package cache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/servertest"
)

// A request whose own fields make its answer unfit for others leaves the stored answer alone, and further requests still wait for each other.
func TestUnfitRequestLeavesAnswer(t *testing.T) {
	eachStore(t, func(t *testing.T, in kind) {
		for _, test := range []struct {
			field, tag string
			validated  bool
		}{
			{`If-None-Match: "a"`, `"a"`, true},
			{`If-Match: "b"`, `"a"`, true},
			{"Authorization: x", `"a"`, true},
			{"Authorization: x", "", false},
		} {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				s := servertest.New(t, cache.New(in(cache.Options{}))(func(c *filo.Ctx) error {
					calls++
					time.Sleep(time.Second)
					h, asked := &c.Response.Header, &c.Request.Header
					h.Set("Cache-Control", "max-age=10")
					if test.tag != "" {
						h.Set("ETag", test.tag)
					}
					switch {
					case asked.Has("If-Match"):
						return filo.Error(412, "")
					case test.tag != "" && asked.Get("If-None-Match") == test.tag:
						h.Set("Renewed", "yes")
						c.Response.SetStatus(304)
						return nil
					}
					return c.Text(200, "one")
				}))
				s.Do(t, "GET /")
				time.Sleep(20 * time.Second)
				s.Do(t, "GET /", test.field)
				calls = 0
				done := make(chan servertest.Answer)
				for range 10 {
					go func() { done <- s.Do(t, "GET /") }()
				}
				for range 10 {
					if got := <-done; got.Status != 200 || (got.Header.Get("Renewed") != "") != test.validated {
						t.Errorf("after a request with %s: %v, want it validated: %t", test.field, got, test.validated)
					}
				}
				if calls != 1 {
					t.Errorf("after a request with %s: the handler ran %d times for 10 requests at once", test.field, calls)
				}
			})
		}
	})
}
