package static_test

import (
	"bufio"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/static"
)

var siteFiles = map[string]string{
	"index.html":          "<h1>home</h1>",
	"hello.txt":           "Hello, World!",
	"empty.txt":           "",
	"page.html":           "<p>page",
	"picture.png":         "\x89PNG\r\n\x1a\n",
	"README":              "plain words\n",
	"a b#c?d.txt":         "odd name",
	"a:b/index.html":      "colon",
	"docs/index.html":     "docs",
	"docs/deep/more.json": "{}",
	"bare/file.css":       "p{}",
	"large.txt":           strings.Repeat("0123456789", 100_000),
}

// The requests are sent to a FileServer of net/http and to Files, for the same directory. The answers must be alike, except for the listed
// differences.
func TestAsFileServer(t *testing.T) {
	const (
		alike  = ""
		status = "only the status is the same: errors have another text"
	)
	dir := tree(t, siteFiles)
	cases := []struct {
		request string
		fields  []string
		differs string
	}{
		{"GET /", nil, alike},
		{"HEAD /", nil, alike},
		{"GET /hello.txt", nil, alike},
		{"HEAD /hello.txt", nil, alike},
		{"GET /hello.txt?x=1", nil, alike},
		{"GET /empty.txt", nil, alike},
		{"GET /page.html", nil, alike},
		{"GET /picture.png", nil, alike},
		{"GET /README", nil, alike},
		{"GET /large.txt", nil, alike},
		{"HEAD /large.txt", nil, alike},
		{"GET /a%20b%23c%3Fd.txt", nil, alike},
		{"GET /%68ello.txt", nil, alike},
		{"GET /docs/", nil, alike},
		{"GET /docs", nil, alike},
		{"GET /docs?x=1&y", nil, alike},
		{"GET /docs/index.html", nil, alike},
		{"GET /docs/index.html?x=1", nil, alike},
		{"GET /index.html", nil, alike},
		{"HEAD /index.html", nil, alike},
		{"GET /hello.txt/", nil, alike},
		{"GET /docs/deep/more.json/?x=1", nil, alike},
		{"GET /docs/deep/more.json", nil, alike},
		{"GET /a:b/", nil, alike},
		{"GET /none", nil, status},
		{"GET /none/", nil, status},
		{"GET /hello.txt/none", nil, status},
		{"GET /a%00b", nil, status},
		{"GET /" + strings.Repeat("a", 255), nil, status},

		{"GET /hello.txt", []string{"Range: bytes=0-4"}, alike},
		{"GET /hello.txt", []string{"Range: bytes=7-"}, alike},
		{"GET /hello.txt", []string{"Range: bytes=-1"}, alike},
		{"GET /hello.txt", []string{"Range: bytes=-100"}, alike},
		{"GET /hello.txt", []string{"Range: bytes=0-0,-1"}, alike},
		{"GET /hello.txt", []string{"Range: bytes=0-1, 3-4 ,,6-7"}, alike},
		{"GET /hello.txt", []string{"Range: bytes=3-4,0-1"}, alike},
		{"GET /hello.txt", []string{"Range: bytes=0-100"}, alike},
		{"GET /hello.txt", []string{"Range: bytes=0-1,50-60"}, alike},
		{"GET /hello.txt", []string{"Range: bytes=0-9,0-9"}, alike},
		{"GET /hello.txt", []string{"Range: bytes=13-"}, status},
		{"GET /hello.txt", []string{"Range: bytes=50-60,70-80"}, status},
		{"GET /hello.txt", []string{"Range: bytes=4-2"}, status},
		{"GET /hello.txt", []string{"Range: bytes=x-y"}, status},
		{"GET /hello.txt", []string{"Range: bytes=5"}, status},
		{"GET /hello.txt", []string{"Range: bytes=--5"}, status},
		{"GET /hello.txt", []string{"Range: bytes="}, alike},
		{"GET /hello.txt", []string{"Range: bytes=,"}, alike},
		{"GET /empty.txt", []string{"Range: bytes=0-4"}, alike},
		{"GET /large.txt", []string{"Range: bytes=999990-"}, alike},
		{"GET /large.txt", []string{"Range: bytes=5-9,-10,100-50000"}, alike},
		{"GET /page.html", []string{"Range: bytes=0-1,3-4"}, alike},

		{"GET /hello.txt", []string{"If-Modified-Since: " + longAgoText}, alike},
		{"HEAD /hello.txt", []string{"If-Modified-Since: " + longAgoText}, alike},
		{"GET /hello.txt", []string{"If-Modified-Since: Thu, 29 Feb 2024 12:34:55 GMT"}, alike},
		{"GET /hello.txt", []string{"If-Modified-Since: Thursday, 29-Feb-24 12:34:56 GMT"}, alike},
		{"GET /hello.txt", []string{"If-Modified-Since: nonsense"}, alike},
		{"GET /large.txt", []string{"If-Modified-Since: " + longAgoText}, alike},
		{"GET /hello.txt", []string{"If-Unmodified-Since: " + longAgoText}, alike},
		{"GET /hello.txt", []string{"If-Unmodified-Since: Thu, 29 Feb 2024 12:34:55 GMT"}, status},
		{"GET /hello.txt", []string{`If-Match: "none"`}, status},
		{"GET /hello.txt", []string{"If-Match: *"}, alike},
		{"GET /hello.txt", []string{"If-Match: *", "If-Unmodified-Since: Thu, 29 Feb 2024 12:34:55 GMT"}, alike},
		{"GET /hello.txt", []string{"If-None-Match: *"}, alike},
		{"GET /hello.txt", []string{`If-None-Match: "none"`, "If-Modified-Since: " + longAgoText}, alike},
		{"GET /hello.txt", []string{"If-Range: " + longAgoText, "Range: bytes=0-1"}, alike},
		{"GET /hello.txt", []string{"If-Range: Thu, 29 Feb 2024 12:34:57 GMT", "Range: bytes=0-1"}, alike},
		{"GET /hello.txt", []string{`If-Range: "none"`, "Range: bytes=0-1"}, alike},
		{"GET /large.txt", []string{`If-Range: W/"none"`, "Range: bytes=0-1"}, alike},
		{"GET /hello.txt", []string{"If-Modified-Since: " + longAgoText, "Range: bytes=50-"}, alike},
	}
	theirs := http.FileServer(http.Dir(dir))
	for _, options := range []static.Options{{}, {CacheBytes: -1}} {
		ours := serve(t, dir, options)
		for _, tc := range cases {
			want, got := askNetHTTP(t, theirs, tc.request, tc.fields...), ours.Do(t, tc.request, tc.fields...)
			if got.Status != want.Status {
				t.Errorf("%s %q: status %d, net/http's %d", tc.request, tc.fields, got.Status, want.Status)
			}
			if a, b := got.Header.Get("Content-Range"), want.Header.Get("Content-Range"); got.Status == 416 && b != "" && a != b {
				t.Errorf("%s %q: Content-Range %q, net/http's %q", tc.request, tc.fields, a, b)
			}
			if tc.differs == alike {
				compareAnswers(t, tc.request+" "+strings.Join(tc.fields, ", "), got, want)
			}
		}
	}
}

