package conformance

import "slices"

var targetCases = slices.Concat(
	each(accepted("origin-form", "9112 3.2.1", `origin-form = absolute-path [ "?" query ]`, hello()), []request{
		{"query", "GET /hello?a=b HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"empty query", "GET /hello? HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"question marks and slashes in the query", "GET /hello?a=/?&b=http://c/ HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"percent-encoded query", "GET /hello?%61=%C3%A9+%00 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"sub-delims in the query", "GET /hello?!$&'()*+,;=:@ HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("origin-form", "3986 2.3", "URIs that differ in the replacement of an unreserved character with its percent-encoding are equivalent.", hello()), []request{
		{"encoded letter", "GET /h%65llo HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"encoded letters, upper and lower case", "GET /%68el%6c%6F HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("origin-form", "9110 15.5.5", "The origin server did not find a current representation for the target resource.", status(404)), []request{
		{"unknown path", "GET /none HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"longer path", "GET /hello/ HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"other case", "GET /Hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"path parameters", "GET /hello;a=b HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"question mark, encoded", "GET /hello%3Fa=b HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"a URI as the path", "GET /http://a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"sub-delims", "GET /!$&'()*+,;=:@-._~ HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"asterisk in a path", "GET /* HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("origin-form", "9112 3.2.1", `An empty path component gets "/" as the path.`, page()), []request{
		{"root", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"root with a query", "GET /?a=b HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(refused(400, "origin-form", "9112 3.2", "Recipients of an invalid request-line SHOULD respond with either a 400 or a 301; filo refuses."), []request{
		{"fragment", "GET /hello#x HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"fragment after the query", "GET /hello?a#x HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"no slash", "GET hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"query alone", "GET ?a=b HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"dot", "GET . HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"backslash first", "GET \\hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"non-ASCII path", "GET /h\xc3\xa9llo HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"byte 0xff in the path", "GET /hello\xff HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"non-ASCII query", "GET /hello?\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"NUL", "GET /hel\x00lo HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"NUL in the query", "GET /hello?a\x00 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"control byte", "GET /hel\x01lo HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"DEL", "GET /hello\x7f HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"tab in the path", "GET /hel\tlo HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"space in the path", "GET /hel lo HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(refused(400, "percent", "3986 2.1", `pct-encoded = "%" HEXDIG HEXDIG`), []request{
		{"not hexadecimal", "GET /hel%zzlo HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"one digit", "GET /hello%2 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"alone at the end", "GET /hello% HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"second not hexadecimal", "GET /hello%4g HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"two", "GET /hello%%20 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"percent u", "GET /hello%u0041 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"before the query", "GET /hello%?a HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("asterisk-form", "9110 9.3.7", "An OPTIONS request with an asterisk as the request target applies to the server in general.", status(204)), []request{
		{"OPTIONS", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"OPTIONS with an empty body", "OPTIONS * HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"},
		{"OPTIONS with a body", "OPTIONS * HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"},
	}),
	each(refused(400, "asterisk-form", "9112 3.2.4", "The asterisk-form of request-target is only used for a server-wide OPTIONS request."), []request{
		{"GET", "GET * HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"POST", "POST * HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"},
		{"lower-case options", "options * HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"two", "OPTIONS ** HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"with a path", "OPTIONS */hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"with a query", "OPTIONS *?a HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(Case{
		Name: "authority-form", RFC: "9110 9.3.6", Then: Either, Want: answers(Answer{Status: 405, Or: 404}),
		Sentence: "An origin server MAY accept a CONNECT request, but most origin servers do not implement CONNECT.",
	}, []request{
		{"CONNECT", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"},
		{"CONNECT to IPv6", "CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n"},
	}),
	each(refused(400, "authority-form", "9112 3.2.3", "The authority-form of request-target is only used for CONNECT requests."), []request{
		{"GET", "GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"OPTIONS", "OPTIONS a:80 HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(refused(400, "authority-form", "9110 9.3.6", "A server MUST reject a CONNECT request that targets an empty or invalid port number."), []request{
		{"no port", "CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"empty port", "CONNECT a: HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"letters as the port", "CONNECT a:http HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"port 65536", "CONNECT a:65536 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"path", "CONNECT /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"URI", "CONNECT http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"asterisk", "CONNECT * HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"user", "CONNECT u@a:80 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"path after the port", "CONNECT a:80/ HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
)

const mustAcceptAbsolute = "A server MUST accept the absolute-form in requests even though most clients only send it to a proxy."

var absoluteCases = slices.Concat(
	each(accepted("absolute-form", "9112 3.2.2", mustAcceptAbsolute, hello()), []request{
		{"http", "GET http://a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"https", "GET https://a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"query", "GET http://a/hello?b=c HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"port", "GET http://a:8080/hello HTTP/1.1\r\nHost: a:8080\r\n\r\n"},
		{"IPv6", "GET http://[::1]/hello HTTP/1.1\r\nHost: [::1]\r\n\r\n"},
		{"IPv6 and port", "GET http://[::1]:80/hello HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"},
		{"empty Host", "GET http://a/hello HTTP/1.1\r\nHost:\r\n\r\n"},
	}),
	each(accepted("absolute-form", "3986 3.1", "Schemes are case-insensitive.", hello()), []request{
		{"upper-case scheme", "GET HTTP://a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"mixed-case scheme", "GET hTtPs://a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("absolute-form", "9110 4.2.3", `An empty path component is equivalent to an absolute path of "/".`, page()), []request{
		{"empty path", "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"empty path and port", "GET http://a:80 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"empty path and query", "GET http://a?b=c HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("absolute-form", "9112 3.2.2", "The origin server MUST ignore the received Host header field and instead use the host information of the request-target.", hello()), []request{
		{"another Host", "GET http://a/hello HTTP/1.1\r\nHost: b\r\n\r\n"},
	}),
	each(refused(400, "absolute-form", "9112 3.2.2", "A client MUST send a Host header field in all HTTP/1.1 request messages, with the absolute-form too; filo refuses others."), []request{
		{"without Host", "GET http://a/hello HTTP/1.1\r\n\r\n"},
		{"two Hosts", "GET http://a/hello HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
		{"invalid Host", "GET http://a/hello HTTP/1.1\r\nHost: a/b\r\n\r\n"},
	}),
	each(refused(400, "absolute-form", "9110 4.2.1", `A recipient that processes an "http" URI with an empty host identifier MUST reject it as invalid.`), []request{
		{"empty host", "GET http:///hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"empty host and port", "GET http://:80/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"nothing after the slashes", "GET http:// HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"empty https host", "GET https:///hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"query as the host", "GET http://?a HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(refused(400, "absolute-form", "9110 4.2.4", "A recipient SHOULD parse for userinfo and treat its presence as an error."), []request{
		{"user", "GET http://u@a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"user and password", "GET http://u:p@a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"empty user", "GET http://@a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(refused(400, "absolute-form", "9112 3.2", "Recipients of an invalid request-line SHOULD respond with a 400; an origin server has no other scheme."), []request{
		{"ftp", "GET ftp://a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"ws", "GET ws://a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"file", "GET file:///hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"no scheme", "GET ://a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"one slash", "GET http:/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"no slash", "GET http:hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"letters as the port", "GET http://a:x/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"port 65536", "GET http://a:65536/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"unclosed bracket", "GET http://[::1/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"bad percent in the host", "GET http://a%zz/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"bad percent in the path", "GET http://a/hel%zzlo HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"fragment", "GET http://a/hello#x HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"backslash in the host", "GET http://a\\b/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
)
