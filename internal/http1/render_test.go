package http1

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/field"
)

// wireList returns a list of the fields in lines of the form "Name: value".
func wireList(lines ...string) *field.List {
	var l field.List
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		l.Add(name, value)
	}
	return &l
}

func TestHeadAppend(t *testing.T) {
	server, date := []byte("Server: filo\r\n"), []byte("Date: today\r\n")
	for _, test := range []struct {
		rule   string
		head   Head
		fields []string
		want   string
	}{
		{"the server's own fields come behind the handler's", Head{Status: 200, Length: 3, Server: server, Date: date}, []string{"X-A: b"},
			"200 OK|X-A: b|Server: filo|Date: today|Content-Length: 3|"},
		{"a handler's Server and Date replace the server's", Head{Status: 200, Length: -1, Server: server, Date: date},
			[]string{"date: mine", "SERVER: mine"}, "200 OK|date: mine|SERVER: mine|"},
		{"an empty Date is none", Head{Status: 200, Length: 0, Date: date}, []string{"Date: "}, "200 OK|Content-Length: 0|"},
		{"the length is the server's to say", Head{Status: 200, Length: 3}, []string{"Content-Length: 4", "Transfer-Encoding: gzip", "Trailer: X", "Keep-Alive: a"},
			"200 OK|Content-Length: 3|"},
		{"a negative length isn't said", Head{Status: 304, Length: -2}, nil, "304 Not Modified|"},
		{"chunks have no length", Head{Status: 200, Length: 3, Chunked: true}, nil, "200 OK|Transfer-Encoding: chunked|"},
		{"a trailer is announced", Head{Status: 200, Chunked: true, Trailer: wireList("X-A: 1", "Content-Length: 2", "X-B: 3")}, nil,
			"200 OK|Transfer-Encoding: chunked|Trailer: X-A, X-B|"},
		{"a trailer without a field that may be there isn't", Head{Status: 200, Chunked: true, Trailer: wireList("Host: 1")}, nil,
			"200 OK|Transfer-Encoding: chunked|"},
		{"the connection ends", Head{Status: 200, Length: -1, Close: true}, []string{"Connection: close", "Connection: x, keep-alive", "Connection: x"},
			"200 OK|Connection: x|Connection: close|"},
		{"the connection goes on in HTTP/1.0", Head{Status: 200, Length: -1, KeepAlive: true}, nil, "200 OK|Connection: keep-alive|"},
		{"a status outside the registry", Head{Status: 599, Length: -1}, nil, "599 Status 599|"},
	} {
		want := "HTTP/1.1 " + strings.ReplaceAll(test.want, "|", "\r\n") + "\r\n"
		if got := test.head.Append([]byte("before"), wireList(test.fields...)); string(got) != "before"+want {
			t.Errorf("%s:\n%q, want\n%q", test.rule, got, want)
		}
	}
}

func TestAppendInterim(t *testing.T) {
	fields := wireList("Link: </a>", "Connection: Upgrade", "Content-Type: a/b", "Content-Length: 1", "Transfer-Encoding: chunked")
	for status, want := range map[int]string{
		103: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
		101: "HTTP/1.1 101 Switching Protocols\r\nLink: </a>\r\nConnection: Upgrade\r\nContent-Type: a/b\r\n\r\n",
	} {
		if got := AppendInterim(nil, status, fields); string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := AppendInterim(nil, 100, &field.List{}); string(got) != Continue {
		t.Errorf("Continue is %q, rendered it is %q", Continue, got)
	}
}

// net/http decodes the rendered chunks to the original body and trailer.
func TestChunksRendered(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 22))
	trailer := wireList("X-Sum: 1", "Content-Length: 5")
	for range 200 {
		head := Head{Status: 200, Chunked: true, Trailer: trailer}
		message := head.Append(nil, &field.List{})
		var body []byte
		for range random.IntN(5) {
			piece := bytes.Repeat([]byte{byte('a' + random.IntN(26))}, 1+random.IntN(5000))
			body = append(body, piece...)
			before := len(message)
			message = AppendChunk(message, piece)
			if overhead := len(message) - before - len(piece); overhead > ChunkOverhead {
				t.Errorf("a chunk is %d bytes larger than its content", overhead)
			}
		}
		want := ""
		if random.IntN(2) == 0 {
			message, want = AppendLastChunk(message, trailer), "1"
		} else {
			message = append(message, LastChunk...)
		}
		reader := bufio.NewReader(bytes.NewReader(message))
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		if err != nil || !bytes.Equal(got, body) || response.Trailer.Get("X-Sum") != want || response.Trailer.Get("Content-Length") != "" {
			t.Errorf("%d bytes of %d, trailer %v, %v", len(got), len(body), response.Trailer, err)
		}
		if rest, _ := io.ReadAll(reader); len(rest) > 0 {
			t.Errorf("%q behind the last chunk", rest)
		}
	}
}

func TestHeadAppendAllocations(t *testing.T) {
	fields := wireList("Content-Type: text/plain", "X-A: b")
	buffer := make([]byte, 0, 1000)
	if n := testing.AllocsPerRun(100, func() {
		head := Head{Status: 200, Length: 5, Server: []byte("Server: filo\r\n"), Trailer: fields}
		buffer = head.Append(buffer[:0], fields)
		buffer = AppendLastChunk(AppendChunk(buffer, []byte("abc")), fields)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
