package conformance

import (
	"slices"
	"strings"
)

const badGrammar = "A server that receives octets that don't match the HTTP-message grammar SHOULD respond with a 400 and close the connection."

var requestLineCases = slices.Concat(
	each(accepted("request line", "9112 3", "request-line = method SP request-target SP HTTP-version", hello()), []request{
		{"plain", get200},
		{"lower-case header field", "GET /hello HTTP/1.1\r\nhost: a\r\n\r\n"},
	}),
	each(accepted("empty line", "9112 2.2", "A server SHOULD ignore at least one empty line (CRLF) received prior to the request-line.", hello()), []request{
		{"one before", "\r\n" + get200},
		{"two before", "\r\n\r\n" + get200},
	}),
	each(refused(400, "empty line", "9112 2.2", "A server SHOULD ignore at least one empty line; filo ignores a bounded number."), []request{
		{"a thousand before", strings.Repeat("\r\n", 1000) + get200},
		{"LF before", "\n" + get200},
		{"CR before", "\r" + get200},
		{"CR CR LF before", "\r\r\n" + get200},
		{"space on it", " \r\n" + get200},
	}),
	each(refused(400, "request line", "9112 3", "A single space (SP) separates the parts of a request-line; filo refuses any other whitespace."), []request{
		{"two spaces after the method", "GET  /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"two spaces before the version", "GET /hello  HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"leading space", " GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"leading tab", "\tGET /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"trailing space", "GET /hello HTTP/1.1 \r\nHost: a\r\n\r\n"},
		{"trailing tab", "GET /hello HTTP/1.1\t\r\nHost: a\r\n\r\n"},
		{"trailing word", "GET /hello HTTP/1.1 x\r\nHost: a\r\n\r\n"},
		{"tab after the method", "GET\t/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"tab before the version", "GET /hello\tHTTP/1.1\r\nHost: a\r\n\r\n"},
		{"vertical tab after the method", "GET\v/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"form feed before the version", "GET /hello\fHTTP/1.1\r\nHost: a\r\n\r\n"},
		{"CR after the method", "GET\r/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"no target", "GET HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"empty target", "GET  HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"method alone", "GET\r\nHost: a\r\n\r\n"},
		{"no version", "GET /hello\r\nHost: a\r\n\r\n"},
		{"empty version", "GET /hello \r\nHost: a\r\n\r\n"},
		{"HTTP/0.9 simple request", "GET /\r\n\r\n"},
	}),
	each(refused(400, "line end", "9112 2.2", "The line terminator is the sequence CRLF; a recipient MAY recognize a single LF, and filo doesn't."), []request{
		{"LF after the request line", "GET /hello HTTP/1.1\nHost: a\r\n\r\n"},
		{"LF after a field", "GET /hello HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"},
		{"LF as the empty line", "GET /hello HTTP/1.1\r\nHost: a\r\n\n"},
		{"LF everywhere", "GET /hello HTTP/1.1\nHost: a\n\n"},
		{"LF CR", "GET /hello HTTP/1.1\n\rHost: a\n\r\n\r"},
	}),
	each(refused(400, "bare CR", "9112 2.2", "A recipient of a bare CR MUST consider that element to be invalid or replace it with SP; filo refuses."), []request{
		{"in the target", "GET /he\rllo HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"in the version", "GET /hello HTTP/1\r.1\r\nHost: a\r\n\r\n"},
		{"before CRLF of the request line", "GET /hello HTTP/1.1\r\r\nHost: a\r\n\r\n"},
		{"after the request line", "GET /hello HTTP/1.1\rHost: a\r\n\r\n"},
		{"as the empty line", get + "\rX: y\r\n\r\n"},
		{"before the empty line", get + "\r\r\n\r\n"},
	}),
	each(refused(400, "not HTTP", "9112 2.2", badGrammar), []request{
		{"TLS client hello", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n"},
		{"SSH", "SSH-2.0-OpenSSH_9.9\r\n\r\n"},
		{"an answer", "HTTP/1.1 200 OK\r\nHost: a\r\n\r\n"},
		{"a NUL", "\x00\r\n\r\n"},
		{"binary", "\xff\xfe\xfd\r\n\r\n"},
		{"PROXY protocol", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + get200},
	}),
)

var versionCases = slices.Concat(
	each(accepted("version", "9110 2.5", "A message with a higher minor version than implemented SHOULD be processed as if it was in the highest implemented.", hello()), []request{
		{"1.2", "GET /hello HTTP/1.2\r\nHost: a\r\n\r\n"},
		{"1.9", "GET /hello HTTP/1.9\r\nHost: a\r\n\r\n"},
	}),
	each(refused(400, "version", "9112 3.2", "A 1.x request without Host gets a 400, as one of the highest minor version implemented does."), []request{
		{"1.2 without Host", "GET /hello HTTP/1.2\r\n\r\n"},
	}),
	each(refused(505, "version", "9110 15.6.6", "The server does not support the major version of HTTP that was used in the request message."), []request{
		{"2.0", "GET /hello HTTP/2.0\r\nHost: a\r\n\r\n"},
		{"3.0", "GET /hello HTTP/3.0\r\nHost: a\r\n\r\n"},
		{"0.9", "GET /hello HTTP/0.9\r\nHost: a\r\n\r\n"},
		{"2.1", "GET /hello HTTP/2.1\r\nHost: a\r\n\r\n"},
		{"9.9", "GET /hello HTTP/9.9\r\n\r\n"},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
	}),
	each(refused(400, "version", "9112 2.3", `HTTP-version = HTTP-name "/" DIGIT "." DIGIT, and is case-sensitive.`), []request{
		{"lower case", "GET /hello http/1.1\r\nHost: a\r\n\r\n"},
		{"mixed case", "GET /hello Http/1.1\r\nHost: a\r\n\r\n"},
		{"two-digit minor", "GET /hello HTTP/1.10\r\nHost: a\r\n\r\n"},
		{"leading zero of the minor", "GET /hello HTTP/1.01\r\nHost: a\r\n\r\n"},
		{"leading zero of the major", "GET /hello HTTP/01.1\r\nHost: a\r\n\r\n"},
		{"two-digit major", "GET /hello HTTP/11.1\r\nHost: a\r\n\r\n"},
		{"no minor", "GET /hello HTTP/1\r\nHost: a\r\n\r\n"},
		{"empty minor", "GET /hello HTTP/1.\r\nHost: a\r\n\r\n"},
		{"empty major", "GET /hello HTTP/.1\r\nHost: a\r\n\r\n"},
		{"no number", "GET /hello HTTP/\r\nHost: a\r\n\r\n"},
		{"comma", "GET /hello HTTP/1,1\r\nHost: a\r\n\r\n"},
		{"no dot", "GET /hello HTTP/11\r\nHost: a\r\n\r\n"},
		{"major 2 without minor", "GET /hello HTTP/2\r\nHost: a\r\n\r\n"},
		{"three numbers", "GET /hello HTTP/1.1.1\r\nHost: a\r\n\r\n"},
		{"minus", "GET /hello HTTP/-1.1\r\nHost: a\r\n\r\n"},
		{"plus", "GET /hello HTTP/1.+1\r\nHost: a\r\n\r\n"},
		{"letter", "GET /hello HTTP/1.x\r\nHost: a\r\n\r\n"},
		{"space inside", "GET /hello HTTP/ 1.1\r\nHost: a\r\n\r\n"},
		{"backslash", "GET /hello HTTP\\1.1\r\nHost: a\r\n\r\n"},
		{"another name", "GET /hello HTTPS/1.1\r\nHost: a\r\n\r\n"},
		{"misspelled", "GET /hello HTP/1.1\r\nHost: a\r\n\r\n"},
		{"ICY", "GET /hello ICY/1.1\r\nHost: a\r\n\r\n"},
		{"NUL", "GET /hello HTTP/1.1\x00\r\nHost: a\r\n\r\n"},
	}),
)

var methodCases = slices.Concat(
	each(accepted("method", "9110 9.1", "The method token is case-sensitive.", notAllowed()), []request{
		{"lower case", "get /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"mixed case", "Get /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("method", "9110 15.5.6", "The origin server MUST generate an Allow header field in a 405 response.", notAllowed()), []request{
		{"POST", "POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"},
		{"DELETE", "DELETE /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"TRACE", "TRACE /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"PUT of a page", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"},
		{"GET of the echo", "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"unknown", "FROBNICATE /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"with a hyphen", "M-SEARCH /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"one letter", "G /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"every tchar", "!#$%&'*+-.^_`|~09 /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"32 bytes", strings.Repeat("M", 32) + " /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(refused(501, "method", "9112 3", "A server that receives a method longer than any that it implements SHOULD respond with a 501."), []request{
		{"33 bytes", strings.Repeat("M", 33) + " /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"500 bytes", strings.Repeat("M", 500) + " /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(refused(400, "method", "9110 9.1", "method = token"), []request{
		{"at sign", "G@T /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"parenthesis", "GET( /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"colon", "GET: /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"slash", "G/ET /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"comma", "GET, /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"quoted", "\"GET\" /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"braces", "{GET} /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"non-ASCII", "G\xc3\x89T /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"NUL", "GET\x00 /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"DEL", "GET\x7f /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"backspace", "POST\x08 /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
)
