package ratelimit_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/servertest"
)

func TestNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.New(t, mwtest.Wrap(mwtest.Hello, ratelimit.New(6, time.Minute, ratelimit.Options{Burst: 2, Name: "api"})))
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
			got := s.DoFrom(t, mwtest.TCPAddress(step.from), "GET /")
			if got.Status != step.status || got.Header.Get("RateLimit") != step.limit || got.Header.Get("Retry-After") != step.retryAfter ||
				got.Header.Get("RateLimit-Policy") != `"api";q=6;w=60` {
				t.Errorf("%d %s: %d %v, want %d %s, retry after %q", i, step.why, got.Status, got.Header, step.status, step.limit, step.retryAfter)
			}
		}
	})
}

// A refusal is answered with problem details that name the violated policy.
func TestProblem(t *testing.T) {
	s := servertest.New(t, mwtest.Wrap(mwtest.Hello, ratelimit.New(1, time.Minute)))
	s.Do(t, "GET /")
	got := s.Do(t, "GET /", "Accept: application/json")
	for _, want := range []string{"quota-exceeded", `"violated-policies":["default"]`, `"status":429`} {
		if !strings.Contains(got.Body, want) || got.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%v, want %s in it", got, want)
		}
	}
}

func TestKey(t *testing.T) {
	limit := ratelimit.New(1, time.Minute, ratelimit.Options{
		HideFields: true, Key: func(c *filo.Ctx) []byte { return c.Request.Header.GetBytes("X-Key") },
	})
	s := servertest.New(t, mwtest.Wrap(mwtest.Hello, limit))
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

// Two limits around a handler both report their quota in the fields.
func TestTwice(t *testing.T) {
	h := mwtest.Wrap(mwtest.Hello, ratelimit.New(10, time.Second, ratelimit.Options{Name: "second"}),
		ratelimit.New(100, time.Hour, ratelimit.Options{Name: "hour"}))
	got := mwtest.Do(t, h, "GET /")
	if values := got.Header.Values("RateLimit"); len(values) != 2 || values[0] != `"second";r=9;t=1` || values[1] != `"hour";r=99;t=36` {
		t.Errorf("%q", values)
	}
}

// rateStore is a user-defined store.
type rateStore struct {
	state ratelimit.State
	err   error
	// returning is the error of Return.
	returning error
	// keys are the keys that were passed to Take, and returned those that were passed to Return.
	keys, returned []string
	quota          ratelimit.Quota
}

func (s *rateStore) Take(_ *filo.Ctx, key []byte, quota ratelimit.Quota) (ratelimit.State, error) {
	s.keys = append(s.keys, string(key))
	s.quota = quota
	return s.state, s.err
}

func (s *rateStore) Return(c *filo.Ctx, key []byte, quota ratelimit.Quota) error {
	s.returned = append(s.returned, string(key))
	return s.returning
}

func TestStore(t *testing.T) {
	failed := errors.New("store failed")
	for _, test := range []struct {
		why      string
		state    ratelimit.State
		err      error
		failOpen bool
		status   int
		fields   string
	}{
		{"what the store allows is allowed", ratelimit.State{Allowed: true, Remaining: 3, Reset: 1}, nil, false, 200, `"default";r=3;t=1`},
		{"what it doesn't isn't", ratelimit.State{Reset: time.Second, RetryAfter: 0}, nil, false, 429, `"default";r=0;t=1`},
		{"its error is the request's", ratelimit.State{}, failed, false, 500, ""},
		{"with FailOpen it isn't", ratelimit.State{}, failed, true, 200, ""},
		{"no field says less than nothing", ratelimit.State{Allowed: true, Remaining: -3}, nil, false, 200, `"default";r=0;t=0`},
	} {
		store := &rateStore{state: test.state, err: test.err}
		s := servertest.New(t, mwtest.Wrap(mwtest.Hello, ratelimit.New(5, time.Minute, ratelimit.Options{Store: store, FailOpen: test.failOpen})))
		got := s.DoFrom(t, mwtest.TCPAddress("192.0.2.1:1"), "GET /")
		if got.Status != test.status || got.Header.Get("RateLimit") != test.fields {
			t.Errorf("%s: %v, want %d %s", test.why, got, test.status, test.fields)
		}
		if len(store.keys) != 1 || !strings.HasSuffix(store.keys[0], "\xC0\x00\x02\x01") || store.quota != (ratelimit.Quota{Limit: 5, Burst: 5, Window: time.Minute}) {
			t.Errorf("%s: asked for %q of %v", test.why, store.keys, store.quota)
		}
		if test.status == 429 && got.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: retry after %q, want a second at least", test.why, got.Header.Get("Retry-After"))
		}
	}
}

