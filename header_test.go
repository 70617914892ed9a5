package filo

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

// wireField is one field of the model that Header is held to: a plain list.
type wireField struct{ name, value string }

type wireFields []wireField

func (m wireFields) index(name string) int {
	return slices.IndexFunc(m, func(f wireField) bool { return strings.EqualFold(f.name, name) })
}

// set is what Header.Set says: "The field keeps the place of the first of them."
func (m wireFields) set(name, value string) wireFields {
	at := m.index(name)
	if at < 0 {
		return m.add(name, value)
	}
	if !wireIsToken(name) {
		return m
	}
	rest := m[at+1:].del(name)
	return append(append(slices.Clone(m[:at]), wireField{name, wireClean(value)}), rest...)
}

func (m wireFields) add(name, value string) wireFields {
	if !wireIsToken(name) {
		return m
	}
	return append(slices.Clone(m), wireField{name, wireClean(value)})
}

func (m wireFields) del(name string) wireFields {
	return slices.DeleteFunc(slices.Clone(m), func(f wireField) bool { return strings.EqualFold(f.name, name) })
}

func wireIsToken(name string) bool { return name != "" && strings.Trim(name, wireToken) == "" }

// wireClean is what becomes of a value: "control bytes in a value (CR, LF and NUL among them) are replaced by spaces",
// and white space around a value is none of it (RFC 9110, section 5.5).
func wireClean(value string) string {
	b := []byte(value)
	for i, c := range b {
		if c < 0x20 && c != '\t' || c == 0x7f {
			b[i] = ' '
		}
	}
	return strings.Trim(string(b), " \t")
}

// wireCheckHeader compares all that a Header says with the model.
func wireCheckHeader(t *testing.T, h *Header, want wireFields, names []string) {
	t.Helper()
	var all wireFields
	for name, value := range h.All() {
		if cap(name) != len(name) || cap(value) != len(value) {
			t.Fatalf("appending to %q or %q would change what is behind it", name, value)
		}
		all = append(all, wireField{string(name), string(value)})
	}
	if !slices.Equal(all, want) || h.Len() != len(want) {
		t.Fatalf("%d fields %q, want %q", h.Len(), all, want)
	}
	for _, name := range names {
		var values []string
		for _, f := range want {
			if strings.EqualFold(f.name, name) {
				values = append(values, f.value)
			}
		}
		var got []string
		for value := range h.Values(name) {
			got = append(got, string(value))
		}
		first, has := "", len(values) > 0
		if has {
			first = values[0]
		}
		if !slices.Equal(got, values) || h.Has(name) != has || h.Get(name) != first ||
			string(h.GetBytes(name)) != first || (h.GetBytes(name) != nil) != has {
			t.Fatalf("%q has the values %q (%t), want %q; first %q", name, got, h.Has(name), values, h.Get(name))
		}
	}
}

// wireParsedHeader returns the Header of a request with these fields, over a connection's buffer.
func wireParsedHeader(t *testing.T, fields string) (h *Header, buffer []byte) {
	t.Helper()
	buffer = []byte("GET / HTTP/1.1\r\n" + fields + "\r\nGET /next HTTP/1.1\r\n\r\n")
	var p headParser
	p.reset()
	if done, err := p.parse(buffer, &wireLarge); !done || err != nil {
		t.Fatalf("%q: %t, %v", fields, done, err)
	}
	return &Header{buf: buffer[:p.pos:p.pos], fields: p.fields, borrowed: true}, buffer
}

var (
	wireNames = []string{"Content-Type", "content-type", "CONTENT-TYPE", "X-A", "x-a", "X-B", "Set-Cookie", "set-COOKIE", "x-c", "ETag"}
	// wireBadNames aren't tokens: no field can have them.
	wireBadNames = []string{"", " ", "X A", "X:", "X-A ", " X-A", "X\r\nY", "X\x00", "é", "X\x7f", "(", "X-A:b\r\nX-C"}
	wireValues   = []string{"", "a", "b c", " d ", "\te\t", "f\tg", "h\r\nX-Injected: 1", "\r\n", "\x00\x01\x1f\x7f", "é\xff", "\n i", "j \r", strings.Repeat("k", 300)}
)

