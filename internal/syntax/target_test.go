package syntax

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"
)

func TestValidHost(t *testing.T) {
	long := strings.Repeat("a", 1000)
	for _, test := range []struct {
		sentence, host string
		want           bool
	}{
		{"host = IP-literal / IPv4address / reg-name", "example.com", true},
		{"host = IP-literal / IPv4address / reg-name", "127.0.0.1:8080", true},
		{"host = IP-literal / IPv4address / reg-name", "[2001:db8::1]:443", true},
		{"host = IP-literal / IPv4address / reg-name", "[::ffff:192.0.2.1]", true},
		{"reg-name = *( unreserved / pct-encoded / sub-delims )", "A-Z_0.~!$&'()*+;=", true},
		{"no length is given", long, true},
		{"UTF-8 octets are percent-encoded", "b%C3%bccher.example", true},
		{"Host = uri-host [ \":\" port ]", "example.com:80", true},
		{"port = *DIGIT", "example.com:", true},
		{"port = *DIGIT", "example.com:00080", true},
		{"a port fits 16 bits", "example.com:65535", true},
		{"a port fits 16 bits", "example.com:65536", false},
		{"a port fits 16 bits", "example.com:18446744073709551617", false},
		{"port = *DIGIT", "example.com:-1", false},
		{"port = *DIGIT", "example.com:80a", false},
		{"reg-name holds no colon", "a:b:80", false},
		{"reg-name holds no colon", "2001:db8::1", false},
		{"a recipient MUST reject an empty host identifier as invalid", "", false},
		{"a recipient MUST reject an empty host identifier as invalid", ":80", false},
		{"userinfo is an error", "user@example.com", false},
		{"userinfo is an error", "user:password@example.com", false},
		{"host ends at the path", "example.com/", false},
		{"host ends at the query", "example.com?", false},
		{"host ends at the fragment", "example.com#", false},
		{"no white space", "example .com", false},
		{"no white space", "example.com ", false},
		{"no control characters", "example\x00.com", false},
		{"no control characters", "example.com\x7f", false},
		{"no raw octets outside ASCII", "bücher.example", false},
		{"pct-encoded = \"%\" HEXDIG HEXDIG", "a%", false},
		{"pct-encoded = \"%\" HEXDIG HEXDIG", "a%c", false},
		{"pct-encoded = \"%\" HEXDIG HEXDIG", "a%gg", false},
		{"no encoded ASCII", "ex%61mple.com", false},
		{"no encoded ASCII", "a%00", false},
		{"no encoded ASCII", "a%2fb", false},
		{"IP-literal = \"[\" ( IPv6address / IPvFuture ) \"]\"", "[::1", false},
		{"IP-literal = \"[\" ( IPv6address / IPvFuture ) \"]\"", "[]", false},
		{"IP-literal = \"[\" ( IPv6address / IPvFuture ) \"]\"", "[127.0.0.1]", false},
		{"IP-literal = \"[\" ( IPv6address / IPvFuture ) \"]\"", "[::1]x", false},
		{"IP-literal = \"[\" ( IPv6address / IPvFuture ) \"]\"", "[::1]]", false},
		{"IP-literal = \"[\" ( IPv6address / IPvFuture ) \"]\"", "x[::1]", false},
		{"IP-literal = \"[\" ( IPv6address / IPvFuture ) \"]\"", "::1]", false},
		{"IP-literal = \"[\" ( IPv6address / IPvFuture ) \"]\"", "[" + long + "]", false},
		{"no IPvFuture exists", "[v1.a]", false},
		{"no zone identifiers", "[fe80::1%25eth0]", false},
		{"no zone identifiers", "[fe80::1%eth0]", false},
	} {
		if got := ValidHost([]byte(test.host)); got != test.want {
			t.Errorf("%s: %q: got %v", test.sentence, test.host, got)
		}
	}
}

