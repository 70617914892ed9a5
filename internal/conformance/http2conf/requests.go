package http2conf

import (
	"fmt"
	"slices"
	"strings"
)

const (
	mandatory      = `All HTTP/2 requests MUST include exactly one valid value for the ":method", ":scheme", and ":path" pseudo-header fields, unless they are CONNECT requests. An HTTP request that omits mandatory pseudo-header fields is malformed.`
	repeated       = "A field block for an HTTP request that contains a repeated pseudo-header field name MUST be treated as malformed."
	undefined      = "Endpoints MUST treat a request that contains undefined or invalid pseudo-header fields as malformed."
	pseudoFirst    = "Any request that contains a pseudo-header field that appears in a field block after a regular field line MUST be treated as malformed."
	pathNotEmpty   = `This pseudo-header field MUST NOT be empty for "http" or "https" URIs; URIs that do not contain a path component MUST include a value of '/'.`
	invalidTarget  = "Malformed requests that are detected MUST be treated as a stream error of type PROTOCOL_ERROR. filo holds :path to the grammar of RFC 9110: absolute-path, and a query; or * for OPTIONS."
	noPath         = "This pseudo-header field includes the path and query parts of the target URI. filo answers 400 to a value that has bytes of a target alone, and neither begins with / nor is the * of OPTIONS."
	connectOmits   = `In a CONNECT request the ":scheme" and ":path" pseudo-header fields MUST be omitted, and ":authority" contains the host and port to connect to. A CONNECT request that does not conform to these restrictions is malformed.`
	notOffered     = "Upon receipt of SETTINGS_ENABLE_CONNECT_PROTOCOL with a value of 1, a client MAY use the Extended CONNECT. Without that, :protocol is an undefined pseudo-header field, and makes a request malformed."
	hostDiffers    = `A server SHOULD treat a request as malformed if it contains a Host header field that identifies an entity that differs from the entity in the ":authority" pseudo-header field.`
	nameBytes      = "A field name MUST NOT contain characters in the ranges 0x00-0x20, 0x41-0x5a, or 0x7f-0xff. A request that contains a field that violates any of these conditions MUST be treated as malformed."
	nameToken      = "HTTP/2 implementations SHOULD validate field names and values according to their definitions, and treat messages that contain prohibited characters as malformed: a field name is a token."
	valueBytes     = "A field value MUST NOT contain the zero value, line feed, or carriage return at any position. A request that contains a field that violates any of these conditions MUST be treated as malformed."
	valueEnds      = "A field value MUST NOT start or end with an ASCII whitespace character. A request that contains a field that violates any of these conditions MUST be treated as malformed."
	valueControls  = "HTTP/2 implementations SHOULD validate field names and values according to their definitions, and treat messages that contain prohibited characters as malformed; filo allows no control byte but HTAB."
	connectionOnly = "Any message containing connection-specific header fields MUST be treated as malformed."
	onlyTrailers   = `The TE header field MAY be present in an HTTP/2 request; when it is, it MUST NOT contain any value other than "trailers".`
	lengthDiffers  = "A request is also malformed if the value of a content-length header field does not equal the sum of the DATA frame payload lengths that form the content."
	lengthInvalid  = "Content-Length = 1*DIGIT. A request is malformed if its value does not equal the length of the content, and filo allows one value."
	noPseudo       = "Trailers MUST NOT include pseudo-header fields. An endpoint that receives pseudo-header fields in trailers MUST treat the request as malformed."
	trailersEnd    = "An endpoint that receives a HEADERS frame without the END_STREAM flag set after receiving the HEADERS frame that opens a request MUST treat the request as malformed."
	noFraming      = "A sender MUST NOT generate a trailer field unless the sender knows the corresponding header field name's definition permits sending in trailers; filo treats those of framing and routing as malformed."
)

// of is a whole request of these fields.
func of(fields ...string) frames { return frames{headers(1, whole, block(fields...))} }

// with is a GET with more fields.
func with(fields ...string) frames { return frames{getWith(1, fields...)} }

// The pseudo-header fields of a GET.
const (
	method    = ":method: GET"
	scheme    = ":scheme: https"
	path      = ":path: /hello"
	authority = ":authority: a"
)

