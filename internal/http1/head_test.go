package http1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/field"
)

// headParts holds the parts of a head, as a protocol other than HTTP/1.1 receives them.
type headParts struct {
	method, target string
	minor          uint8
	fields         [][2]string
}

// make adds the parts to h.
func (p *headParts) make(h *RequestHead, limits *Limits) ([]byte, Fault) {
	b, fault := h.Begin(nil, p.method, p.target, p.minor, limits)
	for _, each := range p.fields {
		if fault == NoFault {
			b, fault = h.Add(b, each[0], each[1], limits)
		}
	}
	return b, fault
}

// text returns the head as HTTP/1.1 text.
func (p *headParts) text() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s HTTP/1.%d\r\n", p.method, p.target, p.minor)
	for _, each := range p.fields {
		fmt.Fprintf(&text, "%s: %s\r\n", each[0], each[1])
	}
	return text.String() + "\r\n"
}

var partsLimits = Limits{Bytes: 200, Line: 60, Fields: 4}

// A head that is built from parts is accepted or refused like its HTTP/1.1 text, and has the same method, target, fields and framing.
func TestHeadOfPartsIsThatOfItsText(t *testing.T) {
	host := [2]string{"Host", "a"}
	for _, parts := range []headParts{
		{"GET", "/", 1, [][2]string{host}},
		{"GET", "/a%20b?c=d", 1, [][2]string{host, {"accept", " x \t"}, {"X-Tab", "a\tb"}, {"X-High", "\xe4\xff"}}},
		{"GET", "/%zz", 1, [][2]string{host}},
		{"GET", "a", 1, [][2]string{host}},
		{"GET", "http://b/c", 1, [][2]string{host}},
		{"GET", "*", 1, [][2]string{host}},
		{"OPTIONS", "*", 1, [][2]string{host}},
		{"CONNECT", "a:80", 1, [][2]string{host}},
		{"CONNECT", "/", 1, [][2]string{host}},
		{"GET", "/", 0, nil},
		{"GET", "/", 1, nil},
		{"GET", "/", 1, [][2]string{host, host}},
		{"GET", "/", 1, [][2]string{{"Host", "a b"}}},
		{"GET", "/", 1, [][2]string{host, {"Connection", "close"}}},
		{"GET", "/", 1, [][2]string{host, {"Content-Length", "7"}}},
		{"GET", "/", 1, [][2]string{host, {"Content-Length", "7a"}}},
		{"GET", "/", 1, [][2]string{host, {"Content-Length", "7"}, {"Content-Length", "7"}}},
		{"GET", "/", 1, [][2]string{host, {"Expect", "100-continue"}, {"Content-Length", "7"}}},
		{"GET", "/", 1, [][2]string{host, {"Expect", "wonders"}}},
		{"GET", "/", 1, [][2]string{host, {"Empty", ""}}},
		{"GET", "/", 1, [][2]string{host, {"Na(me", "x"}}},
		{"GET", "/", 1, [][2]string{host, {"Name", "a\x00b"}}},
		{"GET", "/", 1, [][2]string{host, {"Name", "a\x7fb"}}},
		{"GET", "/", 1, [][2]string{host, {"A", ""}, {"B", ""}, {"C", ""}}},
		{"GET", "/", 1, [][2]string{host, {"A", ""}, {"B", ""}, {"C", ""}, {"D", ""}}},
		{"G(T", "/", 1, [][2]string{host}},
		{strings.Repeat("M", MaxMethodBytes), "/", 1, [][2]string{host}},
		{strings.Repeat("M", MaxMethodBytes+1), "/", 1, [][2]string{host}},
		{"GET", "/" + strings.Repeat("a", 60-len("GET / HTTP/1.1")), 1, [][2]string{host}},
		{"GET", "/" + strings.Repeat("a", 61-len("GET / HTTP/1.1")), 1, [][2]string{host}},
		{"GET", "/\x80", 1, [][2]string{host}},
		{"GET", "/", 1, [][2]string{host, {"N", strings.Repeat("v", 200-len("GET / HTTP/1.1\r\nHost: a\r\nN: \r\n\r\n"))}}},
		{"GET", "/", 1, [][2]string{host, {"N", strings.Repeat("v", 201-len("GET / HTTP/1.1\r\nHost: a\r\nN: \r\n\r\n"))}}},
	} {
		t.Run(fmt.Sprintf("%.80q", parts.text()), func(t *testing.T) {
			var parser Parser
			text := []byte(parts.text())
			done, wantFault := parser.Parse(text, &partsLimits)
			var want, got Framing
			if wantFault == NoFault {
				if !done {
					t.Fatal("the text isn't a whole head")
				}
				want, wantFault = parser.Frame(text)
			}
			var head RequestHead
			b, fault := parts.make(&head, &partsLimits)
			if fault == NoFault {
				got, fault = head.Frame(b)
			}
			if fault != wantFault || got != want {
				t.Fatalf("fault %v, framing %+v, that of the text %v, %+v", fault, got, wantFault, want)
			}
			if fault != NoFault {
				return
			}
			if string(head.Method(b)) != parts.method || string(b[head.TargetStart:head.TargetEnd]) != parts.target || head.Minor != parts.minor {
				t.Errorf("%q, %+v", b, head.Line)
			}
			var gotFields, wantFields field.List
			host := head.HostIndex()
			if head.GiveFields(&gotFields, b); host != parser.HostIndex() {
				t.Errorf("Host is field %d, want %d", host, parser.HostIndex())
			}
			parser.GiveFields(&wantFields, text)
			if g, w := listText(&gotFields), listText(&wantFields); g != w {
				t.Errorf("fields %q, want %q", g, w)
			}
		})
	}
}

