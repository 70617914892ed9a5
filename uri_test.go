package filo

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/params"
	"github.com/filohttp/filo/internal/syntax"
)

func ExampleURI() {
	// In a handler: uri := c.Request.URI()
	uri := exampleURI("/files/a%20b.txt?version=2", "example.com:8080")

	fmt.Println(uri)
	fmt.Println(uri.Scheme(), uri.Hostname(), uri.Port())
	fmt.Println(uri.Path())
	fmt.Println(uri.RawPath())
	fmt.Println(uri.Query().Get("version"))
	// Output:
	// http://example.com:8080/files/a%20b.txt?version=2
	// http example.com 8080
	// /files/a b.txt
	// /files/a%20b.txt
	// 2
}

func exampleURI(target, host string) *URI {
	uri := new(URI)
	uri.parse([]byte(target), []byte(host), false)
	return uri
}

func TestURI(t *testing.T) {
	for _, test := range []struct {
		sentence, target, host string
		secure                 bool
		want                   string // scheme, host, host name, port, path, raw path, raw query
		text                   string
	}{
		{"RFC 9112, 3.2.1: origin-form", "/a%20b?x=1", "a.example:80", false,
			"http a.example:80 a.example 80 /a b /a%20b x=1", "http://a.example:80/a%20b?x=1"},
		{"RFC 9112, 3.3: over TLS the scheme is https", "/", "a.example", true,
			"https a.example a.example  / / ", "https://a.example/"},
		{"RFC 9112, 3.2.2: absolute-form, MUST ignore the received Host", "http://b.example/p?q", "a.example", false,
			"http b.example b.example  /p /p q", "http://b.example/p?q"},
		{"RFC 9112, 3.3: in absolute-form the target URI is the request target", "HTTPS://[::1]:443/p", "a", false,
			"https [::1]:443 ::1 443 /p /p ", "https://[::1]:443/p"},
		{"RFC 9110, 4.2.3: an empty path is equivalent to \"/\"", "http://b.example", "a", true,
			"http b.example b.example  /  ", "http://b.example/"},
		{"RFC 9110, 4.2.3: an empty path is equivalent to \"/\"", "http://b.example?q=/", "a", true,
			"http b.example b.example  /  q=/", "http://b.example/?q=/"},
		{"RFC 9112, 3.2.3: authority-form", "b.example:443", "a.example", false,
			"http b.example:443 b.example 443   ", "b.example:443"},
		{"RFC 9112, 3.2.4: asterisk-form", "*", "a.example", false,
			"http a.example a.example  * * ", "http://a.example"},
		{"HTTP/1.0 needs no Host", "/p?q", "", false, "http    /p /p q", "/p?q"},
		{"a target that begins with two slashes is no authority", "//b.example/p", "a", false,
			"http a a  //b.example/p //b.example/p ", "http://a//b.example/p"},
		{"dot segments stay", "/a/../%2e%2E/b", "a", false, "http a a  /a/../../b /a/../%2e%2E/b ", "http://a/a/../%2e%2E/b"},
		{"+ is a space in no path", "/a+b", "a", false, "http a a  /a+b /a+b ", "http://a/a+b"},
		{"any byte can be encoded", "/%00%2F%ff", "a", false, "http a a  /\x00/\xff /%00%2F%ff ", "http://a/%00%2F%ff"},
		{"an empty query", "/a?", "a", false, "http a a  /a /a ", "http://a/a?"},
		{"a query may hold ?", "/a?b?c", "a", false, "http a a  /a /a b?c", "http://a/a?b?c"},
		{"an empty port", "/", "a:", false, "http a: a  / / ", "http://a:/"},
		{"an IPv6 address without a port", "/", "[2001:db8::1]", false, "http [2001:db8::1] 2001:db8::1  / / ", "http://[2001:db8::1]/"},
	} {
		var u URI
		u.parse([]byte(test.target), []byte(test.host), test.secure)
		got := strings.Join([]string{u.Scheme(), u.Host(), u.Hostname(), u.Port(), u.Path(), u.RawPath(), u.RawQuery()}, " ")
		if got != test.want || u.String() != test.text {
			t.Errorf("%s: %q: got %q, %q, want %q, %q", test.sentence, test.target, got, u.String(), test.want, test.text)
		}
	}
}

// A reused URI shows nothing of the previous request.
func TestURIReuse(t *testing.T) {
	var u URI
	for range 2 {
		u.parse([]byte("/a%20b?x=1"), []byte("a"), true)
		if u.Path() != "/a b" || u.Query().Get("x") != "1" || u.Scheme() != "https" {
			t.Fatalf("path %q, query %q", u.Path(), u.Query())
		}
		u.parse([]byte("/c"), nil, false)
		if u.Path() != "/c" || u.Query().Len() != 0 || u.Host() != "" || u.Scheme() != "http" {
			t.Fatalf("path %q, query %q", u.Path(), u.Query())
		}
	}
	if u.reset(); u.Path() != "" || u.String() != "" || u.Query().Len() != 0 {
		t.Fatalf("after reset: %q, %q", u.Path(), u.String())
	}
}

// An append to a borrowed slice must not reach what follows it in the connection's buffer.
func TestURIBorrowed(t *testing.T) {
	buffer := []byte("GET http://a.example:80/p?q HTTP/1.1\r\n")
	for _, target := range [][]byte{buffer[4:27], buffer[23:27]} {
		var u URI
		u.parse(target, buffer[11:23], false)
		for _, b := range [][]byte{u.HostBytes(), u.PathBytes(), u.RawPathBytes(), u.RawQueryBytes()} {
			_ = append(b, "overwritten"...)
		}
		u.Query().Add("x", "y")
	}
	if string(buffer) != "GET http://a.example:80/p?q HTTP/1.1\r\n" {
		t.Errorf("the buffer is %q", buffer)
	}
}

