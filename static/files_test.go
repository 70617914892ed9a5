package static_test

import (
	"embed"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/static"
)

// Under a router, a name is the part of the path that matches {name...} or the slash at the pattern's end.
func TestUnderARouter(t *testing.T) {
	dir := tree(t, map[string]string{"index.html": "home", "a/b.txt": "b", "robots.txt": "robots", "u/1/b.txt": "other"})
	files := open(t, dir)
	inner := router.New()
	inner.GET("/deep/{path...}", files.Serve)
	inner.Mount("/mounted", files.Serve)
	r := router.New()
	r.GET("/assets/{path...}", files.Serve)
	r.GET("/plain/", files.Serve)
	r.Mount("/mount/{user}", files.Serve)
	r.Mount("/x/{y}", inner.Serve)
	r.GET("/robots.txt", files.Serve)
	r.GET("/one", func(c *filo.Ctx) error { return files.ServeFile(c, "a/b.txt") })
	s := servertest.New(t, r.Serve)
	cases := []struct {
		why, request string
		status       int
		want         string // the body or Location
	}{
		{"a wildcard", "GET /assets/a/b.txt", 200, "b"},
		{"the index", "GET /assets/", 200, "home"},
		{"encoded", "GET /assets/%61/b%2etxt", 200, "b"},
		{"an encoded prefix", "GET /%61ssets/a/b.txt", 200, "b"},
		{"a slash at the end", "GET /plain/a/b.txt", 200, "b"},
		{"a mount behind a wildcard", "GET /mount/who/a/b.txt", 200, "b"},
		{"a slash in the prefix's wildcard is no slash", "GET /mount/a%2Fb/a/b.txt", 200, "b"},
		{"a mount's own path", "GET /mount/who/", 200, "home"},
		{"a router in a router", "GET /x/y/deep/a/b.txt", 200, "b"},
		{"mounted in a mounted router", "GET /x/y/mounted/a/b.txt", 200, "b"},
		{"a literal path is the name", "GET /robots.txt", 200, "robots"},
		{"a file that the program has chosen", "GET /one", 200, "b"},
		{"a redirect is relative", "GET /assets/index.html", 301, "./"},
		{"the prefix's segments aren't looked for", "GET /mount/u/1/b.txt", 404, ""},
		{"an encoded slash", "GET /assets/a%2Fb.txt", 404, ""},
		{"in lower case", "GET /assets/a%2fb.txt", 404, ""},
		{"other methods are the router's", "POST /assets/a/b.txt", 405, ""},
		{"and of a mount the files' own", "POST /mount/who/a/b.txt", 405, ""},
		{"also for one file", "DELETE /plain/x", 405, ""},
	}
	for _, tc := range cases {
		for range 2 { // from the disk, and from memory
			a := s.Do(t, tc.request)
			got := a.Body
			if a.Status == 301 {
				got = a.Header.Get("Location")
			}
			if a.Status != tc.status || tc.want != "" && got != tc.want {
				t.Errorf("%s: %s: %d %q, want %d %q", tc.why, tc.request, a.Status, got, tc.status, tc.want)
			}
			if a.Status == 405 && !strings.Contains(a.Header.Get("Allow"), "GET") {
				t.Errorf("%s: Allow %q", tc.request, a.Header.Get("Allow"))
			}
		}
	}
}

