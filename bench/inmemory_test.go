// Package bench compares filo with fasthttp and net/http: in memory in this package, as processes over real sockets in cmd/compare.
package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// scenario is one kind of traffic and the handler that answers it.
type scenario struct {
	request  []byte // one request
	input    []byte // what the client sends at once: request, once or several times
	perConn  int
	handlers handlers
	raw      bool // the answer isn't HTTP
}

// plainGET has the fewest header fields with which a browser requests a small resource, each about as long as a browser's.
const plainGET = "GET /foobar?baz HTTP/1.1\r\n" +
	"Host: www.example.com\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\r\n" +
	"Referer: https://www.example.com/some/page?with=query\r\n" +
	"Cookie: session=4f1d0e2c9a7b; theme=dark\r\n\r\n"

func newScenario(request string, perConn, pipelined int, h handlers) *scenario {
	return &scenario{
		request:  []byte(request),
		input:    []byte(strings.Repeat(request, pipelined)),
		perConn:  perConn,
		handlers: h,
	}
}

func plainScenario(perConn int) *scenario { return newScenario(plainGET, perConn, 1, plainHandlers) }

func pipelinedScenario() *scenario { return newScenario(plainGET, 9_600, 16, plainHandlers) }

func postScenario() *scenario {
	head := fmt.Sprintf("POST /foobar?baz HTTP/1.1\r\nHost: www.example.com\r\n"+
		"Content-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", postSize)
	return newScenario(head+strings.Repeat("x", postSize), 10_000, 1, postHandlers)
}

// headersScenario has 30 header fields, like a request that has passed through one or two proxies.
func headersScenario() *scenario {
	var b strings.Builder
	b.WriteString("GET /foobar?baz HTTP/1.1\r\nHost: www.example.com\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\r\n" +
		"Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n" +
		"Accept-Encoding: gzip, br\r\nAccept-Language: en-GB,en;q=0.7\r\n" +
		"X-Forwarded-For: 203.0.113.7\r\n")
	for i := 6; i < 30; i++ {
		fmt.Fprintf(&b, "X-Trace-%d: 4f1d0e2c9a7b-%d\r\n", i, i)
	}
	b.WriteString("\r\n")
	return newScenario(b.String(), 10_000, 1, headerHandlers)
}

func hijackScenario() *scenario {
	s := newScenario(plainGET, 1, 1, hijackHandlers)
	s.raw = true
	return s
}

func BenchmarkPlainGET1PerConn(b *testing.B)  { compare(b, plainScenario(1)) }
func BenchmarkPlainGET10PerConn(b *testing.B) { compare(b, plainScenario(10)) }
func BenchmarkPlainGET(b *testing.B)          { compare(b, plainScenario(10_000)) }
func BenchmarkPipelined16(b *testing.B)       { compare(b, pipelinedScenario()) }
func BenchmarkPOST1KB(b *testing.B)           { compare(b, postScenario()) }
func BenchmarkManyHeaders(b *testing.B)       { compare(b, headersScenario()) }
func BenchmarkHijack(b *testing.B)            { compare(b, hijackScenario()) }

// compare runs the scenario on each server. One operation is one request; GOMAXPROCS connections are
// served at a time.
func compare(b *testing.B, s *scenario) {
	for _, starter := range starters {
		b.Run(starter.name, func(b *testing.B) {
			serve, stop := starter.start(s.handlers)
			defer stop()
			// Determine the length of an answer, with a connection that isn't timed.
			conn := newMemConn()
			conn.reset(s, 1)
			serve(conn)
			<-conn.closed
			answer := conn.written

			workers := runtime.GOMAXPROCS(0)
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range workers {
				n := b.N / workers
				if i < b.N%workers {
					n++
				}
				wg.Go(func() {
					conn := newMemConn()
					for n > 0 {
						requests := min(n, s.perConn)
						conn.reset(s, requests)
						serve(conn)
						<-conn.closed
						if conn.written != requests*answer {
							b.Errorf("%d requests got %d bytes, want %d each", requests, conn.written, answer)
							return
						}
						n -= requests
					}
				})
			}
			wg.Wait()
		})
	}
}

// Every server answers every request of every scenario completely and in the same way, so the benchmarks time the same work.
func TestServersAnswerAlike(t *testing.T) {
	for name, s := range map[string]*scenario{
		"one per connection": plainScenario(1),
		"several":            plainScenario(10),
		"pipelined":          pipelinedScenario(),
		"post":               postScenario(),
		"headers":            headersScenario(),
		"hijack":             hijackScenario(),
	} {
		for _, starter := range starters {
			t.Run(name+"/"+starter.name, func(t *testing.T) {
				serve, stop := starter.start(s.handlers)
				defer stop()
				conn := newMemConn()
				conn.capture = new(bytes.Buffer)
				n := min(s.perConn, 40) // for pipelining, not a multiple of the requests in a turn
				conn.reset(s, n)
				serve(conn)
				<-conn.closed
				if s.raw {
					if !bytes.Equal(conn.capture.Bytes(), hijacked) {
						t.Errorf("the connection got %q", conn.capture)
					}
					return
				}
				checkAnswers(t, conn.capture, n)
			})
		}
	}
}

func checkAnswers(t *testing.T, captured *bytes.Buffer, n int) {
	t.Helper()
	in := bufio.NewReader(captured)
	for i := range n {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 || string(body) != greeting || err != nil {
			t.Fatalf("answer %d: %d %q, %v", i, resp.StatusCode, body, err)
		}
		h := resp.Header
		if h.Get("Content-Type") != plainText || h.Get("Content-Length") != "13" ||
			h.Get("Server") == "" || h.Get("Date") == "" || len(h) != 4 {
			t.Fatalf("answer %d has the fields %v", i, h)
		}
	}
	if rest, _ := io.ReadAll(in); len(rest) > 0 {
		t.Errorf("after the answers: %q", rest)
	}
}

// The benchmark with many header fields really sends thirty.
func TestHeadersScenarioHasThirtyFields(t *testing.T) {
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(headersScenario().request)))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(req.Header) + 1; got != 30 { // Host isn't in req.Header
		t.Errorf("the request has %d fields", got)
	}
}
