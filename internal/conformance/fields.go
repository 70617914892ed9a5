package conformance

import (
	"fmt"
	"slices"
	"strings"
)

const fieldName = "A field name is a token."

var fieldCases = slices.Concat(
	each(accepted("field", "9112 5", `field-line = field-name ":" OWS field-value OWS`, hello()), []request{
		{"empty value", get + "X:\r\n\r\n"},
		{"only whitespace", get + "X: \t \r\n\r\n"},
		{"no space", get + "X:y\r\n\r\n"},
		{"much space", get + "X:        y        \r\n\r\n"},
		{"tab around", get + "X:\ty\t\r\n\r\n"},
		{"tab inside", get + "X: y\tz\r\n\r\n"},
		{"colons in the value", get + "X: y:z::\r\n\r\n"},
		{"colon first in the value", get + "X::y\r\n\r\n"},
		{"quotes and brackets in the value", get + "X: \"y\" (z) [a] {b} <c> \\\r\n\r\n"},
		{"twice the same", get + "X: y\r\nX: y\r\n\r\n"},
		{"Host last", "GET /hello HTTP/1.1\r\nX: y\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("field name", "9110 5.6.2", `tchar = "!" / "#" / "$" / "%" / "&" / "'" / "*" / "+" / "-" / "." / "^" / "_" / "`+"`"+`" / "|" / "~" / DIGIT / ALPHA`, hello()), []request{
		{"every tchar", get + "!#$%&'*+-.^_`|~09azAZ: y\r\n\r\n"},
		{"underscore", get + "Content_Length: 5\r\n\r\n"},
		{"digits", get + "123: y\r\n\r\n"},
	}),
	each(accepted("field value", "9110 5.5", "A recipient SHOULD treat other allowed octets in field content (i.e., obs-text) as opaque data.", hello()), []request{
		{"UTF-8", get + "X: \xc3\xa9\r\n\r\n"},
		{"not UTF-8", get + "X: \x80\xff\xfe\r\n\r\n"},
	}),
	each(refused(400, "colon", "9112 5.1", "A server MUST reject, with a 400, any request that contains whitespace between a header field name and colon."), []request{
		{"space before", get + "X : y\r\n\r\n"},
		{"tab before", get + "X\t: y\r\n\r\n"},
		{"space before, in Host", "GET /hello HTTP/1.1\r\nHost : a\r\n\r\n"},
		{"space before, in Content-Length", post + "Content-Length : 5\r\n\r\nhello"},
		{"space before, in Transfer-Encoding", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"},
		{"tab before, in Transfer-Encoding", post + "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"},
		{"vertical tab before, in Transfer-Encoding", post + "Transfer-Encoding\v: chunked\r\n\r\n0\r\n\r\n"},
		{"CR before", get + "X\r: y\r\n\r\n"},
	}),
	each(refused(400, "field", "9112 5", `field-line = field-name ":" OWS field-value OWS`), []request{
		{"no colon", get + "X y\r\n\r\n"},
		{"name alone", get + "X\r\n\r\n"},
		{"empty name", get + ": y\r\n\r\n"},
		{"colon alone", get + ":\r\n\r\n"},
		{"a request line", get + "GET /hello HTTP/1.1\r\n\r\n"},
	}),
	each(refused(400, "whitespace first", "9112 2.2", "Whitespace between the start-line and the first header field: reject the message as invalid, or consume the line; filo refuses."), []request{
		{"space", "GET /hello HTTP/1.1\r\n Host: a\r\n\r\n"},
		{"tab", "GET /hello HTTP/1.1\r\n\tHost: a\r\n\r\n"},
		{"space before another field", "GET /hello HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n"},
		{"a line of one space", "GET /hello HTTP/1.1\r\n \r\nHost: a\r\n\r\n"},
	}),
	each(refused(400, "obs-fold", "9112 5.2", "A server that receives an obs-fold in a request MUST either reject the message with a 400 or replace it with SP; filo refuses."), []request{
		{"space", get + "X: y\r\n z\r\n\r\n"},
		{"tab", get + "X: y\r\n\tz\r\n\r\n"},
		{"empty first line", get + "X:\r\n y\r\n\r\n"},
		{"only whitespace", get + "X: y\r\n \r\n\r\n"},
		{"in Host", "GET /hello HTTP/1.1\r\nHost: a\r\n b\r\n\r\n"},
		{"in Transfer-Encoding", post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"},
		{"hides Transfer-Encoding", post + "X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"hides Content-Length", post + "Content-Length: 5\r\n Content-Length: 6\r\n\r\nhello"},
	}),
	each(refused(400, "field name", "9110 5.1", fieldName), []request{
		{"space inside", get + "X Y: z\r\n\r\n"},
		{"parentheses", get + "X(y): z\r\n\r\n"},
		{"quotes", get + "\"X\": y\r\n\r\n"},
		{"slash", get + "X/Y: z\r\n\r\n"},
		{"comma", get + "X,Y: z\r\n\r\n"},
		{"semicolon", get + "X;Y: z\r\n\r\n"},
		{"equals", get + "X=Y: z\r\n\r\n"},
		{"at sign", get + "X@Y: z\r\n\r\n"},
		{"brackets", get + "X[0]: y\r\n\r\n"},
		{"braces", get + "{X}: y\r\n\r\n"},
		{"backslash", get + "X\\Y: z\r\n\r\n"},
		{"question mark", get + "X?: y\r\n\r\n"},
		{"angle bracket", get + "<X>: y\r\n\r\n"},
		{"non-ASCII", get + "X\xc3\xa9: y\r\n\r\n"},
		{"NUL", get + "X\x00: y\r\n\r\n"},
		{"control byte", get + "X\x01: y\r\n\r\n"},
		{"DEL", get + "X\x7f: y\r\n\r\n"},
		{"byte order mark", "GET /hello HTTP/1.1\r\n\xef\xbb\xbfHost: a\r\n\r\n"},
		{"NUL before Transfer-Encoding", post + "\x00Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	}),
	each(refused(400, "field value", "9110 5.5", "Field values containing CR, LF, or NUL are invalid and dangerous, and other CTL characters invalid; filo refuses all but HTAB."), []request{
		{"NUL", get + "X: y\x00z\r\n\r\n"},
		{"NUL first", get + "X: \x00\r\n\r\n"},
		{"bare CR", get + "X: y\rz\r\n\r\n"},
		{"bare CR at the end", get + "X: y\r\r\n\r\n"},
		{"bare CR hides a field", get + "X: y\rTransfer-Encoding: chunked\r\n\r\n"},
		{"bare LF hides a field", get + "X: y\nTransfer-Encoding: chunked\r\n\r\n"},
		{"bell", get + "X: y\az\r\n\r\n"},
		{"backspace", get + "X: y\bz\r\n\r\n"},
		{"vertical tab", get + "X: y\vz\r\n\r\n"},
		{"form feed", get + "X: y\fz\r\n\r\n"},
		{"escape", get + "X: \x1b[2J\r\n\r\n"},
		{"unit separator", get + "X: y\x1f\r\n\r\n"},
		{"DEL", get + "X: y\x7fz\r\n\r\n"},
		{"in a field the server doesn't know", get + "Quux: \x01\r\n\r\n"},
	}),
)

// numberedFields returns n different fields.
func numberedFields(n int) string {
	var fields strings.Builder
	for i := range n {
		fmt.Fprintf(&fields, "X%d: y\r\n", i)
	}
	return fields.String()
}

// requestLineOf returns a request line of n bytes, without its CRLF.
func requestLineOf(n int) string {
	const start, end = "GET /hello?", " HTTP/1.1"
	return start + strings.Repeat("q", n-len(start)-len(end)) + end
}

var limitCases = slices.Concat(
	each(accepted("limit", "9112 3", "It is RECOMMENDED that all HTTP senders and recipients support, at a minimum, request-line lengths of 8000 octets.", hello()), []request{
		{"request line of 8,000 bytes", requestLineOf(8000) + "\r\nHost: a\r\n\r\n"},
	}),
	each(refused(414, "limit", "9112 3", "A server that receives a request-target longer than any URI it wishes to parse MUST respond with a 414."), []request{
		{"request line of 8,001 bytes", requestLineOf(8001) + "\r\nHost: a\r\n\r\n"},
		{"request line of 20,000 bytes", requestLineOf(20000) + "\r\nHost: a\r\n\r\n"},
		{"request line without end", "GET /" + strings.Repeat("q", 9000)},
	}),
	each(accepted("limit", "9112 5.4", "HTTP does not place a predefined limit on the length of a field line; filo takes a head of 16 KB with 100 fields.", hello()), []request{
		{"100 fields", get + numberedFields(99) + "\r\n"},
		{"field of 15,000 bytes", get + "X: " + strings.Repeat("y", 15000) + "\r\n\r\n"},
		{"name of 1,000 bytes", get + strings.Repeat("X", 1000) + ": y\r\n\r\n"},
	}),
	each(refused(431, "limit", "6585 5", "431 is for when the total size of request header fields is too large, or one of them is; filo's limits are 16 KB and 100 fields."), []request{
		{"101 fields", get + numberedFields(100) + "\r\n"},
		{"field of 17,000 bytes", get + "X: " + strings.Repeat("y", 17000) + "\r\n\r\n"},
		{"field without end", get + "X: " + strings.Repeat("y", 17000)},
		{"many long fields", get + strings.Repeat("X: "+strings.Repeat("y", 500)+"\r\n", 40) + "\r\n"},
		{"long name", get + strings.Repeat("X", 17000) + ": y\r\n\r\n"},
		{"empty fields", get + strings.Repeat("X:\r\n", 500) + "\r\n"},
	}),
)