// These answers differ from those of net/http's FileServer on purpose. Each case states the reason.
func TestUnlikeFileServer(t *testing.T) {
	dir := tree(t, siteFiles)
	write(t, dir, "script", "<html><script>alert(1)</script>")
	write(t, dir, ".git/config", "secret")
	cases := []struct {
		request      string
		field        string
		theirs, ours int // theirs is 0 if the status depends on Go's version
		why          string
	}{
		{"POST /hello.txt", "", 200, 405, "a file has only GET and HEAD"},
		{"OPTIONS /hello.txt", "", 200, 405, "a file has only GET and HEAD"},
		{"GET /bare", "", 301, 404, "nobody is told of a directory that has nothing to show"},
		{"GET /bare/", "", 200, 404, "lists are off by default"},
		{"GET /.git/config", "", 200, 404, "names that begin with a dot are hidden"},
		{"GET //hello.txt", "", 200, 404, "each file has one path"},
		{"GET /docs/../hello.txt", "", 200, 404, "each file has one path"},
		{"GET /./hello.txt", "", 200, 404, "each file has one path"},
		{"GET /docs%2Findex.html", "", 0, 404, "an encoded slash is none, of which net/http makes 301 before Go 1.27"},
		{"GET /docs%2F", "", 200, 404, "an encoded slash is none"},
		{"GET /" + strings.Repeat("a", 256), "", 500, 404, "such a file can't be"},
		{"GET /hello.txt", "Range: lines=1-2", 416, 200, "a unit that isn't known must be ignored (RFC 9110, section 14.2)"},
		{"GET /hello.txt", "Range: Bytes=0-4", 416, 206, "range units are case-insensitive (RFC 9110, section 14.1)"},
		{"HEAD /hello.txt", "Range: bytes=0-4", 206, 200, "ranges are GET's (RFC 9110, section 14.2)"},
		{"GET /hello.txt", "Range: bytes=-0", 206, 416, "no range of a length of 0 is satisfiable (RFC 9110, section 14.1.2)"},
		{"GET /hello.txt", "Range: bytes=0-99999999999999999999", 416, 206, "a last position may be behind the end, however far"},
		{"GET /hello.txt", "Range: bytes=0 - 4", 206, 416, "there is no white space in a range (RFC 9110, section 14.1.1)"},
		{"GET /hello.txt", "Range: bytes=+1-4", 206, 416, "a position has digits only"},
		{"GET /empty.txt", "Range: bytes=-5", 206, 200, "an empty file has no ranges: theirs has the Content-Range 0--1"},
		{"GET /large.txt", "Range: bytes=" + strings.Repeat("0-0,", 33), 206, 200, "too many ranges are ignored"},
	}
	theirs, ours := http.FileServer(http.Dir(dir)), serve(t, dir)
	for _, tc := range cases {
		var fields []string
		if tc.field != "" {
			fields = []string{tc.field}
		}
		want, got := askNetHTTP(t, theirs, tc.request, fields...), ours.Do(t, tc.request, fields...)
		if tc.theirs != 0 && want.Status != tc.theirs || got.Status != tc.ours {
			t.Errorf("%s %s: net/http's %d (expected %d), ours %d (expected %d): %s",
				tc.request, tc.field, want.Status, tc.theirs, got.Status, tc.ours, tc.why)
		}
	}
	// A file is a page only if its name says so.
	if want := askNetHTTP(t, theirs, "GET /script").Header.Get("Content-Type"); want != "text/html; charset=utf-8" {
		t.Errorf("net/http's type of a page without extension is %q", want)
	}
	if got := ours.Do(t, "GET /script").Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("the type of a page without extension is %q", got)
	}
	// "a:b/" would be a URL with the scheme a.
	if got := ours.Do(t, "GET /a:b").Header.Get("Location"); got != "./a:b/" {
		t.Errorf("Location %q", got)
	}
}