var pseudoCases = slices.Concat(
	each(comes("pseudo-header fields", "9113 8.3.1", mandatory, malformed(1)), []sent{
		{"no :method", of(scheme, path, authority)},
		{"no :scheme", of(method, path, authority)},
		{"no :path", of(method, scheme, authority)},
		{"none", of("x: y")},
		{":authority alone", of(authority)},
		{"no :path, but Host", of(method, scheme, "host: a")},
	}),
	each(comes("pseudo-header fields", "9113 8.3", repeated, malformed(1)), []sent{
		{":method twice", of(method, method, scheme, path, authority)},
		{":scheme twice", of(method, scheme, scheme, path, authority)},
		{":path twice", of(method, scheme, path, path, authority)},
		{":authority twice", of(method, scheme, path, authority, authority)},
		{":method twice, differing", of(method, ":method: POST", scheme, path, authority)},
		{":path twice, the second one empty", of(method, scheme, path, ":path: ", authority)},
	}),
	each(comes("pseudo-header fields", "9113 8.3", undefined, malformed(1)), []sent{
		{":status", of(method, scheme, path, authority, ":status: 200")},
		{"an unknown one", of(method, scheme, path, authority, ":x: y")},
		{":host", of(method, scheme, path, ":host: a")},
		{"a colon alone", of(method, scheme, path, authority, ":: y")},
		{"in upper case", of(":METHOD: GET", scheme, path, authority)},
		{"two colons", of("::method: GET", method, scheme, path, authority)},
	}),
	each(comes("pseudo-header fields", "8441 3", notOffered, malformed(1)), []sent{
		{":protocol that nobody has offered", of(":method: CONNECT", ":protocol: websocket", scheme, ":path: /chat", authority)},
		{":protocol of GET", of(method, scheme, path, authority, ":protocol: websocket")},
	}),
	each(comes("pseudo-header fields", "9113 8.3", pseudoFirst, malformed(1)), []sent{
		{":method behind a field", of(scheme, path, authority, "x: y", method)},
		{":authority behind a field", of(method, scheme, path, "x: y", authority)},
		{":path behind Host", of(method, scheme, "host: a", path)},
		{"a second :path behind a field", of(method, scheme, path, authority, "x: y", path)},
		{"an unknown one behind a field", of(method, scheme, path, authority, "x: y", ":x: y")},
	}),
	each(comes("pseudo-header fields", "9113 8.3.1", pathNotEmpty, malformed(1)), []sent{
		{"an empty :path", of(method, scheme, ":path: ", authority)},
		{"an empty :path of OPTIONS", of(":method: OPTIONS", scheme, ":path: ", authority)},
	}),
	each(comes("pseudo-header fields", "9113 8.3.1", mandatory, malformed(1)), []sent{
		{"an empty :method", of(":method: ", scheme, path, authority)},
		{"an empty :scheme", of(method, ":scheme: ", path, authority)},
		{"a :method with a space", of(":method: GE T", scheme, path, authority)},
		{"a :method of a request line", of(":method: GET / HTTP/1.1", scheme, path, authority)},
		{"a :method with a comma", of(":method: GET,POST", scheme, path, authority)},
		{"a :scheme with its colon", of(method, ":scheme: https:", path, authority)},
		{"a :scheme of a URI", of(method, ":scheme: https://a/x?", path, authority)},
		{"a :scheme that begins with a digit", of(method, ":scheme: 1s", path, authority)},
	}),
	each(comes(":path", "9113 8.3.1", invalidTarget, malformed(1)), []sent{
		{"with a space", of(method, scheme, ":path: /hello world", authority)},
		{"with a request line inside", of(method, scheme, ":path: /hello HTTP/1.1", authority)},
		{"with a fragment", of(method, scheme, ":path: /hello#x", authority)},
		{"with half a percent-encoding", of(method, scheme, ":path: /hello%2", authority)},
	}),
	each(comes(":path", "9113 8.3.1", noPath, answered(1, 400)), []sent{
		{"* of GET", of(method, scheme, ":path: *", authority)},
		{"* of POST", of(":method: POST", scheme, ":path: *", authority)},
		{"* of OPTIONS and more", of(":method: OPTIONS", scheme, ":path: */", authority)},
		{"without a slash", of(method, scheme, ":path: hello", authority)},
		{"in absolute form", of(method, scheme, ":path: https://a/hello", authority)},
		{"a question mark alone", of(method, scheme, ":path: ?a", authority)},
	}),
	each(comes(":path", "9113 8.2.1", valueBytes, malformed(1)), []sent{
		{"with NUL", of(method, scheme, ":path: /hello\x00", authority)},
		{"with CR and LF", of(method, scheme, ":path: /hello\r\nx: y", authority)},
		{"behind a space", of(method, scheme, ":path:  /hello", authority)},
	}),
	each(comes(":authority", "9113 8.3.1", `":authority" conveys the authority portion of the target URI; clients MUST NOT generate it if there is none. It MUST NOT include the deprecated userinfo subcomponent.`, malformed(1)), []sent{
		{"empty", of(method, scheme, path, ":authority: ")},
		{"with user information", of(method, scheme, path, ":authority: user@a")},
		{"with a path", of(method, scheme, path, ":authority: a/b")},
		{"with a space", of(method, scheme, path, ":authority: a b")},
		{"with CR and LF", of(method, scheme, path, ":authority: a\r\nx: y")},
		{"with a port of letters", of(method, scheme, path, ":authority: a:http")},
		{"of two hosts", of(method, scheme, path, ":authority: a,b")},
	}),
	each(comes(":authority", "9113 8.3.1", hostDiffers, malformed(1)), []sent{
		{"beside another Host", with("host: b")},
		{"beside an empty Host", with("host: ")},
		{"beside Host with another port", with("host: a:8080")},
		{"beside two Hosts", with("host: a", "host: a")},
		{"beside Host and another one", with("host: a", "host: b")},
	}),
	each(comes("Host", "9112 3.2", "A server MUST respond with a 400 to any request message that contains more than one Host header field line or one with an invalid field value.", malformed(1)), []sent{
		{"twice, without :authority", of(method, scheme, path, "host: a", "host: a")},
		{"with a path, without :authority", of(method, scheme, path, "host: a/b")},
	}),
	each(comes("Host", "9113 8.3.1", "An HTTP/2 request without :authority and Host has no authority information. The RFC leaves it to the server whether it knows whom such a request is for; filo answers 400.", answered(1, 400)), []sent{
		{"neither that nor :authority", of(method, scheme, path)},
	}),
	each(comes("CONNECT", "9113 8.5", connectOmits, malformed(1)), []sent{
		{"with :path and :scheme", of(":method: CONNECT", scheme, path, ":authority: a:80")},
		{"with :path", of(":method: CONNECT", path, ":authority: a:80")},
		{"with :scheme", of(":method: CONNECT", scheme, ":authority: a:80")},
		{"without :authority", of(":method: CONNECT")},
		{"with Host in place of :authority", of(":method: CONNECT", "host: a:80")},
		{"without a port", of(":method: CONNECT", ":authority: a")},
		{"to an empty port", of(":method: CONNECT", ":authority: a:")},
	}),
	each(comes("CONNECT", "9110 9.3.6", "An origin server MAY accept a CONNECT request, but most origin servers do not implement CONNECT.", Want{Stream: 1, Status: 405, Or: 404}), []sent{
		{"to a port", of(":method: CONNECT", ":authority: a:80")},
	}),
	each(comes("pseudo-header fields", "9113 8.3", "All pseudo-header fields MUST appear in a field block before all regular field lines. Their order is free.", hello(1)), []sent{
		{"in another order", of(authority, path, scheme, method)},
		{"before many fields", with("accept: */*", "accept-encoding: gzip", "accept-language: en", "user-agent: x", "x: y")},
		{":path with a query", of(method, scheme, ":path: /hello?a=b&c", authority)},
		{":path with an empty query", of(method, scheme, ":path: /hello?", authority)},
		{":path with percent-encoding", of(method, scheme, ":path: /%68ello", authority)},
		{":scheme of http", of(method, ":scheme: http", path, authority)},
		{":authority with a port", of(method, scheme, path, ":authority: a:8443")},
		{":authority of IPv6", of(method, scheme, path, ":authority: [::1]:443")},
		{":authority in upper case", of(method, scheme, path, ":authority: A.EXAMPLE")},
	}),
	each(comes("pseudo-header fields", "9113 8.3.1", "The values of fields need to be normalized to compare them.", hello(1)), []sent{
		{"Host as :authority", with("host: a")},
		{"Host in upper case", with("host: A")},
		{"Host with the scheme's port", with("host: a:443")},
		{"Host in place of :authority", of(method, scheme, path, "host: a")},
	}),
	each(comes(":path", "9113 8.3.1", "An OPTIONS request for a URI that does not include a path component MUST include a \":path\" pseudo-header field with a value of '*'.", answered(1, 204)), []sent{
		{"* of OPTIONS", of(":method: OPTIONS", scheme, ":path: *", authority)},
	}),
)

