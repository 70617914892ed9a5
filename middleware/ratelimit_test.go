package middleware_test

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.New(t, wrap(hello, middleware.RateLimit(middleware.RateLimitOptions{Limit: 6, Burst: 2, Name: "api"})))
		for i, step := range []struct {
			why        string
			sleep      time.Duration
			from       string
			status     int
			limit      string
			retryAfter string
		}{
			{"the first request leaves one of two", 0, "192.0.2.1:1", 200, `"api";r=1;t=10`, ""},
			{"the burst is used up", 0, "192.0.2.1:2", 200, `"api";r=0;t=20`, ""},
			{"one more is refused, until Window/Limit has passed", 0, "192.0.2.1:3", 429, `"api";r=0;t=20`, "10"},
			{"another client has its own limit", 0, "192.0.2.2:1", 200, `"api";r=1;t=10`, ""},
			{"a refused request takes nothing, and seconds are rounded up", 9500 * time.Millisecond, "192.0.2.1:4", 429, `"api";r=0;t=11`, "1"},
			{"it is allowed after the time that it was told to wait", time.Second, "192.0.2.1:5", 200, `"api";r=0;t=20`, ""},
			{"after a while all is as at the beginning", time.Minute, "192.0.2.1:6", 200, `"api";r=1;t=10`, ""},
			{"an IPv6 client", 0, "[2001:db8::1]:1", 200, `"api";r=1;t=10`, ""},
			{"another address of the same /64 is the same client", 0, "[2001:db8::ffff:2]:1", 200, `"api";r=0;t=20`, ""},
			{"another /64 isn't", 0, "[2001:db8:0:1::1]:1", 200, `"api";r=1;t=10`, ""},
			{"an IPv4 address in IPv6 is the IPv4 address", 0, "[::ffff:192.0.2.1]:1", 200, `"api";r=0;t=20`, ""},
		} {
			time.Sleep(step.sleep)
			got := s.DoFrom(t, tcpAddress(step.from), "GET /")
			if got.Status != step.status || got.Header.Get("RateLimit") != step.limit || got.Header.Get("Retry-After") != step.retryAfter ||
				got.Header.Get("RateLimit-Policy") != `"api";q=6;w=60` {
				t.Errorf("%d %s: %d %v, want %d %s, retry after %q", i, step.why, got.Status, got.Header, step.status, step.limit, step.retryAfter)
			}
		}
	})
}

// The refusal is a problem that says which policy was violated.
func TestRateLimitProblem(t *testing.T) {
	s := servertest.New(t, wrap(hello, middleware.RateLimit(middleware.RateLimitOptions{Limit: 1})))
	s.Do(t, "GET /")
	got := s.Do(t, "GET /", "Accept: application/json")
	for _, want := range []string{"quota-exceeded", `"violated-policies":["default"]`, `"status":429`} {
		if !strings.Contains(got.Body, want) || got.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%v, want %s in it", got, want)
		}
	}
}

func TestRateLimitKey(t *testing.T) {
	limit := middleware.RateLimit(middleware.RateLimitOptions{
		Limit: 1, HideFields: true, Key: func(c *filo.Ctx) []byte { return c.Request.Header.GetBytes("X-Key") },
	})
	s := servertest.New(t, wrap(hello, limit))
	for i, step := range []struct {
		key    string
		status int
	}{{"a", 200}, {"b", 200}, {"a", 429}, {"", 200}, {"", 200}, {"b", 429}} {
		got := s.Do(t, "GET /", "X-Key: "+step.key)
		if got.Status != step.status || got.Header.Get("RateLimit") != "" || got.Header.Get("RateLimit-Policy") != "" {
			t.Errorf("%d %q: %v, want %d", i, step.key, got, step.status)
		}
	}
}

// Two limits around a handler both tell about themselves.
func TestRateLimitTwice(t *testing.T) {
	h := wrap(hello, middleware.RateLimit(middleware.RateLimitOptions{Limit: 10, Name: "second", Window: time.Second}),
		middleware.RateLimit(middleware.RateLimitOptions{Limit: 100, Name: "hour", Window: time.Hour}))
	got := do(t, h, "GET /")
	if values := got.Header.Values("RateLimit"); len(values) != 2 || values[0] != `"second";r=9;t=1` || values[1] != `"hour";r=99;t=36` {
		t.Errorf("%q", values)
	}
}

// rateStore is a store of the user's own.
type rateStore struct {
	state middleware.RateLimitState
	err   error
	keys  []string
	quota middleware.RateLimitQuota
}

func (s *rateStore) Take(_ *filo.Ctx, key []byte, quota middleware.RateLimitQuota) (middleware.RateLimitState, error) {
	s.keys = append(s.keys, string(key))
	s.quota = quota
	return s.state, s.err
}

