package filo

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/syntax"
)

// wireParsedHeader returns the Header of a request with these fields, over a connection's buffer.
func wireParsedHeader(t *testing.T, fields string) (h *Header, buffer []byte) {
	t.Helper()
	buffer = []byte("GET / HTTP/1.1\r\n" + fields + "\r\nGET /next HTTP/1.1\r\n\r\n")
	var p http1.Parser
	p.Reset()
	if done, fault := p.Parse(buffer, &http1.Limits{Bytes: 1 << 20, Line: 1 << 20, Fields: 1 << 10}); !done || fault != http1.NoFault {
		t.Fatalf("%q: %t, %v", fields, done, fault)
	}
	h = new(Header)
	p.GiveFields(&h.list, buffer[:p.Len():p.Len()])
	return h, buffer
}

// Each method does what its name says: field.List has the rules.
func TestHeader(t *testing.T) {
	var h Header
	h.Add("X-A", "1")
	h.AddBytes("x-a", []byte("2"))
	h.Set("X-B", "3")
	h.SetBytes("X-C", []byte("4"))
	h.Set("x-b", "5")
	h.Add("X-D", "6")
	h.Del("X-d")
	var values, all []string
	for value := range h.Values("X-A") {
		values = append(values, string(value))
	}
	for name, value := range h.All() {
		all = append(all, string(name)+": "+string(value))
	}
	if want := []string{"1", "2"}; !slices.Equal(values, want) {
		t.Errorf("Values: %q, want %q", values, want)
	}
	if want := []string{"X-A: 1", "x-a: 2", "x-b: 5", "X-C: 4"}; !slices.Equal(all, want) {
		t.Errorf("All: %q, want %q", all, want)
	}
	if h.Len() != 4 || h.Get("x-a") != "1" || string(h.GetBytes("x-c")) != "4" || !h.Has("X-B") || h.Has("X-D") || h.GetBytes("X-D") != nil {
		t.Errorf("%d fields, %q, %q, %t, %t", h.Len(), h.Get("x-a"), h.GetBytes("x-c"), h.Has("X-B"), h.Has("X-D"))
	}
	if h.Reset(); h.Len() != 0 || h.Has("X-A") {
		t.Errorf("%d fields after Reset", h.Len())
	}
}

// wireControls is all control bytes of ASCII.
const wireControls = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f" +
	"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f"

