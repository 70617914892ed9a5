package http2

import (
	"fmt"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
)

var headLimits = http1.Limits{Bytes: 1000, Line: 200, Fields: 12}

// list parses a test's fields, which are "name: value" lines.
func list(text string) (fields [][2]string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		i := strings.Index(line[1:], ": ") + 1
		fields = append(fields, [2]string{line[:i], line[i+2:]})
	}
	return fields
}

// request makes a head from the fields, and describes the head or its fault.
func request(text string, endStream, extended bool) string {
	var h Head
	var head http1.RequestHead
	h.Begin(&head, nil, &headLimits, extended)
	for _, f := range list(text) {
		giveField(&h, f[0], f[1])
	}
	b, f, fault, refused := h.End(endStream, false)
	if fault != NoFault || refused != http1.NoFault {
		if refused == http1.NoFault {
			return fmt.Sprintf("%v", fault)
		}
		return fmt.Sprintf("%v/%d", fault, refused.Status())
	}
	var got strings.Builder
	fmt.Fprintf(&got, "%s %s %d", head.Method(b), b[head.TargetStart:head.TargetEnd], f.Length)
	if f.ExpectContinue {
		got.WriteString(" continue")
	}
	if f.Close {
		got.WriteString(" close")
	}
	var l field.List
	head.GiveFields(&l, b)
	for name, value := range l.All() {
		fmt.Fprintf(&got, "|%s: %s", name, value)
	}
	return got.String()
}

const get = ":method: GET\n:scheme: https\n:path: /\n:authority: a\n"