// Answers have the right fields, whether a file is sent from memory, from the disk, or with ServeFile.
func TestFields(t *testing.T) {
	dir := tree(t, map[string]string{"small.css": "p{}", "large.css": strings.Repeat("p{}\n", 100_000)})
	control := func(name string) string { return "max-age=60" }
	r := router.New()
	files := open(t, dir, static.Options{CacheControl: control})
	r.Mount("/", files.Serve)
	r.GET("/typed", func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Type", "text/x-mine")
		c.Response.Header.Set("Vary", "Origin")
		return files.ServeFile(c, "small.css")
	})
	s := servertest.New(t, r.Serve)
	for _, path := range []string{"/small.css", "/large.css", "/typed"} {
		for _, method := range []string{"GET", "HEAD"} {
			a := s.Do(t, method+" "+path)
			h := a.Header
			want := http.Header{
				"Content-Type": {"text/css; charset=utf-8"}, "Accept-Ranges": {"bytes"}, "X-Content-Type-Options": {"nosniff"},
				"Last-Modified": {longAgoText}, "Cache-Control": {"max-age=60"}, "Etag": h["Etag"], "Content-Length": h["Content-Length"],
				"Date": h["Date"], "Server": h["Server"], "Connection": h["Connection"],
			}
			if path == "/typed" {
				want.Set("Content-Type", "text/x-mine")
				want.Set("Vary", "Origin")
			}
			for name := range h {
				if !slices.Equal(h[name], want[name]) {
					t.Errorf("%s %s: %s %q, want %q", method, path, name, h[name], want[name])
				}
			}
			for name := range want {
				if len(h[name]) != 1 && len(want[name]) > 0 {
					t.Errorf("%s %s: %s %q, want %q", method, path, name, h[name], want[name])
				}
			}
			if a.Status != 200 || h.Get("Etag") == "" || (len(a.Body) > 0) != (method == "GET") {
				t.Errorf("%s %s: %d, ETag %q, %d bytes", method, path, a.Status, h.Get("Etag"), len(a.Body))
			}
		}
	}
	// RFC 9110, section 15.4.5: a 304 has ETag, Cache-Control and Vary of the 200, but no fields that describe the content.
	a := s.Do(t, "GET /small.css", "If-None-Match: "+s.Do(t, "GET /small.css").Header.Get("ETag"))
	h := a.Header
	if a.Status != 304 || a.Body != "" || h.Get("ETag") == "" || h.Get("Cache-Control") != "max-age=60" || h.Get("Content-Type") != "" ||
		h.Get("Last-Modified") != "" || h.Get("Content-Length") != "" || h.Get("Accept-Ranges") != "" {
		t.Errorf("%d %v %q", a.Status, h, a.Body)
	}
	// A 416 states the file's size, and has no field that lets caches keep it.
	a = s.Do(t, "GET /small.css", "Range: bytes=9-")
	if a.Status != 416 || a.Header.Get("Content-Range") != "bytes */3" || a.Header.Get("Cache-Control") != "" || a.Header.Get("ETag") != "" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
	// A 412 doesn't have such a field, either.
	if a = s.Do(t, "GET /small.css", `If-Match: "other"`); a.Status != 412 || a.Header.Get("Cache-Control") != "" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
}

// Conditions are evaluated with the entity tag, for files in memory and on the disk.
func TestConditions(t *testing.T) {
	dir := tree(t, map[string]string{"file.txt": "0123456789"})
	for _, options := range []static.Options{{}, {CacheBytes: -1, Frozen: true}} {
		s := serve(t, dir, options)
		tag := s.Do(t, "GET /file.txt").Header.Get("ETag")
		if !strings.HasPrefix(tag, `"`) {
			t.Fatalf("ETag %s isn't strong", tag)
		}
		cases := []struct {
			why    string
			fields []string
			status int
			body   string
		}{
			{"the client has it", []string{"If-None-Match: " + tag}, 304, ""},
			{"by weak comparison", []string{"If-None-Match: W/" + tag}, 304, ""},
			{"among others", []string{`If-None-Match: "a", W/"b", ` + tag}, 304, ""},
			{"in another field", []string{`If-None-Match: "a"`, "If-None-Match: " + tag}, 304, ""},
			{"it has another one", []string{`If-None-Match: "a"`}, 200, "0123456789"},
			{"the tag goes before the date", []string{`If-None-Match: "a"`, "If-Modified-Since: " + longAgoText}, 200, "0123456789"},
			{"it is the one", []string{"If-Match: " + tag}, 200, "0123456789"},
			{"by strong comparison", []string{"If-Match: W/" + tag}, 412, ""},
			{"it isn't", []string{`If-Match: "a"`}, 412, ""},
			{"If-Match comes first", []string{`If-Match: "a"`, "If-None-Match: " + tag}, 412, ""},
			{"and then If-None-Match", []string{"If-Match: " + tag, "If-None-Match: " + tag}, 304, ""},
			{"before ranges", []string{"If-None-Match: " + tag, "Range: bytes=0-1"}, 304, ""},
			{"even bad ones", []string{"If-None-Match: " + tag, "Range: bytes=50-"}, 304, ""},
			{"a range of this one", []string{"If-Range: " + tag, "Range: bytes=0-1"}, 206, "01"},
			{"of another one", []string{`If-Range: "a"`, "Range: bytes=0-1"}, 200, "0123456789"},
			{"of another one, and bad", []string{`If-Range: "a"`, "Range: bytes=50-"}, 200, "0123456789"},
			{"by strong comparison", []string{"If-Range: W/" + tag, "Range: bytes=0-1"}, 200, "0123456789"},
			{"of a date", []string{"If-Range: " + longAgoText, "Range: bytes=0-1"}, 206, "01"},
			{"of an earlier date", []string{"If-Range: Thu, 29 Feb 2024 12:34:55 GMT", "Range: bytes=0-1"}, 200, "0123456789"},
			{"of a later date", []string{"If-Range: Thu, 29 Feb 2024 12:34:57 GMT", "Range: bytes=0-1"}, 200, "0123456789"},
			{"of nonsense", []string{"If-Range: x", "Range: bytes=0-1"}, 200, "0123456789"},
			{"of nothing", []string{"If-Range: ", "Range: bytes=0-1"}, 200, "0123456789"},
			{"without a range", []string{"If-Range: " + tag}, 200, "0123456789"},
		}
		for _, tc := range cases {
			a := s.Do(t, "GET /file.txt", tc.fields...)
			if a.Status != tc.status || a.Status < 400 && a.Body != tc.body {
				t.Errorf("%s: %q: %d %q, want %d %q", tc.why, tc.fields, a.Status, a.Body, tc.status, tc.body)
			}
			if a.Status < 400 && a.Header.Get("ETag") != tag {
				t.Errorf("%s: ETag %s, want %s", tc.why, a.Header.Get("ETag"), tag)
			}
		}
	}
}

