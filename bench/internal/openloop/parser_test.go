package openloop

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// parsedAnswer is what a parser makes of some bytes.
type parsedAnswer struct {
	status int
	body   string
	close  bool
	rest   int  // bytes that are left
	done   bool // the answer has ended
}

// parseWire gives a parser the bytes in two pieces, and then the end of the connection.
func parseWire(wire string, cut int, p *parser) (parsedAnswer, error) {
	var a parsedAnswer
	var body []byte
	pieces := []string{wire[:cut], wire[cut:]}
	for i, piece := range pieces {
		data := []byte(piece)
		for len(data) > 0 {
			n, part, done, err := p.next(data[:len(data):len(data)])
			if err != nil {
				return a, err
			}
			if n <= 0 || n > len(data) {
				return a, fmt.Errorf("consumed %d of %d bytes", n, len(data))
			}
			body = append(body, part...)
			if data = data[n:]; done {
				rest := len(data)
				if i == 0 {
					rest += len(pieces[1])
				}
				return parsedAnswer{p.head.status, string(body), p.head.close, rest, true}, nil
			}
		}
	}
	if p.eof() {
		return parsedAnswer{p.head.status, string(body), p.head.close, 0, true}, nil
	}
	return a, nil
}

const wireFields = "Server: s\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\n"

func TestParserAccepts(t *testing.T) {
	for _, c := range []struct {
		rule, wire string
		head       bool
		want       parsedAnswer
	}{
		{"Content-Length delimits", "HTTP/1.1 200 OK\r\n" + wireFields + "Content-Length: 5\r\n\r\nhelloX", false,
			parsedAnswer{200, "hello", false, 1, true}},
		{"a body may be empty", "HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\nHTTP", false,
			parsedAnswer{200, "", false, 4, true}},
		{"the reason may be empty", "HTTP/1.1 404 \r\nContent-Length: 1\r\n\r\nx", false,
			parsedAnswer{404, "x", false, 0, true}},
		{"white space about a value is not its part", "HTTP/1.1 200 OK\r\nContent-Length: \t 2 \t\r\n\r\nab", false,
			parsedAnswer{200, "ab", false, 0, true}},
		{"obs-text is a value's", "HTTP/1.1 200 OK\r\nX: \xff\r\nContent-Length: 0\r\n\r\n", false,
			parsedAnswer{200, "", false, 0, true}},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n!", false,
			parsedAnswer{200, "hello0123456789", false, 1, true}},
		{"codings are case-insensitive", "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n", false,
			parsedAnswer{200, "", false, 0, true}},
		{"chunk extensions and trailers",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=\"b\"\r\nx\r\n0;c\r\nT: 1\r\nU: 2\r\n\r\n", false,
			parsedAnswer{200, "x", false, 0, true}},
		{"else the connection's end delimits", "HTTP/1.1 200 OK\r\nA: b\r\n\r\nall of it\r\n\r\n", false,
			parsedAnswer{200, "all of it\r\n\r\n", true, 0, true}},
		{"Connection: close", "HTTP/1.1 200 OK\r\nConnection: Foo ,CLOSE\r\nContent-Length: 0\r\n\r\n", false,
			parsedAnswer{200, "", true, 0, true}},
		{"HTTP/1.0 closes", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false, parsedAnswer{200, "", true, 0, true}},
		{"unless it says otherwise", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", false,
			parsedAnswer{200, "", false, 0, true}},
		{"204 has no body", "HTTP/1.1 204 No Content\r\n\r\nH", false, parsedAnswer{204, "", false, 1, true}},
		{"304 has none, whatever its length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nH", false,
			parsedAnswer{304, "", false, 1, true}},
		{"nor has an answer to HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nH", true,
			parsedAnswer{200, "", false, 1, true}},
		{"interim answers are passed over",
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx", false,
			parsedAnswer{201, "x", false, 0, true}},
		{"an incomplete head is no answer", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", false, parsedAnswer{}},
		{"nor is an incomplete body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", false, parsedAnswer{}},
		{"nor are chunks without the last", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false,
			parsedAnswer{}},
	} {
		for cut := range len(c.wire) + 1 {
			p := parser{memo: &headMemo{}}
			for try := range 2 { // the second time the head may be the memo's
				p.begin(c.head)
				if got, err := parseWire(c.wire, cut, &p); got != c.want || err != nil {
					t.Errorf("%s: cut at %d, try %d: %+v, %v; want %+v", c.rule, cut, try, got, err, c.want)
				}
			}
		}
	}
}