var headTests = []struct {
	rfc       string
	fields    string
	endStream bool
	want      string
}{
	// Requests.
	{"8.3.1", get, true, "GET / 0|host: a"},
	{"8.3.1: in any order", ":path: /b?c\n:authority: a:8443\n:method: POST\n:scheme: http\n", true, "POST /b?c 0|host: a:8443"},
	{"8.3.1: Host in place of :authority", ":method: GET\n:scheme: https\n:path: /\nhost: a\n", true, "GET / 0|host: a"},
	{"8.2.1: values", get + "x: a\tb\ny: \nz: \xe4\xff\n", true, "GET / 0|host: a|x: a\tb|y: |z: \xe4\xff"},
	{"8.3.1: * for OPTIONS", ":method: OPTIONS\n:scheme: https\n:path: *\n:authority: a\n", true, "OPTIONS * 0|host: a"},
	{"8.3.1: schemes aren't restricted", ":method: GET\n:scheme: coap+tcp\n:path: /\n:authority: a\n", true, "GET / 0|host: a"},
	{"8.1.1: content of a known length", get + "content-length: 5\n", false, "GET / 5|host: a|content-length: 5"},
	{"8.1: content of an unknown length", get, false, "GET / -1|host: a"},
	{"8.1.1: a length of 0 without content", get + "content-length: 0\n", true, "GET / 0|host: a|content-length: 0"},
	{"8.1.1: a length of 0 before an empty DATA", get + "content-length: 0\n", false, "GET / 0|host: a|content-length: 0"},
	{"RFC 9110, 10.1.1", get + "expect: 100-continue\n", false, "GET / -1 continue|host: a|expect: 100-continue"},
	{"RFC 9110, 10.1.1: without content", get + "expect: 100-continue\n", true, "GET / 0|host: a|expect: 100-continue"},
	{"RFC 9110, 10.1.1: a list without a member", get + "expect: \n", false, "GET / -1|host: a|expect: "},
	{"8.2.3: cookie crumbs", get + "cookie: a=b\nx: y\ncookie: c=d\ncookie: e=f\n", true, "GET / 0|host: a|x: y|cookie: a=b; c=d; e=f"},
	{"8.2.2: TE", get + "te: trailers\n", true, "GET / 0|host: a|te: trailers"},
	{"8.2.2: TE in any case", get + "te: Trailers\n", true, "GET / 0|host: a|te: Trailers"},
	{"8.3.1: Host beside :authority", get + "host: a\nx: y\n", true, "GET / 0|host: a|x: y"},
	{"8.3.1: ... in another case", get + "host: A\n", true, "GET / 0|host: a"},
	{"8.3.1: ... with the port of the scheme", get + "host: a:443\n", true, "GET / 0|host: a"},
	{"8.3.1: ... with an empty port", get + "host: a:\n", true, "GET / 0|host: a"},
	{"8.5: CONNECT", ":method: CONNECT\n:authority: a:80\nx: y\n", false, "CONNECT a:80 -1|host: a:80|x: y"},
	{"RFC 9218, 5", get + "priority: u=1\n", true, "GET / 0|host: a|priority: u=1"},

	// Pseudo-header fields.
	{"8.3.1: no :method", ":scheme: https\n:path: /\n:authority: a\n", true, "a request needs :method, :scheme and :path"},
	{"8.3.1: no :scheme", ":method: GET\n:path: /\n:authority: a\n", true, "a request needs :method, :scheme and :path"},
	{"8.3.1: no :path", ":method: GET\n:scheme: https\n:authority: a\n", true, "a request needs :method, :scheme and :path"},
	{"8.3.1: none", "x: y\n", true, "a request needs :method, :scheme and :path"},
	{"8.3.1: nothing", "", true, "a request needs :method, :scheme and :path"},
	{"8.3: behind a field", ":method: GET\n:scheme: https\nx: y\n:path: /\n", true, "a request needs :method, :scheme and :path"},
	{"8.3: behind a field, and complete", get + "x: y\n:path: /\n", true, "a pseudo-header field behind other fields"},
	{"8.3: :method twice", ":method: GET\n" + get, true, "a pseudo-header field occurs twice"},
	{"8.3: :scheme twice", ":scheme: https\n" + get, true, "a pseudo-header field occurs twice"},
	{"8.3: :path twice", ":path: /\n" + get, true, "a pseudo-header field occurs twice"},
	{"8.3: :authority twice", ":authority: a\n" + get, true, "a pseudo-header field occurs twice"},
	{"8.3: of answers", get + ":status: 200\n", true, "a pseudo-header field that requests don't have"},
	{"8.3: unknown", get + ":x: y\n", true, "a pseudo-header field that requests don't have"},
	{"8.3.1: empty :path", ":method: GET\n:scheme: https\n:path: \n:authority: a\n", true, "the :path must begin with /, or be * for OPTIONS"},
	{"8.3.1: :path without /", ":method: GET\n:scheme: https\n:path: a\n:authority: a\n", true, "/400"},
	{"8.3.1: :path in absolute form", ":method: GET\n:scheme: https\n:path: https://a/\n:authority: a\n", true, "/400"},
	{"8.3.1: * for GET", ":method: GET\n:scheme: https\n:path: *\n:authority: a\n", true, "/400"},
	{"8.3.1: */ for OPTIONS", ":method: OPTIONS\n:scheme: https\n:path: */\n:authority: a\n", true, "/400"},
	{"8.3.1: a space in :path", ":method: GET\n:scheme: https\n:path: /a b\n:authority: a\n", true,
		"the :path must begin with /, or be * for OPTIONS/400"},
	{"8.3.1: a fragment in :path", ":method: GET\n:scheme: https\n:path: /a#b\n:authority: a\n", true,
		"the :path must begin with /, or be * for OPTIONS/400"},
	{"8.3.1: broken percent-encoding", ":method: GET\n:scheme: https\n:path: /%zz\n:authority: a\n", true,
		"the :path must begin with /, or be * for OPTIONS/400"},
	{"8.3.1: empty :scheme", ":method: GET\n:scheme: \n:path: /\n:authority: a\n", true, "the :scheme isn't one"},
	{"8.3.1: :scheme", ":method: GET\n:scheme: 1s\n:path: /\n:authority: a\n", true, "the :scheme isn't one"},
	{"8.3.1: :scheme with its colon", ":method: GET\n:scheme: https:\n:path: /\n:authority: a\n", true, "the :scheme isn't one"},
	{"8.3.1: empty :authority", ":method: GET\n:scheme: https\n:path: /\n:authority: \n", true, FaultAuthority.String()},
	{"8.3.1: user information", ":method: GET\n:scheme: https\n:path: /\n:authority: u@a\n", true, FaultAuthority.String() + "/400"},
	{"8.3.1: :authority", ":method: GET\n:scheme: https\n:path: /\n:authority: a/b\n", true, FaultAuthority.String() + "/400"},
	{"8.3.1: empty :method", ":method: \n:scheme: https\n:path: /\n:authority: a\n", true, "the head of a request is malformed/400"},
	{"8.3.1: :method", ":method: G T\n:scheme: https\n:path: /\n:authority: a\n", true, "the head of a request is malformed/400"},
	{"8.2.1: a control byte", ":method: GET\n:scheme: https\n:path: /\x01\n:authority: a\n", true, FaultField.String()},

	// CONNECT.
	{"8.5: :scheme", ":method: CONNECT\n:scheme: https\n:authority: a:80\n", false, FaultConnect.String()},
	{"8.5: :path", ":method: CONNECT\n:path: /\n:authority: a:80\n", false, FaultConnect.String()},
	{"8.5: no :authority", ":method: CONNECT\nhost: a:80\n", false, FaultConnect.String()},
	{"RFC 9110, 9.3.6: no port", ":method: CONNECT\n:authority: a\n", false, FaultAuthority.String() + "/400"},
	{"RFC 8441, 4: not offered", ":method: CONNECT\n:protocol: websocket\n:scheme: https\n:path: /\n:authority: a\n", false,
		"a pseudo-header field that requests don't have"},

	// Fields.
	{"8.2.1: upper case", get + "X: y\n", true, FaultField.String()},
	{"8.2.1: a known name in upper case", get + "Content-Length: 0\n", true, FaultField.String()},
	{"8.2.1: no token", get + "x(y: z\n", true, FaultField.String()},
	{"8.2.1: NUL", get + "x: a\x00b\n", true, FaultField.String()},
	{"8.2.1: CR", get + "x: a\rb\n", true, FaultField.String()},
	{"8.2.1: white space before", get + "x:  a\n", true, FaultField.String()},
	{"8.2.1: white space behind", get + "x: a\t\n", true, FaultField.String()},
	{"8.2.2: Connection", get + "connection: close\n", true, "a field that concerns the connection"},
	{"8.2.2: Keep-Alive", get + "keep-alive: timeout=5\n", true, "a field that concerns the connection"},
	{"8.2.2: Proxy-Connection", get + "proxy-connection: keep-alive\n", true, "a field that concerns the connection"},
	{"8.2.2: Transfer-Encoding", get + "transfer-encoding: chunked\n", false, "a field that concerns the connection"},
	{"8.2.2: Upgrade", get + "upgrade: h2c\n", true, "a field that concerns the connection"},
	{"8.2.2: TE", get + "te: gzip\n", true, "TE may only be trailers"},
	{"8.2.2: TE with more", get + "te: trailers, gzip\n", true, "TE may only be trailers"},
	{"8.2.2: empty TE", get + "te: \n", true, "TE may only be trailers"},
	{"8.3.1: another Host", get + "host: b\n", true, "Host differs from :authority"},
	{"8.3.1: another port", get + "host: a:80\n", true, "Host differs from :authority"},
	{"8.3.1: empty Host beside :authority", get + "host: \n", true, "Host differs from :authority"},
	{"RFC 9112, 3.2: Host twice beside :authority", get + "host: a\nhost: a\n", true, "Host differs from :authority"},
	{"RFC 9112, 3.2: Host twice", ":method: GET\n:scheme: https\n:path: /\nhost: a\nhost: a\n", true, "the head of a request is malformed/400"},
	{"8.3.1: neither :authority nor Host", ":method: GET\n:scheme: https\n:path: /\n", true, "/400"},
	{"8.1.1: a length without content", get + "content-length: 5\n", true, "Content-Length isn't the length of the content"},
	{"8.1.1: no number", get + "content-length: 5a\n", false, "Content-Length isn't the length of the content/400"},
	{"8.1.1: two lengths", get + "content-length: 5\ncontent-length: 5\n", false, "Content-Length isn't the length of the content/400"},
	{"RFC 9110, 10.1.1: an unknown expectation", get + "expect: wonders\n", false, "/417"},

	// Limits.
	{"10.5.1: fields", get + strings.Repeat("x: y\n", 11), true, "GET / 0|host: a" + strings.Repeat("|x: y", 11)},
	{"10.5.1: too many fields", get + strings.Repeat("x: y\n", 12), true, "/431"},
	{"10.5.1: crumbs are one field", get + strings.Repeat("cookie: x\n", 50), true, "GET / 0|host: a|cookie: x" + strings.Repeat("; x", 49)},
	{"10.5.1: :path", ":method: GET\n:scheme: https\n:path: /" + strings.Repeat("a", 200) + "\n:authority: a\n", true, "/414"},
	{"RFC 9110, 15.6.2: :method", ":method: " + strings.Repeat("A", 33) + "\n:scheme: https\n:path: /\n:authority: a\n", true, "/501"},
}

