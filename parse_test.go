package filo

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/conformance"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/syntax"
)

// wireLarge is limits that nothing in these tests reaches.
var wireLarge = headLimits{bytes: 1 << 20, line: 1 << 20, fields: 1<<16 - 2}

// wireHead is what the parser finds in a head, in a form that can be compared.
type wireHead struct {
	done           bool
	err            *HTTPError
	method, target string
	minor          uint8
	percent        bool
	fields         string // "Name=value|" for each
	ids            string
	start, end     int // of the head in the input
	first          [field.Framing]uint16
	repeated       uint16
}

func (h wireHead) String() string {
	switch {
	case h.err != nil:
		return h.err.Error()
	case !h.done:
		return "incomplete"
	}
	return fmt.Sprintf("%s %s 1.%d %s", h.method, h.target, h.minor, h.fields)
}

func wireFound(p *headParser, b []byte, done bool, err *HTTPError) wireHead {
	if !done || err != nil {
		return wireHead{err: err}
	}
	h := field.Borrow(b, p.fields)
	var fields, ids strings.Builder
	for i := range p.fields {
		fmt.Fprintf(&fields, "%s=%s|", h.Name(i), h.Value(i))
		ids.WriteByte(byte(p.fields[i].ID))
	}
	return wireHead{
		done: done, method: string(b[p.methodStart:p.methodEnd]), target: string(b[p.targetStart:p.targetEnd]),
		minor: p.minor, percent: p.percent, fields: fields.String(), ids: ids.String(),
		start: p.methodStart, end: p.pos, first: p.first, repeated: p.repeated,
	}
}

// wireParse gives the parser the input up to each of the cuts and then all of it, until it has seen enough. The bytes
// move between the calls: what the parser had before is overwritten, and nothing can be read behind what it has.
func wireParse(input []byte, limits headLimits, cuts ...int) wireHead {
	var p headParser
	p.reset()
	for i := 0; ; i++ {
		n := len(input)
		if i < len(cuts) {
			n = cuts[i]
		}
		b := bytes.Clone(input[:n])[:n:n]
		done, err := p.parse(b, &limits)
		if done || err != nil || i >= len(cuts) {
			return wireFound(&p, b, done, err)
		}
		for i := range b {
			b[i] = 0xDB
		}
	}
}

// wireEachByte is the cuts that give the input byte by byte.
func wireEachByte(input []byte) []int {
	cuts := make([]int, len(input))
	for i := range cuts {
		cuts[i] = i + 1
	}
	return cuts
}

// wireCheckSplits parses the input whole, cut at each byte, and byte by byte, which must not make a difference.
func wireCheckSplits(t *testing.T, input []byte, limits headLimits) wireHead {
	t.Helper()
	whole := wireParse(input, limits)
	for cut := range len(input) {
		if got := wireParse(input, limits, cut); got != whole {
			t.Fatalf("%q cut at %d with limits %+v: %v, whole: %v", input, cut, limits, got, whole)
		}
	}
	if got := wireParse(input, limits, wireEachByte(input)...); got != whole {
		t.Fatalf("%q byte by byte with limits %+v: %v, whole: %v", input, limits, got, whole)
	}
	return whole
}

// The bytes of RFC 9110, section 5.6.2 (tchar), written down a second time.
const wireToken = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// wireTarget is what a request target may be sent with: visible ASCII, but for the fragment's "#".
const wireTarget = "!\"$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"

