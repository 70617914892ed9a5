package middleware_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

const (
	laterDate = "Tue, 01 Feb 2022 03:04:06 GMT"
	soonDate  = "Tue, 01 Feb 2022 03:04:04 GMT"
)

// Conditions are evaluated in the order of RFC 9110, section 13.2.2, and entity tags and dates are compared as in sections 13.1.1 to 13.1.4.
func TestPrecondition(t *testing.T) {
	modified, err := time.Parse(time.RFC1123, mwtest.SomeDate)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		why, method, etag string
		modified          time.Time
		fields            []string
		want              int
	}{
		{"no condition", "GET", `"a"`, modified, nil, 0},
		{"If-None-Match has it", "GET", `"a"`, modified, []string{`If-None-Match: "a"`}, 304},
		{"If-None-Match has it among others", "GET", `"a"`, modified, []string{`If-None-Match: "x" , W/"y",, "a"`}, 304},
		{"If-None-Match has it in another field", "GET", `"a"`, modified, []string{`If-None-Match: "x"`, `If-None-Match: "a"`}, 304},
		{"If-None-Match has another", "GET", `"a"`, modified, []string{`If-None-Match: "aa", "A"`}, 0},
		{"If-None-Match compares weakly", "GET", `"a"`, modified, []string{`If-None-Match: W/"a"`}, 304},
		{"If-None-Match compares weakly, the other way", "GET", `W/"a"`, modified, []string{`If-None-Match: "a"`}, 304},
		{"a comma in an entity tag", "GET", `"a,b"`, modified, []string{`If-None-Match: "a,b"`}, 304},
		{"If-None-Match: * of something", "GET", `"a"`, modified, []string{`If-None-Match: *`}, 304},
		{"If-None-Match: * of nothing", "PUT", "", time.Time{}, []string{`If-None-Match: *`}, 0},
		{"If-None-Match of a method that changes something", "PUT", `"a"`, modified, []string{`If-None-Match: *`}, 412},
		{"If-None-Match of HEAD", "HEAD", `"a"`, modified, []string{`If-None-Match: "a"`}, 304},
		{"If-None-Match of QUERY", "QUERY", `"a"`, modified, []string{`If-None-Match: "a"`}, 304},
		{"not modified since, of QUERY", "QUERY", `"a"`, modified, []string{"If-Modified-Since: " + mwtest.SomeDate}, 304},
		{"not an entity tag", "GET", `"a"`, modified, []string{`If-None-Match: a`}, 0},
		{"not closed", "GET", `"a"`, modified, []string{`If-None-Match: "a`}, 0},
		{"If-None-Match goes before If-Modified-Since", "GET", `"a"`, modified, []string{`If-None-Match: "b"`, "If-Modified-Since: " + mwtest.SomeDate}, 0},
		{"not modified since", "GET", `"a"`, modified, []string{"If-Modified-Since: " + mwtest.SomeDate}, 304},
		{"not modified since an earlier time", "GET", `"a"`, modified, []string{"If-Modified-Since: " + laterDate}, 304},
		{"modified since", "GET", `"a"`, modified, []string{"If-Modified-Since: " + soonDate}, 0},
		{"in the format of RFC 850", "GET", "", modified, []string{"If-Modified-Since: Tuesday, 01-Feb-22 03:04:05 GMT"}, 304},
		{"in that of asctime", "GET", "", modified, []string{"If-Modified-Since: Tue Feb  1 03:04:05 2022"}, 304},
		{"not a date", "GET", `"a"`, modified, []string{"If-Modified-Since: tomorrow"}, 0},
		{"If-Modified-Since is for GET, HEAD and QUERY", "PUT", `"a"`, modified, []string{"If-Modified-Since: " + mwtest.SomeDate}, 0},
		{"If-Modified-Since of what has no date", "GET", `"a"`, time.Time{}, []string{"If-Modified-Since: " + mwtest.SomeDate}, 0},
		{"If-Match has it", "PUT", `"a"`, modified, []string{`If-Match: "b", "a"`}, 0},
		{"If-Match has another", "PUT", `"a"`, modified, []string{`If-Match: "b"`}, 412},
		{"If-Match compares strongly", "PUT", `"a"`, modified, []string{`If-Match: W/"a"`}, 412},
		{"If-Match compares strongly, the other way", "PUT", `W/"a"`, modified, []string{`If-Match: W/"a"`}, 412},
		{"If-Match: * of something", "PUT", `W/"a"`, modified, []string{`If-Match: *`}, 0},
		{"If-Match: * of nothing", "PUT", "", time.Time{}, []string{`If-Match: *`}, 412},
		{"If-Match goes before If-Unmodified-Since", "PUT", `"a"`, modified, []string{`If-Match: "a"`, "If-Unmodified-Since: " + soonDate}, 0},
		{"If-Match before If-None-Match", "GET", `"a"`, modified, []string{`If-Match: "b"`, `If-None-Match: "a"`}, 412},
		{"both hold", "GET", `"a"`, modified, []string{`If-Match: "a"`, `If-None-Match: "a"`}, 304},
		{"unmodified since", "PUT", `"a"`, modified, []string{"If-Unmodified-Since: " + mwtest.SomeDate}, 0},
		{"modified since, for a change", "PUT", `"a"`, modified, []string{"If-Unmodified-Since: " + soonDate}, 412},
		{"If-Unmodified-Since before If-None-Match", "GET", `"a"`, modified, []string{"If-Unmodified-Since: " + soonDate, `If-None-Match: "a"`}, 412},
		{"If-Unmodified-Since that is no date", "PUT", `"a"`, modified, []string{"If-Unmodified-Since: x"}, 0},
	} {
		mwtest.InHandler(t, test.method+" /", test.fields, func(c *filo.Ctx) {
			if got := middleware.Precondition(c, test.etag, test.modified); got != test.want {
				t.Errorf("%s: %d, want %d", test.why, got, test.want)
			}
		})
	}
}