func TestHead(t *testing.T) {
	for _, test := range headTests {
		if got := request(test.fields, test.endStream, false); got != test.want {
			t.Errorf("%s: %q, want %q", test.rfc, got, test.want)
		}
	}
}

// RFC 8441, section 4.
func TestExtendedConnect(t *testing.T) {
	const upgrade = "GET /chat 0|host: a|upgrade: websocket|connection: Upgrade|sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA=="
	const fields = ":method: CONNECT\n:protocol: websocket\n:scheme: https\n:path: /chat\n:authority: a\nsec-websocket-version: 13\n"
	if got, want := request(fields, false, true), upgrade+"|sec-websocket-version: 13"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var h Head
	h.Begin(new(http1.RequestHead), nil, &headLimits, true)
	for _, f := range list(fields) {
		giveField(&h, f[0], f[1])
	}
	if h.End(false, false); string(h.Protocol()) != "websocket" || string(h.Scheme()) != "https" {
		t.Errorf("the protocol is %q, and the scheme %q", h.Protocol(), h.Scheme())
	}
	for _, wrong := range []string{
		strings.Replace(fields, "CONNECT", "GET", 1),
		strings.Replace(fields, ":scheme: https\n", "", 1),
		strings.Replace(fields, ":path: /chat\n", "", 1),
		strings.Replace(fields, ":authority: a\n", "", 1),
		strings.Replace(fields, "websocket\n", "\n", 1),
		strings.Replace(fields, "websocket\n", "web socket\n", 1),
	} {
		if got := request(wrong, false, true); got != FaultConnect.String() {
			t.Errorf("%q: %q", wrong, got)
		}
	}
	if got, want := request(strings.Replace(fields, "/chat", "chat", 1), false, true), "/400"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for fields, want := range map[string]string{
		fields + "sec-websocket-key: x\n":                            upgrade + "|sec-websocket-version: 13",
		fields + "content-length: 0\n":                               upgrade + "|sec-websocket-version: 13|content-length: 0",
		fields + "content-length: 1\n":                               FaultContentLength.String(),
		fields + "upgrade: websocket\n":                              FaultConnectionField.String(),
		strings.Replace(fields, "websocket\n", "ip\n", 1) + "a: b\n": "GET /chat 0|host: a|upgrade: ip|connection: Upgrade|sec-websocket-version: 13|a: b",
	} {
		if got := request(fields, false, true); got != want {
			t.Errorf("%q: %q, want %q", fields, got, want)
		}
	}
	if got, want := request(":method: CONNECT\n:authority: a:80\n", false, true), "CONNECT a:80 -1|host: a:80"; got != want {
		t.Errorf("CONNECT as ever: %q, want %q", got, want)
	}
}

