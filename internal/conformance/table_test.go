package conformance

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	section := regexp.MustCompile(`^(3986|6585|9110|9112) \d+(\.\d+)*$`)
	names := make(map[string]bool)
	raws := make(map[string]string)
	for _, c := range Table() {
		if names[c.Name] {
			t.Errorf("%s: the name is used twice", c.Name)
		}
		names[c.Name] = true
		if other, ok := raws[c.Raw]; ok && !c.HalfClose {
			t.Errorf("%s: the same request as %s", c.Name, other)
		}
		if !c.HalfClose {
			raws[c.Raw] = c.Name
		}
		if !section.MatchString(c.RFC) || c.Sentence == "" {
			t.Errorf("%s: no sentence and its section: %q %q", c.Name, c.RFC, c.Sentence)
		}
		if len(c.Want) == 0 && !c.HalfClose {
			t.Errorf("%s: no answer expected, and so nothing is tested", c.Name)
		}
	}
	if n := len(names); n < 250 {
		t.Errorf("%d cases, want at least 250", n)
	}
}

func TestSeeds(t *testing.T) {
	if got, want := len(Seeds()), len(Table()); got != want {
		t.Errorf("%d seeds, want one for each of %d cases", got, want)
	}
}

// beyondNetHTTP lists the cases that a server must accept although http.ReadRequest refuses them: RFC 9112, 2.2, asks servers to ignore empty
// lines before a request.
var beyondNetHTTP = []string{
	"empty line/one before", "empty line/two before",
	"pipeline/empty line between", "pipeline/CRLF after a body",
}

// http.ReadRequest also accepts each request that the table wants answered.
func TestTableIsNoLaxerThanNetHTTP(t *testing.T) {
	for _, c := range Table() {
		refused := func(a Answer) bool { return a.Status >= 400 && a.Status != 404 && a.Status != 405 || a.Or >= 400 }
		if slices.ContainsFunc(c.Want, refused) {
			continue
		}
		err := readRequests(c.Raw+c.After100, len(c.Want))
		if listed := slices.Contains(beyondNetHTTP, c.Name); (err != nil) != listed {
			t.Errorf("%s: net/http says %v\n%.300q", c.Name, err, c.Raw)
		}
	}
}

// readRequests reads n requests, and all their bodies except the last.
func readRequests(raw string, n int) error {
	br := bufio.NewReader(strings.NewReader(raw))
	for i := range n {
		r, err := http.ReadRequest(br)
		if err != nil {
			return err
		}
		if i < n-1 {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestCuts(t *testing.T) {
	if got := Cuts(5); !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("5 bytes are cut at %v", got)
	}
	for _, n := range []int{0, 1, 2, CutAll, CutAll + 1, 17_000, 1_000_000} {
		got := Cuts(n)
		if n <= CutAll && len(got) != max(0, n-1) || len(got) > CutAll {
			t.Errorf("%d bytes are cut at %d places", n, len(got))
		}
		if len(got) > 0 && (got[0] != 1 || got[len(got)-1] != n-1 || !slices.IsSorted(got)) {
			t.Errorf("%d bytes are cut at %v", n, got)
		}
	}
}

func TestReadResponse(t *testing.T) {
	const date = "Date: Mon, 02 Jan 2006 15:04:05 GMT\r\n"
	tests := []struct {
		name, in string
		head, ok bool
		body     string
	}{
		{name: "length", in: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\n\r\nhi", ok: true, body: "hi"},
		{name: "chunked", in: "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", ok: true, body: "hi"},
		{name: "trailer", in: "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n", ok: true},
		{name: "no reason", in: "HTTP/1.1 204 \r\n" + date + "\r\n", ok: true},
		{name: "interim", in: "HTTP/1.1 100 Continue\r\n\r\n", ok: true},
		{name: "head", in: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\n\r\n", head: true, ok: true},
		{name: "until the end", in: "HTTP/1.1 200 OK\r\n" + date + "Connection: close\r\n\r\nhi", ok: true, body: "hi"},
		{name: "405", in: "HTTP/1.1 405 M\r\n" + date + "Allow: GET\r\nContent-Length: 0\r\n\r\n", ok: true},

		{name: "405 without Allow", in: "HTTP/1.1 405 M\r\n" + date + "Content-Length: 0\r\n\r\n"},
		{name: "no Date", in: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{name: "two Dates", in: "HTTP/1.1 200 OK\r\n" + date + date + "Content-Length: 0\r\n\r\n"},
		{name: "bad Date", in: "HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 0\r\n\r\n"},
		{name: "no length", in: "HTTP/1.1 200 OK\r\n" + date + "\r\n"},
		{name: "short body", in: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 3\r\n\r\nhi"},
		{name: "two lengths", in: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n"},
		{name: "length and chunked", in: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{name: "signed length", in: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: +0\r\n\r\n"},
		{name: "another coding", in: "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: gzip\r\n\r\n"},
		{name: "204 with a length", in: "HTTP/1.1 204 No Content\r\n" + date + "Content-Length: 0\r\n\r\n"},
		{name: "100 with a length", in: "HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n"},
		{name: "HTTP/1.0", in: "HTTP/1.0 200 OK\r\n" + date + "Content-Length: 0\r\n\r\n"},
		{name: "no space after the status", in: "HTTP/1.1 204\r\n" + date + "\r\n"},
		{name: "status 99", in: "HTTP/1.1 099 X\r\n\r\n"},
		{name: "LF", in: "HTTP/1.1 200 OK\r\n" + date + "X: y\nContent-Length: 0\r\n\r\n"},
		{name: "CR", in: "HTTP/1.1 200 OK\r\n" + date + "X: y\rz\r\nContent-Length: 0\r\n\r\n"},
		{name: "NUL", in: "HTTP/1.1 200 OK\r\n" + date + "X: y\x00\r\nContent-Length: 0\r\n\r\n"},
		{name: "fold", in: "HTTP/1.1 200 OK\r\n" + date + "X: y\r\n z\r\nContent-Length: 0\r\n\r\n"},
		{name: "space before the colon", in: "HTTP/1.1 200 OK\r\n" + date + "X : y\r\nContent-Length: 0\r\n\r\n"},
		{name: "no end of chunks", in: "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"},
		{name: "no CRLF after a chunk", in: "HTTP/1.1 200 OK\r\n" + date + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi0\r\n\r\n"},
		{name: "cut head", in: "HTTP/1.1 200 OK\r\n" + date},
		{name: "nothing", in: ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			br := bufio.NewReader(strings.NewReader(test.in))
			r, err := ReadResponse(br, test.head)
			if (err == nil) != test.ok {
				t.Fatalf("error %v", err)
			}
			if err != nil {
				return
			}
			if string(r.Body) != test.body {
				t.Errorf("body %q, want %q", string(r.Body), test.body)
			}
			if rest, _ := io.ReadAll(br); !bytes.Equal(rest, nil) {
				t.Errorf("%q is left", rest)
			}
		})
	}
}