var fieldCases = slices.Concat(
	each(comes("field name", "9113 8.2.1", nameBytes, malformed(1)), []sent{
		{"in upper case", with("X: y")},
		{"with a capital inside", with("x-Y: z")},
		{"with a capital at the end", with("xY: z")},
		{"known, in upper case", with("Accept: */*")},
		{"Content-Length in upper case", with("Content-Length: 0")},
		{"with a space", with("x y: z")},
		{"with a space at the end", with("x : y")},
		{"with HTAB", with("x\ty: z")},
		{"with NUL", with("x\x00y: z")},
		{"with CR", with("x\ry: z")},
		{"with LF", with("x\ny: z")},
		{"with CR, LF and another field", with("x\r\ny: z")},
		{"with a control byte", with("x\x01: y")},
		{"with DEL", with("x\x7f: y")},
		{"with 0x80", with("x\x80: y")},
		{"of UTF-8", with("\xc3\xa9: y")},
		{"with 0xff", with("x\xff: y")},
	}),
	each(comes("field name", "9113 8.2.1", "With the exception of pseudo-header fields, field names MUST NOT include a colon.", malformed(1)), []sent{
		{"with a colon inside", with("x:y: z")},
		{"with a colon at the end", with("x:: z")},
	}),
	each(comes("field name", "9113 8.2.1", nameToken, malformed(1)), []sent{
		{"empty", frames{headers(1, whole, getBlock+"\x00\x00\x01y")}},
		{"in parentheses", with("x(y): z")},
		{"with a slash", with("x/y: z")},
		{"with a quote", with("x\"y: z")},
		{"with a comma", with("x,y: z")},
		{"with an at sign", with("x@y: z")},
		{"with a brace", with("x{y: z")},
	}),
	each(comes("field value", "9113 8.2.1", valueBytes, malformed(1)), []sent{
		{"with NUL", with("x: y\x00z")},
		{"of NUL", with("x: \x00")},
		{"with CR", with("x: y\rz")},
		{"with CR at the end", with("x: y\r")},
		{"with LF", with("x: y\nz")},
		{"with LF at the beginning", with("x: \ny")},
		{"with another field behind CR and LF", with("x: y\r\ntransfer-encoding: chunked")},
		{"with a request behind CR and LF", with("x: y\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a")},
		{"of a known field, with CR and LF", with("user-agent: y\r\nx: z")},
		{"of a cookie, with NUL", with("cookie: a=\x00")},
	}),
	each(comes("field value", "9113 8.2.1", valueEnds, malformed(1)), []sent{
		{"behind a space", with("x:  y")},
		{"behind HTAB", with("x: \ty")},
		{"before a space", with("x: y ")},
		{"before HTAB", with("x: y\t")},
		{"of a space", with("x:  ")},
		{"of a known field, behind a space", with("accept:  */*")},
	}),
	each(comes("field value", "9113 8.2.1", valueControls, malformed(1)), []sent{
		{"with 0x01", with("x: y\x01z")},
		{"with bell", with("x: y\az")},
		{"with escape", with("x: \x1b[2J")},
		{"with DEL", with("x: y\x7fz")},
	}),
	each(comes("field", "9113 8.2.1", "HTTP/2 implementations SHOULD validate field names and values according to their definitions; these are valid.", hello(1)), []sent{
		{"empty value", with("x: ")},
		{"spaces inside", with("x: y   z")},
		{"HTAB inside", with("x: y\tz")},
		{"UTF-8", with("x: \xc3\xa9")},
		{"obs-text", with("x: \x80\xff\xfe")},
		{"name of every tchar", with("!#$%&'*+-.^_`|~09az: y")},
		{"name of digits", with("123: y")},
		{"underscore", with("content_length: 5")},
		{"twice the same", with("x: y", "x: y")},
		{"no value that its definition has", with("if-modified-since: yesterday", "accept: ;;;", "range: x")},
	}),
	each(comes("connection-specific field", "9113 8.2.2", connectionOnly, malformed(1)), []sent{
		{"Connection: close", with("connection: close")},
		{"Connection: keep-alive", with("connection: keep-alive")},
		{"Connection that names another", with("connection: x", "x: y")},
		{"Connection, empty", with("connection: ")},
		{"Keep-Alive", with("keep-alive: timeout=5")},
		{"Proxy-Connection", with("proxy-connection: keep-alive")},
		{"Transfer-Encoding: chunked", with("transfer-encoding: chunked")},
		{"Transfer-Encoding: identity", with("transfer-encoding: identity")},
		{"Transfer-Encoding behind others", with("accept: */*", "x: y", "transfer-encoding: gzip")},
		{"Upgrade: h2c", with("upgrade: h2c")},
		{"Upgrade: websocket", with("upgrade: websocket")},
	}),
	each(comes("connection-specific field", "9113 8.2.2", connectionOnly, malformed(1)), []sent{
		{"Transfer-Encoding: chunked, and chunks", frames{postWith(1, "transfer-encoding: chunked"), data(1, endStream, "5\r\nhello\r\n0\r\n\r\n")}},
		{"Transfer-Encoding beside Content-Length", frames{postWith(1, "content-length: 5", "transfer-encoding: chunked"), data(1, endStream, "hello")}},
	}),
	each(comes("TE", "9113 8.2.2", onlyTrailers, malformed(1)), []sent{
		{"gzip", with("te: gzip")},
		{"trailers and gzip", with("te: trailers, gzip")},
		{"empty", with("te: ")},
		{"trailers with a weight", with("te: trailers;q=0.5")},
		{"trailers, and then gzip", with("te: trailers", "te: gzip")},
	}),
	each(comes("TE", "9113 8.2.2", onlyTrailers, hello(1)), []sent{
		{"trailers", with("te: trailers")},
	}),
	each(comes("cookie", "9113 8.2.3", `The Cookie header field MAY be split into separate header fields, each with one or more cookie-pairs.`, hello(1)), []sent{
		{"one", with("cookie: a=b; c=d")},
		{"in crumbs", with("cookie: a=b", "cookie: c=d", "cookie: e=f")},
		{"in crumbs with fields between", with("cookie: a=b", "x: y", "cookie: c=d")},
		{"in 90 crumbs", with(slices.Repeat([]string{"cookie: a=b"}, 90)...)},
		{"in 200 crumbs", with(slices.Repeat([]string{"cookie: a=b"}, 200)...)},
	}),
	each(Case{Name: "Expect", RFC: "9110 10.1.1", Steps: steps(Step{Want: []Want{{Stream: 1, What: Nothing, Interim: []int{100}}}},
		fixed(frames{data(1, endStream, "hello")}, Want{Stream: 1, Status: 200, Body: "hello", Interim: []int{100}})),
		Sentence: "A server that responds with 100 (Continue) does so when the request has the expectation and its content is wanted."}, []sent{
		{"100-continue", frames{postWith(1, "content-length: 5", "expect: 100-continue")}},
		{"100-continue, without a length", frames{postWith(1, "expect: 100-continue")}},
		{"100-continue in upper case", frames{postWith(1, "content-length: 5", "expect: 100-Continue")}},
	}),
	each(comes("Expect", "9110 10.1.1", "A server that receives 100-continue sends either a 100 or the final status; filo's says what it is before the content is asked for, and RST_STREAM that it isn't wanted.", Want{Stream: 1, What: AnsweredEarly, Status: 405}, hello(3)), []sent{
		{"100-continue, and an answer that doesn't depend on the content", frames{headers(1, endHeaders, block(":method: POST", scheme, path, authority, "expect: 100-continue")), get(3)}},
	}),
	each(comes("Expect", "9110 10.1.1", "A server MAY omit sending a 100 (Continue) response if the framing indicates that there is no content; a sender without content must not generate it, and filo lets that pass.", hello(1)), []sent{
		{"100-continue, and no content", with("expect: 100-continue")},
	}),
	each(comes("Expect", "9110 10.1.1", "A server that receives an Expect field value containing a member other than 100-continue MAY respond with a 417; filo does.", answered(1, 417)), []sent{
		{"something else", with("expect: wonders")},
	}),
)