func TestValidOriginTarget(t *testing.T) {
	for _, test := range []struct {
		sentence, target string
		want             bool
	}{
		{"origin-form = absolute-path [ \"?\" query ]", "/", true},
		{"origin-form = absolute-path [ \"?\" query ]", "/a/b?c=d", true},
		{"absolute-path = 1*( \"/\" segment )", "//host/path", true},
		{"absolute-path = 1*( \"/\" segment )", "a", false},
		{"absolute-path = 1*( \"/\" segment )", "", false},
		{"absolute-path = 1*( \"/\" segment )", "?a", false},
		{"absolute-path = 1*( \"/\" segment )", "*", false},
		{"dot segments are the handler's", "/../a/./b", true},
		{"pct-encoded = \"%\" HEXDIG HEXDIG", "/%20%2F%fF%00", true},
		{"pct-encoded = \"%\" HEXDIG HEXDIG", "/%", false},
		{"pct-encoded = \"%\" HEXDIG HEXDIG", "/%a", false},
		{"pct-encoded = \"%\" HEXDIG HEXDIG", "/%a?b", false},
		{"pct-encoded = \"%\" HEXDIG HEXDIG", "/%zz", false},
		{"a query may hold any %", "/?100%&%zz", true},
		{"browsers send these as they are", `/"<>\^` + "`{|}[]", true},
		{"the fragment isn't sent", "/a#b", false},
		{"the fragment isn't sent", "/?a#b", false},
		{"no white space", "/a b", false},
		{"no white space", "/?a\tb", false},
		{"no control characters", "/\x00", false},
		{"no control characters", "/?\x7f", false},
		{"no raw octets outside ASCII", "/ü", false},
		{"no raw octets outside ASCII", "/?ü", false},
	} {
		if got := ValidOriginTarget([]byte(test.target)); got != test.want {
			t.Errorf("%s: %q: got %v", test.sentence, test.target, got)
		}
	}
}

func TestSplitAbsoluteTarget(t *testing.T) {
	for _, test := range []struct {
		sentence, target string
		want             string
		secure, ok       bool
	}{
		{"absolute-form = absolute-URI", "http://example.com/a?b", "example.com|/a?b", false, true},
		{"absolute-form = absolute-URI", "https://example.com:443/", "example.com:443|/", true, true},
		{"schemes are case-insensitive", "HTTP://Example.com/", "Example.com|/", false, true},
		{"schemes are case-insensitive", "hTTpS://a", "a|", true, true},
		{"path-abempty", "http://a", "a|", false, true},
		{"path-abempty", "http://a?b/c", "a|?b/c", false, true},
		{"path-abempty", "http://a?", "a|?", false, true},
		{"an IP literal is a host", "http://[::1]:80//x", "[::1]:80|//x", false, true},
		{"an origin server serves http and https", "ftp://a/", "", false, false},
		{"an origin server serves http and https", "httpx://a/", "", false, false},
		{"a host must not be empty", "http://", "", false, false},
		{"a host must not be empty", "https://", "", false, false},
		{"a host must not be empty", "http:///a", "", false, false},
		{"a host must not be empty", "http://:80/a", "", false, false},
		{"userinfo is an error", "http://user@a/", "", false, false},
		{"userinfo is an error", "http://user:pass@a/", "", false, false},
		{"the authority needs its slashes", "http:/a", "", false, false},
		{"the authority needs its slashes", "http:a", "", false, false},
		{"the path is held to pct-encoded", "http://a/%zz", "", false, false},
		{"the fragment isn't sent", "http://a/#b", "", false, false},
		{"the fragment isn't sent", "http://a#b", "", false, false},
		{"a backslash isn't a slash", `http://a\b/`, "", false, false},
		{"a backslash isn't a slash", `http:\\a/`, "", false, false},
		{"other forms", "/a", "", false, false},
		{"other forms", "a:80", "", false, false},
		{"other forms", "", "", false, false},
	} {
		secure, host, rest, ok := SplitAbsoluteTarget([]byte(test.target))
		got := ""
		if ok {
			got = string(host) + "|" + string(rest)
		}
		if ok != test.ok || secure != test.secure || got != test.want {
			t.Errorf("%s: %q: got %v, %q, %v", test.sentence, test.target, secure, got, ok)
		}
	}
}