func TestPrecompressed(t *testing.T) {
	large := strings.Repeat("large ", 60_000)
	dir := tree(t, map[string]string{
		"app.js": "plain", "app.js.zst": "zstd!", "app.js.br": "brotli", "app.js.gz": "gzipped",
		"only.js": "plain", "large.js": large, "large.js.gz": "small", "both.js": "plain", "both.js.gz": large,
		"old.js": "plain", "old.js.gz": "outdated", "sub/index.html": "<p>", "sub/index.html.br": "page",
	})
	yesterday := longAgo.Add(-24 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "old.js.gz"), yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "only.js.gz"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, static.Options{Precompressed: true})
	const browser = "Accept-Encoding: gzip, deflate, br, zstd"
	cases := []struct {
		why, request     string
		fields           []string
		status           int
		encoding, body   string
		vary, hasNoRange bool
	}{
		{"a browser gets the first", "GET /app.js", []string{browser}, 200, "zstd", "zstd!", true, false},
		{"what it likes best", "GET /app.js", []string{"Accept-Encoding: br, gzip;q=0.5"}, 200, "br", "brotli", true, false},
		{"who asks for none gets the file", "GET /app.js", nil, 200, "", "plain", true, false},
		{"or refuses all", "GET /app.js", []string{"Accept-Encoding: identity"}, 200, "", "plain", true, false},
		{"or refuses everything", "GET /app.js", []string{"Accept-Encoding: *;q=0"}, 406, "", "", true, false},
		{"a range is one of the encoded bytes", "GET /app.js", []string{browser, "Range: bytes=1-2"}, 206, "zstd", "st", true, false},
		{"HEAD", "HEAD /app.js", []string{browser}, 200, "zstd", "", true, false},
		{"the index", "GET /sub/", []string{browser}, 200, "br", "page", true, false},
		{"there is only a directory", "GET /only.js", []string{browser}, 200, "", "plain", false, false},
		{"a large file's", "GET /large.js", []string{browser}, 200, "gzip", "small", true, false},
		{"a large file", "GET /large.js", nil, 200, "", large, true, false},
		{"a large encoding", "GET /both.js", []string{browser}, 200, "gzip", large, true, false},
		{"and a small file", "GET /both.js", nil, 200, "", "plain", true, false},
		{"an encoding that is older than the file is of another one", "GET /old.js", []string{browser}, 200, "", "plain", false, false},
		{"the encoding itself", "GET /app.js.gz", []string{browser}, 200, "", "gzipped", false, false},
	}
	tags := make(map[string]string)
	for range 2 {
		for _, tc := range cases {
			a := s.Do(t, tc.request, tc.fields...)
			h := a.Header
			if a.Status != tc.status || h.Get("Content-Encoding") != tc.encoding || a.Status < 400 && a.Body != tc.body ||
				(h.Get("Vary") == "Accept-Encoding") != tc.vary {
				t.Errorf("%s: %s %q: %d, encoding %q, Vary %q, %.20q", tc.why, tc.request, tc.fields, a.Status,
					h.Get("Content-Encoding"), h.Get("Vary"), a.Body)
			}
			if want := "text/javascript; charset=utf-8"; a.Status < 400 && strings.HasSuffix(tc.request, ".js") && h.Get("Content-Type") != want {
				t.Errorf("%s: Content-Type %q", tc.why, h.Get("Content-Type"))
			}
			if tag := h.Get("ETag"); a.Status == 200 && strings.HasSuffix(tc.request, "/app.js") {
				if other, ok := tags[tag]; ok && other != tc.encoding {
					t.Errorf("the encodings %q and %q have the same entity tag", other, tc.encoding)
				}
				tags[tag] = tc.encoding
			}
		}
	}
	write(t, dir, "empty.js", "")
	write(t, dir, "empty.js.gz", "")
	empty, encoded := s.Do(t, "GET /empty.js").Header, s.Do(t, "GET /empty.js", browser).Header
	if encoded.Get("Content-Encoding") != "gzip" || empty.Get("ETag") == encoded.Get("ETag") {
		t.Errorf("an empty file has the entity tag %s, and its encoding %s", empty.Get("ETag"), encoded.Get("ETag"))
	}
	// RFC 9110, section 15.4.5: a 304 has the Vary of the 200.
	tag := s.Do(t, "GET /app.js", browser).Header.Get("ETag")
	if a := s.Do(t, "GET /app.js", browser, "If-None-Match: "+tag); a.Status != 304 || a.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
	if a := s.Do(t, "GET /app.js", "If-None-Match: "+tag); a.Status != 200 {
		t.Errorf("the plain file for the tag of an encoding: %d", a.Status)
	}
	// Without the option, encodings are ordinary files.
	if a := serve(t, dir).Do(t, "GET /app.js", browser); a.Body != "plain" || a.Header.Get("Vary") != "" {
		t.Errorf("%q %v", a.Body, a.Header)
	}
	// A middleware that compresses leaves compressed files alone, and Vary is set only once.
	compressed := middleware.Compress(middleware.CompressOptions{MinBytes: 1})(open(t, dir, static.Options{Precompressed: true}).Serve)
	if a := servertest.New(t, compressed).Do(t, "GET /app.js", browser); a.Body != "zstd!" || len(a.Header["Vary"]) != 1 {
		t.Errorf("%q %v", a.Body, a.Header)
	}
}

