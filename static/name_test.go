package static

import (
	"runtime"
	"testing"
)

func TestPrefixSegments(t *testing.T) {
	cases := []struct {
		pattern string
		want    int
	}{
		{"", 0},
		{"/", 0},
		{"GET /", 0},
		{"/{path...}", 0},
		{"GET /assets/{path...}", 1},
		{"/assets/", 1},
		{"example.com/assets/", 1},
		{"GET example.com/a/b/{path...}", 2},
		{"/users/{id}/files/{path...}", 3},
		{"/users/{id:a/b}/files/{path...}", 3},
		{"/users/{id:[a-z]{2}}/files/", 3},
		{"GET /robots.txt", 0},
		{"/files/{name}", 0},
		{"/files/{$}", 0},
	}
	for _, tc := range cases {
		if got := prefixSegments(tc.pattern); got != tc.want {
			t.Errorf("%q: %d segments, want %d", tc.pattern, got, tc.want)
		}
	}
}

func TestNames(t *testing.T) {
	cases := []struct {
		name          string
		valid, hidden bool
	}{
		{"a", true, false},
		{"a/b.txt", true, false},
		{"a..b/c", true, false},
		{"über", true, false},
		{".", false, true},
		{"..", false, true},
		{"a/../b", false, true},
		{"a/./b", false, true},
		{"/a", false, false},
		{"a//b", false, false},
		{"a/", false, false},
		{"a\\b", false, false},
		{"a\x00", false, false},
		{"a\xff", false, false},
		{".env", true, true},
		{"a/.git/config", true, true},
		{".well-known", true, false},
		{".well-known/security.txt", true, false},
		{".well-known/.htaccess", true, true},
		{".well-known/a/.b", true, true},
		{".well-knownx", true, true},
		{"a/.well-known/b", true, true},
	}
	for _, tc := range cases {
		if got := validName(tc.name); got != tc.valid {
			t.Errorf("%q: valid %v, want %v", tc.name, got, tc.valid)
		}
		if got := hidden(tc.name); got != tc.hidden {
			t.Errorf("%q: hidden %v, want %v", tc.name, got, tc.hidden)
		}
	}
}

func TestFingerprinted(t *testing.T) {
	cases := []struct {
		name string
		want bool
	}{
		{"app.3f9c2b7a.js", true},
		{"assets/app-3f9c2b7a.css", true},
		{"app_3F9C2B7A1D.min.js", true},
		{"app.3f9c2b7a.js.map", true},
		{"3f9c2b7a.js", false}, // the hash is the whole name
		{"app.3f9c2b7.js", false},
		{"app.3F9c2b7a.js", true},  // base64url
		{"app_3F9c2b7a.js", false}, // a base64url hash must not follow a _
		{"photo-20240131.jpg", false},
		{"material-components.css", false},
		{"facade-decadefa.html", false},
		{"app.js", false},
		{"3f9c2b7a/app.js", false},
		{"app.js.3f9c2b7a", false}, // the hash is the extension
		{"index-BXk2P0aQ.js", true},
		{"assets/index-BXk2P0aQ.css", true},
		{"index.BXk2P0aQ.js", true},
		{"index-BXk2P0aQ.js.map", true},
		{"my-page-BXk2P0aQ.js", true},
		{"vendor-CqT0_x-b.js", true},
		{"logo-D1aVn4Qz.svg", true},
		{"chunk-Bq7RzK0xPm.js", true},
		{"jquery-migrate.js", false},
		{"foo-component.js", false},
		{"app-DataTable.js", false},
		{"app-MyComponent.js", false},
		{"video-Html5Player.js", false},
		{"lib-Base64Encoder.js", false},
		{"lib-Web3Provider.js", false},
		{"tool-Mp4ToGif.js", false},
		{"lib-X509Cert.js", false},
		{"lib-Sha256Sum.js", false},
		{"lib-Utf8Json.js", false},
		{"photo-iPhone6S.jpg", false},
		{"font-OpenSans400.woff2", false},
		{"font-OpenSans-400Italic.woff2", false},
		{"Roboto-BoldItalic.woff2", false},
		{"app-Version2.js", false},
		{"photo-DSC01234.jpg", false},
		{"photo-IMG_20240131.jpg", false},
		{"foo-bar-X2Ya.js", false},
		{"lib-GPT4Mini.js", false},
		{"index-DiwrgTda.css", false},
		{"index_BXk2P0aQ.js", false},
		{"BXk2P0aQ.js", false},
		{"index-BXk2P0a.js", false},
		{"jquery-3.7.1.min.js", false},
		{"bootstrap-5.3.0-RC1.js", false},
		{"report-2024-Q4-Final.pdf", false},
		{"README-v1.2-Draft3.md", false},
	}
	for _, tc := range cases {
		if got := Fingerprinted(tc.name); got != tc.want {
			t.Errorf("%q: %v", tc.name, got)
		}
		want := "no-cache"
		if tc.want {
			want = "public, max-age=31536000, immutable"
		}
		if got := CacheFingerprinted(tc.name); got != want {
			t.Errorf("%q: %q", tc.name, got)
		}
	}
}

func TestTypeByContent(t *testing.T) {
	const text, binary = "text/plain; charset=utf-8", "application/octet-stream"
	full := make([]byte, sniffedBytes-1)
	for i := range full {
		full[i] = 'a'
	}
	cases := []struct {
		why, content, want string
	}{
		{"nothing is text", "", text},
		{"letters", "all\tkinds\r\nof w\u00f6rds\n", text},
		{"a page isn't one", "<!doctype html><script>", text},
		{"NUL", "a\x00b", binary},
		{"a control", "a\x07b", binary},
		{"DEL", "a\x7fb", binary},
		{"not UTF-8", "a\xffb", binary},
		{"cut in the middle of a character", string(full) + "\xc3", text},
		{"ends in the middle of a character", "a\xc3", binary},
	}
	for _, tc := range cases {
		if got := typeByContent([]byte(tc.content)); got != tc.want {
			t.Errorf("%s: %q", tc.why, got)
		}
	}
}

// On Windows a file has alternative names. Requests must not find it by these names, because they would reveal hidden files.
func TestAliases(t *testing.T) {
	for name, alias := range map[string]bool{
		"GIT~1": true, "git~1/config": true, "a/ENV~1": true, "LONGNA~1.TXT": true, "AB12CD~99.htm": true, "~1": true,
		"a.txt.": true, "a.txt ": true, "a./b": true, "a /b": true, "a/b.. ": true,
		"a": false, "a~b": false, "a~": false, "~a": false, "a1.txt": false, "a.b~1": false, "a b/c.d": false, "1~x": false, ".git": false,
		"a~1b": false,
	} {
		if isAlias(name) != alias {
			t.Errorf("%q is an alias: %t, want %t", name, !alias, alias)
		}
		if valid := validName(name); valid == (alias && runtime.GOOS == "windows") {
			t.Errorf("%q is valid: %t", name, valid)
		}
	}
}
