package conformance

import "slices"

const (
	hostRequired = "A server MUST respond with a 400 to any HTTP/1.1 request that lacks a Host header field, and to any request with more than one or with an invalid value."
	hostGrammar  = `Host = uri-host [ ":" port ]`
)

// withHost returns an HTTP/1.1 request in which value directly follows "Host:", so value includes any whitespace.
func withHost(value string) string {
	return "GET /hello HTTP/1.1\r\nHost:" + value + "\r\n\r\n"
}

var hostCases = slices.Concat(
	each(accepted("Host", "9110 7.2", hostGrammar, hello()), []request{
		{"name", withHost(" example.com")},
		{"name and port", withHost(" example.com:8080")},
		{"upper case", withHost(" EXAMPLE.COM")},
		{"trailing dot", withHost(" example.com.")},
		{"underscore", withHost(" a_b")},
		{"punycode", withHost(" xn--bcher-kva.example")},
		{"IPv4", withHost(" 127.0.0.1:80")},
		{"IPv6", withHost(" [::1]")},
		{"IPv6 and port", withHost(" [2001:db8::1]:8080")},
		{"port 65535", withHost(" a:65535")},
		{"sub-delims", withHost(" a!$&'()*+;=")},
	}),
	each(accepted("Host percent", "3986 3.2.2", "Non-ASCII characters must first be encoded according to UTF-8, and then each octet be percent-encoded.", hello()), []request{
		{"UTF-8", withHost(" b%C3%BCcher.example")},
		{"lower-case digits", withHost(" b%c3%bccher.example:80")},
	}),
	each(accepted("Host", "3986 3.2.3", `port = *DIGIT, so an empty port after ":" is one.`, hello()), []request{
		{"empty port", withHost(" a:")},
		{"empty port after IPv6", withHost(" [::1]:")},
	}),
	each(accepted("Host", "9112 5.1", "A field line value might be preceded and/or followed by optional whitespace (OWS).", hello()), []request{
		{"no space", withHost("a")},
		{"spaces around", withHost("   a   ")},
		{"tabs around", withHost("\ta\t")},
	}),
	each(accepted("Host", "9110 7.2", "If the authority component is missing or undefined, the client MUST send a Host header field with an empty value; filo takes it.", hello()), []request{
		{"empty", withHost("")},
		{"only whitespace", withHost("  \t ")},
	}),
	each(refused(400, "Host", "9112 3.2", hostRequired), []request{
		{"missing", "GET /hello HTTP/1.1\r\n\r\n"},
		{"missing among others", "GET /hello HTTP/1.1\r\nX-Host: a\r\nAccept: */*\r\n\r\n"},
		{"missing on POST", "POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"},
		{"missing on OPTIONS *", "OPTIONS * HTTP/1.1\r\n\r\n"},
		{"two different", "GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
		{"two equal", "GET /hello HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
		{"two in different case", "GET /hello HTTP/1.1\r\nHost: a\r\nX: y\r\nhOST: a\r\n\r\n"},
		{"two, one empty", "GET /hello HTTP/1.1\r\nHost: a\r\nHost:\r\n\r\n"},
		{"two on HTTP/1.0", "GET /hello HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"},
		{"invalid on HTTP/1.0", "GET /hello HTTP/1.0\r\nHost: a b\r\n\r\n"},
	}),
	each(refused(400, "Host", "9110 7.2", hostGrammar), []request{
		{"space inside", withHost(" a b")},
		{"tab inside", withHost(" a\tb")},
		{"list", withHost(" a, b")},
		{"comma", withHost(" a,b")},
		{"slash", withHost(" a/")},
		{"path", withHost(" a/b")},
		{"URI", withHost(" http://a")},
		{"user", withHost(" u@a")},
		{"user and password", withHost(" u:p@a")},
		{"query", withHost(" a?b")},
		{"fragment", withHost(" a#b")},
		{"backslash", withHost(" a\\b")},
		{"angle bracket", withHost(" a<b>")},
		{"quotes", withHost(` "a"`)},
		{"braces", withHost(" {a}")},
		{"caret", withHost(" a^b")},
		{"bar", withHost(" a|b")},
		{"backtick", withHost(" a`b")},
		{"non-ASCII", withHost(" b\xc3\xbccher")},
		{"NUL", withHost(" a\x00b")},
		{"control byte", withHost(" a\x1fb")},
		{"DEL", withHost(" a\x7fb")},
	}),
	each(refused(400, "Host port", "3986 3.2.3", "port = *DIGIT"), []request{
		{"letters", withHost(" a:http")},
		{"digit and letter", withHost(" a:8o")},
		{"minus", withHost(" a:-1")},
		{"plus", withHost(" a:+80")},
		{"space before", withHost(" a: 80")},
		{"two", withHost(" a:80:80")},
		{"letter between colons", withHost(" a:b:c")},
		{"65536", withHost(" a:65536")},
		{"20 digits", withHost(" a:99999999999999999999")},
	}),
	each(refused(400, "Host brackets", "3986 3.2.2", `IP-literal = "[" ( IPv6address / IPvFuture ) "]"`), []request{
		{"unclosed", withHost(" [::1")},
		{"not opened", withHost(" ::1]")},
		{"IPv6 without", withHost(" ::1")},
		{"empty", withHost(" []")},
		{"no address inside", withHost(" [hello]")},
		{"text after", withHost(" [::1]a")},
		{"port without colon", withHost(" [::1]80")},
		{"letters as the port", withHost(" [::1]:x")},
		{"text before", withHost(" a[::1]")},
		{"two", withHost(" [[::1]]")},
	}),
	each(refused(400, "Host percent", "3986 2.1", `pct-encoded = "%" HEXDIG HEXDIG`), []request{
		{"not hexadecimal", withHost(" a%zz")},
		{"one digit", withHost(" a%2")},
		{"alone", withHost(" a%")},
	}),
	each(refused(400, "Host percent", "3986 3.2.2", "Percent-encoding is there to represent non-ASCII registered names; filo refuses it for ASCII, which some compare before decoding."), []request{
		{"encoded hyphen", withHost(" a%2Db")},
		{"encoded letter", withHost(" ex%61mple.com")},
		{"encoded slash", withHost(" a%2Fb")},
		{"encoded NUL", withHost(" a%00b")},
		{"encoded colon", withHost(" a%3A80")},
		{"IPv6 zone", withHost(" [fe80::1%25eth0]")},
	}),
	each(Case{
		Name: "Host", RFC: "9112 9.3", Want: answers(hello()), Then: Closes,
		Sentence: "Host is required of HTTP/1.1 requests only; HTTP/1.0 closes by default.",
	}, []request{
		{"missing on HTTP/1.0", "GET /hello HTTP/1.0\r\n\r\n"},
		{"there on HTTP/1.0", "GET /hello HTTP/1.0\r\nHost: a\r\n\r\n"},
	}),
)