// A block over the limit is refused with 431, even if required fields are missing, unless the fields before the limit are malformed.
func TestHeadOverLimit(t *testing.T) {
	for _, test := range []struct {
		fields string
		want   string
	}{{get, "/431"}, {"", "/431"}, {":method: GET\n", "/431"}, {get + "X: y\n", FaultField.String() + "/0"}} {
		var h Head
		h.Begin(new(http1.RequestHead), nil, &headLimits, false)
		for _, f := range list(test.fields) {
			giveField(&h, f[0], f[1])
		}
		_, _, fault, refused := h.End(true, true)
		if got := fmt.Sprintf("%v/%d", fault, refused.Status()); got != test.want {
			t.Errorf("%q: %s, want %s", test.fields, got, test.want)
		}
	}
}

// RFC 9113, section 8.1, and RFC 9110, section 6.5.1.
func TestTrailer(t *testing.T) {
	for _, test := range []struct {
		fields string
		over   bool
		want   string
	}{
		{"x: y\nserver-timing: z\n", false, "/0|x: y|server-timing: z"},
		{"", false, "/0"},
		{":path: /\n", false, FaultPseudoInTrailer.String() + "/0"},
		{"x: y\n:path: /\n", false, FaultPseudoInTrailer.String() + "/0"},
		{":status: 200\n", false, FaultPseudoInTrailer.String() + "/0"},
		{"X: y\n", false, FaultField.String() + "/0"},
		{"x: a\nb: \x00\n", false, FaultField.String() + "/0"},
		{"connection: close\n", false, FaultConnectionField.String() + "/0"},
		{"transfer-encoding: chunked\n", false, FaultConnectionField.String() + "/0"},
		{"content-length: 5\n", false, FaultMalformed.String() + "/400"},
		{"host: a\n", false, FaultMalformed.String() + "/400"},
		{"cookie: a\n", false, FaultMalformed.String() + "/400"},
		{"x: y\n", true, "/431"},
		{strings.Repeat("x: y\n", 13), false, "/431"},
	} {
		var h Head
		var l field.List
		h.BeginTrailer(new(http1.RequestHead), nil, &headLimits)
		for _, f := range list(test.fields) {
			giveField(&h, f[0], f[1])
		}
		fault, refused := h.EndTrailer(&l, test.over)
		got := fmt.Sprintf("%v/%d", fault, refused.Status())
		for name, value := range l.All() {
			got += fmt.Sprintf("|%s: %s", name, value)
		}
		if got != test.want {
			t.Errorf("%q: %q, want %q", test.fields, got, test.want)
		}
	}
}