func TestFallback(t *testing.T) {
	dir := tree(t, map[string]string{"app.html": "<app>", "index.html": "home", "real.txt": "real", "empty/x": ""})
	s := serve(t, dir, static.Options{Fallback: "app.html"})
	const browser = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	cases := []struct {
		why, request, field string
		status              int
		body                string
	}{
		{"who goes to a page gets it", "GET /users/1", browser, 200, "<app>"},
		{"also with a slash", "GET /users/", browser, 200, "<app>"},
		{"and below a dot", "GET /v1.2/users", browser, 200, "<app>"},
		{"and for a directory without an index", "GET /empty/", browser, 200, "<app>"},
		{"HEAD", "HEAD /users/1", browser, 200, ""},
		{"what is there goes first", "GET /real.txt", browser, 200, "real"},
		{"the index too", "GET /", browser, 200, "home"},
		{"who loads a part doesn't", "GET /users/1", "Accept: */*", 404, ""},
		{"nor who wants something else", "GET /users/1", "Accept: application/json, text/html;q=0.5, */*;q=0.8", 404, ""},
		{"nor who says nothing", "GET /users/1", "X: y", 404, ""},
		{"a missing file is no page", "GET /app.js", browser, 404, ""},
		{"nor is what is hidden", "GET /.env", browser, 404, ""},
		{"what can't be a name is no page", "GET /a%00b", browser, 404, ""},
		{"other methods are refused before", "POST /users/1", browser, 405, ""},
	}
	for range 2 {
		for _, tc := range cases {
			a := s.Do(t, tc.request, tc.field)
			if a.Status != tc.status || a.Status == 200 && a.Body != tc.body {
				t.Errorf("%s: %s: %d %q", tc.why, tc.request, a.Status, a.Body)
			}
		}
	}
	for _, field := range []string{browser, "Accept: */*"} {
		if a := s.Do(t, "GET /users/1", field); a.Header.Get("Vary") != "Accept" {
			t.Errorf("the answer to %s depends on it, and has Vary %q", field, a.Header.Get("Vary"))
		}
	}
	if a := serve(t, dir, static.Options{Fallback: "none.html"}).Do(t, "GET /x", browser); a.Status != 404 {
		t.Errorf("a fallback that isn't there: %d", a.Status)
	}
}