func TestValidAuthorityTarget(t *testing.T) {
	for _, test := range []struct {
		sentence, target string
		want             bool
	}{
		{"authority-form = uri-host \":\" port", "example.com:443", true},
		{"authority-form = uri-host \":\" port", "[::1]:443", true},
		{"authority-form = uri-host \":\" port", "example.com", false},
		{"authority-form = uri-host \":\" port", "[::1]", false},
		{"authority-form = uri-host \":\" port", "", false},
		{"authority-form = uri-host \":\" port", "http://a:80", false},
		{"authority-form = uri-host \":\" port", "a:80/", false},
		{"authority-form = uri-host \":\" port", "/a:80", false},
		{"a server MUST reject an empty port number", "example.com:", false},
		{"a server MUST reject an invalid port number", "example.com:0", false},
		{"a server MUST reject an invalid port number", "example.com:65536", false},
		{"a host must not be empty", ":443", false},
		{"userinfo is an error", "user@a:443", false},
	} {
		if got := ValidAuthorityTarget([]byte(test.target)); got != test.want {
			t.Errorf("%s: %q: got %v", test.sentence, test.target, got)
		}
	}
}

// FuzzTarget checks that net/http accepts each target that the validators accept, and finds the same parts.
func FuzzTarget(f *testing.F) {
	for _, seed := range [][2]string{
		{"/", "example.com"}, {"/a%20b?x=%", "[::1]:80"}, {"http://a:80/p?q", ""}, {"https://[2001:db8::1]", "a%c3%bc"},
		{"a:443", "a:443"}, {"*", "a,b;c"}, {"//h/p", "a:"}, {"http://a?b/c", "x"}, {"[::1]:1", "1.2.3.4"}, {"HTTP://%ff", "[::"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, target, host string) {
		if ValidHost([]byte(host)) && !httpguts.ValidHostHeader(host) {
			t.Fatalf("ValidHostHeader refuses %q", host)
		}
		if host != "" && !ValidHost([]byte(host)) {
			host = "example.com"
		}
		secure, absoluteHost, rest, absolute := SplitAbsoluteTarget([]byte(target))
		method, wantHost := "GET", host
		switch {
		case ValidAuthorityTarget([]byte(target)):
			method, wantHost = "CONNECT", target
		case ValidOriginTarget([]byte(target)):
			rest = []byte(target)
		case absolute:
			wantHost = string(absoluteHost)
		case target == "*":
			method, rest = "OPTIONS", []byte(target)
		default:
			return
		}
		request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(
			method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")))
		if err != nil {
			t.Fatalf("%s %q, Host %q: %v", method, target, host, err)
		}
		compareWithURL(t, request, wantHost, string(rest), target, secure)
	})
}

func compareWithURL(t *testing.T, request *http.Request, host, rest, target string, secure bool) {
	// net/url decodes the percent-encoding of a host.
	if !strings.Contains(host, "%") && request.Host != host {
		t.Fatalf("%q: host %q, net/http has %q", target, host, request.Host)
	}
	path, query, _ := strings.Cut(rest, "?")
	if request.URL.EscapedPath() != path && request.URL.Path != string(AppendPercentDecoded(nil, []byte(path))) ||
		request.URL.RawQuery != query || (request.URL.Scheme == "https") != secure {
		t.Fatalf("%q: path %q, query %q, net/url has %#v", target, path, query, request.URL)
	}
}

func TestTargetAllocations(t *testing.T) {
	host, target, absolute := []byte("www.example.com:8080"), []byte("/a/b%20c?d=e"), []byte("http://example.com/a")
	n := testing.AllocsPerRun(100, func() {
		_, _, _, ok := SplitAbsoluteTarget(absolute)
		if !ok || !ValidHost(host) || !ValidOriginTarget(target) || !ValidAuthorityTarget(host) {
			t.Fatal("not valid")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkValidHost(b *testing.B) {
	for _, host := range []string{"example.com", "www.example.com:8080", "127.0.0.1:8080", "[::1]:8080"} {
		b.Run(host, func(b *testing.B) {
			bytes := []byte(host)
			b.ReportAllocs()
			for b.Loop() {
				ValidHost(bytes)
			}
		})
	}
}

func BenchmarkValidOriginTarget(b *testing.B) {
	target := []byte("/api/v1/users/12345/name%20of?fields=name,email&limit=50")
	b.ReportAllocs()
	for b.Loop() {
		ValidOriginTarget(target)
	}
}

func BenchmarkSplitAbsoluteTarget(b *testing.B) {
	target := []byte("http://www.example.com:8080/api/v1/users/12345?fields=name")
	b.ReportAllocs()
	for b.Loop() {
		SplitAbsoluteTarget(target)
	}
}