// Text checks the characters of a field as HPACK's decoder does before it calls Field.
func TestHeadText(t *testing.T) {
	for _, test := range []struct {
		name, value string
		want        Fault
	}{
		{"x-name", "a value", NoFault},
		{"x-name", "", NoFault},
		{"accept", "\x80\xff", NoFault},
		{"cookie", "a=1", NoFault},
		{"", "value", FaultField},
		{"X-Name", "value", FaultField},
		{"Accept", "value", FaultField},
		{"x name", "value", FaultField},
		{"x-name:", "value", FaultField},
		{"x\x00", "value", FaultField},
		{"x-name", " value", FaultField},
		{"x-name", "value\t", FaultField},
		{"x-name", "one\r\ntwo: 2", FaultField},
		{"x-name", "a\x00", FaultField},
		{":path", "/again", FaultPseudoOrder},
		{":", "value", FaultField},
		{"connection", "close", FaultConnectionField},
	} {
		var h Head
		var head http1.RequestHead
		h.Begin(&head, nil, &headLimits, false)
		h.Text(":method", "GET")
		h.Text(":scheme", "https")
		h.Text(":authority", "filo.test")
		h.Text(":path", "/text")
		h.Text("x-first", "1")
		h.Text(test.name, test.value)
		b, _, fault, refused := h.End(true, false)
		if fault != test.want || fault == NoFault && refused != http1.NoFault {
			t.Errorf("%q: %q: %v, %v", test.name, test.value, fault, refused)
		}
		var l field.List
		if fault == NoFault {
			head.GiveFields(&l, b)
			if got := string(l.Get(test.name)); got != test.value || string(h.Method()) != "GET" || string(h.Scheme()) != "https" {
				t.Errorf("%q: %q became %q, of %s %s", test.name, test.value, got, h.Scheme(), h.Method())
			}
		}
	}
}

// A head that is refused before its first field contains nothing of the previous request.
func TestHeadRefusedAtOnce(t *testing.T) {
	var h Head
	var head http1.RequestHead
	h.Begin(&head, nil, &headLimits, false)
	for _, f := range list(":method: GET\n:scheme: https\n:authority: filo.test\n:path: /\n") {
		h.Text(f[0], f[1])
	}
	if b, _, _, _ := h.End(true, false); string(head.Method(b)) != "GET" {
		t.Fatalf("the method is %q", head.Method(b))
	}
	h.Begin(&head, nil, &headLimits, false)
	if b, _, _, refused := h.End(false, true); refused != http1.FaultHeadTooLarge || len(head.Method(b)) != 0 {
		t.Errorf("%v, and the method is %q", refused, head.Method(b))
	}
}

// RFC 9113, section 8.1.1: "the sum of the DATA frame payload lengths".
func TestContent(t *testing.T) {
	for _, test := range []struct {
		length int64
		sizes  []int64 // sizes of DATA frames; the last one has END_STREAM
		want   Fault
	}{
		{-1, []int64{5, 0, 7}, NoFault},
		{5, []int64{5}, NoFault},
		{5, []int64{2, 0, 3}, NoFault},
		{5, []int64{5, 0}, NoFault},
		{0, []int64{0}, NoFault},
		{0, []int64{1}, FaultContentLength},
		{5, []int64{4}, FaultContentLength},
		{5, []int64{0}, FaultContentLength},
		{5, []int64{6}, FaultContentLength},
		{5, []int64{3, 3, 0}, FaultContentLength},
	} {
		var c Content
		c.Begin(test.length)
		fault := NoFault
		for i, n := range test.sizes {
			if fault == NoFault {
				fault = c.Receive(n, i == len(test.sizes)-1)
			}
		}
		if fault != test.want {
			t.Errorf("%v of %d: %v", test.sizes, test.length, fault)
		}
	}
}