// askNetHTTP sends a handler of net/http the request that servertest.Server.Do would send.
func askNetHTTP(t *testing.T, h http.Handler, request string, fields ...string) servertest.Answer {
	t.Helper()
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(servertest.Request(request, "", fields...))))
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, req)
	return servertest.Answer{Status: recorder.Code, Header: recorder.Result().Header, Body: recorder.Body.String()}
}

func compareAnswers(t *testing.T, what string, got, want servertest.Answer) {
	t.Helper()
	for _, name := range []string{"Content-Range", "Location", "Last-Modified", "Accept-Ranges", "Content-Encoding"} {
		a, b := got.Header.Values(name), want.Header.Values(name)
		if name == "Last-Modified" && got.Status == 304 {
			continue // FileServer has no ETag, so its 304 has Last-Modified
		}
		if !slices.Equal(a, b) {
			t.Errorf("%s: %s %q, net/http's %q", what, name, a, b)
		}
	}
	gotType, wantType := got.Header.Get("Content-Type"), want.Header.Get("Content-Type")
	if strings.HasPrefix(wantType, "multipart/byteranges") {
		if !strings.HasPrefix(got.Body, "\r\n--") {
			t.Errorf("%s: the body begins with %.20q", what, got.Body)
		}
		gotParts, wantParts := parts(t, gotType, got.Body), parts(t, wantType, want.Body)
		if !slices.Equal(gotParts, wantParts) {
			t.Errorf("%s: parts %q, net/http's %q", what, gotParts, wantParts)
		}
		return
	}
	if gotType != wantType {
		t.Errorf("%s: Content-Type %q, net/http's %q", what, gotType, wantType)
	}
	if a, b := got.Header.Get("Content-Length"), want.Header.Get("Content-Length"); a != b && got.Status < 300 {
		t.Errorf("%s: Content-Length %q, net/http's %q", what, a, b)
	}
	if got.Body != want.Body {
		t.Errorf("%s: body %.100q, net/http's %.100q", what, got.Body, want.Body)
	}
}

// parts returns the parts of a multipart/byteranges body.
func parts(t *testing.T, contentType, body string) (found []string) {
	t.Helper()
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		t.Fatalf("%q: %v", contentType, err)
	}
	reader := multipart.NewReader(strings.NewReader(body), params["boundary"])
	for {
		part, err := reader.NextRawPart()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		if len(part.Header) != 2 {
			t.Errorf("a part's header is %v", part.Header)
		}
		found = append(found, part.Header.Get("Content-Range")+" "+part.Header.Get("Content-Type")+" "+string(content))
	}
}