// wireCheckLines checks that head is a status line, field lines and an empty line. Each line must end in CRLF and hold no other control
// byte, and another parser must read the same lines.
func wireCheckLines(t *testing.T, what string, head []byte) textproto.MIMEHeader {
	t.Helper()
	lines := bytes.SplitAfter(head, []byte("\r\n"))
	for i, line := range lines[:len(lines)-1] {
		content := line[:len(line)-2]
		if bytes.ContainsAny(content, strings.ReplaceAll(wireControls, "\t", "")) {
			t.Errorf("%s: line %d is %q", what, i, line)
		}
		if name, _, ok := bytes.Cut(content, []byte(": ")); i > 0 && i < len(lines)-2 && (!ok || !syntax.IsToken(name)) {
			t.Errorf("%s: line %d is %q", what, i, line)
		}
		if (len(content) == 0) != (i == len(lines)-2) {
			t.Errorf("%s: line %d of %d is %q", what, i, len(lines)-1, line)
		}
	}
	if last := lines[len(lines)-1]; len(last) > 0 {
		t.Errorf("%s: %q behind the head", what, last)
	}
	reader := textproto.NewReader(bufio.NewReader(bytes.NewReader(head)))
	if _, err := reader.ReadLine(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	header, err := reader.ReadMIMEHeader()
	if err != nil {
		t.Errorf("%s: %q: %v", what, head, err)
	}
	return header
}

// No setter lets a control byte reach the wire, wherever the byte is in a name or a value.
func TestHeadersCantBeBroken(t *testing.T) {
	s := &Server{Handler: benchHello}
	s.configure()
	setters := map[string]func(c *Ctx, name, value string){
		"Set":         func(c *Ctx, name, value string) { c.Response.Header.Set(name, value) },
		"SetBytes":    func(c *Ctx, name, value string) { c.Response.Header.SetBytes(name, []byte(value)) },
		"Add":         func(c *Ctx, name, value string) { c.Response.Header.Add(name, value) },
		"AddBytes":    func(c *Ctx, name, value string) { c.Response.Header.AddBytes(name, []byte(value)) },
		"known name":  func(c *Ctx, _, value string) { c.Response.Header.Set("ETag", value) },
		"SetCookie":   func(c *Ctx, name, value string) { c.Response.SetCookie(&Cookie{Name: name, Value: value, Path: value}) },
		"Bytes":       func(c *Ctx, _, value string) { c.Bytes(200, value, nil) },
		"BytesNoCopy": func(c *Ctx, _, value string) { c.BytesNoCopy(200, value, nil) },
		"Redirect":    func(c *Ctx, _, value string) { c.Redirect(302, value) },
		"Trailer.Set": func(c *Ctx, name, value string) { c.Response.Trailer.Set(name, value) },
		"Server.Name": func(c *Ctx, _, value string) {
			named := &Server{Handler: benchHello, Name: value}
			named.configure()
			c.exchange.server = named
		},
		"Connection": func(c *Ctx, _, value string) { c.Response.Header.Set("Connection", value) },
	}
	for setter, set := range setters {
		for _, c := range []byte(wireControls + " !\"(,:;=@[{~\x80\x85\xff") {
			for _, value := range []string{"a%sb", "%s", "a%s", "%sa", "a%s%sInjected: 1", "%s\n%s\r\n", "a\r%sb: c"} {
				value = strings.ReplaceAll(value, "%s", string([]byte{c}))
				ctx := &Ctx{exchange: &exchange{server: s, scratch: &scratch{}}}
				ctx.Response.reset()
				set(ctx, value, value)
				for _, f := range []http1.Head{{Length: 3}, {Chunked: true}, {Length: noLength, Close: true}} {
					head := ctx.Response.appendHead(nil, ctx.exchange.server, &f)
					wireCheckLines(t, setter, head)
					trailer := http1.AppendLastChunk(nil, &ctx.Response.Trailer.list)
					wireCheckLines(t, setter+", trailer", trailer)
				}
				if t.Failed() {
					t.Fatalf("with %q", value)
				}
			}
		}
	}
}

// A Header is a struct, so a handler can assign the request's Header to the response. Even then nothing breaks the framing of the answer,
// not even white space that the client has sent around its fields.
func TestHeaderAssigned(t *testing.T) {
	s := &Server{Handler: benchHello}
	s.configure()
	for _, fields := range []string{
		"X-A: b\r\n", "X-A:b\r\n", "X-A: b \r\nX-B: c\r\n", "X-A:\tb  \r\nX-B:c\t\t\r\n", "X-A:  b   \r\n", "X-A:\r\nX-B: \t \r\n", "X-A:b\r\nX-B: c \r\n",
	} {
		h, _ := wireParsedHeader(t, fields)
		want := make(map[string]string)
		for name, value := range h.All() {
			want[string(name)] = string(value)
		}
		var r Response
		r.reset()
		r.Header = Header{list: h.list}
		r.Trailer = Header{list: h.list}
		for what, head := range map[string][]byte{
			"header":  r.appendHead(nil, s, &http1.Head{Length: 0}),
			"trailer": http1.AppendLastChunk(nil, &r.Trailer.list),
		} {
			got := wireCheckLines(t, what, head)
			for name, value := range want {
				if got.Get(name) != value {
					t.Errorf("%q as a %s became %q", fields, what, head)
				}
			}
		}
	}
}

// If a middleware sets fields of the request, the values that a handler has read before stay unchanged.
func TestHeaderSetKeepsTheRequest(t *testing.T) {
	first := false
	s := wireServer(t, func(c *Ctx) error {
		if first = !first; first {
			c.Request.Header.Set("X-Before", "it is asked")
		}
		for i := range 40 {
			r := &c.Request
			if r.URI().Host() != "example.com:80" || r.URI().Hostname() != "example.com" || r.Host() != "example.com:80" || r.URI().RawQuery() != "q=1" {
				t.Errorf("after %d fields the host is %q and %q, the query %q", i, r.URI().Host(), r.Host(), r.URI().RawQuery())
			}
			if r.Cookie("a") != "b" || r.Method() != "POST" || r.Target() != "/p?q=1" || r.ContentLength() != 4 {
				t.Errorf("after %d fields the cookie is %q, the target %q", i, r.Cookie("a"), r.Target())
			}
			r.Header.Set(fmt.Sprintf("X-Middleware-%d", i), strings.Repeat("m", 100*i))
		}
		if body, err := c.Body(); string(body) != "body" || err != nil {
			t.Errorf("the body is %q, %v", body, err)
		}
		return c.NoContent()
	})
	request := "POST /p?q=1 HTTP/1.1\r\nHost: example.com:80\r\nCookie: a=b\r\nContent-Length: 4\r\n\r\nbody"
	if answers := wireServe(t, s, &wireConn{parts: wireParts(request + request)}); strings.Count(answers, "HTTP/1.1 204 ") != 2 {
		t.Errorf("the answers are %q", answers)
	}
}

// Looking up a field doesn't allocate, nor does setting one once the memory is there.
func TestHeaderAllocations(t *testing.T) {
	parsed, _ := wireParsedHeader(t, "Host: a\r\nX-A: 1\r\nX-B: 2\r\nX-A: 3\r\n")
	value := []byte("a value")
	var h Header
	for name, run := range map[string]func(){
		"look-ups": func() {
			n := 0
			for range parsed.Values("x-a") {
				n++
			}
			for range parsed.All() {
				n++
			}
			if n != 6 || parsed.GetBytes("HOST") == nil || parsed.Has("X-C") || len(parsed.GetBytes("x-b")) != 1 {
				t.Error("the fields are wrong")
			}
		},
		"setters": func() {
			h.Reset()
			h.SetField(&plainTextField)
			h.Set("Content-Type", "a/b")
			h.Set("X-A", "1")
			h.Add("X-A", "2")
			h.SetBytes("X-B", value)
			h.AddBytes("X-B", value)
			h.list.SetInt(field.ContentLength, 1<<40)
			h.Set("X-A", "3\r\n")
			h.Del("X-B")
			if h.Len() != 3 {
				t.Error("the fields are wrong")
			}
		},
	} {
		run()
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

func TestField(t *testing.T) {
	vary, custom := NewField("Vary", " Origin\t"), NewField("X-Custom", "a, b")
	if vary.Name() != "Vary" || vary.Value() != "Origin" || custom.Name() != "X-Custom" || custom.Value() != "a, b" {
		t.Errorf("%q: %q, %q: %q", vary.Name(), vary.Value(), custom.Name(), custom.Value())
	}
	var h Header
	h.Add("Vary", "1")
	h.Add("x-custom", "2")
	h.Add("Vary", "3")
	h.Add("Other", "4")
	h.Add("X-CUSTOM", "5")
	h.SetField(&vary)
	h.SetField(&custom)
	h.AddField(&vary)
	h.AddField(&custom)
	var got []string
	for name, value := range h.All() {
		got = append(got, fmt.Sprintf("%s: %s", name, value))
	}
	if want := []string{"Vary: Origin", "X-Custom: a, b", "Other: 4", "Vary: Origin", "X-Custom: a, b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var line []byte
	for i := range h.list.Len() {
		line = h.list.AppendLine(line, i)
	}
	if want := "Vary: Origin\r\nX-Custom: a, b\r\nOther: 4\r\nVary: Origin\r\nX-Custom: a, b\r\n"; string(line) != want {
		t.Errorf("on the wire %q, want %q", line, want)
	}
}

func TestNewFieldPanics(t *testing.T) {
	for _, test := range []struct{ name, value string }{
		{"", "a"}, {"a b", "a"}, {"a:", "a"}, {"a\r\nb", "a"}, {string(make([]byte, 1<<16)), "a"},
		{"a", "b\r\nSet-Cookie: c"}, {"a", "\x00"}, {"a", "\x7f"},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%.20q: %q is a field", test.name, test.value)
				}
			}()
			NewField(test.name, test.value)
		}()
	}
}

func BenchmarkSetField(b *testing.B) {
	for _, name := range []string{"Vary", "X-Custom"} {
		f := NewField(name, "some value")
		b.Run(name+"/prepared", func(b *testing.B) {
			b.ReportAllocs()
			var h Header
			for b.Loop() {
				h.Reset()
				h.SetField(&f)
			}
		})
		b.Run(name+"/text", func(b *testing.B) {
			b.ReportAllocs()
			var h Header
			for b.Loop() {
				h.Reset()
				h.Set(name, "some value")
			}
		})
	}
}

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