// A visible link is served even if its target's name is hidden. In a ConfigMap that Kubernetes has mounted, all files are such links.
func TestVisibleLink(t *testing.T) {
	dir := tree(t, map[string]string{"..2026_11_27/app.js": "let x"})
	for name, target := range map[string]string{"..data": "..2026_11_27", "app.js": "..data/app.js"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, dir)
	for path, want := range map[string]int{"/app.js": 200, "/..data/app.js": 404, "/..2026_11_27/app.js": 404} {
		if a := s.Do(t, "GET "+path); a.Status != want {
			t.Errorf("%s: %d, want %d", path, a.Status, want)
		}
	}
}

// An index file is served for its directory although its name is hidden, since the program has chosen it. That holds whether or not the
// file is in memory. A hidden directory stays hidden.
func TestHiddenIndex(t *testing.T) {
	dir := tree(t, map[string]string{".index": "root", "sub/.index": "sub", ".git/.index": "secret", "sub/.git/.index": "secret"})
	for _, check := range []time.Duration{time.Hour, -1} {
		s := serve(t, dir, static.Options{Index: ".index", CacheCheck: check})
		for range 3 {
			for path, want := range map[string]int{"/": 200, "/sub/": 200, "/sub": 301, "/sub/.index": 301, "/.git/": 404, "/sub/.git/": 404, "/.git": 404} {
				if a := s.Do(t, "GET "+path); a.Status != want {
					t.Errorf("%s: %d, want %d", path, a.Status, want)
				}
			}
		}
	}
}

func TestListing(t *testing.T) {
	nasty := `<script>&"'.txt`
	dir := tree(t, map[string]string{
		"b.txt": "", "a.txt": "", "c/x": "", "q?#%.txt": "", "a:b": "", nasty: "", ".hidden": "", ".well-known/x": "", "sub/index.html": "index",
	})
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, static.Options{Listing: true})
	a := s.Do(t, "GET /")
	if a.Status != 200 || a.Header.Get("Content-Type") != "text/html; charset=utf-8" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("%d %v", a.Status, a.Header)
	}
	last := -1
	for _, link := range []string{
		`<a href=".well-known/">.well-known/</a>`,
		`<a href="%3Cscript%3E&amp;%22%27.txt">&lt;script&gt;&amp;&#34;&#39;.txt</a>`,
		`<a href="a.txt">a.txt</a>`,
		`<a href="./a:b">a:b</a>`,
		`<a href="b.txt">b.txt</a>`,
		`<a href="c/">c/</a>`,
		`<a href="out">out</a>`,
		`<a href="q%3F%23%25.txt">q?#%.txt</a>`,
		`<a href="sub/">sub/</a>`,
	} {
		at := strings.Index(a.Body, link)
		if at <= last {
			t.Errorf("%s isn't there, or out of order", link)
		}
		last = at
	}
	if strings.Contains(a.Body, "hidden") || strings.Contains(a.Body, "<script>") {
		t.Errorf("in the list: %s", a.Body)
	}
	if a := s.Do(t, "GET /", "If-Modified-Since: "+a.Header.Get("Last-Modified")); a.Status != 304 {
		t.Errorf("a list that is as it was: %d", a.Status)
	}
	if a := s.Do(t, "GET /sub/"); a.Body != "index" {
		t.Errorf("the index goes before the list: %q", a.Body)
	}
	if a := s.Do(t, "GET /c?x=1"); a.Status != 301 || a.Header.Get("Location") != "c/?x=1" {
		t.Errorf("%d %q", a.Status, a.Header.Get("Location"))
	}
	if a := s.Do(t, "HEAD /c/"); a.Status != 200 || a.Body != "" {
		t.Errorf("%d %q", a.Status, a.Body)
	}
	if a := s.Do(t, "GET /none/"); a.Status != 404 {
		t.Errorf("%d", a.Status)
	}
	hidden := serve(t, dir, static.Options{Listing: true, Hidden: true, Index: "-"})
	if a := hidden.Do(t, "GET /"); !strings.Contains(a.Body, ">.hidden<") {
		t.Errorf("with Hidden: %s", a.Body)
	}
	if a := hidden.Do(t, "GET /sub/"); !strings.Contains(a.Body, ">index.html<") {
		t.Errorf("without an index: %s", a.Body)
	}
	if a := hidden.Do(t, "GET /sub/index.html"); a.Body != "index" {
		t.Errorf("without an index its file is one like others: %q", a.Body)
	}
}

