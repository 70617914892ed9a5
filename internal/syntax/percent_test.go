package syntax

import (
	"net/url"
	"strings"
	"testing"
)

// A "%" without two hexadecimal digits after it stays as it is (WHATWG URL standard, percent-decode).
func TestPercentDecoded(t *testing.T) {
	for input, want := range map[string]string{
		"": "", "a": "a", "%41": "A", "%2f%2F": "//", "a%20b+c": "a b+c", "%": "%", "%4": "%4", "%4g": "%4g", "%g4": "%g4",
		"%%41": "%A", "%4%31": "%41", "%00": "\x00", "%ff": "\xff", "100%": "100%", "%25%32": "%2",
	} {
		if got := string(AppendPercentDecoded([]byte("before"), []byte(input))); got != "before"+want {
			t.Errorf("%q is decoded to %q, want %q", input, got, want)
		}
		form := strings.ReplaceAll(want, "+", " ")
		if got := string(AppendFormDecoded([]byte("before"), []byte(input))); got != "before"+form {
			t.Errorf("%q in a form is decoded to %q, want %q", input, got, form)
		}
		if got := IsFormEncoded([]byte(input)); !got && form != input {
			t.Errorf("%q is said to be the same decoded", input)
		}
	}
}

// FuzzForm checks that filo and net/url decode an encoded text to the original, and that filo decodes any text as net/url does.
func FuzzForm(f *testing.F) {
	for _, seed := range []string{"", "a b+c&d=e%", "%41%zz", "é\x00\xff", "*-._~", "100%", "%e2%82%ac"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		encoded := string(AppendFormEncoded(nil, []byte(s)))
		if got := string(AppendFormDecoded(nil, []byte(encoded))); got != s {
			t.Fatalf("%q became %q", s, got)
		}
		if got, err := url.QueryUnescape(encoded); err != nil || got != s {
			t.Fatalf("net/url decodes %q to %q, %v, want %q", encoded, got, err, s)
		}
		if want, err := url.QueryUnescape(s); err == nil {
			if got := string(AppendFormDecoded(nil, []byte(s))); got != want {
				t.Fatalf("%q is decoded to %q, net/url: %q", s, got, want)
			}
		}
		if want, err := url.PathUnescape(s); err == nil {
			if got := string(AppendPercentDecoded(nil, []byte(s))); got != want {
				t.Fatalf("%q is decoded to %q, net/url: %q", s, got, want)
			}
		}
	})
}

// FuzzEscapePath checks that an escaped path decodes to the same bytes, that a url.URL accepts it as RawPath, and that bytes which a URI can contain
// aren't changed.
func FuzzEscapePath(f *testing.F) {
	for _, seed := range []string{"/", "/a%2Fb|", `/"<>\^{|}` + "`", "/[]!$&'()*+,;=:@-._~", "/é\x00#?%25%zz"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		escaped := EscapePath(path)
		if again := EscapePath(escaped); again != escaped {
			t.Fatalf("%q is escaped to %q, and again to %q", path, escaped, again)
		}
		decoded, err := url.PathUnescape(path)
		if err != nil {
			return
		}
		at := url.URL{Path: decoded, RawPath: escaped}
		if got := at.EscapedPath(); path != "" && got != escaped {
			t.Fatalf("%q, escaped to %q, is %q in a URL", path, escaped, got)
		}
		if ValidOriginTarget([]byte(path)) && !ValidOriginTarget([]byte(escaped)) {
			t.Fatalf("%q is valid, and %q isn't", path, escaped)
		}
	})
}