// FuzzHead checks that a head with any fields either has one method, one target and one Host, or is refused.
func FuzzHead(f *testing.F) {
	for _, test := range headTests {
		f.Add(test.fields, test.endStream, false)
	}
	f.Fuzz(func(t *testing.T, text string, endStream, extended bool) {
		var h Head
		var head http1.RequestHead
		h.Begin(&head, nil, &headLimits, extended)
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			if name == "" {
				continue
			}
			giveField(&h, name, value)
		}
		b, framing, fault, refused := h.End(endStream, false)
		if fault != NoFault || refused != http1.NoFault {
			if refused != http1.NoFault && refused.Status() < 400 || fault != NoFault && fault < FaultField {
				t.Fatalf("%v, %v", fault, refused)
			}
			return
		}
		var l field.List
		head.GiveFields(&l, b)
		target := string(b[head.TargetStart:head.TargetEnd])
		if len(head.Method(b)) == 0 || target == "" || l.FindID(field.Host, 0) < 0 || l.FindID(field.Host, l.FindID(field.Host, 0)+1) >= 0 {
			t.Fatalf("%q %q, Host %q", head.Method(b), target, l.GetID(field.Host))
		}
		if len(h.Protocol()) == 0 && endStream != (framing.Length == 0) && (endStream || len(l.GetID(field.ContentLength)) == 0) {
			t.Fatalf("a length of %d, and it ends with the head: %t", framing.Length, endStream)
		}
		for name, value := range l.All() {
			if string(name) != strings.ToLower(string(name)) || strings.ContainsAny(string(value), "\x00\r\n") {
				t.Fatalf("%q: %q", name, value)
			}
		}
		for _, id := range []field.ID{field.Connection, field.TransferEncoding, field.Upgrade, field.KeepAlive} {
			if l.FindID(id, 0) >= 0 && len(h.Protocol()) == 0 {
				t.Fatalf("%v got through", id)
			}
		}
	})
}

// chromeFields are roughly the fields that a browser sends.
var chromeFields = [][2]string{{":method", "GET"}, {":authority", "www.example.com"}, {":scheme", "https"}, {":path", "/images/logo.png?v=3"},
	{"cache-control", "max-age=0"}, {"accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"},
	{"user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36"},
	{"sec-fetch-site", "none"}, {"accept-encoding", "gzip, deflate, br, zstd"}, {"accept-language", "en-US,en;q=0.9"},
	{"cookie", "session=0123456789abcdef"}, {"cookie", "theme=dark"}, {"priority", "u=0, i"}}

type rawField struct {
	name, value []byte
	id          field.ID
}

func rawFields() (fields []rawField) {
	for _, f := range chromeFields {
		fields = append(fields, rawField{[]byte(f[0]), []byte(f[1]), field.Lookup(f[0])})
	}
	return fields
}

func TestHeadAllocs(t *testing.T) {
	fields := rawFields()
	var h Head
	var head http1.RequestHead
	limits := http1.Limits{Bytes: 16 << 10, Line: 8 << 10, Fields: 100}
	b := make([]byte, 0, 1024)
	var l field.List
	if n := testing.AllocsPerRun(100, func() {
		h.Begin(&head, b, &limits, false)
		for i := range fields {
			h.Field(fields[i].name, fields[i].value, fields[i].id, true)
		}
		b, _, fault, refused := h.End(true, false)
		if fault != NoFault || refused != http1.NoFault || h.Priority != (Priority{0, true}) {
			t.Fatal(fault, refused, h.Priority)
		}
		head.GiveFields(&l, b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHead(b *testing.B) {
	for _, n := range []int{4, len(chromeFields)} {
		b.Run(fmt.Sprintf("%d fields", n), func(b *testing.B) {
			fields := rawFields()[:n]
			var h Head
			var head http1.RequestHead
			limits := http1.Limits{Bytes: 16 << 10, Line: 8 << 10, Fields: 100}
			buffer := make([]byte, 0, 1024)
			for b.Loop() {
				h.Begin(&head, buffer, &limits, false)
				for i := range fields {
					h.Field(fields[i].name, fields[i].value, fields[i].id, true)
				}
				if _, _, fault, _ := h.End(true, false); fault != NoFault {
					b.Fatal(fault)
				}
			}
		})
	}
}