// A change of a file is noticed after CacheCheck at the latest.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour) // the time in a bubble begins in 2000, before the files were made
		dir := tree(t, map[string]string{"a.txt": "one", "b.txt": "b"})
		s := serve(t, dir, static.Options{Precompressed: true})
		ask := func(fields ...string) servertest.Answer { return s.Do(t, "GET /a.txt", fields...) }
		one := ask()
		write(t, dir, "a.txt", "two") // of the same size and time
		if a := ask(); a.Body != "one" {
			t.Errorf("there was a look within the time: %q", a.Body)
		}
		time.Sleep(time.Second)
		two := ask()
		if two.Body != "two" || two.Header.Get("ETag") == one.Header.Get("ETag") {
			t.Errorf("after it: %q, ETag %s and before %s", two.Body, two.Header.Get("ETag"), one.Header.Get("ETag"))
		}
		write(t, dir, "a.txt", "one")
		time.Sleep(time.Second)
		if a := ask(); a.Header.Get("ETag") != one.Header.Get("ETag") {
			t.Error("the same content has another entity tag")
		}
		write(t, dir, "a.txt.gz", "gzipped")
		time.Sleep(time.Second)
		if a := ask("Accept-Encoding: gzip"); a.Body != "gzipped" {
			t.Errorf("an encoding that is new: %q", a.Body)
		}
		if err := os.Remove(filepath.Join(dir, "a.txt.gz")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if a := ask("Accept-Encoding: gzip"); a.Body != "one" {
			t.Errorf("an encoding that is gone: %q", a.Body)
		}
		if err := os.Remove(filepath.Join(dir, "a.txt")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if a := ask(); a.Status != 404 {
			t.Errorf("a file that is gone: %d", a.Status)
		}
	})
}

// A file that was read within the same tick of the file system's clock in which it was written may change again and keep its stamp.
// Therefore each check reads the file again, until such a change is no longer possible.
func TestChangesWithoutAStamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mapped := fstest.MapFS{}
		change := func(content string, modified time.Time) {
			mapped["a.txt"] = &fstest.MapFile{Data: []byte(content), ModTime: modified}
		}
		s := servertest.New(t, static.New(mapped).Serve)
		ask := func() string {
			time.Sleep(time.Second)
			return s.Do(t, "GET /a.txt").Body
		}
		now := time.Now()
		change("one", now)
		first := ask()
		change("two", now)
		if second := ask(); first != "one" || second != "two" {
			t.Errorf("of a file that has just been written: %q, and then %q", first, second)
		}
		ask() // now the file is old enough
		change("six", now)
		if got := ask(); got != "two" {
			t.Errorf("an old file was read though it has the same stamp: %q", got)
		}
		// Without a modification time, the stamp never shows whether the file has changed.
		change("one", time.Time{})
		first = ask()
		change("two", time.Time{})
		if second := ask(); first != "one" || second != "two" {
			t.Errorf("of a file without a time: %q, and then %q", first, second)
		}
	})
}