func TestURITooManyParameters(t *testing.T) {
	var u URI
	u.parse([]byte("/?"+strings.Repeat("a&", params.Max+1)), nil, false)
	if u.Query().Len() != params.Max || u.Query().Err() == nil {
		t.Errorf("%d parameters, error %v", u.Query().Len(), u.Query().Err())
	}
	u.parse([]byte("/?a"), nil, false)
	if u.Query().Err() != nil {
		t.Errorf("the error stayed: %v", u.Query().Err())
	}
}

func TestURIAllocations(t *testing.T) {
	host := []byte("example.com:80")
	targets := [][]byte{[]byte("/a/b?x=1&y=%32"), []byte("/a%20b?x=a+b"), []byte("http://b.example/p?x=1"), []byte("http://b.example")}
	var u URI
	n := testing.AllocsPerRun(100, func() {
		for _, target := range targets {
			u.parse(target, host, false)
			if len(u.PathBytes()) == 0 || len(u.HostBytes()) == 0 || u.Scheme() == "" {
				t.Fatal("empty")
			}
			u.RawPathBytes()
			u.Query().GetBytes("x")
			u.reset()
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzURI gives parse input that no validator has checked: parse may return a wrong result, but must not panic.
func FuzzURI(f *testing.F) {
	for _, seed := range [][2]string{
		{"/a%20b?x=1", "example.com:80"}, {"http://h:1/p?q", ""}, {"a:443", "[::1]"}, {"*", "]:["}, {"", ""}, {"%", "[:"}, {"?", ":"},
	} {
		f.Add(seed[0], seed[1], true)
	}
	f.Fuzz(func(t *testing.T, target, host string, secure bool) {
		var u URI
		u.parse([]byte(target), []byte(host), secure)
		text := u.String()
		if strings.HasPrefix(target, "/") && host != "" && text != u.Scheme()+"://"+host+target {
			t.Fatalf("String %q", text)
		}
		if len(u.Path()) > len(u.RawPath())+1 || len(u.Hostname())+len(u.Port()) > len(u.Host()) || u.Query() == nil {
			t.Fatalf("path %q of %q, host name %q and port %q of %q", u.Path(), u.RawPath(), u.Hostname(), u.Port(), u.Host())
		}
		if !strings.Contains(u.RawPath(), "%") && u.RawPath() != "" && u.Path() != u.RawPath() {
			t.Fatalf("path %q of %q", u.Path(), u.RawPath())
		}
	})
}

// FuzzURIOfRequest: a URI has the same parts as net/url's, for each target and Host that the server accepts.
func FuzzURIOfRequest(f *testing.F) {
	for _, seed := range [][2]string{
		{"/", "example.com"}, {"/a%20b?x=%", "[::1]:80"}, {"http://a:80/p?q", ""}, {"https://[2001:db8::1]", "a%c3%bc"},
		{"a:443", "a:443"}, {"*", "a,b;c"}, {"//h/p", "a:"}, {"http://a?b/c", "x"}, {"[::1]:1", "1.2.3.4"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, target, host string) {
		if host != "" && !syntax.ValidHost([]byte(host)) {
			return
		}
		secure, absoluteHost, _, absolute := syntax.SplitAbsoluteTarget([]byte(target))
		method, wantHost := "GET", host
		switch {
		case syntax.ValidAuthorityTarget([]byte(target)):
			method, wantHost = "CONNECT", target
		case absolute:
			wantHost = string(absoluteHost)
		case target == "*":
			method = "OPTIONS"
		case !syntax.ValidOriginTarget([]byte(target)):
			return
		}
		request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(
			method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")))
		if err != nil {
			t.Fatalf("%s %q, Host %q: %v", method, target, host, err)
		}
		var uri URI
		uri.parse([]byte(target), []byte(host), secure)
		compareURI(t, &uri, request, wantHost, target)
	})
}

func compareURI(t *testing.T, uri *URI, request *http.Request, host, target string) {
	path := request.URL.Path
	if path == "" && request.URL.Scheme != "" {
		path = "/"
	}
	if uri.Path() != path || uri.RawQuery() != request.URL.RawQuery || uri.Host() != host {
		t.Fatalf("%q: path %q, query %q, host %q", target, uri.Path(), uri.RawQuery(), uri.Host())
	}
	if !strings.Contains(host, "%") && request.URL.Host == host &&
		(uri.Hostname() != request.URL.Hostname() || uri.Port() != request.URL.Port()) {
		t.Fatalf("%q: host name %q, port %q", target, uri.Hostname(), uri.Port())
	}
	if s := uri.String(); host != "" && !strings.Contains(s, host) {
		t.Fatalf("%q: String %q lacks the host", target, s)
	}
}

func BenchmarkURI(b *testing.B) {
	host := []byte("example.com")
	for _, target := range []string{"/api/v1/users/12345?fields=name", "/api/v1/users/J%C3%BCrgen?fields=name"} {
		b.Run(target, func(b *testing.B) {
			bytes := []byte(target)
			var u URI
			b.ReportAllocs()
			for b.Loop() {
				u.parse(bytes, host, false)
				u.PathBytes()
				u.reset()
			}
		})
	}
}