func TestParserRefuses(t *testing.T) {
	for _, c := range []struct{ rule, wire string }{
		{"something else", "SSH-2.0-x\r\n"},
		{"another version", "HTTP/2.0 200 OK\r\n\r\n"},
		{"HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n"},
		{"no space after the status", "HTTP/1.1 200\r\n\r\n"},
		{"a status of two digits", "HTTP/1.1 20 OK\r\n\r\n"},
		{"a status below 100", "HTTP/1.1 099 OK\r\n\r\n"},
		{"a status above 599", "HTTP/1.1 600 OK\r\n\r\n"},
		{"a control byte in the reason", "HTTP/1.1 200 O\x00K\r\n\r\n"},
		{"LF alone after the status line", "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n"},
		{"LF alone after a field", "HTTP/1.1 200 OK\r\nContent-Length: 0\n\r\n\r\n"},
		{"LF alone all over", "HTTP/1.1 200 OK\nContent-Length: 0\n\n"},
		{"CR alone", "HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n"},
		{"white space before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n"},
		{"a line that is folded", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n"},
		{"a field without a name", "HTTP/1.1 200 OK\r\n: b\r\n\r\n"},
		{"a field without a colon", "HTTP/1.1 200 OK\r\nabc\r\n\r\n"},
		{"a control byte in a value", "HTTP/1.1 200 OK\r\nA: \x01\r\n\r\n"},
		{"a sign in Content-Length", "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx"},
		{"an empty Content-Length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n"},
		{"a list in Content-Length", "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx"},
		{"a Content-Length beyond all measure", "HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\nx"},
		{"two Content-Lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx"},
		{"both ways of framing", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"another coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
		{"chunked twice", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"chunks in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"what is no list of tokens in Connection", "HTTP/1.1 200 OK\r\nConnection: a b\r\n\r\n"},
		{"204 with a body", "HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\nx"},
		{"100 with a body", "HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"101 that nobody asked for", "HTTP/1.1 101 Switching Protocols\r\n\r\n"},
		{"interim answers without end", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInterim+1)},
		{"a head without end", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", maxHead)},
		{"a chunk-size that is no number", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"},
		{"an empty chunk-size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n"},
		{"a chunk-size with a sign", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n"},
		{"a chunk-size beyond all measure", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000000000000000\r\nx"},
		{"white space after a chunk-size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\nx\r\n"},
		{"LF alone after a chunk-size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n"},
		{"a chunk that is longer than its size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n"},
		{"a chunk-size line without end",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("a", maxLine)},
		{"a trailer that is no field", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx\r\n\r\n"},
		{"trailers without end",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: b\r\n", maxHead/6+1)},
	} {
		step := 1 + len(c.wire)/100
		for cut := 0; cut <= len(c.wire); cut += step {
			p := parser{memo: &headMemo{}}
			p.begin(false)
			if got, err := parseWire(c.wire, cut, &p); !errors.Is(err, errMalformed) {
				t.Errorf("%s: cut at %d: %+v, %v; want it malformed", c.rule, cut, got, err)
			}
		}
	}
}

// The memo is of one head; another of the same length is parsed.
func TestParserMemo(t *testing.T) {
	p := parser{memo: &headMemo{}}
	for i := range 10 {
		p.begin(false)
		wire := fmt.Sprintf("HTTP/1.1 20%d OK\r\nContent-Length: %d\r\n\r\n%s", i/2, i/2, "abcde"[:i/2])
		want := parsedAnswer{200 + i/2, "abcde"[:i/2], false, 0, true}
		if i/2 == 4 {
			wire, want = "HTTP/1.1 204 No Content\r\n\r\n", parsedAnswer{status: 204, done: true}
		}
		if got, err := parseWire(wire, 0, &p); got != want || err != nil {
			t.Errorf("answer %d: %+v, %v; want %+v", i, got, err, want)
		}
	}
}

// What the parser accepts net/http understands in the same way; and however the bytes are split, the outcome is the same.
func FuzzParser(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 20)
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nA: b\r\n\r\n", 50)
	f.Add("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nuntil the end", 3)
	f.Add("HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", 30)
	f.Fuzz(func(t *testing.T, wire string, cut int) {
		whole, split := parser{}, parser{}
		whole.begin(false)
		split.begin(false)
		got, err := parseWire(wire, 0, &whole)
		cut = min(max(0, cut), len(wire))
		if again, errAgain := parseWire(wire, cut, &split); (err == nil) != (errAgain == nil) || err == nil && got != again {
			t.Fatalf("%q: %+v, %v; cut at %d: %+v, %v", wire, got, err, cut, again, errAgain)
		}
		if err != nil || !got.done {
			return
		}
		reader := bufio.NewReader(strings.NewReader(wire))
		for {
			answer, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatalf("%q is accepted, but not by net/http: %v", wire, err)
			}
			if answer.StatusCode < 200 && answer.StatusCode != 101 {
				continue
			}
			body, err := io.ReadAll(answer.Body)
			if answer.StatusCode != got.status || string(body) != got.body || err != nil {
				t.Fatalf("%q: %+v; net/http reads %d %q, %v", wire, got, answer.StatusCode, body, err)
			}
			return
		}
	})
}

func TestReadAnswer(t *testing.T) {
	wire := "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 203 Fine\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
	a, err := readAnswer(strings.NewReader(wire), false)
	if err != nil || a.Status != 203 || string(a.Body) != "abc" || !bytes.HasSuffix(a.Head, []byte("chunked\r\n\r\n")) {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := readAnswer(strings.NewReader(wire[:len(wire)-2]), false); err == nil {
		t.Errorf("of an answer without its end: %+v", a)
	}
}

// usualAnswer is what the servers of the comparison send.
const usualAnswer = "HTTP/1.1 200 OK\r\nServer: filo\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: text/plain; charset=utf-8\r\n" +
	"Content-Length: 13\r\n\r\nHello, World!"

func BenchmarkParser(b *testing.B) {
	chunk := "400\r\n" + strings.Repeat("x", 1024) + "\r\n"
	chunks := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk, 20) + "0\r\n\r\n"
	for _, c := range []struct {
		name, wire string
		memo       *headMemo
	}{{"Usual", usualAnswer, &headMemo{}}, {"NewHead", usualAnswer, nil}, {"Chunks20KB", chunks, &headMemo{}}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.wire)))
			wire, p := []byte(c.wire), parser{memo: c.memo}
			for b.Loop() {
				p.begin(false)
				for data, done := wire, false; !done; {
					n, _, d, err := p.next(data)
					if err != nil {
						b.Fatal(err)
					}
					data, done = data[n:], d
				}
			}
		})
	}
}
