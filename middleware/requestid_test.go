package middleware_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

// tellID answers with the request's id.
func tellID(c *filo.Ctx) error { return c.Text(200, middleware.RequestIDOf(c)) }

func ExampleRequestID() {
	h := middleware.RequestID(middleware.RequestIDOptions{TrustIncoming: true})(func(c *filo.Ctx) error {
		return c.Text(200, "this is request "+middleware.RequestIDOf(c))
	})
	mwtest.Show(h, []string{"X-Request-ID"}, "GET /", "X-Request-ID: from-the-proxy-1")
	// Output:
	// 200 this is request from-the-proxy-1
	// X-Request-ID: from-the-proxy-1
}

func TestRequestID(t *testing.T) {
	const random = `^[0-9a-f]{32}$`
	long := strings.Repeat("a", 127)
	trust := middleware.RequestIDOptions{TrustIncoming: true}
	for _, test := range []struct {
		sentence string
		options  middleware.RequestIDOptions
		field    string
		want     string
	}{
		{"an id is made", middleware.RequestIDOptions{}, "", random},
		{"a client's id is no id unless an option says so", middleware.RequestIDOptions{}, "X-Request-ID: forged", random},
		{"a trusted id is kept", trust, "X-Request-ID: Root=1-67891233-abc:d.e_f+g/h@i,j;k~l", "^Root=1-67891233-abc:d.e_f[+]g/h@i,j;k~l$"},
		{"of up to 127 bytes", trust, "X-Request-ID: " + long, "^" + long + "$"},
		{"and no more", trust, "X-Request-ID: " + long + "a", random},
		{"an empty one is none", trust, "X-Request-ID: ", random},
		{"quotes could end a log's", trust, `X-Request-ID: a"b`, random},
		{"spaces could begin another word of a log", trust, `X-Request-ID: a b`, random},
		{"bytes outside ASCII aren't valid", trust, "X-Request-ID: ä", random},
		{"another field may have it", middleware.RequestIDOptions{TrustIncoming: true, Header: "X-Trace"}, "X-Trace: t1", "^t1$"},
		{"ids of one's own", middleware.RequestIDOptions{Generate: func() string { return "own" }}, "", "^own$"},
		{"which must be valid", middleware.RequestIDOptions{Generate: func() string { return "own\r\nX: y" }}, "", random},
	} {
		name := test.options.Header
		if name == "" {
			name = "X-Request-ID"
		}
		var fields []string
		if test.field != "" {
			fields = []string{test.field}
		}
		got := mwtest.Do(t, middleware.RequestID(test.options)(tellID), "GET /", fields...)
		if !regexp.MustCompile(test.want).MatchString(got.Body) || got.Header.Get(name) != got.Body || got.Header.Get("X") != "" {
			t.Errorf("%s: %q, %v", test.sentence, got.Body, got.Header)
		}
	}
	if id := mwtest.Do(t, tellID, "GET /").Body; id != "" {
		t.Errorf("without the middleware the id is %q", id)
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"no field name": func() { middleware.RequestID(middleware.RequestIDOptions{Header: "X: y\r\n"}) },
	})
}

// Every bit of the ids varies, and an id doesn't change after its request.
func TestRequestIDsDiffer(t *testing.T) {
	var mu sync.Mutex
	seen := make(map[string]bool)
	s := servertest.New(t, middleware.RequestID()(func(c *filo.Ctx) error {
		mu.Lock()
		defer mu.Unlock()
		seen[middleware.RequestIDOf(c)] = true
		return nil
	}))
	const n = 500
	s.Raw(t, strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", n))
	digits := make(map[string]bool)
	for id := range seen {
		for i, digit := range id {
			digits[fmt.Sprint(i, string(digit))] = true
		}
	}
	if len(seen) != n || len(digits) != 32*16 {
		t.Errorf("%d ids of %d differ, with %d different digits in their places", len(seen), n, len(digits))
	}
}

func TestRequestIDAllocations(t *testing.T) {
	h := middleware.RequestID(middleware.RequestIDOptions{TrustIncoming: true})(func(c *filo.Ctx) error {
		if middleware.RequestIDOf(c) == "" {
			return filo.Error(500, "")
		}
		return nil
	})
	for _, fields := range [][]string{nil, {"X-Request-ID: abc"}} {
		if got := mwtest.Allocations(t, h, "GET /", fields...); got > 1 && !raceEnabled {
			t.Errorf("%v allocations with %q, want one", got, fields)
		}
	}
}

func BenchmarkRequestID(b *testing.B) {
	mwtest.Benchmark(b, middleware.RequestID()(mwtest.Hello), "GET /")
}
