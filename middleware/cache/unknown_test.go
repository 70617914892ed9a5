package cache_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/servertest"
)

// openStore is a store that doesn't know the values of some keys.
type openStore struct {
	store
	unknown func(key string) bool
}

func (s *openStore) Get(c *filo.Ctx, key string) ([]byte, error) {
	if s.unknown(key) {
		return nil, fmt.Errorf("%w: the store is down", cache.ErrUnknown)
	}
	return s.store.Get(c, key)
}

// A request whose lookup fails with ErrUnknown reaches the handler. An answer isn't stored if the store doesn't know whether the target's answers
// were removed meanwhile.
func TestUnknown(t *testing.T) {
	for _, test := range []struct {
		why     string
		unknown func(key string) bool
		calls   int
	}{
		{"nothing", func(string) bool { return false }, 1},
		{"all", func(string) bool { return true }, 2},
		{"the marks of removals", func(key string) bool { return strings.HasPrefix(key, "\x01") }, 2},
	} {
		calls := 0
		s := servertest.New(t, cache.New(cache.Options{Store: &openStore{unknown: test.unknown}})(func(c *filo.Ctx) error {
			calls++
			c.Response.Header.Set("Cache-Control", "max-age=60")
			return c.Text(200, "hello")
		}))
		for range 2 {
			if got := s.Do(t, "GET /"); got.Status != 200 {
				t.Errorf("%s is unknown: %v", test.why, got)
			}
		}
		if calls != test.calls {
			t.Errorf("%s is unknown: the handler ran %d times, want %d", test.why, calls, test.calls)
		}
	}
}