var lengthCases = slices.Concat(
	each(comes("Content-Length", "9113 8.1.1", lengthDiffers, malformed(1)), []sent{
		{"more DATA", frames{postWith(1, "content-length: 3"), data(1, endStream, "hello")}},
		{"more DATA, in a second frame", frames{postWith(1, "content-length: 3"), data(1, 0, "hel"), data(1, endStream, "lo")}},
		{"more DATA, that goes on", frames{postWith(1, "content-length: 3"), data(1, 0, "hello")}},
		{"less DATA", frames{postWith(1, "content-length: 9"), data(1, endStream, "hello")}},
		{"less DATA, in two frames", frames{postWith(1, "content-length: 9"), data(1, 0, "hel"), data(1, endStream, "lo")}},
		{"less DATA, and an empty one", frames{postWith(1, "content-length: 9"), data(1, 0, "hello"), data(1, endStream, "")}},
		{"less DATA, and trailers", frames{postWith(1, "content-length: 9"), data(1, 0, "hello"), headers(1, whole, block("x: y"))}},
		{"no DATA, but END_STREAM", frames{headers(1, whole, postBlock+block("content-length: 5"))}},
		{"no DATA of a GET, but END_STREAM", with("content-length: 5")},
		{"an empty DATA", frames{postWith(1, "content-length: 5"), data(1, endStream, "")}},
		{"padding isn't content", frames{postWith(1, "content-length: 5"), data(1, padded|endStream, "\x02hel\x00\x00")}},
		{"0, and DATA", frames{postWith(1, "content-length: 0"), data(1, endStream, "x")}},
	}),
	// So much isn't awaited before the handler runs.
	each(comes("Content-Length", "9113 8.1.1", lengthDiffers, cutOffMalformed(1)), []sent{
		{"of 20,000, and less DATA", frames{postWith(1, "content-length: 20000"), data(1, 0, k16), data(1, endStream, k16[:3999])}},
		{"of 20,000, and more DATA", frames{postWith(1, "content-length: 20000"), data(1, 0, k16), data(1, endStream, k16[:4001])}},
		{"of 20,000, and trailers too early", frames{postWith(1, "content-length: 20000"), data(1, 0, k16), headers(1, whole, block("x: y"))}},
	}),
	each(comes("Content-Length", "9113 8.1.1", "The value of a content-length header field equals the sum of the DATA frame payload lengths that form the content.", echo(1, k16+k16[:4000])), []sent{
		{"of 20,000", frames{postWith(1, "content-length: 20000"), data(1, 0, k16), data(1, endStream, k16[:4000])}},
	}),
	each(comes("Content-Length", "9110 8.6", lengthInvalid, malformed(1)), []sent{
		{"no number", frames{postWith(1, "content-length: five"), data(1, endStream, "hello")}},
		{"empty", frames{postWith(1, "content-length: "), data(1, endStream, "hello")}},
		{"signed", frames{postWith(1, "content-length: +5"), data(1, endStream, "hello")}},
		{"negative", frames{postWith(1, "content-length: -5"), data(1, endStream, "hello")}},
		{"hexadecimal", frames{postWith(1, "content-length: 0x5"), data(1, endStream, "hello")}},
		{"with a fraction", frames{postWith(1, "content-length: 5.0"), data(1, endStream, "hello")}},
		{"over 2^64", frames{postWith(1, "content-length: 18446744073709551621"), data(1, endStream, "hello")}},
		{"a list", frames{postWith(1, "content-length: 5, 5"), data(1, endStream, "hello")}},
		{"twice", frames{postWith(1, "content-length: 5", "content-length: 5"), data(1, endStream, "hello")}},
		{"twice, differing", frames{postWith(1, "content-length: 5", "content-length: 6"), data(1, endStream, "hello")}},
		{"twice, differing, and the second one right", frames{postWith(1, "content-length: 6", "content-length: 5"), data(1, endStream, "hello")}},
	}),
	each(comes("Content-Length", "9113 8.1.1", "The value of a content-length header field equals the sum of the DATA frame payload lengths that form the content.", echo(1, "hello")), []sent{
		{"right", frames{postWith(1, "content-length: 5"), data(1, endStream, "hello")}},
		{"right, with a leading zero", frames{postWith(1, "content-length: 05"), data(1, endStream, "hello")}},
		{"right, in five frames", frames{postWith(1, "content-length: 5"), data(1, 0, "h"), data(1, 0, "e"), data(1, 0, "l"), data(1, 0, "l"), data(1, endStream, "o")}},
		{"right, and an empty DATA at the end", frames{postWith(1, "content-length: 5"), data(1, 0, "hello"), data(1, endStream, "")}},
		{"right, and trailers", frames{postWith(1, "content-length: 5"), data(1, 0, "hello"), headers(1, whole, block("x: y"))}},
		{"right, and padding", frames{postWith(1, "content-length: 5"), data(1, padded|endStream, "\x02hello\x00\x00")}},
		{"none", frames{post(1), data(1, endStream, "hello")}},
	}),
	each(comes("Content-Length", "9113 8.1.1", "The value of a content-length header field equals the sum of the DATA frame payload lengths that form the content.", echo(1, "")), []sent{
		{"0, and END_STREAM", frames{headers(1, whole, postBlock+block("content-length: 0"))}},
		{"0, and an empty DATA", frames{postWith(1, "content-length: 0"), data(1, endStream, "")}},
	}),
	each(comes("Content-Length", "9113 8.1.1", "The value of a content-length header field equals the sum of the DATA frame payload lengths that form the content.", hello(1)), []sent{
		{"0 of a GET", with("content-length: 0")},
	}),
)