// A Header is an ordered list: whatever is done to it, as a request's or a response's, it holds what a plain list would.
// The connection's buffer never changes.
func TestHeaderModel(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	names := append(slices.Clone(wireNames), wireBadNames...)
	for range 300 {
		h, model := new(Header), wireFields(nil)
		var buffer, before []byte
		if random.IntN(2) == 0 {
			var fields strings.Builder
			for range random.IntN(8) {
				f := wireField{wireNames[random.IntN(len(wireNames))], wireValues[random.IntN(6)]}
				fmt.Fprintf(&fields, "%s:%s\r\n", f.name, f.value)
				model = model.add(f.name, f.value)
			}
			h, buffer = wireParsedHeader(t, fields.String())
			before = bytes.Clone(buffer)
		}
		for range 40 {
			name, value := names[random.IntN(len(names))], wireValues[random.IntN(len(wireValues))]
			switch random.IntN(16) {
			case 0, 1, 2:
				h.Set(name, value)
				model = model.set(name, value)
			case 3, 4:
				h.SetBytes(name, []byte(value))
				model = model.set(name, value)
			case 5, 6, 7, 8:
				h.Add(name, value)
				model = model.add(name, value)
			case 9, 10:
				h.AddBytes(name, []byte(value))
				model = model.add(name, value)
			case 11, 12:
				h.Del(name)
				model = model.del(name)
			case 13:
				// A value of its own: it may move while it is copied.
				other := wireNames[random.IntN(len(wireNames))]
				own, there := h.GetBytes(other), model.index(other) >= 0
				h.SetBytes(name, own)
				text := ""
				if there {
					text = model[model.index(other)].value
				}
				model = model.set(name, text)
			case 14:
				if random.IntN(10) == 0 {
					h.Reset()
					model = nil
				}
			}
			wireCheckHeader(t, h, model, names)
		}
		if !bytes.Equal(buffer, before) {
			t.Fatalf("the connection's buffer was changed from %q to %q", before, buffer)
		}
	}
}

// "Del removes all fields called name", wherever they are among others, whose order stays.
func TestHeaderDelInterleaved(t *testing.T) {
	for pattern := range 1 << 7 {
		for _, borrowed := range []bool{false, true} {
			for _, set := range []bool{false, true} {
				h, fields, model := new(Header), "", wireFields(nil)
				for i := range 7 {
					name := "x-keep"
					if pattern>>i&1 != 0 {
						name = []string{"X-Del", "x-del", "X-DEL"}[i%3]
					}
					fields += fmt.Sprintf("%s: %d\r\n", name, i)
					h.Add(name, fmt.Sprint(i))
					model = model.add(name, fmt.Sprint(i))
				}
				if borrowed {
					h, _ = wireParsedHeader(t, fields)
				}
				if set {
					h.Set("x-Del", "new")
					model = model.set("x-Del", "new")
				} else {
					h.Del("x-Del")
					model = model.del("x-Del")
				}
				wireCheckHeader(t, h, model, []string{"X-Del", "X-Keep"})
			}
		}
	}
}

// Iterating may stop early, and what was yielded is in order.
func TestHeaderIteration(t *testing.T) {
	var h Header
	for i := range 5 {
		h.Add("A", fmt.Sprint(i))
		h.Add("b", fmt.Sprint(-i))
	}
	for stop := range 6 {
		var values, all []string
		for value := range h.Values("a") {
			if len(values) == stop {
				break
			}
			values = append(values, string(value))
		}
		for name, value := range h.All() {
			if len(all) == stop {
				break
			}
			all = append(all, string(name)+string(value))
		}
		if got, want := strings.Join(values, " "), "0 1 2 3 4"[:max(0, min(2*stop-1, 9))]; got != want {
			t.Errorf("stopped after %d: %q, want %q", stop, got, want)
		}
		if got, want := strings.Join(all, " "), strings.Join([]string{"A0", "b0", "A1", "b-1", "A2"}[:min(stop, 5)], " "); got != want {
			t.Errorf("all, stopped after %d: %q, want %q", stop, got, want)
		}
	}
}

