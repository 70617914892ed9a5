package http1

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

// wireLarge holds limits that no head of these tests reaches.
var wireLarge = Limits{Bytes: 1 << 20, Line: 1 << 20, Fields: 1<<16 - 2}

// wireHead is the parser's result for a head, in a form that can be compared.
type wireHead struct {
	done           bool
	err            Fault
	method, target string
	minor          uint8
	percent        bool
	fields         string // "Name=value|" for each
	ids            string
	start, end     int // where the head begins and ends in the input
	first          [field.Framing]uint16
	repeated       uint16
}

func (h wireHead) String() string {
	switch {
	case h.err != NoFault:
		return h.err.String()
	case !h.done:
		return "incomplete"
	}
	return fmt.Sprintf("%s %s 1.%d %s", h.method, h.target, h.minor, h.fields)
}

func wireFound(p *Parser, b []byte, done bool, err Fault) wireHead {
	if !done || err != NoFault {
		return wireHead{err: err}
	}
	h := field.Borrow(b, p.fields)
	var fields, ids strings.Builder
	for i := range p.fields {
		fmt.Fprintf(&fields, "%s=%s|", h.Name(i), h.Value(i))
		ids.WriteByte(byte(p.fields[i].ID))
	}
	return wireHead{
		done: done, method: string(b[p.MethodStart:p.MethodEnd]), target: string(b[p.TargetStart:p.TargetEnd]),
		minor: p.Minor, percent: p.percent, fields: fields.String(), ids: ids.String(),
		start: p.MethodStart, end: p.pos, first: p.first, repeated: p.repeated,
	}
}

// wireParse passes the parser the input up to each of the cuts, and then all of it, until the result is known. The bytes move between the
// calls: the earlier copy is overwritten. The parser can't read past the end of the current input.
func wireParse(input []byte, limits Limits, cuts ...int) wireHead {
	var p Parser
	p.Reset()
	for i := 0; ; i++ {
		n := len(input)
		if i < len(cuts) {
			n = cuts[i]
		}
		b := bytes.Clone(input[:n])[:n:n]
		done, err := p.Parse(b, &limits)
		if done || err != NoFault || i >= len(cuts) {
			return wireFound(&p, b, done, err)
		}
		for i := range b {
			b[i] = 0xDB
		}
	}
}

// wireEachByte returns the cuts with which the parser gets the input byte by byte.
func wireEachByte(input []byte) []int {
	cuts := make([]int, len(input))
	for i := range cuts {
		cuts[i] = i + 1
	}
	return cuts
}