// trailer is a request with content and these frames behind it.
func trailer(f ...Frame) frames { return append(frames{post(1), data(1, 0, "hello")}, f...) }

var trailerCases = slices.Concat(
	each(comes("trailers", "9113 8.1", "Trailer fields are carried in a field block that also terminates the stream.", echo(1, "hello")), []sent{
		{"one field", trailer(headers(1, whole, block("x: y")))},
		{"three fields", trailer(headers(1, whole, block("x: y", "grpc-status: 0", "server-timing: a")))},
		{"no field", trailer(headers(1, whole, ""))},
		{"with padding", trailer(headers(1, whole|padded, "\x03"+block("x: y")+"\x00\x00\x00"))},
		{"with a priority", trailer(headers(1, whole|prioritize, uint32Of(0)+"\x0f"+block("x: y")))},
		{"behind an empty DATA", trailer(data(1, 0, ""), headers(1, whole, block("x: y")))},
		{"with an empty value", trailer(headers(1, whole, block("x: ")))},
	}),
	each(comes("trailers", "9113 8.1", "Trailer fields are carried in a field block that also terminates the stream.", echo(1, "")), []sent{
		{"without content", frames{post(1), headers(1, whole, block("x: y"))}},
	}),
	each(comes("trailers", "9113 8.1", noPseudo, cutOffMalformed(1)), []sent{
		{"with :path", trailer(headers(1, whole, block(":path: /")))},
		{"with :status", trailer(headers(1, whole, block(":status: 200")))},
		{"with an unknown pseudo-header field", trailer(headers(1, whole, block(":x: y")))},
		{"with :method behind a field", trailer(headers(1, whole, block("x: y", ":method: GET")))},
		{"that are a request", trailer(headers(1, whole, getBlock))},
	}),
	each(comes("trailers", "9113 8.1", trailersEnd, cutOffMalformed(1)), []sent{
		{"without END_STREAM", trailer(headers(1, endHeaders, block("x: y")))},
		{"without END_STREAM, and then DATA", trailer(headers(1, endHeaders, block("x: y")), data(1, endStream, "more"))},
		{"without END_STREAM, and then with it", trailer(headers(1, endHeaders, block("x: y")), headers(1, whole, block("x: y")))},
		{"without END_STREAM, empty", trailer(headers(1, endHeaders, ""))},
	}),
	each(comes("trailers", "9113 8.2.1", nameBytes, cutOffMalformed(1)), []sent{
		{"with a name in upper case", trailer(headers(1, whole, block("X: y")))},
		{"with a name with a space", trailer(headers(1, whole, block("x y: z")))},
		{"with a value with NUL", trailer(headers(1, whole, block("x: \x00")))},
		{"with a value with CR and LF", trailer(headers(1, whole, block("x: y\r\nz: a")))},
		{"with a value behind a space", trailer(headers(1, whole, block("x:  y")))},
	}),
	each(comes("trailers", "9113 8.2.2", connectionOnly, cutOffMalformed(1)), []sent{
		{"with Connection", trailer(headers(1, whole, block("connection: close")))},
		{"with Transfer-Encoding", trailer(headers(1, whole, block("transfer-encoding: chunked")))},
	}),
	each(comes("trailers", "9113 10.5.1", "A server that receives a larger field block than it is willing to handle can send a 431; behind a request that is under way, filo resets the stream.", cutOffMalformed(1)), []sent{
		{"with 101 fields", trailer(headers(1, whole, block(slices.Repeat([]string{"x: y"}, 101)...)))},
		{"with a value of 16,355 bytes", trailer(headers(1, whole, block("x: "+over16K[:16355])))},
	}),
	each(comes("trailers", "9110 6.5.1", noFraming, cutOffMalformed(1)), []sent{
		{"with Content-Length", trailer(headers(1, whole, block("content-length: 5")))},
		{"with Host", trailer(headers(1, whole, block("host: a")))},
	}),
)

