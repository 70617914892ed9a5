package filo

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func ExampleCookie() {
	session := &Cookie{
		Name:     "__Host-session",
		Value:    "d2VsY29tZQ",
		Path:     "/",
		MaxAge:   3600, // seconds
		Secure:   true,
		HttpOnly: true,
		SameSite: SameSiteLax,
	}
	fmt.Println(session)

	// To delete a cookie, set it again with the same name, path and domain.
	fmt.Println(&Cookie{Name: "theme", Path: "/", MaxAge: -1})
	// Output:
	// __Host-session=d2VsY29tZQ; Path=/; Max-Age=3600; Secure; HttpOnly; SameSite=Lax
	// theme=; Path=/; Max-Age=0
}

func ExampleCookie_Valid() {
	cookie := &Cookie{Name: "name", Value: "Jürgen; Admin"}
	fmt.Println(cookie.Valid())
	// Output: filo: cookie "name": the value must be visible ASCII without quotes, comma, semicolon and backslash
}

func TestCookieString(t *testing.T) {
	expires := time.Date(2030, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	for _, test := range []struct {
		cookie Cookie
		want   string
	}{
		{Cookie{Name: "a"}, "a="},
		{Cookie{Name: "a", Value: "b"}, "a=b"},
		{Cookie{Name: "a", Value: `"b"`}, `a="b"`},
		{Cookie{Name: "a", Value: "b", Path: "/x", Domain: "example.com"}, "a=b; Path=/x; Domain=example.com"},
		{Cookie{Name: "a", Path: `/"\`, Domain: "b"}, `a=; Path=/"\; Domain=b`},
		{Cookie{Name: "a", Domain: ".example.com"}, "a=; Domain=example.com"},
		{Cookie{Name: "a", Expires: expires}, "a=; Expires=Wed, 02 Jan 2030 02:04:05 GMT"},
		{Cookie{Name: "a", MaxAge: 60}, "a=; Max-Age=60"},
		{Cookie{Name: "a", MaxAge: -60}, "a=; Max-Age=0"},
		{Cookie{Name: "a", Secure: true, HttpOnly: true, Partitioned: true}, "a=; Secure; HttpOnly; Partitioned"},
		{Cookie{Name: "a", SameSite: SameSiteLax}, "a=; SameSite=Lax"},
		{Cookie{Name: "a", SameSite: SameSiteStrict}, "a=; SameSite=Strict"},
		{Cookie{Name: "a", SameSite: SameSiteNone, Secure: true}, "a=; Secure; SameSite=None"},
	} {
		got, err := test.cookie.AppendTo([]byte("x"))
		if err != nil || string(got) != "x"+test.want || test.cookie.String() != test.want {
			t.Errorf("%+v: got %q, %v, want %q", test.cookie, got, err, test.want)
		}
	}
}

var label63 = strings.Repeat("a", 63)

// The quoted rules are from RFC 6265bis, sections 4.1 and 5.6; those for the domain are from RFC 1034, section 3.5.
var cookieTests = []struct {
	sentence string
	cookie   *Cookie
	want     bool
}{
	{"cookie-name = 1*cookie-octet, in RFC 6265 a token", &Cookie{Name: "a!#$%&'*+-.^_`|~"}, true},
	{"cookie-name is not empty", &Cookie{}, false},
	{"cookie-name is a token", &Cookie{Name: "a b"}, false},
	{"cookie-name is a token", &Cookie{Name: "a=b"}, false},
	{"cookie-name is a token", &Cookie{Name: "a\r\nb"}, false},
	{"cookie-name is a token", &Cookie{Name: "ä"}, false},
	{"no cookie", nil, false},

	{"cookie-octet = %x21 / %x23-2B / %x2D-3A / %x3C-5B / %x5D-7E", &Cookie{Name: "a", Value: "!#+-:<[]~="}, true},
	{"cookie-value may be in DQUOTE", &Cookie{Name: "a", Value: `""`}, true},
	{"cookie-octet excludes DQUOTE", &Cookie{Name: "a", Value: `"`}, false},
	{"cookie-octet excludes DQUOTE", &Cookie{Name: "a", Value: `"a"b"`}, false},
	{"cookie-octet excludes whitespace", &Cookie{Name: "a", Value: "b c"}, false},
	{"cookie-octet excludes comma", &Cookie{Name: "a", Value: "b,c"}, false},
	{"cookie-octet excludes semicolon", &Cookie{Name: "a", Value: "b;c"}, false},
	{"cookie-octet excludes backslash", &Cookie{Name: "a", Value: `b\c`}, false},
	{"cookie-octet excludes CTLs", &Cookie{Name: "a", Value: "b\r\nSet-Cookie: c=d"}, false},
	{"cookie-octet excludes CTLs", &Cookie{Name: "a", Value: "\x00"}, false},
	{"cookie-octet excludes CTLs", &Cookie{Name: "a", Value: "\x7f"}, false},
	{"cookie-octet is US-ASCII", &Cookie{Name: "a", Value: "é"}, false},
	{"name and value of up to 4096 octets", &Cookie{Name: "a", Value: strings.Repeat("b", 4095)}, true},
	{"name and value over 4096 octets are ignored", &Cookie{Name: "a", Value: strings.Repeat("b", 4096)}, false},

	{"path-value starts with /", &Cookie{Name: "a", Path: "/b?=,\""}, true},
	{"a path that isn't absolute is ignored", &Cookie{Name: "a", Path: "b"}, false},
	{"path-value excludes ;", &Cookie{Name: "a", Path: "/;Secure"}, false},
	{"path-value excludes CTLs", &Cookie{Name: "a", Path: "/\n"}, false},
	{"path-value excludes CTLs", &Cookie{Name: "a", Path: "/\x00"}, false},
	{"no request path has a space", &Cookie{Name: "a", Path: "/b "}, false},
	{"path-value is US-ASCII", &Cookie{Name: "a", Path: "/ü"}, false},
	{"attribute values of up to 1024 octets", &Cookie{Name: "a", Path: "/" + strings.Repeat("b", 1023)}, true},
	{"attribute values over 1024 octets are ignored", &Cookie{Name: "a", Path: "/" + strings.Repeat("b", 1024)}, false},

	{"domain-value = <subdomain>", &Cookie{Name: "a", Domain: "www-2.Example.com"}, true},
	{"a leading dot is ignored", &Cookie{Name: "a", Domain: ".example.com"}, true},
	{"an address", &Cookie{Name: "a", Domain: "127.0.0.1"}, true},
	{"labels of up to 63 octets", &Cookie{Name: "a", Domain: label63 + ".a"}, true},
	{"labels of up to 63 octets", &Cookie{Name: "a", Domain: label63 + "a.a"}, false},
	{"names of up to 253 octets", &Cookie{Name: "a", Domain: strings.Repeat(label63+".", 4) + "a"}, false},
	{"labels are not empty", &Cookie{Name: "a", Domain: "."}, false},
	{"labels are not empty", &Cookie{Name: "a", Domain: "a..b"}, false},
	{"labels are not empty", &Cookie{Name: "a", Domain: "a."}, false},
	{"labels begin and end with a letter or digit", &Cookie{Name: "a", Domain: "-a.b"}, false},
	{"labels begin and end with a letter or digit", &Cookie{Name: "a", Domain: "a-.b"}, false},
	{"labels begin and end with a letter or digit", &Cookie{Name: "a", Domain: "a.b-"}, false},
	{"letters, digits and hyphens", &Cookie{Name: "a", Domain: "a;b"}, false},
	{"letters, digits and hyphens", &Cookie{Name: "a", Domain: "a\r\nb"}, false},
	{"letters, digits and hyphens", &Cookie{Name: "a", Domain: "[::1]"}, false},
	{"letters, digits and hyphens", &Cookie{Name: "a", Domain: "a.example:80"}, false},

	{"a year before 1601 fails", &Cookie{Name: "a", Expires: time.Date(1600, 12, 31, 23, 0, 0, 0, time.UTC)}, false},
	{"HTTP-date has four digits", &Cookie{Name: "a", Expires: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, false},
	{"HTTP-date is in GMT", &Cookie{Name: "a", Expires: time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200))}, false},
	{"the epoch", &Cookie{Name: "a", Expires: time.Unix(0, 0)}, true},

	{"samesite-value = Strict / Lax / None", &Cookie{Name: "a", SameSite: SameSiteNone + 1, Secure: true}, false},
	{"samesite-value = Strict / Lax / None", &Cookie{Name: "a", SameSite: -1, Secure: true}, false},
	{"None without Secure is rejected", &Cookie{Name: "a", SameSite: SameSiteNone}, false},
	{"Partitioned without Secure is rejected", &Cookie{Name: "a", Partitioned: true}, false},
	{"__Secure- needs Secure", &Cookie{Name: "__Secure-a"}, false},
	{"__Secure- needs Secure", &Cookie{Name: "__Secure-a", Secure: true, Domain: "a.example"}, true},
	{"prefixes are matched in any case", &Cookie{Name: "__SECURE-a"}, false},
	{"__Host- needs Secure", &Cookie{Name: "__Host-a", Path: "/"}, false},
	{"__Host- needs Path=/", &Cookie{Name: "__Host-a", Secure: true}, false},
	{"__Host- needs Path=/", &Cookie{Name: "__Host-a", Secure: true, Path: "/a"}, false},
	{"__Host- has no Domain", &Cookie{Name: "__host-a", Secure: true, Path: "/", Domain: "a.example"}, false},
	{"__Host-", &Cookie{Name: "__Host-a", Secure: true, Path: "/"}, true},
}

func TestCookieValid(t *testing.T) {
	for _, test := range cookieTests {
		err := test.cookie.Valid()
		if (err == nil) != test.want {
			t.Errorf("%s: %+v: %v", test.sentence, test.cookie, err)
		}
		text, appendErr := test.cookie.AppendTo([]byte("x"))
		if err != nil && (string(text) != "x" || appendErr == nil || test.cookie.String() != "") {
			t.Errorf("%s: %+v: appended %q, error %v", test.sentence, test.cookie, text, appendErr)
		}
	}
}

func TestCookieAllocations(t *testing.T) {
	cookie := &Cookie{Name: "__Host-a", Value: "b", Path: "/", Expires: time.Now(), MaxAge: 1, Secure: true, SameSite: SameSiteNone}
	dst := make([]byte, 0, 256)
	n := testing.AllocsPerRun(100, func() {
		var err error
		if dst, err = cookie.AppendTo(dst[:0]); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzCookie: what AppendTo writes is one field value that net/http reads as the same cookie.
func FuzzCookie(f *testing.F) {
	f.Add("a", "b", "/", "example.com", int64(1e9), 1, uint8(0xff))
	f.Add("__Host-a", "", "/", "", int64(0), -1, uint8(0x11))
	f.Add("a\r\n", "b;c", "/;", ".", int64(-1e15), 0, uint8(0))
	f.Fuzz(func(t *testing.T, name, value, path, domain string, expires int64, maxAge int, flags uint8) {
		cookie := &Cookie{
			Name: name, Value: value, Path: path, Domain: domain, MaxAge: maxAge,
			Secure: flags&1 != 0, HttpOnly: flags&2 != 0, Partitioned: flags&4 != 0, SameSite: SameSite(flags >> 4 & 7),
		}
		if flags&8 != 0 {
			cookie.Expires = time.Unix(expires, 0)
		}
		compareCookie(t, cookie)
	})
}

func compareCookie(t *testing.T, cookie *Cookie) {
	text, err := cookie.AppendTo(nil)
	if (err == nil) != (cookie.Valid() == nil) || (err == nil) != (len(text) > 0) {
		t.Fatalf("AppendTo %q, %v", text, err)
	}
	if err != nil {
		return
	}
	for _, c := range text {
		if c < ' ' || c >= 0x7f {
			t.Fatalf("%q holds a control byte", text)
		}
	}
	if strings.ContainsAny(cookie.Path, `"\`) { // path-value may hold these, but net/http doesn't read them
		return
	}
	read, err := http.ParseSetCookie(string(text))
	if err != nil || len(read.Unparsed) > 0 {
		t.Fatalf("%q: %v, unparsed %q", text, err, read)
	}
	want := http.Cookie{
		Name: cookie.Name, Value: cookie.Value, Path: cookie.Path, Domain: strings.TrimPrefix(cookie.Domain, "."),
		Expires: cookie.Expires.UTC(), MaxAge: max(cookie.MaxAge, -1), Secure: cookie.Secure, HttpOnly: cookie.HttpOnly,
		Partitioned: cookie.Partitioned, Quoted: read.Quoted, Raw: read.Raw, RawExpires: read.RawExpires,
	}
	if read.Quoted {
		want.Value = want.Value[1 : len(want.Value)-1]
	}
	want.SameSite = map[SameSite]http.SameSite{
		SameSiteLax: http.SameSiteLaxMode, SameSiteStrict: http.SameSiteStrictMode, SameSiteNone: http.SameSiteNoneMode,
	}[cookie.SameSite]
	// The text is compared because times that are equal can differ as values.
	if got, want := fmt.Sprintf("%+v", *read), fmt.Sprintf("%+v", want); got != want {
		t.Fatalf("%q was read as %s, want %s", text, got, want)
	}
}

func BenchmarkCookieAppendTo(b *testing.B) {
	cookie := &Cookie{Name: "session", Value: "0123456789abcdef", Path: "/", MaxAge: 3600, Secure: true, HttpOnly: true, SameSite: SameSiteLax}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = cookie.AppendTo(dst[:0])
	}
}