// The setters that know the field do the same as Set with its name.
func TestHeaderSetters(t *testing.T) {
	for _, before := range []wireFields{nil, {{"X-A", "1"}}, {{"content-type", "x"}, {"X-A", "1"}, {"Content-Type", "y"}, {"content-length", "7"}}} {
		for _, borrowed := range []bool{false, true} {
			fresh := func() *Header {
				fields := ""
				h := new(Header)
				for _, f := range before {
					fields += f.name + ": " + f.value + "\r\n"
					h.Add(f.name, f.value)
				}
				if borrowed {
					h, _ = wireParsedHeader(t, fields)
				}
				return h
			}
			h := fresh()
			h.setPlainText()
			wireCheckHeader(t, h, before.set("Content-Type", textPlain), wireNames)
			h = fresh()
			h.setID(fieldContentType, "a/b")
			wireCheckHeader(t, h, before.set("Content-Type", "a/b"), wireNames)
			for _, n := range []int64{0, 7, -1, 1<<63 - 1, -1 << 63} {
				h = fresh()
				h.setInt(fieldContentLength, n)
				wireCheckHeader(t, h, before.set("Content-Length", fmt.Sprint(n)), []string{"content-length"})
			}
		}
	}
}

// A name of 65,535 bytes is the longest.
func TestHeaderLongNames(t *testing.T) {
	longest := strings.Repeat("n", 1<<16-1)
	var h Header
	h.Set(longest, "a")
	h.Add(longest+"n", "b")
	h.Set(longest+"n", "b")
	h.Add("X", "c")
	wireCheckHeader(t, &h, wireFields{{longest, "a"}, {"X", "c"}}, []string{longest, longest + "n", "x"})
}

// wireControls is all control bytes of ASCII.
const wireControls = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f" +
	"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f"

// wireCheckLines checks that head is a status line, field lines and an empty line, each of which ends in CRLF and holds no
// other control byte, and that they are what another parser reads.
func wireCheckLines(t *testing.T, what string, head []byte) textproto.MIMEHeader {
	t.Helper()
	lines := bytes.SplitAfter(head, []byte("\r\n"))
	for i, line := range lines[:len(lines)-1] {
		content := line[:len(line)-2]
		if bytes.ContainsAny(content, strings.ReplaceAll(wireControls, "\t", "")) {
			t.Errorf("%s: line %d is %q", what, i, line)
		}
		if name, _, ok := bytes.Cut(content, []byte(": ")); i > 0 && i < len(lines)-2 && (!ok || !wireIsToken(string(name))) {
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

// "CR, LF and NUL never reach the wire from any setter": nor do other control bytes, wherever they are in a name or a value.
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
			c.conn.server = named
		},
		"Connection": func(c *Ctx, _, value string) { c.Response.Header.Set("Connection", value) },
	}
	for setter, set := range setters {
		for _, c := range []byte(wireControls + " !\"(,:;=@[{~\x80\x85\xff") {
			for _, value := range []string{"a%sb", "%s", "a%s", "%sa", "a%s%sInjected: 1", "%s\n%s\r\n", "a\r%sb: c"} {
				value = strings.ReplaceAll(value, "%s", string([]byte{c}))
				ctx := &Ctx{conn: &conn{server: s, worker: &scratch{}}}
				ctx.Response.reset()
				set(ctx, value, value)
				for _, f := range []headFraming{{length: 3}, {length: -1, chunked: true}, {length: noLength, close: true}} {
					head := ctx.Response.appendHead(nil, ctx.conn.server, f)
					wireCheckLines(t, setter, head)
					trailer := appendTrailer([]byte("status line\r\n"), &ctx.Response.Trailer)
					wireCheckLines(t, setter+", trailer", append(trailer, "\r\n"...))
				}
				if t.Failed() {
					t.Fatalf("with %q", value)
				}
			}
		}
	}
}

// What is set is what goes out: order, case and values.
func TestHeaderOnTheWire(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	for range 300 {
		var h Header
		var want wireFields
		for range random.IntN(10) {
			f := wireField{wireNames[random.IntN(len(wireNames))], wireValues[random.IntN(len(wireValues))]}
			if random.IntN(3) == 0 {
				h.Set(f.name, f.value)
				want = want.set(f.name, f.value)
			} else {
				h.Add(f.name, f.value)
				want = want.add(f.name, f.value)
			}
		}
		var got, wire []byte
		for i := range h.fields {
			got = h.appendLine(got, i)
		}
		for _, f := range want {
			wire = fmt.Appendf(wire, "%s: %s\r\n", f.name, f.value)
		}
		if !bytes.Equal(got, wire) {
			t.Fatalf("%q on the wire, want %q", got, wire)
		}
	}
}