// cutOffMalformed is a stream whose request turns out to be malformed when its handler may have begun to answer.
func cutOffMalformed(stream uint32) Want {
	return Want{Stream: stream, What: Reset, Code: protocolError, Status: 200, Or: 400}
}

var limitCases = slices.Concat(
	each(comes("limit", "6585 5", "431 is for when the total size of request header fields is too large; filo's limits are 16 KB, each field counting 32 bytes more, and 100 fields. Such a block is decoded like any other.", answered(1, 431)), []sent{
		{"101 fields", with(slices.Repeat([]string{"x: y"}, 101)...)},
		{"500 empty fields", with(slices.Repeat([]string{"x: "}, 500)...)},
		{"a value of 17,000 bytes", frames{headers(1, endStream, (getBlock + block("x: "+over16K+over16K[:600]))[:16000]),
			continuation(1, endHeaders, (getBlock + block("x: "+over16K+over16K[:600]))[16000:])}},
		{"a value of 16,200 bytes", with("x: " + over16K[:16200])},
		{"a table entry, 300 times", frames{headers(1, whole, getBlock+"\x40\x01x\x64"+over16K[:100]+strings.Repeat("\xbe", 300))}},
	}),
	each(comes("limit", "9110 15.5.15", "414 is for a target URI that is longer than the server is willing to interpret; filo's limit is a request line of 8,000 bytes.", answered(1, 414)), []sent{
		{":path of 9,000 bytes", of(method, scheme, ":path: /"+over16K[:9000], authority)},
	}),
	each(comes("limit", "9110 15.6.2", "501 is for when the server does not recognize the request method; filo's answer to one longer than any known method.", answered(1, 501)), []sent{
		{":method of 100 bytes", of(":method: "+strings.Repeat("A", 100), scheme, path, authority)},
	}),
	each(comes("limit", "9113 10.5.1", "A large field block can cause an implementation to commit a large amount of state. These are within filo's limits.", hello(1)), []sent{
		{"90 fields", with(numbered(90)...)},
		{"a value of 15,000 bytes", with("x: " + over16K[:15000])},
		{"a name of 1,000 bytes", with(over16K[:1000] + ": y")},
	}),
)