var wireAcceptedHeads = []struct{ rule, head, want string }{
	{"method SP request-target SP HTTP-version CRLF (RFC 9112, section 3)",
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / 1.1 Host=a|"},
	{"the head ends at its empty line (RFC 9112, section 2.1)",
		"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /next HTTP/1.1\r\nHost: b\r\n\r\n", "GET / 1.1 Host=a|"},
	{"*( field-line CRLF ): there may be none (RFC 9112, section 2.1)", "GET / HTTP/1.0\r\n\r\n", "GET / 1.0 "},
	{"a higher minor version is compatible (RFC 9110, section 2.5)", "GET / HTTP/1.9\r\nHost: a\r\n\r\n", "GET / 1.9 Host=a|"},
	{"method = token (RFC 9112, section 3.1)", wireToken[:15] + " / HTTP/1.1\r\nHost: a\r\n\r\n", wireToken[:15] + " / 1.1 Host=a|"},
	{"methods are case-sensitive (RFC 9110, section 9.1)", "Get / HTTP/1.1\r\nHost: a\r\n\r\n", "Get / 1.1 Host=a|"},
	{"a target is any visible ASCII but \"#\"", "GET /" + wireTarget + " HTTP/1.1\r\n\r\n", "GET /" + wireTarget + " 1.1 "},
	{"the target isn't decoded", "GET /%41?%zz HTTP/1.1\r\n\r\n", "GET /%41?%zz 1.1 "},
	{"the form of the target is no matter of syntax", "OPTIONS * HTTP/1.1\r\n\r\n", "OPTIONS * 1.1 "},
	{"a server SHOULD ignore at least one empty line (CRLF) received prior to the request-line (RFC 9112, section 2.2)",
		"\r\nGET / HTTP/1.1\r\n\r\n", "GET / 1.1 "},
	{"four empty lines are the limit", "\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", "GET / 1.1 "},
	{"field-line = field-name \":\" OWS field-value OWS (RFC 9112, section 5)",
		"GET / HTTP/1.1\r\nA:b\r\nC: d\r\nE:\tf\t\r\nG: \t h \t \r\n\r\n", "GET / 1.1 A=b|C=d|E=f|G=h|"},
	{"a value may be empty (RFC 9110, section 5.5)", "GET / HTTP/1.1\r\nA:\r\nB: \r\nC:\t \t\r\n\r\n", "GET / 1.1 A=|B=|C=|"},
	{"white space inside a value stays (RFC 9110, section 5.5)", "GET / HTTP/1.1\r\nA: b \t c\td\r\n\r\n", "GET / 1.1 A=b \t c\td|"},
	{"obs-text is opaque data (RFC 9110, section 5.5)", "GET / HTTP/1.1\r\nA: \x80\xff\xc3\xa9\r\n\r\n", "GET / 1.1 A=\x80\xff\xc3\xa9|"},
	{"only the first colon ends the name", "GET / HTTP/1.1\r\nA: b:c\r\nD::\r\n\r\n", "GET / 1.1 A=b:c|D=:|"},
	{"field-name = token (RFC 9110, section 5.1)", "GET / HTTP/1.1\r\n" + wireToken + ": x\r\n\r\n", "GET / 1.1 " + wireToken + "=x|"},
	{"order and case are as sent", "GET / HTTP/1.1\r\nx-B: 1\r\nX-a: 2\r\nX-b: 3\r\n\r\n", "GET / 1.1 x-B=1|X-a=2|X-b=3|"},
	{"names that decide about framing are counted", "POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 1\r\nCONTENT-LENGTH: 2\r\n" +
		"Transfer-encoding: x\r\nexpect: y\r\nConnection: z\r\nUpgrade: u\r\nHost: b\r\n\r\n",
		"POST / 1.1 host=a|Content-Length=1|CONTENT-LENGTH=2|Transfer-encoding=x|expect=y|Connection=z|Upgrade=u|Host=b|"},
}

func TestHeadAccepted(t *testing.T) {
	for _, test := range wireAcceptedHeads {
		got := wireCheckSplits(t, []byte(test.head), wireLarge)
		if got.String() != test.want {
			t.Errorf("%s: %q gave %q, want %q", test.rule, test.head, got, test.want)
		}
		if want := strings.Index(test.head[got.start:], "\r\n\r\n") + got.start + 4; got.end != want {
			t.Errorf("%s: %q ends at %d, want %d", test.rule, test.head, got.end, want)
		}
		if got.percent != strings.Contains(got.target, "%") {
			t.Errorf("%q: percent is %t", test.head, got.percent)
		}
	}
}

var wireRefusedHeads = []struct {
	rule, head string
	err        *HTTPError
}{
	{"a method is needed", " / HTTP/1.1\r\n\r\n", errMethod},
	{"white space before the method", " GET / HTTP/1.1\r\n\r\n", errMethod},
	{"white space before the method", "\tGET / HTTP/1.1\r\n\r\n", errMethod},
	{"the method ends with a space", "GET\t/ HTTP/1.1\r\n\r\n", errMethod},
	{"the method ends with a space", "GET\r\n\r\n", errMethod},
	{"method = token", "G(T / HTTP/1.1\r\n\r\n", errMethod},
	{"TLS on a plain port isn't a method", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", errMethod},
	{"a longer method than any is 501 (RFC 9112, section 3)", strings.Repeat("M", 33) + " / HTTP/1.1\r\n\r\n", errMethodTooLong},
	{"one space before the target", "GET  / HTTP/1.1\r\n\r\n", errTarget},
	{"no other white space in the line (RFC 9112, section 3)", "GET /a\tb HTTP/1.1\r\n\r\n", errTarget},
	{"no fragment in a target (RFC 9112, section 3.2)", "GET /a#b HTTP/1.1\r\n\r\n", errTarget},
	{"no bytes outside ASCII in a target", "GET /\xc3\xa9 HTTP/1.1\r\n\r\n", errTarget},
	{"no white space in a target (RFC 9112, section 3.2)", "GET /a b HTTP/1.1\r\n\r\n", errVersion},
	{"one space before the version", "GET /  HTTP/1.1\r\n\r\n", errVersion},
	{"HTTP/0.9 is refused", "GET /\r\n\r\n", errVersion},
	{"HTTP/0.9 is refused", "GET /\n", errVersion},
	{"HTTP/0.9 is refused", "GET / \r\n\r\n", errVersion},
	{"HTTP-name is case-sensitive (RFC 9112, section 2.3)", "GET / http/1.1\r\n\r\n", errVersion},
	{"HTTP-version = HTTP-name \"/\" DIGIT \".\" DIGIT (RFC 9112, section 2.3)", "GET / HTTP/11\r\n\r\n", errVersion},
	{"HTTP-version has one digit on each side", "GET / HTTP/1.10\r\n\r\n", errVersion},
	{"HTTP-version has one digit on each side", "GET / HTTP/01.1\r\n\r\n", errVersion},
	{"HTTP-version has one digit on each side", "GET / HTTP/1.\r\n\r\n", errVersion},
	{"HTTP-version has one digit on each side", "GET / HTTP/1\r\n\r\n", errVersion},
	{"no white space behind the version", "GET / HTTP/1.1 \r\n\r\n", errVersion},
	{"505 for another major version (RFC 9110, section 15.6.6)", "GET / HTTP/2.0\r\n\r\n", errVersionNotSupported},
	{"505 for another major version (RFC 9110, section 15.6.6)", "GET / HTTP/0.9\r\n\r\n", errVersionNotSupported},
	{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", errVersionNotSupported},
	{"a bare LF could end a line (RFC 9112, section 2.2); here it doesn't", "GET / HTTP/1.1\nHost: a\r\n\r\n", errBareLF},
	{"a bare CR is invalid (RFC 9112, section 2.2)", "GET / HTTP/1.1\rHost: a\r\n\r\n", errVersion},
	{"a bare CR is invalid (RFC 9112, section 2.2)", "\rGET / HTTP/1.1\r\n\r\n", errBareCR},
	{"empty lines end in CRLF too", "\nGET / HTTP/1.1\r\n\r\n", errMethod},
	{"empty lines without end", "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", errMethod},
	{"a message with whitespace between the start-line and the first field is refused (RFC 9112, section 2.2)",
		"GET / HTTP/1.1\r\n Host: a\r\n\r\n", errFold},
	{"obs-fold is refused (RFC 9112, section 5.2)", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", errFold},
	{"obs-fold is refused (RFC 9112, section 5.2)", "GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n", errFold},
	{"obs-fold is refused (RFC 9112, section 5.2)", "GET / HTTP/1.1\r\nA: b\r\n \r\n\r\n", errFold},
	{"no white space between name and colon: 400 (RFC 9112, section 5.1)", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", errSpaceBeforeColon},
	{"no white space between name and colon: 400 (RFC 9112, section 5.1)", "GET / HTTP/1.1\r\nHost\t: a\r\n\r\n", errSpaceBeforeColon},
	{"a name is needed", "GET / HTTP/1.1\r\n: a\r\n\r\n", errFieldName},
	{"a colon is needed", "GET / HTTP/1.1\r\nHost\r\n\r\n", errFieldName},
	{"a colon is needed", "GET / HTTP/1.1\r\nHost\n\r\n", errBareLF},
	{"a bare LF at the end of the head", "GET / HTTP/1.1\r\nA: b\r\n\n", errBareLF},
	{"a bare LF at the end of a field", "GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", errBareLF},
	{"a bare LF at the end of an empty value", "GET / HTTP/1.1\r\nA:\n\r\n", errBareLF},
	{"a bare CR in a value", "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", errBareCR},
	{"a bare CR in a value", "GET / HTTP/1.1\r\nA: b\r\r\n\r\n", errBareCR},
	{"a bare CR at the end of the head", "GET / HTTP/1.1\r\nA: b\r\n\rC: d\r\n\r\n", errBareCR},
	{"a bare CR at the end of the head", "GET / HTTP/1.1\r\n\r\r\n", errBareCR},
	{"NUL is invalid (RFC 9110, section 5.5)", "GET / HTTP/1.1\r\nA: b\x00\r\n\r\n", errFieldValue},
	{"DEL is invalid", "GET / HTTP/1.1\r\nA: \x7f\r\n\r\n", errFieldValue},
	{"a name isn't quoted", "GET / HTTP/1.1\r\n\"A\": b\r\n\r\n", errFieldName},
	{"a name is ASCII", "GET / HTTP/1.1\r\n\xc3\xa9: b\r\n\r\n", errFieldName},
}

func TestHeadRefused(t *testing.T) {
	for _, test := range wireRefusedHeads {
		for _, behind := range []string{"", "GET /next HTTP/1.1\r\n\r\n"} {
			if got := wireCheckSplits(t, []byte(test.head+behind), wireLarge); got.err != test.err {
				t.Errorf("%s: %q gave %v, want %v", test.rule, test.head, got, test.err)
			}
		}
	}
}

// Each byte in each place is accepted or refused as the grammars say.
func TestHeadBytes(t *testing.T) {
	const head = "GxT /a?b HTTP/1.1\r\nNxme: vxlue\r\n\r\n"
	for _, test := range []struct {
		place   string
		at      int
		allowed func(c byte) bool
	}{
		{"method", 1, func(c byte) bool { return strings.IndexByte(wireToken, c) >= 0 }},
		// A space ends the target: then the version is malformed.
		{"path", 5, func(c byte) bool { return strings.IndexByte(wireTarget, c) >= 0 }},
		{"query", 7, func(c byte) bool { return strings.IndexByte(wireTarget, c) >= 0 }},
		{"name", strings.Index(head, "xme"), func(c byte) bool { return strings.IndexByte(wireToken+":", c) >= 0 }},
		{"value", strings.Index(head, "xlue"), func(c byte) bool { return c == '\t' || c >= ' ' && c != 0x7f }},
	} {
		for c := range 256 {
			input := []byte(head)
			input[test.at] = byte(c)
			if got := wireParse(input, wireLarge); got.done != test.allowed(byte(c)) {
				t.Errorf("%q in the %s gave %v", c, test.place, got)
			}
		}
	}
}

// A request that isn't complete is neither accepted nor refused, wherever it stops.
func TestHeadIncomplete(t *testing.T) {
	for _, test := range wireAcceptedHeads {
		end := wireParse([]byte(test.head), wireLarge).end
		for n := range end {
			if got := wireParse([]byte(test.head[:n]), wireLarge); got.done || got.err != nil {
				t.Errorf("%s: %q gave %v", test.rule, test.head[:n], got)
			}
		}
	}
}

// Every limit can be reached, and one more is refused with its own status.
func TestHeadLimits(t *testing.T) {
	const line = "GET /2345 HTTP/1.1" // 18 bytes
	const fields = "A: b\r\nC: d\r\n"
	const head = line + "\r\n" + fields + "\r\n" // 34 bytes
	large := wireLarge
	with := func(change func(*headLimits)) headLimits {
		limits := large
		change(&limits)
		return limits
	}
	name := strings.Repeat("n", 1<<16-1)
	for _, test := range []struct {
		rule   string
		limits headLimits
		head   string
		err    *HTTPError
	}{
		{"a request line at its limit", with(func(l *headLimits) { l.line = 18 }), head, nil},
		{"a request line over its limit is 414", with(func(l *headLimits) { l.line = 17 }), head, errLineTooLong},
		{"a target over the line's limit is 414 at once", with(func(l *headLimits) { l.line = 8 }), "GET /2345", errLineTooLong},
		{"a target at the line's limit may end there", with(func(l *headLimits) { l.line = 9 }), "GET /2345", nil},
		{"empty lines before it don't count for the line", with(func(l *headLimits) { l.line = 18 }), "\r\n\r\n" + head, nil},
		{"a head at its limit", with(func(l *headLimits) { l.bytes = 34 }), head, nil},
		{"a head at its limit, with bytes behind it", with(func(l *headLimits) { l.bytes = 34 }), head + head, nil},
		{"a head over its limit is 431", with(func(l *headLimits) { l.bytes = 33 }), head, errHeadTooLarge},
		{"a head over its limit is 431 before its end has come", with(func(l *headLimits) { l.bytes = 25 }), head[:25], errHeadTooLarge},
		{"a head below its limit may go on", with(func(l *headLimits) { l.bytes = 26 }), head[:25], nil},
		{"fields at their limit", with(func(l *headLimits) { l.fields = 2 }), head, nil},
		{"fields over their limit are 431", with(func(l *headLimits) { l.fields = 1 }), head, errTooManyFields},
		{"no fields allowed", with(func(l *headLimits) { l.fields = 0 }), line + "\r\n\r\n", nil},
		{"the longest method", large, strings.Repeat("M", 32) + " / HTTP/1.1\r\n\r\n", nil},
		{"a longer method is 501", large, strings.Repeat("M", 33), errMethodTooLong},
		{"the longest name", large, line + "\r\n" + name + ": x\r\n\r\n", nil},
		{"a longer name is 431", large, line + "\r\n" + name + "n: x\r\n\r\n", errHeadTooLarge},
	} {
		check := wireCheckSplits
		if len(test.head) > 1000 {
			check = func(_ *testing.T, input []byte, limits headLimits) wireHead {
				return wireParse(input, limits, len(input)/2, len(input)-10)
			}
		}
		if got := check(t, []byte(test.head), test.limits); got.err != test.err {
			t.Errorf("%s: %.80q gave %v, want %v", test.rule, test.head, got, test.err)
		}
	}
}

// What is refused doesn't depend on how the bytes arrive, with whatever limits: the same head must not be answered with
// 400 now and 431 the next time.
func TestHeadSplitsAtLimits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var heads []string
	for _, test := range wireAcceptedHeads {
		heads = append(heads, test.head)
	}
	for _, test := range wireRefusedHeads {
		heads = append(heads, test.head)
	}
	const bytesToPut = "\r\n \t:/aA\x00\x7f\xff%#"
	for range 4000 {
		input := []byte(heads[random.IntN(len(heads))])
		for range random.IntN(3) {
			at := random.IntN(len(input))
			input[at] = bytesToPut[random.IntN(len(bytesToPut))]
		}
		limits := headLimits{bytes: 1 + random.IntN(len(input)+2), line: 1 + random.IntN(len(input)+2), fields: random.IntN(6)}
		whole := wireParse(input, limits)
		cuts := wireEachByte(input)
		if n := random.IntN(6); n > 0 {
			random.Shuffle(len(cuts), func(i, j int) { cuts[i], cuts[j] = cuts[j], cuts[i] })
			cuts = cuts[:min(n, len(cuts))]
			slices.Sort(cuts)
		}
		if got := wireParse(input, limits, cuts...); got != whole {
			t.Fatalf("%q with limits %+v cut at %v: %v, whole: %v", input, limits, cuts, got, whole)
		}
	}
}

// "A head that arrives byte by byte costs no more than one that comes whole": the parser doesn't look at a byte again,
// but for the version, which is short, the names, once, and the white space at the end of values. To prove it, all that it
// has seen is overwritten with bytes that it would refuse.
func TestHeadIsLookedAtOnce(t *testing.T) {
	long := strings.Repeat("x", 3000)
	input := []byte("\r\n" + strings.Repeat("M", 32) + " /" + long + "?" + long + " HTTP/1.1\r\n" +
		long + ": " + long + " \t " + long + "\r\nHost:" + strings.Repeat(" ", 3000) + "a\r\n\r\n")
	want := wireParse(input, wireLarge)
	var p headParser
	p.reset()
	b := slices.Clone(input)
	for n := 1; n <= len(b); n++ {
		done, err := p.parse(b[:n:n], &wireLarge)
		if err != nil {
			t.Fatalf("at %d of %d, in state %d: %v", n, len(b), p.state, err)
		}
		if done != (n == len(b)) {
			t.Fatalf("done at %d of %d", n, len(b))
		}
		seen := p.pos
		if p.state == headVersion {
			seen = p.mark
		}
		for i := max(0, seen-2); i < seen; i++ {
			b[i] = 0
		}
	}
	got := wireFound(&p, input, true, nil)
	// The names were gone when they would have been looked up.
	got.ids, got.first = want.ids, want.first
	if got != want {
		t.Errorf("got %.200v, want %.200v", got, want)
	}
}

func TestHeadAllocations(t *testing.T) {
	input := []byte(wireAcceptedHeads[len(wireAcceptedHeads)-1].head)
	var p headParser
	run := func() {
		p.reset()
		done, err := p.parse(input, &wireLarge)
		if !done || err != nil {
			t.Fatal(done, err)
		}
		p.frame(input[:p.pos])
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations per head, want 0", n)
	}
}

// The parser takes note of the first field, and of a second one, of each name that decides about framing.
func TestFramingFieldsNoted(t *testing.T) {
	for id := field.Unknown + 1; id < field.Count; id++ {
		if id == field.Framing {
			continue
		}
		line := strings.ToLower(id.String()) + ": x\r\n"
		head := wireParse([]byte("GET / HTTP/1.1\r\nX-A: x\r\n"+line+line+"\r\n"), wireLarge)
		if head.ids != string([]byte{0, byte(id), byte(id)}) {
			t.Errorf("the parser takes %q for the fields %q", id, head.ids)
		}
		if id < field.Framing && (head.first[id] != 2 || head.repeated != 1<<id) || id > field.Framing && head.repeated != 0 {
			t.Errorf("%q is noted as %d and %b", id, head.first, head.repeated)
		}
	}
}

// wireRequest is a request that begin has made of a head.
func wireRequest(input []byte, limits headLimits) (*Request, *HTTPError) {
	var p headParser
	p.reset()
	done, err := p.parse(input, &limits)
	if err != nil || !done {
		return nil, err
	}
	ctx := &Ctx{conn: &conn{}}
	r := &ctx.Request
	head := input[:p.pos:p.pos]
	r.Header.list.Adopt(head, p.fields)
	f, err := p.frame(head)
	if err != nil {
		return nil, err
	}
	r.begin(ctx, &p, head, f)
	return r, nil
}

// wireMayReject reports whether net/http may reject what filo accepts, and why that is right. There is nothing else:
//
//   - Empty lines before the request line, which net/http doesn't skip (RFC 9112, section 2.2, says that a server SHOULD).
//   - A Trailer field that announces Content-Length, Transfer-Encoding or Trailer. It is a hint (RFC 9110, section
//     6.6.2); the fields themselves are refused in the trailer section.
func wireMayReject(r *Request, err error) bool {
	if r.framing.length >= 0 || !r.Header.Has("Trailer") {
		return false
	}
	return strings.Contains(err.Error(), "bad trailer key")
}

// wireCompare holds what filo makes of a head to what net/http makes of it.
func wireCompare(t *testing.T, r *Request, want *http.Request) {
	f := r.framing
	wantLength := want.ContentLength
	if (f.length < 0) != slices.Equal(want.TransferEncoding, []string{"chunked"}) || f.length != wantLength {
		t.Errorf("length %d, net/http: %d %q", f.length, wantLength, want.TransferEncoding)
	}
	if r.Method() != want.Method || r.Target() != want.RequestURI || (r.Proto() == "HTTP/1.0") != (want.ProtoMinor == 0) {
		t.Errorf("%s %s %s, net/http: %s %s %s", r.Method(), r.Target(), r.Proto(), want.Method, want.RequestURI, want.Proto)
	}
	// net/http decodes the host of a target in absolute or authority form.
	if host := wireDecode(r.Host()); host != want.Host && r.Host() != want.Host {
		t.Errorf("host %q, net/http: %q", r.Host(), want.Host)
	}
	if f.close != want.Close {
		t.Errorf("close %t, net/http: %t", f.close, want.Close)
	}
	got := make(http.Header)
	for name, value := range r.Header.All() {
		got.Add(string(name), string(value))
	}
	// net/http takes these out of the header, and turns Pragma into Cache-Control.
	got.Del("Host")
	got.Del("Transfer-Encoding")
	if f.length < 0 {
		got.Del("Trailer")
	}
	if pragma := got["Pragma"]; len(pragma) > 0 && pragma[0] == "no-cache" && len(got["Cache-Control"]) == 0 {
		got["Cache-Control"] = []string{"no-cache"}
	}
	if !maps.EqualFunc(got, want.Header, slices.Equal) {
		t.Errorf("fields %q, net/http: %q", got, want.Header)
	}
}

// wireDecode decodes well-formed percent-encoding.
func wireDecode(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c, ok := syntax.PercentEscape([]byte(s[i:])); s[i] == '%' && ok {
			b.WriteByte(byte(c))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// A head means the same however it is cut, and filo accepts none that net/http rejects, but for what wireMayReject lists.
// Where both accept they understand the same.
func FuzzRequestHead(f *testing.F) {
	for _, test := range wireAcceptedHeads {
		f.Add([]byte(test.head), uint16(0))
	}
	for _, test := range wireRefusedHeads {
		f.Add([]byte(test.head), uint16(7))
	}
	for _, test := range wireFrames {
		f.Add([]byte(test.head), uint16(300))
	}
	for _, seed := range conformance.Seeds() {
		if len(seed) < 2000 {
			f.Add(seed, uint16(60))
		}
	}
	f.Fuzz(func(t *testing.T, input []byte, limit uint16) {
		small := headLimits{bytes: int(limit) + 1, line: int(limit)/2 + 1, fields: int(limit) % 7}
		for _, limits := range []headLimits{wireLarge, small} {
			whole := wireParse(input, limits)
			step := len(input)/50 + 1
			for cut := 0; cut < len(input); cut += step {
				if got := wireParse(input, limits, cut); got != whole {
					t.Fatalf("cut at %d: %v, whole: %v", cut, got, whole)
				}
			}
			if len(input) < 300 {
				if got := wireParse(input, limits, wireEachByte(input)...); got != whole {
					t.Fatalf("byte by byte: %v, whole: %v", got, whole)
				}
			}
		}
		r, _ := wireRequest(input, wireLarge)
		if r == nil {
			return
		}
		// From the request line on, for net/http doesn't skip empty lines.
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(input[r.methodStart:])))
		if err != nil {
			if !wireMayReject(r, err) {
				t.Fatalf("net/http rejects it: %v", err)
			}
			return
		}
		wireCompare(t, r, request)
	})
}

// The exceptions of the differential test are still exceptions: when net/http changes, they go.
func TestNetHTTPStillRejects(t *testing.T) {
	for _, input := range []string{
		"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n",
	} {
		r, refused := wireRequest([]byte(input), wireLarge)
		if r == nil {
			t.Errorf("%q is refused: %v", input, refused)
			continue
		}
		if _, err := http.ReadRequest(bufio.NewReader(strings.NewReader(input))); err == nil {
			t.Errorf("net/http accepts %q", input)
		}
	}
}