func FuzzPrecondition(f *testing.F) {
	f.Add(`"a", W/"b"`, `*`, `"b"`)
	f.Add(`W/`, `"`, `W/"`)
	f.Fuzz(func(t *testing.T, none, match, etag string) {
		mwtest.InHandler(t, "GET /", nil, func(c *filo.Ctx) {
			c.Request.Header.Set("If-None-Match", none)
			c.Request.Header.Set("If-Match", match)
			if got := middleware.Precondition(c, etag, time.Time{}); got != 0 && got != 304 && got != 412 {
				t.Errorf("%d", got)
			}
		})
	})
}

func TestETag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	when, _ := time.Parse(time.RFC1123, mwtest.SomeDate)
	if err := os.Chtimes(file, when, when); err != nil {
		t.Fatal(err)
	}
	const tag = `"LPJNul-wow4m6Dsqxbning"` // the first half of SHA-256 of "hello"
	handlers := map[string]filo.Handler{
		"/hello": mwtest.Hello,
		"/own":   func(c *filo.Ctx) error { c.Response.Header.Set("ETag", `"own"`); return mwtest.Hello(c) },
		"/large": func(c *filo.Ctx) error { return c.Text(200, strings.Repeat("x", 101)) },
		"/404":   func(c *filo.Ctx) error { return filo.Error(404, "") },
		"/201":   func(c *filo.Ctx) error { return c.Text(201, "hello") },
		"/file":  func(c *filo.Ctx) error { return c.File(file) },
		"/stream": func(c *filo.Ctx) error {
			w := c.Stream()
			io.WriteString(w, "hello")
			return w.Flush()
		},
		"/reader": func(c *filo.Ctx) error {
			c.Response.SetBodyStream(strings.NewReader("hello"), 5)
			return nil
		},
		"/short": func(c *filo.Ctx) error { _, err := io.WriteString(c.Stream(), "hello"); return err },
		"/empty": func(c *filo.Ctx) error { c.Response.SetStatus(200); return nil },
	}
	s := servertest.New(t, middleware.ETag(middleware.ETagOptions{MaxBytes: 100})(func(c *filo.Ctx) error { return handlers[c.Path()](c) }))
	for _, test := range []struct {
		why, request string
		fields       []string
		status       int
		etag, body   string
	}{
		{"a body gets a strong entity tag", "GET /hello", nil, 200, tag, "hello"},
		{"HEAD gets GET's", "HEAD /hello", nil, 200, tag, ""},
		{"the client has it", "GET /hello", []string{"If-None-Match: " + tag}, 304, tag, ""},
		{"QUERY gets one", "QUERY /hello", nil, 200, tag, "hello"},
		{"RFC 10008, 2.6: the client has what it would get", "QUERY /hello", []string{"If-None-Match: " + tag}, 304, tag, ""},
		{"the client has another", "GET /hello", []string{`If-None-Match: "x"`}, 200, tag, "hello"},
		{"it was another when the client asked", "GET /hello", []string{`If-Match: "x"`}, 412, "", "Precondition Failed\n"},
		{"the handler's own stays", "GET /own", nil, 200, `"own"`, "hello"},
		{"and serves for conditions", "GET /own", []string{`If-None-Match: "own"`}, 304, `"own"`, ""},
		{"a large body gets none", "GET /large", nil, 200, "", strings.Repeat("x", 101)},
		{"an error gets none, and conditions don't count", "GET /404", []string{"If-None-Match: *"}, 404, "", "Not Found\n"},
		{"other statuses get none", "GET /201", nil, 201, "", "hello"},
		{"POST's answer gets none", "POST /hello", nil, 200, "", "hello"},
		{"a stream gets none", "GET /stream", nil, 200, "", "hello"},
		{"RFC 9110, 13.1.1: * is any resource, also one without an entity tag", "GET /stream", []string{"If-Match: *"}, 200, "", "hello"},
		{"that which is to be read too", "GET /reader", []string{"If-Match: *"}, 200, "", "hello"},
		{"but an entity tag isn't that of one that has none", "GET /reader", []string{`If-Match: "a"`}, 412, "", "Precondition Failed\n"},
		{"RFC 9110, 13.1.2: the client has it, whichever it is", "GET /reader", []string{"If-None-Match: *"}, 304, "", ""},
		{"a stream that isn't one gets one", "GET /short", nil, 200, tag, "hello"},
		{"a file has Last-Modified", "GET /file", []string{"If-Modified-Since: " + mwtest.SomeDate}, 304, "", ""},
		{"and is sent when it is newer", "GET /file", []string{"If-Modified-Since: " + soonDate}, 200, "", "content"},
		{"an empty answer to HEAD may be any", "HEAD /empty", nil, 200, "", ""},
	} {
		got := s.Do(t, test.request, test.fields...)
		if got.Status != test.status || got.Header.Get("ETag") != test.etag || got.Body != test.body {
			t.Errorf("%s: %v, want %d %s", test.why, got, test.status, test.etag)
		}
		if test.status == 304 && (got.Header.Get("Content-Type") != "" || got.Header.Get("Content-Length") != "" || test.etag != "" && got.Header.Get("Last-Modified") != "" || test.request == "GET /file" && got.Header.Get("Last-Modified") == "") {
			t.Errorf("%s: %v, want no fields of a body", test.why, got.Header)
		}
	}
	weak := mwtest.Do(t, middleware.ETag(middleware.ETagOptions{Weak: true})(mwtest.Hello), "GET /")
	if got := weak.Header.Get("ETag"); got != "W/"+tag {
		t.Errorf("weak: %s", got)
	}
	mwtest.MustPanic(t, "middleware", map[string]func(){"negative MaxBytes": func() { middleware.ETag(middleware.ETagOptions{MaxBytes: -1}) }})
}

func ExampleETag() {
	h := middleware.ETag()(mwtest.Hello)
	mwtest.Show(h, []string{"ETag"}, "GET /")
	mwtest.Show(h, []string{"ETag"}, "GET /", `If-None-Match: "LPJNul-wow4m6Dsqxbning"`)
	// Output:
	// 200 hello
	// ETag: "LPJNul-wow4m6Dsqxbning"
	// 304
	// ETag: "LPJNul-wow4m6Dsqxbning"
}

func ExamplePrecondition() {
	put := func(c *filo.Ctx) error {
		const version = `"v7"` // of the stored document
		if status := middleware.Precondition(c, version, time.Time{}); status != 0 {
			return filo.Error(status, "somebody else has changed it")
		}
		return c.NoContent()
	}
	mwtest.Show(put, nil, "PUT /doc", `If-Match: "v6"`)
	mwtest.Show(put, nil, "PUT /doc", `If-Match: "v7"`)
	// Output:
	// 412 Precondition Failed: somebody else has changed it
	// 204
}

func BenchmarkETag(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		body := strings.Repeat("x", size)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			mwtest.Benchmark(b, middleware.ETag()(func(c *filo.Ctx) error { return c.Text(200, body) }), "GET /")
		})
	}
}