// numbered returns n different fields.
func numbered(n int) []string {
	fields := make([]string, n)
	for i := range fields {
		fields[i] = fmt.Sprintf("x%d: y", i)
	}
	return fields
}

var validCases = slices.Concat(
	each(comes("request", "9113 8.1", "A server sends an HTTP response on the same stream as the request.", answered(1, 404)), []sent{
		{"to nowhere", of(method, scheme, ":path: /none", authority)},
	}),
	each(comes("request", "9110 15.5.6", "The origin server MUST generate an Allow header field in a 405 response containing a list of the target resource's currently supported methods.", Want{Stream: 1, Status: 405, Fields: []Field{{"allow", ""}}}), []sent{
		{"with DELETE", of(":method: DELETE", scheme, path, authority)},
		{"with an unknown method", of(":method: FROB", scheme, path, authority)},
		{"with a method in lower case", of(":method: get", scheme, path, authority)},
		{"GET of /echo", of(method, scheme, ":path: /echo", authority)},
	}),
	each(comes("request", "9110 9.3.1", "GET requests transfer of a current selected representation.", Want{Stream: 1, Status: 200, Fields: []Field{{"content-type", "text/html*"}}}), []sent{
		{"of a page", of(method, scheme, ":path: /", authority)},
	}),
	each(comes("HEAD", "9110 9.3.2", "The server MUST NOT send content in the response to HEAD.", Want{Stream: 1, Status: 200, Head: true, Fields: []Field{{"content-type", "text/plain*"}}}), []sent{
		{"of /hello", of(":method: HEAD", scheme, path, authority)},
	}),
	each(comes("HEAD", "9110 9.3.2", "The server MUST NOT send content in the response to HEAD, not with an error either.", Want{Stream: 1, Status: 404, Head: true}), []sent{
		{"of nothing", of(":method: HEAD", scheme, ":path: /none", authority)},
	}),
	each(comes("Content-Type", "9110 8.3", "Content-Type describes the associated representation; the echo's is that of the request.", Want{Stream: 1, Status: 200, Body: "{}", Fields: []Field{{"content-type", "application/json"}}}), []sent{
		{"of an echo", frames{postWith(1, "content-type: application/json", "content-length: 2"), data(1, endStream, "{}")}},
	}),
	each(comes("early answer", "9113 8.1", "A server can send a complete response prior to the client sending an entire request.", hello(1), hello(3)), []sent{
		{"and no DATA", frames{headers(1, endHeaders, getBlock), get(3)}},
		{"and DATA", frames{headers(1, endHeaders, getBlock), data(1, 0, "abc"), get(3)}},
		{"and DATA to the end", frames{headers(1, endHeaders, getBlock), data(1, endStream, "abc"), get(3)}},
		{"and trailers", frames{headers(1, endHeaders, getBlock), data(1, 0, "abc"), headers(1, whole, block("x: y")), get(3)}},
	}),
	each(comes("early answer", "9113 8.1", "A server MAY request that the client abort transmission of a request without error by sending a RST_STREAM with an error code of NO_ERROR after sending a complete response; filo does when the client goes on sending.", helloEarly(1), hello(3)), []sent{
		{"and 17,000 bytes", frames{headers(1, endHeaders, getBlock), data(1, 0, k16), data(1, 0, k16[:1000]), get(3)}},
		{"and 17,000 bytes in small frames", append(append(frames{headers(1, endHeaders, getBlock)}, slices.Repeat(frames{data(1, 0, k16[:1000])}, 17)...), get(3))},
	}),
	[]Case{{Name: "early answer/and DATA behind RST_STREAM", RFC: "9113 5.4.2", Sentence: discards, Steps: steps(
		fixed(frames{headers(1, endHeaders, getBlock), data(1, 0, k16), data(1, 0, k16[:1000])}, helloEarly(1)),
		send(frames{data(1, 0, k16), data(1, 0, "abc"), data(1, endStream, "abc"), get(3)}, hello(3)))}},
	each(comes("interleaved", "9113 5", "A single HTTP/2 connection can contain multiple concurrently open streams, with either endpoint interleaving frames from multiple streams.", echo(1, "abcdef"), echo(3, "uvwxyz")), []sent{
		{"two requests", frames{post(1), post(3), data(1, 0, "abc"), data(3, 0, "uvw"), data(1, endStream, "def"), data(3, endStream, "xyz")}},
		{"the second ends first", frames{post(1), data(1, 0, "abc"), post(3), data(3, endStream, "uvwxyz"), data(1, endStream, "def")}},
		{"byte by byte", frames{post(1), post(3), data(1, 0, "a"), data(3, 0, "u"), data(1, 0, "b"), data(3, 0, "v"), data(1, 0, "c"), data(3, 0, "w"),
			data(3, endStream, "xyz"), data(1, endStream, "def")}},
		{"with frames of the connection between", frames{post(1), ping("12345678"), post(3), settings(), data(1, 0, "abc"), windowUpdate(0, 5), data(3, endStream, "uvwxyz"),
			frame(typeUnknown, 0, 0, "x"), data(1, endStream, "def")}},
	}),
	each(comes("interleaved", "9113 5", "A single HTTP/2 connection can contain multiple concurrently open streams.", hello(1), answered(3, 404), Want{Stream: 5, Status: 200}, hello(7), echo(9, "x")), []sent{
		{"five answers", frames{get(1), headers(3, whole, block(method, scheme, ":path: /none", authority)), headers(5, whole, block(method, scheme, ":path: /", authority)),
			get(7), post(9), data(9, endStream, "x")}},
	}),
	[]Case{many(50)},
)

// many is a case of n requests at once.
func many(n uint32) Case {
	c := comes(fmt.Sprintf("interleaved/%d requests at once", n), "9113 5", "A single HTTP/2 connection can contain multiple concurrently open streams.")
	for i := range n {
		c.Steps[0].Send = append(c.Steps[0].Send, get(2*i+1))
		c.Steps[0].Want = append(c.Steps[0].Want, hello(2*i+1))
	}
	return c
}