// With a negative CacheCheck each request checks the file.
func TestEachRequestLooks(t *testing.T) {
	dir := tree(t, map[string]string{"a.txt": "0"})
	s := serve(t, dir, static.Options{CacheCheck: -1})
	for i := range 10 {
		content := strings.Repeat("x", i)
		write(t, dir, "a.txt", content)
		if a := s.Do(t, "GET /a.txt"); a.Body != content {
			t.Fatalf("got %q, want %q", a.Body, content)
		}
	}
}

// The entity tag of a large file is weak while a change might go unnoticed. Later it is strong, and different for each content.
func TestTagsOfLargeFiles(t *testing.T) {
	large := string(noise(300 << 10))
	tag := func(t *testing.T, files *static.Files) (tag string) {
		t.Helper()
		a := servertest.New(t, files.Serve).Do(t, "GET /large.bin")
		if a.Body != large {
			t.Fatal("another content")
		}
		return a.Header.Get("ETag")
	}
	dir := tree(t, map[string]string{"large.bin": large})
	fresh := tag(t, open(t, dir))
	if !strings.HasPrefix(fresh, `W/"`) {
		t.Errorf("of a file that was just written: %s", fresh)
	}
	synctest.Test(t, func(t *testing.T) {
		files := open(t, dir)
		if before := tag(t, files); before != fresh {
			t.Errorf("of a file that was written in the future: %s", before)
		}
		time.Sleep(30 * 365 * 24 * time.Hour)
		first := tag(t, files)
		if "W/"+first != fresh {
			t.Errorf("of a file that was written long ago: %s, and before that %s", first, fresh)
		}
		write(t, dir, "large.bin", large)
		if second := tag(t, files); !strings.HasPrefix(second, `"`) || second == first {
			t.Errorf("of one that was written once more: %s, and before that %s", second, first)
		}
		s := servertest.New(t, files.Serve)
		second := tag(t, files)
		if a := s.Do(t, "GET /large.bin", "If-Range: "+second, "Range: bytes=-5"); a.Status != 206 || a.Body != large[len(large)-5:] {
			t.Errorf("a range of it: %d, %d bytes", a.Status, len(a.Body))
		}
		if a := s.Do(t, "GET /large.bin", "If-None-Match: "+second); a.Status != 304 {
			t.Errorf("if it is another one: %d", a.Status)
		}
	})
	// For a file in an fs.FS, only the size and perhaps the time are known.
	mapped := fstest.MapFS{"large.bin": {Data: []byte(large), ModTime: longAgo}}
	if got := tag(t, static.New(mapped)); !strings.HasPrefix(got, `W/"`) {
		t.Errorf("of a file with a time: %s", got)
	}
	mapped["large.bin"].ModTime = time.Time{}
	if got := tag(t, static.New(mapped)); got != "" {
		t.Errorf("of a file without a time: %s", got)
	}
	if got := tag(t, static.New(mapped, static.Options{Frozen: true})); !strings.HasPrefix(got, `"`) {
		t.Errorf("of one that doesn't change: %s", got)
	}
}

// ServeFile can send any file of the tree, even one that clients can't request by name.
func TestServeFile(t *testing.T) {
	dir := tree(t, map[string]string{".private/page.html": "private", "404.html": "no such page", "sub/index.html": "sub"})
	files := open(t, dir)
	r := router.New()
	r.GET("/private", func(c *filo.Ctx) error { return files.ServeFile(c, ".private/page.html") })
	r.GET("/sub", func(c *filo.Ctx) error { return files.ServeFile(c, "sub") })
	r.GET("/up", func(c *filo.Ctx) error { return files.ServeFile(c, "../x") })
	r.GET("/files/{path...}", files.Serve)
	r.NotFound(func(c *filo.Ctx) error {
		c.Response.SetStatus(404)
		return files.ServeFile(c, "404.html")
	})
	s := servertest.New(t, r.Serve)
	tag := s.Do(t, "GET /files/404.html").Header.Get("ETag")
	for _, tc := range []struct {
		why, request, field string
		status              int
		body                string
	}{
		{"a hidden file", "GET /private", "X: y", 200, "private"},
		{"that isn't to be asked for", "GET /files/.private/page.html", "X: y", 404, "Not Found\n"},
		{"a directory", "GET /sub", "X: y", 404, "Not Found\n"},
		{"what can't be a name", "GET /up", "X: y", 404, "Not Found\n"},
		{"a page for errors", "GET /none", "X: y", 404, "no such page"},
		{"whole", "GET /none", "Range: bytes=0-1", 404, "no such page"},
		{"though it is known", "GET /none", "If-None-Match: " + tag, 404, "no such page"},
		{"not outside of errors", "GET /files/404.html", "If-None-Match: " + tag, 304, ""},
	} {
		if a := s.Do(t, tc.request, tc.field); a.Status != tc.status || a.Body != tc.body {
			t.Errorf("%s: %s, %s: %d %q", tc.why, tc.request, tc.field, a.Status, a.Body)
		}
	}
}

