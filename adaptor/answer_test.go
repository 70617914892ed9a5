package adaptor

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What filo sends is taken apart in the same way wherever it is split.
func TestAnswerSplits(t *testing.T) {
	for _, test := range []struct{ name, raw, want string }{
		{"a length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\n\r\nhello", `200 "hello" 1 []`},
		{"chunks", "HTTP/1.1 201 Created\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", `201 "hello world" 1 []`},
		{"a trailer", "HTTP/1.1 200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n", `200 "ok" 1 [7]`},
		{"until the end", "HTTP/1.1 200 OK\r\nX-A: 1\r\nConnection: close\r\n\r\nall of it", `200 "all of it" 1 []`},
		{"100 before", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", `204 "" 1 []`},
		{"an empty body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: 1\r\n\r\n", `200 "" 1 []`},
	} {
		t.Run(test.name, func(t *testing.T) {
			for i := range len(test.raw) + 1 {
				for j := i; j <= len(test.raw); j++ {
					w := httptest.NewRecorder()
					a := answer{w: w, control: http.NewResponseController(w)}
					for _, piece := range []string{test.raw[:i], test.raw[i:j], test.raw[j:]} {
						if n, err := a.Write([]byte(piece)); n != len(piece) || err != nil {
							t.Fatalf("Write returned %d, %v", n, err)
						}
					}
					response := w.Result()
					got := fmt.Sprintf("%d %q %s %v", response.StatusCode, w.Body, response.Header.Get("X-A"), response.Trailer["X-Sum"])
					if got != test.want {
						t.Fatalf("split at %d and %d: got %s, want %s", i, j, got, test.want)
					}
				}
			}
		})
	}
}

// A body in chunks is the body again, whatever is in it.
func FuzzChunks(f *testing.F) {
	f.Add([]byte("hello"), 3)
	f.Add([]byte("0\r\n\r\n"), 1)
	f.Add([]byte(strings.Repeat("x", 20000)), 4096)
	f.Fuzz(func(t *testing.T, body []byte, size int) {
		r := httptest.NewRequest("POST", "/", io.NopCloser(strings.NewReader(string(body))))
		chunks := &chunkReader{r: r}
		w := httptest.NewRecorder()
		a := answer{w: w, control: http.NewResponseController(w), state: answerSize}
		buffer := make([]byte, 1+uint(size)%10000)
		for {
			n, err := chunks.Read(buffer)
			if _, err := a.Write(buffer[:n]); err != nil {
				t.Fatal(err)
			}
			if err == io.EOF {
				break
			}
		}
		if got := w.Body.String(); got != string(body) || a.state != answerDone {
			t.Errorf("got %d bytes of %d, in state %d", len(got), len(body), a.state)
		}
	})
}