// A Header is a struct: nothing but advice keeps a handler from assigning a request's to its response. "Nothing that is set
// can break the framing of a message": not how the client had spaced the fields either.
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
		r.Header = Header{buf: h.buf, fields: h.fields, borrowed: true}
		r.Trailer = Header{buf: bytes.Clone(h.buf), fields: h.fields}
		for what, head := range map[string][]byte{
			"header":  r.appendHead(nil, s, headFraming{length: 0}),
			"trailer": append(appendTrailer([]byte("status line\r\n"), &r.Trailer), "\r\n"...),
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

// A request's fields are in the connection's buffer until one is set: then they move to a copy, once, and the buffer and
// what was borrowed from it stay as they are.
func TestHeaderCopyOnWrite(t *testing.T) {
	const fields = "X-A: 1\r\nX-B: 2\r\nX-A: 3\r\n"
	for name, change := range map[string]func(h *Header){
		"Set":          func(h *Header) { h.Set("X-A", "4") },
		"SetBytes":     func(h *Header) { h.SetBytes("X-B", []byte("4")) },
		"Add":          func(h *Header) { h.Add("X-C", "4") },
		"setPlainText": func(h *Header) { h.setPlainText() },
		"Set longer":   func(h *Header) { h.Set("X-B", strings.Repeat("4", 10_000)) },
		"Del":          func(h *Header) { h.Del("X-A") },
		"Reset":        func(h *Header) { h.Reset(); h.Add("X-D", "4") },
		"refused name": func(h *Header) { h.Set("X D", "4") },
	} {
		h, buffer := wireParsedHeader(t, fields)
		before, borrowed := bytes.Clone(buffer), h.GetBytes("X-B")
		change(h)
		change(h)
		if !bytes.Equal(buffer, before) || string(borrowed) != "2" {
			t.Errorf("%s changed the connection's buffer to %q, and what was borrowed to %q", name, buffer, borrowed)
		}
		if h.borrowed {
			continue
		}
		for i := range buffer {
			buffer[i] = 'z'
		}
		for _, value := range h.All() {
			if bytes.Contains(value, []byte("z")) {
				t.Errorf("after %s a value still lies in the connection's buffer", name)
			}
		}
	}
}

// What was asked of a request before stays right when a middleware sets fields of it.
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

// Lists are compared element by element (RFC 9110, section 5.6.1).
func TestListHasToken(t *testing.T) {
	for _, test := range []struct {
		list, token string
		want        bool
	}{
		{"close", "close", true}, {"Close", "close", true}, {"a, close", "close", true}, {"close,a", "close", true},
		{"a ,\tclose\t, b", "close", true}, {",,close,", "close", true}, {"", "close", false}, {",", "close", false},
		{"closed", "close", false}, {"not-close", "close", false}, {"clo se", "close", false}, {"\"close\"", "close", false},
		{"close;q=1", "close", false}, {"close", "", false},
	} {
		if got := listHasToken([]byte(test.list), test.token); got != test.want {
			t.Errorf("%q has %q: %t", test.list, test.token, got)
		}
	}
	h, _ := wireParsedHeader(t, "Connection: a\r\nX-A: upgrade\r\nCONNECTION: b, close\r\nconnection:\r\n")
	for token, want := range map[string]bool{"a": true, "b": true, "close": true, "upgrade": false, "connection": false} {
		if h.hasToken(fieldConnection, token) != want {
			t.Errorf("Connection has %q: %t", token, !want)
		}
	}
}

// Neither looking up nor, once the memory is there, setting allocates.
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
			h.setPlainText()
			h.Set("Content-Type", "a/b")
			h.Set("X-A", "1")
			h.Add("X-A", "2")
			h.SetBytes("X-B", value)
			h.AddBytes("X-B", value)
			h.setInt(fieldContentLength, 1<<40)
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