func TestRateLimitStore(t *testing.T) {
	failed := errors.New("store failed")
	for _, test := range []struct {
		why      string
		state    middleware.RateLimitState
		err      error
		failOpen bool
		status   int
		fields   string
	}{
		{"what the store allows is allowed", middleware.RateLimitState{Allowed: true, Remaining: 3, Reset: 1}, nil, false, 200, `"default";r=3;t=1`},
		{"what it doesn't isn't", middleware.RateLimitState{Reset: time.Second, RetryAfter: 0}, nil, false, 429, `"default";r=0;t=1`},
		{"its error is the request's", middleware.RateLimitState{}, failed, false, 500, ""},
		{"with FailOpen it isn't", middleware.RateLimitState{}, failed, true, 200, ""},
		{"no field says less than nothing", middleware.RateLimitState{Allowed: true, Remaining: -3}, nil, false, 200, `"default";r=0;t=0`},
	} {
		store := &rateStore{state: test.state, err: test.err}
		s := servertest.New(t, wrap(hello, middleware.RateLimit(middleware.RateLimitOptions{Limit: 5, Store: store, FailOpen: test.failOpen})))
		got := s.DoFrom(t, tcpAddress("192.0.2.1:1"), "GET /")
		if got.Status != test.status || got.Header.Get("RateLimit") != test.fields {
			t.Errorf("%s: %v, want %d %s", test.why, got, test.status, test.fields)
		}
		if len(store.keys) != 1 || !strings.HasSuffix(store.keys[0], "\xC0\x00\x02\x01") || store.quota != (middleware.RateLimitQuota{Limit: 5, Burst: 5, Window: time.Minute}) {
			t.Errorf("%s: asked for %q of %v", test.why, store.keys, store.quota)
		}
		if test.status == 429 && got.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: retry after %q, want a second at least", test.why, got.Header.Get("Retry-After"))
		}
	}
}

// A flood of keys neither grows the memory nor frees a client that is being limited.
func TestRateLimitFlood(t *testing.T) {
	limit := middleware.RateLimit(middleware.RateLimitOptions{
		Limit: 100, Window: time.Hour, MaxKeys: 1024, HideFields: true, Key: func(c *filo.Ctx) []byte { return c.Request.Header.GetBytes("X-Key") },
	})
	h := limit(hello)
	inHandler(t, "GET /", nil, func(c *filo.Ctx) {
		call := func(key string) error {
			c.Request.Header.Set("X-Key", key)
			return again(c, h)
		}
		for range 100 {
			if err := call("culprit"); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 50_000 {
			if err := call("flood " + strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		if call("culprit") == nil {
			t.Error("the flood has freed a client of its limit")
		}
	})
	i := 0
	keys := make([][]byte, 4096)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key %d", i)
	}
	flood := middleware.RateLimit(middleware.RateLimitOptions{
		Limit: 1 << 20, MaxKeys: 64, Key: func(c *filo.Ctx) []byte { i++; return keys[i%len(keys)] },
	})
	if n := allocations(t, flood(hello), "GET /"); n != 0 {
		t.Errorf("%v allocations for new keys, want 0", n)
	}
}

func TestRateLimitAllocations(t *testing.T) {
	if n := allocations(t, wrap(hello, middleware.RateLimit(middleware.RateLimitOptions{Limit: 1 << 20})), "GET /"); n != 0 {
		t.Errorf("%v allocations for a request within the limit, want 0", n)
	}
}

func TestRateLimitOptions(t *testing.T) {
	mustPanic(t, map[string]func(){
		"no Limit":           func() { middleware.RateLimit(middleware.RateLimitOptions{}) },
		"a negative Limit":   func() { middleware.RateLimit(middleware.RateLimitOptions{Limit: -1}) },
		"a negative Burst":   func() { middleware.RateLimit(middleware.RateLimitOptions{Limit: 1, Burst: -1}) },
		"negative MaxKeys":   func() { middleware.RateLimit(middleware.RateLimitOptions{Limit: 1, MaxKeys: -1}) },
		"half a second":      func() { middleware.RateLimit(middleware.RateLimitOptions{Limit: 1, Window: time.Second / 2}) },
		"a negative Window":  func() { middleware.RateLimit(middleware.RateLimitOptions{Limit: 1, Window: -time.Second}) },
		"more than a clock":  func() { middleware.RateLimit(middleware.RateLimitOptions{Limit: 1e9 + 1, Window: time.Second}) },
		"an endless Burst":   func() { middleware.RateLimit(middleware.RateLimitOptions{Limit: 1, Burst: math.MaxInt}) },
		"a quote in Name":    func() { middleware.RateLimit(middleware.RateLimitOptions{Limit: 1, Name: `a";r=9`}) },
		"a new line in Name": func() { middleware.RateLimit(middleware.RateLimitOptions{Limit: 1, Name: "a\r\nB: c"}) },
	})
}

func ExampleRateLimit() {
	limit := middleware.RateLimit(middleware.RateLimitOptions{Limit: 100, Window: time.Minute})
	show(limit(hello), []string{"RateLimit-Policy", "RateLimit"}, "GET /")
	// Output:
	// 200 hello
	// RateLimit-Policy: "default";q=100;w=60
	// RateLimit: "default";r=99;t=1
}

func BenchmarkRateLimit(b *testing.B) {
	benchmark(b, wrap(hello, middleware.RateLimit(middleware.RateLimitOptions{Limit: 1e9})), "GET /")
}