// A request that turns out not to count is given back. It counts until its handler has returned, so simultaneous requests stay within the
// limit.
func TestCounts(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	login := func(c *filo.Ctx) error {
		switch c.Path() {
		case "/wrong":
			return filo.Error(401, "")
		case "/form":
			return c.Text(422, "wrong")
		case "/slow":
			close(begun)
			<-goOn
		}
		return c.Text(200, "in")
	}
	for name, key := range map[string]func(*filo.Ctx) []byte{"address": nil, "key": func(c *filo.Ctx) []byte { return c.Request.Header.GetBytes("Host") }} {
		t.Run(name, func(t *testing.T) {
			begun, goOn = make(chan struct{}), make(chan struct{})
			s := servertest.New(t, mwtest.Wrap(login, ratelimit.New(3, time.Hour, ratelimit.Options{Counts: ratelimit.Failures, Key: key})))
			status := func(path string, want int) {
				t.Helper()
				if got := s.Do(t, "GET "+path); got.Status != want {
					t.Errorf("%s: %v, want %d", path, got, want)
				}
			}
			for range 5 {
				status("/", 200)
			}
			status("/wrong", 401)
			slow := make(chan int)
			go func() { slow <- s.Do(t, "GET /slow").Status }()
			<-begun
			status("/form", 422)
			status("/", 429) // refused, since the slow request may still fail and so counts for now
			close(goOn)
			if got := <-slow; got != 200 {
				t.Errorf("the slow request: %d", got)
			}
			status("/", 200)
			status("/wrong", 401)
			status("/", 429)
		})
	}
	store := &rateStore{state: ratelimit.State{Allowed: true}}
	s := servertest.New(t, mwtest.Wrap(login, ratelimit.New(3, time.Hour, ratelimit.Options{Counts: ratelimit.Failures, Store: store})))
	s.DoFrom(t, mwtest.TCPAddress("192.0.2.1:1"), "GET /wrong")
	s.DoFrom(t, mwtest.TCPAddress("192.0.2.2:1"), "GET /")
	if len(store.keys) != 2 || !slices.Equal(store.returned, store.keys[1:]) {
		t.Errorf("taken: %q, returned: %q", store.keys, store.returned)
	}
}

// The field RateLimit agrees with the store: the remaining quota includes a request that was given back.
func TestCountsInFields(t *testing.T) {
	answer := func(c *filo.Ctx) error {
		switch c.Path() {
		case "/wrong":
			return filo.Error(401, "")
		case "/stream":
			w := c.Stream()
			if _, err := w.Write([]byte("in")); err != nil {
				return err
			}
			return w.Flush()
		}
		return c.Text(200, "in")
	}
	failures := ratelimit.Options{Name: "failures", Counts: ratelimit.Failures}
	all := ratelimit.New(100, time.Second, ratelimit.Options{Name: "all"})
	failing := ratelimit.Options{Counts: ratelimit.Failures, Store: &rateStore{state: ratelimit.State{Allowed: true, Remaining: 3}}}
	hidden := failures
	hidden.HideFields = true
	for _, test := range []struct {
		why, path string
		limits    []filo.Middleware
		want      []string
	}{
		{"what counts is missing", "/wrong", []filo.Middleware{ratelimit.New(5, 50*time.Second, failures)}, []string{`"failures";r=4;t=10`}},
		{"what doesn't count isn't", "/", []filo.Middleware{ratelimit.New(5, 50*time.Second, failures)}, []string{`"failures";r=5;t=0`}},
		{"a limit of one isn't used up", "/", []filo.Middleware{ratelimit.New(1, 50*time.Second, failures)}, []string{`"failures";r=1;t=0`}},
		{"other limits keep their values", "/", []filo.Middleware{ratelimit.New(5, 50*time.Second, failures), all}, []string{`"failures";r=5;t=0`, `"all";r=99;t=1`}},
		{"a store's state is corrected, too", "/", []filo.Middleware{ratelimit.New(5, 50*time.Second, failing)}, []string{`"default";r=4;t=0`}},
		{"what was sent stays", "/stream", []filo.Middleware{ratelimit.New(5, 50*time.Second, failures)}, []string{`"failures";r=4;t=10`}},
		{"hidden fields stay hidden", "/", []filo.Middleware{ratelimit.New(5, 50*time.Second, hidden)}, nil},
	} {
		got := mwtest.Do(t, mwtest.Wrap(answer, test.limits...), "GET "+test.path)
		if values := got.Header.Values("RateLimit"); !slices.Equal(values, test.want) {
			t.Errorf("%s: %q, want %q", test.why, values, test.want)
		}
	}
	refused := &rateStore{state: ratelimit.State{Allowed: true, Remaining: 3}, returning: errors.New("store failed")}
	limit := ratelimit.New(5, 50*time.Second, ratelimit.Options{Counts: ratelimit.Failures, Store: refused})
	if got := mwtest.Do(t, mwtest.Wrap(answer, limit), "GET /"); got.Header.Get("RateLimit") != `"default";r=3;t=0` {
		t.Errorf("the store couldn't take it back, so it stays counted: %q", got.Header.Get("RateLimit"))
	}
}