// wireCheckSplits parses the input whole, cut at each byte, and byte by byte. The results must be equal.
func wireCheckSplits(t *testing.T, input []byte, limits Limits) wireHead {
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

// The bytes of RFC 9110, section 5.6.2 (tchar), as a list that is independent of package syntax.
const wireToken = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// wireTarget has the bytes that are allowed in a request target: visible ASCII without "#", which begins a fragment.
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
	{"names that decide about Framing are counted", "POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 1\r\nCONTENT-LENGTH: 2\r\n" +
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
	err        Fault
}{
	{"a method is needed", " / HTTP/1.1\r\n\r\n", FaultMethod},
	{"white space before the method", " GET / HTTP/1.1\r\n\r\n", FaultMethod},
	{"white space before the method", "\tGET / HTTP/1.1\r\n\r\n", FaultMethod},
	{"the method ends with a space", "GET\t/ HTTP/1.1\r\n\r\n", FaultMethod},
	{"the method ends with a space", "GET\r\n\r\n", FaultMethod},
	{"method = token", "G(T / HTTP/1.1\r\n\r\n", FaultMethod},
	{"TLS on a plain port isn't a method", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", FaultMethod},
	{"a longer method than any is 501 (RFC 9112, section 3)", strings.Repeat("M", 33) + " / HTTP/1.1\r\n\r\n", FaultMethodTooLong},
	{"one space before the target", "GET  / HTTP/1.1\r\n\r\n", FaultTarget},
	{"no other white space in the line (RFC 9112, section 3)", "GET /a\tb HTTP/1.1\r\n\r\n", FaultTarget},
	{"no fragment in a target (RFC 9112, section 3.2)", "GET /a#b HTTP/1.1\r\n\r\n", FaultTarget},
	{"no bytes outside ASCII in a target", "GET /\xc3\xa9 HTTP/1.1\r\n\r\n", FaultTarget},
	{"no white space in a target (RFC 9112, section 3.2)", "GET /a b HTTP/1.1\r\n\r\n", FaultVersion},
	{"one space before the version", "GET /  HTTP/1.1\r\n\r\n", FaultVersion},
	{"HTTP/0.9 is refused", "GET /\r\n\r\n", FaultVersion},
	{"HTTP/0.9 is refused", "GET /\n", FaultVersion},
	{"HTTP/0.9 is refused", "GET / \r\n\r\n", FaultVersion},
	{"HTTP-name is case-sensitive (RFC 9112, section 2.3)", "GET / http/1.1\r\n\r\n", FaultVersion},
	{"HTTP-version = HTTP-name \"/\" DIGIT \".\" DIGIT (RFC 9112, section 2.3)", "GET / HTTP/11\r\n\r\n", FaultVersion},
	{"HTTP-version has one digit on each side", "GET / HTTP/1.10\r\n\r\n", FaultVersion},
	{"HTTP-version has one digit on each side", "GET / HTTP/01.1\r\n\r\n", FaultVersion},
	{"HTTP-version has one digit on each side", "GET / HTTP/1.\r\n\r\n", FaultVersion},
	{"HTTP-version has one digit on each side", "GET / HTTP/1\r\n\r\n", FaultVersion},
	{"no white space behind the version", "GET / HTTP/1.1 \r\n\r\n", FaultVersion},
	{"505 for another major version (RFC 9110, section 15.6.6)", "GET / HTTP/2.0\r\n\r\n", FaultVersionNotSupported},
	{"505 for another major version (RFC 9110, section 15.6.6)", "GET / HTTP/0.9\r\n\r\n", FaultVersionNotSupported},
	{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", FaultVersionNotSupported},
	{"a bare LF could end a line (RFC 9112, section 2.2); here it doesn't", "GET / HTTP/1.1\nHost: a\r\n\r\n", FaultBareLF},
	{"a bare CR is invalid (RFC 9112, section 2.2)", "GET / HTTP/1.1\rHost: a\r\n\r\n", FaultVersion},
	{"a bare CR is invalid (RFC 9112, section 2.2)", "\rGET / HTTP/1.1\r\n\r\n", FaultBareCR},
	{"empty lines end in CRLF too", "\nGET / HTTP/1.1\r\n\r\n", FaultMethod},
	{"empty lines without end", "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", FaultMethod},
	{"a message with whitespace between the start-line and the first field is refused (RFC 9112, section 2.2)",
		"GET / HTTP/1.1\r\n Host: a\r\n\r\n", FaultFold},
	{"obs-fold is refused (RFC 9112, section 5.2)", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", FaultFold},
	{"obs-fold is refused (RFC 9112, section 5.2)", "GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n", FaultFold},
	{"obs-fold is refused (RFC 9112, section 5.2)", "GET / HTTP/1.1\r\nA: b\r\n \r\n\r\n", FaultFold},
	{"no white space between name and colon: 400 (RFC 9112, section 5.1)", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", FaultSpaceBeforeColon},
	{"no white space between name and colon: 400 (RFC 9112, section 5.1)", "GET / HTTP/1.1\r\nHost\t: a\r\n\r\n", FaultSpaceBeforeColon},
	{"a name is needed", "GET / HTTP/1.1\r\n: a\r\n\r\n", FaultFieldName},
	{"a colon is needed", "GET / HTTP/1.1\r\nHost\r\n\r\n", FaultFieldName},
	{"a colon is needed", "GET / HTTP/1.1\r\nHost\n\r\n", FaultBareLF},
	{"a bare LF at the end of the head", "GET / HTTP/1.1\r\nA: b\r\n\n", FaultBareLF},
	{"a bare LF at the end of a field", "GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", FaultBareLF},
	{"a bare LF at the end of an empty value", "GET / HTTP/1.1\r\nA:\n\r\n", FaultBareLF},
	{"a bare CR in a value", "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", FaultBareCR},
	{"a bare CR in a value", "GET / HTTP/1.1\r\nA: b\r\r\n\r\n", FaultBareCR},
	{"a bare CR at the end of the head", "GET / HTTP/1.1\r\nA: b\r\n\rC: d\r\n\r\n", FaultBareCR},
	{"a bare CR at the end of the head", "GET / HTTP/1.1\r\n\r\r\n", FaultBareCR},
	{"NUL is invalid (RFC 9110, section 5.5)", "GET / HTTP/1.1\r\nA: b\x00\r\n\r\n", FaultFieldValue},
	{"DEL is invalid", "GET / HTTP/1.1\r\nA: \x7f\r\n\r\n", FaultFieldValue},
	{"a name isn't quoted", "GET / HTTP/1.1\r\n\"A\": b\r\n\r\n", FaultFieldName},
	{"a name is ASCII", "GET / HTTP/1.1\r\n\xc3\xa9: b\r\n\r\n", FaultFieldName},
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

// Each byte at each position is accepted or refused as the grammar says.
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
				t.Errorf("%#x in the %s gave %v", c, test.place, got)
			}
		}
	}
}

// A request that isn't complete is neither accepted nor refused, wherever it stops.
func TestHeadIncomplete(t *testing.T) {
	for _, test := range wireAcceptedHeads {
		end := wireParse([]byte(test.head), wireLarge).end
		for n := range end {
			if got := wireParse([]byte(test.head[:n]), wireLarge); got.done || got.err != NoFault {
				t.Errorf("%s: %q gave %v", test.rule, test.head[:n], got)
			}
		}
	}
}

// A head that reaches a limit is accepted, and a head that exceeds it is refused with the limit's status.
func TestHeadLimits(t *testing.T) {
	const line = "GET /2345 HTTP/1.1" // 18 bytes
	const fields = "A: b\r\nC: d\r\n"
	const head = line + "\r\n" + fields + "\r\n" // 34 bytes
	large := wireLarge
	with := func(change func(*Limits)) Limits {
		limits := large
		change(&limits)
		return limits
	}
	name := strings.Repeat("n", 1<<16-1)
	for _, test := range []struct {
		rule   string
		limits Limits
		head   string
		err    Fault
	}{
		{"a request line at its limit", with(func(l *Limits) { l.Line = 18 }), head, NoFault},
		{"a request line over its limit is 414", with(func(l *Limits) { l.Line = 17 }), head, FaultLineTooLong},
		{"a target over the line's limit is 414 at once", with(func(l *Limits) { l.Line = 8 }), "GET /2345", FaultLineTooLong},
		{"a target at the line's limit may end there", with(func(l *Limits) { l.Line = 9 }), "GET /2345", NoFault},
		{"empty lines before it don't count for the line", with(func(l *Limits) { l.Line = 18 }), "\r\n\r\n" + head, NoFault},
		{"a head at its limit", with(func(l *Limits) { l.Bytes = 34 }), head, NoFault},
		{"a head at its limit, with bytes behind it", with(func(l *Limits) { l.Bytes = 34 }), head + head, NoFault},
		{"a head over its limit is 431", with(func(l *Limits) { l.Bytes = 33 }), head, FaultHeadTooLarge},
		{"a head over its limit is 431 before its end has come", with(func(l *Limits) { l.Bytes = 25 }), head[:25], FaultHeadTooLarge},
		{"a head below its limit may go on", with(func(l *Limits) { l.Bytes = 26 }), head[:25], NoFault},
		{"fields at their limit", with(func(l *Limits) { l.Fields = 2 }), head, NoFault},
		{"fields over their limit are 431", with(func(l *Limits) { l.Fields = 1 }), head, FaultTooManyFields},
		{"no fields allowed", with(func(l *Limits) { l.Fields = 0 }), line + "\r\n\r\n", NoFault},
		{"the longest method", large, strings.Repeat("M", 32) + " / HTTP/1.1\r\n\r\n", NoFault},
		{"a longer method is 501", large, strings.Repeat("M", 33), FaultMethodTooLong},
		{"the longest name", large, line + "\r\n" + name + ": x\r\n\r\n", NoFault},
		{"a longer name is 431", large, line + "\r\n" + name + "n: x\r\n\r\n", FaultHeadTooLarge},
	} {
		check := wireCheckSplits
		if len(test.head) > 1000 {
			check = func(_ *testing.T, input []byte, limits Limits) wireHead {
				return wireParse(input, limits, len(input)/2, len(input)-10)
			}
		}
		if got := check(t, []byte(test.head), test.limits); got.err != test.err {
			t.Errorf("%s: %.80q gave %v, want %v", test.rule, test.head, got, test.err)
		}
	}
}

// Whether and why a head is refused doesn't depend on how its bytes arrive, whatever the limits are: the same head must not be answered with
// 400 once and with 431 another time.
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
		limits := Limits{Bytes: 1 + random.IntN(len(input)+2), Line: 1 + random.IntN(len(input)+2), Fields: random.IntN(6)}
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

// A head that arrives byte by byte costs no more than one that arrives whole: the parser reads no byte twice, except for the version (which
// is short), the names (once more, to look them up), and the white space at the end of values. To prove this, the test overwrites all bytes
// that the parser has read with bytes that it would refuse.
func TestHeadIsLookedAtOnce(t *testing.T) {
	long := strings.Repeat("x", 3000)
	input := []byte("\r\n" + strings.Repeat("M", 32) + " /" + long + "?" + long + " HTTP/1.1\r\n" +
		long + ": " + long + " \t " + long + "\r\nHost:" + strings.Repeat(" ", 3000) + "a\r\n\r\n")
	want := wireParse(input, wireLarge)
	var p Parser
	p.Reset()
	b := slices.Clone(input)
	for n := 1; n <= len(b); n++ {
		done, err := p.Parse(b[:n:n], &wireLarge)
		if err != NoFault {
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
	got := wireFound(&p, input, true, NoFault)
	// The names were overwritten before the parser looked them up.
	got.ids, got.first = want.ids, want.first
	if got != want {
		t.Errorf("got %.200v, want %.200v", got, want)
	}
}

func TestHeadAllocations(t *testing.T) {
	input := []byte(wireAcceptedHeads[len(wireAcceptedHeads)-1].head)
	var p Parser
	run := func() {
		p.Reset()
		done, err := p.Parse(input, &wireLarge)
		if !done || err != NoFault {
			t.Fatal(done, err)
		}
		p.Frame(input[:p.pos])
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations per head, want 0", n)
	}
}

// The parser records the first field of each name that is relevant for framing, and whether there is a second field.
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

// wireRequest is a request that the parser has parsed.
type wireRequest struct {
	p    Parser
	head []byte
	Framing
	fields field.List
}

// wireRequestOf parses a request's head, and returns nil if the head is incomplete or refused.
func wireRequestOf(input []byte, limits Limits) (*wireRequest, Fault) {
	r := new(wireRequest)
	r.p.Reset()
	done, fault := r.p.Parse(input, &limits)
	if fault != NoFault || !done {
		return nil, fault
	}
	r.head = input[:r.p.Len():r.p.Len()]
	if r.Framing, fault = r.p.Frame(r.head); fault != NoFault {
		return nil, fault
	}
	r.p.GiveFields(&r.fields, r.head)
	return r, NoFault
}

func (r *wireRequest) method() string { return string(r.p.Method(r.head)) }
func (r *wireRequest) target() string { return string(r.head[r.p.TargetStart:r.p.TargetEnd]) }

// host returns the host to which the request is addressed.
func (r *wireRequest) host() string {
	if r.method() == "CONNECT" {
		return r.target()
	}
	if _, host, _, ok := syntax.SplitAbsoluteTarget([]byte(r.target())); ok {
		return string(host)
	}
	return string(r.fields.GetID(field.Host))
}

// wireMayReject reports whether net/http may reject a head that filo accepts. Only these differences are allowed:
//
//   - Empty lines before the request line, which net/http doesn't skip (RFC 9112, section 2.2, says that a server SHOULD).
//   - A Trailer field that announces Content-Length, Transfer-Encoding or Trailer. It is a hint (RFC 9110, section
//     6.6.2); the fields themselves are refused in the trailer section.
func wireMayReject(r *wireRequest, err error) bool {
	if r.Length >= 0 || r.fields.GetID(field.Trailer) == nil {
		return false
	}
	return strings.Contains(err.Error(), "bad trailer key")
}

// wireCompare compares how filo and net/http have parsed a head.
func wireCompare(t *testing.T, r *wireRequest, want *http.Request) {
	wantLength := want.ContentLength
	if (r.Length < 0) != slices.Equal(want.TransferEncoding, []string{"chunked"}) || r.Length != wantLength {
		t.Errorf("length %d, net/http: %d %q", r.Length, wantLength, want.TransferEncoding)
	}
	if r.method() != want.Method || r.target() != want.RequestURI || (r.p.Minor == 0) != (want.ProtoMinor == 0) {
		t.Errorf("%s %s 1.%d, net/http: %s %s %s", r.method(), r.target(), r.p.Minor, want.Method, want.RequestURI, want.Proto)
	}
	// net/http decodes the host of a target in absolute or authority form.
	if host := wireDecode(r.host()); host != want.Host && r.host() != want.Host {
		t.Errorf("host %q, net/http: %q", r.host(), want.Host)
	}
	if r.Close != want.Close {
		t.Errorf("close %t, net/http: %t", r.Close, want.Close)
	}
	got := make(http.Header)
	for name, value := range r.fields.All() {
		got.Add(string(name), string(value))
	}
	// net/http removes these fields from the header, and turns Pragma into Cache-Control.
	got.Del("Host")
	got.Del("Transfer-Encoding")
	if r.Length < 0 {
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

// FuzzRequestHead checks that a head has the same result however it is cut, that filo accepts no head that net/http rejects, except for
// those that wireMayReject lists, and that the results are the same if both accept a head.
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
		small := Limits{Bytes: int(limit) + 1, Line: int(limit)/2 + 1, Fields: int(limit) % 7}
		for _, limits := range []Limits{wireLarge, small} {
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
		r, _ := wireRequestOf(input, wireLarge)
		if r == nil {
			return
		}
		// Pass net/http the input from the request line on, since it doesn't skip empty lines.
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(input[r.p.MethodStart:])))
		if err != nil {
			if !wireMayReject(r, err) {
				t.Fatalf("net/http rejects it: %v", err)
			}
			return
		}
		wireCompare(t, r, request)
	})
}

// net/http still rejects the exceptions that wireMayReject lists. An exception that net/http has come to accept must be removed from that list.
func TestNetHTTPStillRejects(t *testing.T) {
	for _, input := range []string{
		"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n",
	} {
		r, refused := wireRequestOf([]byte(input), wireLarge)
		if r == nil {
			t.Errorf("%q is refused: %v", input, refused)
			continue
		}
		if _, err := http.ReadRequest(bufio.NewReader(strings.NewReader(input))); err == nil {
			t.Errorf("net/http accepts %q", input)
		}
	}
}

// A trailer section is parsed like the fields of a head. It must have no fields that determine how the message is framed, routed or
// interpreted (RFC 9110, section 6.5.1).
func TestParseTrailer(t *testing.T) {
	for _, test := range []struct {
		input string
		want  string // the fields, if there is no fault
		fault Fault
	}{
		{"\r\n", "", NoFault},
		{"X-A: 1\r\nETag: 2\r\n\r\n", "X-A=1|ETag=2|", NoFault},
		{"X-A: 1\r\nContent-Length: 2\r\n\r\n", "", FaultTrailer},
		{"transfer-encoding: chunked\r\n\r\n", "", FaultTrailer},
		{"X-A : 1\r\n\r\n", "", FaultSpaceBeforeColon},
		{"GET / HTTP/1.1\r\n\r\n", "", FaultSpaceBeforeColon},
	} {
		input := []byte(test.input + "GET / HTTP/1.1\r\n")
		for _, cut := range wireEachByte(input) {
			var p Parser
			p.Reset()
			if done, fault := p.Parse([]byte(wireGET+"\r\n"), &wireLarge); !done || fault != NoFault {
				t.Fatal(done, fault)
			}
			done, fault := p.ParseTrailer(input[:cut:cut], &wireLarge)
			if !done && fault == NoFault {
				done, fault = p.ParseTrailer(input, &wireLarge)
			}
			got := ""
			if done && fault == NoFault {
				var copied field.List
				p.CopyFields(&copied, input)
				for name, value := range copied.All() {
					got += string(name) + "=" + string(value) + "|"
				}
				if p.Len() != len(test.input) {
					t.Errorf("%q has %d bytes, want %d", test.input, p.Len(), len(test.input))
				}
			}
			if fault != test.fault || got != test.want {
				t.Errorf("%q cut at %d: %q, %v, want %q, %v", test.input, cut, got, fault, test.want, test.fault)
			}
		}
	}
}