func listText(l *field.List) string {
	var text strings.Builder
	for name, value := range l.All() {
		fmt.Fprintf(&text, "%s=%s;", name, value)
	}
	return text.String()
}

// An empty method, an empty target and bytes that would end a line in text are refused.
func TestHeadOfPartsThatNoTextHas(t *testing.T) {
	limits := Limits{Bytes: 1000, Line: 100, Fields: 10}
	for _, test := range []struct {
		parts headParts
		want  Fault
	}{
		{headParts{"", "/", 1, nil}, FaultMethod},
		{headParts{"GET ", "/", 1, nil}, FaultMethod},
		{headParts{"GET", "", 1, nil}, FaultTarget},
		{headParts{"GET", "/ HTTP/1.1\r\nX: y", 1, nil}, FaultTarget},
		{headParts{"GET", "/", 1, [][2]string{{"", "x"}}}, FaultFieldName},
		{headParts{"GET", "/", 1, [][2]string{{"A: b\r\nC", "x"}}}, FaultFieldName},
		{headParts{"GET", "/", 1, [][2]string{{"A", "b\r\nC: d"}}}, FaultFieldValue},
	} {
		if _, fault := test.parts.make(new(RequestHead), &limits); fault != test.want {
			t.Errorf("%q: fault %v, want %v", test.parts.text(), fault, test.want)
		}
	}
}

// For a valid field, AddValid has the same result as Add, and applies the same limits.
func TestAddValid(t *testing.T) {
	fields := [][2]string{{"host", "a"}, {"x-y", ""}, {"content-length", "7"}, {"accept", "b\tc"}, {"content-length", "7"}}
	for size := range 140 {
		limits := Limits{Bytes: size, Line: 60, Fields: 4}
		var checked, valid RequestHead
		b, fault := checked.Begin(nil, "GET", "/", 1, &limits)
		b2, _ := valid.Begin(nil, "GET", "/", 1, &limits)
		for i := 0; i < len(fields) && fault == NoFault; i++ {
			name, value := fields[i][0], fields[i][1]
			var fault2 Fault
			b, fault = checked.Add(b, name, value, &limits)
			b2, fault2 = valid.AddValid(b2, []byte(name), []byte(value), field.Lookup(name), &limits)
			if fault != fault2 || fault == NoFault && string(b) != string(b2) {
				t.Fatalf("at most %d bytes, field %d: %q and %q, %q and %q", size, i, fault, fault2, b, b2)
			}
		}
		framing, fault := checked.Frame(b)
		framing2, fault2 := valid.Frame(b2)
		if framing != framing2 || fault != fault2 || fmt.Sprint(checked.fields) != fmt.Sprint(valid.fields) && fault == NoFault {
			t.Errorf("at most %d bytes: %+v %q and %+v %q", size, framing, fault, framing2, fault2)
		}
	}
}