// A flood of keys neither increases the memory nor lifts the limit of a client that is being limited.
func TestFlood(t *testing.T) {
	limit := ratelimit.New(100, time.Hour, ratelimit.Options{
		MaxKeys: 1024, HideFields: true, Key: func(c *filo.Ctx) []byte { return c.Request.Header.GetBytes("X-Key") },
	})
	h := limit(mwtest.Hello)
	mwtest.InHandler(t, "GET /", nil, func(c *filo.Ctx) {
		call := func(key string) error {
			c.Request.Header.Set("X-Key", key)
			return mwtest.Again(c, h)
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
	flood := ratelimit.New(1<<20, time.Minute, ratelimit.Options{
		MaxKeys: 64, Key: func(c *filo.Ctx) []byte { i++; return keys[i%len(keys)] },
	})
	if n := mwtest.Allocations(t, flood(mwtest.Hello), "GET /"); n != 0 {
		t.Errorf("%v allocations for new keys, want 0", n)
	}
}

func TestAllocations(t *testing.T) {
	if n := mwtest.Allocations(t, mwtest.Wrap(mwtest.Hello, ratelimit.New(1<<20, time.Minute)), "GET /"); n != 0 {
		t.Errorf("%v allocations for a request within the limit, want 0", n)
	}
}

func TestOptions(t *testing.T) {
	mwtest.MustPanic(t, "ratelimit", map[string]func(){
		"no Limit":           func() { ratelimit.New(0, time.Minute) },
		"a negative Limit":   func() { ratelimit.New(-1, time.Minute) },
		"a negative Burst":   func() { ratelimit.New(1, time.Minute, ratelimit.Options{Burst: -1}) },
		"negative MaxKeys":   func() { ratelimit.New(1, time.Minute, ratelimit.Options{MaxKeys: -1}) },
		"half a second":      func() { ratelimit.New(1, time.Second/2) },
		"a negative Window":  func() { ratelimit.New(1, -time.Second) },
		"more than a clock":  func() { ratelimit.New(1e9+1, time.Second) },
		"an endless Burst":   func() { ratelimit.New(1, time.Minute, ratelimit.Options{Burst: math.MaxInt}) },
		"a quote in Name":    func() { ratelimit.New(1, time.Minute, ratelimit.Options{Name: `a";r=9`}) },
		"a new line in Name": func() { ratelimit.New(1, time.Minute, ratelimit.Options{Name: "a\r\nB: c"}) },
	})
}

func ExampleNew() {
	limit := ratelimit.New(100, time.Minute)
	mwtest.Show(limit(mwtest.Hello), []string{"RateLimit-Policy", "RateLimit"}, "GET /")
	// Output:
	// 200 hello
	// RateLimit-Policy: "default";q=100;w=60
	// RateLimit: "default";r=99;t=1
}

func BenchmarkNew(b *testing.B) {
	mwtest.Benchmark(b, mwtest.Wrap(mwtest.Hello, ratelimit.New(1e9, time.Minute)), "GET /")
}

// With FailOpen a Store's error is logged, unless the Store logs its errors itself and says so by filo.ErrBusy.
func TestFailOpenLog(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		records int
	}{
		"a plain error":    {errors.New("down"), 1},
		"one that is busy": {&filo.HTTPError{Status: 503, Err: filo.ErrBusy}, 0},
	} {
		var log strings.Builder
		limited := ratelimit.New(5, time.Minute, ratelimit.Options{Store: &rateStore{err: test.err}, FailOpen: true})
		s := servertest.NewServer(t, &filo.Server{
			Handler: mwtest.Wrap(mwtest.Hello, limited), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if got := s.Do(t, "GET /"); got.Status != 200 {
			t.Errorf("%s: %v", name, got)
		}
		if got := strings.Count(log.String(), "level=ERROR"); got != test.records {
			t.Errorf("%s: %d records, want %d:\n%s", name, got, test.records, log.String())
		}
	}
}
