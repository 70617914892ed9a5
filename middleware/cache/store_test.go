package cache_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/servertest"
)

// kind completes options for a cache in memory, or for a cache with a Store.
type kind func(cache.Options) cache.Options

// eachStore runs a test with either kind.
func eachStore(t *testing.T, test func(t *testing.T, in kind)) {
	t.Run("memory", func(t *testing.T) { test(t, func(o cache.Options) cache.Options { return o }) })
	t.Run("store", func(t *testing.T) {
		test(t, func(o cache.Options) cache.Options {
			o.Store = new(store)
			return o
		})
	})
}

// store is a Store that never drops a value.
type store struct {
	mu     sync.Mutex
	values map[string]string
	err    error
}

func (s *store) Get(_ *filo.Ctx, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value, ok := s.values[key]; ok {
		return []byte(value), s.err
	}
	return nil, s.err
}

func (s *store) Put(_ *filo.Ctx, key string, value []byte, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = make(map[string]string)
	}
	if s.err == nil {
		s.values[key] = string(value)
	}
	return s.err
}

func (s *store) Remove(_ *filo.Ctx, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		delete(s.values, key)
	}
	return s.err
}

// Two servers with one Store share a cache: an answer that one of them has stored or removed is stored or removed for the other, too.
func TestShared(t *testing.T) {
	h, shared := &mwtest.Counting{Fields: []string{"Vary: Accept"}}, new(store)
	var servers [2]*servertest.Server
	for i := range servers {
		servers[i] = servertest.New(t, cache.New(cache.Options{TTL: time.Minute, Store: shared})(h.Serve))
	}
	for i, step := range []struct {
		server        int
		request, want string
	}{
		{0, "GET / a", "1"}, {1, "GET / a", "1"}, {1, "GET / b", "2"}, {0, "GET / b", "2"}, {0, "GET / a", "1"},
		{1, "POST / a", "3"}, {0, "GET / a", "4"}, {1, "GET / a", "4"}, {1, "GET / b", "5"},
	} {
		line, accept := step.request[:len(step.request)-2], step.request[len(step.request)-1:]
		if got := servers[step.server].Do(t, line, "Accept: "+accept); got.Body != step.want {
			t.Errorf("%d: %s at %d: %v, want %s", i, step.request, step.server, got, step.want)
		}
	}
}

// A stored value that isn't a valid entry, such as a truncated one, is treated as missing.
func TestSharedValues(t *testing.T) {
	h, shared := &mwtest.Counting{Fields: []string{"Vary: Accept"}}, new(store)
	s := servertest.New(t, cache.New(cache.Options{TTL: time.Minute, Store: shared})(h.Serve))
	s.Do(t, "GET /")
	if len(shared.values) != 2 {
		t.Fatalf("there are %d values, want a rule and a response", len(shared.values))
	}
	whole := make(map[string]string)
	for key, value := range shared.values {
		whole[key] = value
	}
	calls := 1
	for key, value := range whole {
		for _, cut := range []string{"", value[:1], value[:len(value)/4], "\x07" + value[1:], strings.Repeat("\xff", 40)} {
			for key, value := range whole {
				shared.values[key] = value
			}
			shared.values[key] = cut
			calls++
			if got := s.Do(t, "GET /"); got.Status != 200 || got.Body != fmt.Sprint(calls) {
				t.Errorf("%q: %v, want %d", cut, got, calls)
			}
		}
	}
}

// If a Store fails, a request that needs a value from it fails. But a request whose handler has succeeded doesn't fail.
func TestStoreFails(t *testing.T) {
	shared := &store{err: &filo.HTTPError{Status: 503, Err: errors.New("down")}}
	h := &mwtest.Counting{}
	s := servertest.New(t, cache.New(cache.Options{TTL: time.Minute, Store: shared})(h.Serve))
	if got := s.Do(t, "GET /"); got.Status != 503 {
		t.Errorf("got %v", got)
	}
	if got := s.Do(t, "POST /"); got.Status != 200 {
		t.Errorf("got %v", got)
	}
}