// streamFS has files that can only be read from their beginning, like files in a zip archive.
type streamFS struct{ fstest.MapFS }

func (s streamFS) Open(name string) (fs.File, error) {
	file, err := s.MapFS.Open(name)
	return struct{ fs.File }{file}, err
}

// Ranges of files that aren't seekable are available only if the files are in memory.
func TestFilesWithoutSeek(t *testing.T) {
	large := string(noise(300 << 10))
	s := servertest.New(t, static.New(streamFS{fstest.MapFS{"small.txt": {Data: []byte("small")}, "large.bin": {Data: []byte(large)}}},
		static.Options{}).Serve)
	if a := s.Do(t, "GET /small.txt", "Range: bytes=1-2"); a.Status != 206 || a.Body != "ma" || a.Header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("%d %q %v", a.Status, a.Body, a.Header)
	}
	if a := s.Do(t, "GET /large.bin", "Range: bytes=1-2"); a.Status != 200 || a.Body != large || a.Header.Get("Accept-Ranges") != "" {
		t.Errorf("%d, %d bytes, %v", a.Status, len(a.Body), a.Header)
	}
}

//go:embed *_test.go
var embedded embed.FS

// The files of an embed.FS have no time, and their entity tags are hashes.
func TestEmbedded(t *testing.T) {
	want, err := embedded.ReadFile("files_test.go")
	if err != nil {
		t.Fatal(err)
	}
	sub, err := fs.Sub(embedded, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range []*static.Files{
		static.New(embedded), static.New(embedded, static.Options{CacheBytes: -1}), static.New(sub),
	} {
		s := servertest.New(t, files.Serve)
		a := s.Do(t, "GET /files_test.go")
		tag := a.Header.Get("ETag")
		if a.Status != 200 || a.Body != string(want) || !strings.HasPrefix(tag, `"`) || a.Header.Get("Last-Modified") != "" {
			t.Errorf("%d, %d bytes, %v", a.Status, len(a.Body), a.Header)
		}
		if a := s.Do(t, "GET /files_test.go", "If-None-Match: "+tag); a.Status != 304 {
			t.Errorf("%d", a.Status)
		}
		if a := s.Do(t, "GET /files_test.go", "Range: bytes=8-18,-3"); a.Status != 206 || !strings.Contains(a.Body, "static_test") {
			t.Errorf("%d %q", a.Status, a.Body)
		}
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Options that are wrong panic at once, and say what is wrong with them.
func TestWrongOptions(t *testing.T) {
	for _, tc := range []struct {
		options static.Options
		want    string
	}{
		{static.Options{Index: "a/b"}, "Index"},
		{static.Options{Index: ".."}, "Index"},
		{static.Options{Fallback: "/index.html"}, "Fallback"},
		{static.Options{Fallback: "../index.html"}, "Fallback"},
		{static.Options{Fallback: "."}, "Fallback"},
		{static.Options{CacheFileBytes: -1}, "CacheFileBytes"},
	} {
		func() {
			defer func() {
				message, _ := recover().(string)
				if !strings.HasPrefix(message, "static: ") || !strings.Contains(message, tc.want) {
					t.Errorf("%+v: panic %q", tc.options, message)
				}
			}()
			static.New(fstest.MapFS{}, tc.options)
		}()
	}
	if _, err := static.Dir(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("a directory that isn't there: %v", err)
	}
}
