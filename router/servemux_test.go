package router_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// choices makes choices from the bytes of a fuzzer. When there are no more bytes, every choice is 0.
type choices []byte

func (c *choices) upTo(n int) int {
	if len(*c) == 0 {
		return 0
	}
	choice := int((*c)[0]) % n
	*c = (*c)[1:]
	return choice
}

func (c *choices) of(from ...string) string { return from[c.upTo(len(from))] }

// pattern makes a pattern, usually a valid one. It leaves out two kinds of patterns that ServeMux accepts: unclean ones without a method,
// which can never match and panic in the router, and those with "%2F" as a whole segment, which ServeMux treats like {$}.
func (c *choices) pattern() string {
	var b strings.Builder
	b.WriteString(c.of("", "GET ", "POST ", "", "HEAD ", "GET ", "PURGE ", "CONNECT  "))
	b.WriteString(c.of("", "", "", "a.test", "b.test"))
	for n := range c.upTo(4) {
		b.WriteByte('/')
		b.WriteString(c.of("a", "b", "w", "w", "a", "ab", "%61", "a%2Fb", "%2e", "b%25", "%7Ba}", "bad{x}", "{x", "{x...}", "{$}", "w"))
		if strings.HasSuffix(b.String(), "w") {
			text := strings.TrimSuffix(b.String(), "w")
			b.Reset()
			fmt.Fprintf(&b, "%s{w%d}", text, n)
		}
	}
	b.WriteString(c.of("/", "", "/{$}", "/{rest...}", "/", "", ""))
	return b.String()
}

func (c *choices) target() string {
	var b strings.Builder
	for range c.upTo(5) {
		b.WriteByte('/')
		b.WriteString(c.of("a", "b", "a", "b", "ab", "c", "%61", "a%2Fb", "%2e", ".", "..", "", "b%25", "%7ba%7d"))
	}
	if path := b.String(); path == "" || c.upTo(2) == 0 {
		b.WriteByte('/')
	}
	b.WriteString(c.of("", "?q=1/../2"))
	return b.String()
}

// outcome describes those parts of an answer in which the two routers can be compared.
func outcome(status int, header http.Header, target string) string {
	switch {
	case status == 200:
		return header.Get("Route")
	case status >= 300 && status < 400:
		// ServeMux encodes a "%" of the path once more when it cleans it.
		if strings.Contains(target, "%") {
			return "redirect"
		}
		return "redirect to " + header.Get("Location")
	}
	allow := strings.Split(header.Get("Allow"), ", ")
	// ServeMux doesn't answer OPTIONS by itself, so its Allow lacks OPTIONS.
	allow = slices.DeleteFunc(allow, func(method string) bool { return method == "OPTIONS" })
	return fmt.Sprint(status, allow)
}

// serveMuxTest compares a router with a ServeMux that has the same patterns.
type serveMuxTest struct {
	server  *servertest.Server
	current atomic.Pointer[router.Router]
}

func newServeMuxTest(t testing.TB) *serveMuxTest {
	test := &serveMuxTest{}
	test.server = servertest.New(t, func(c *filo.Ctx) error { return test.current.Load().Serve(c) })
	return test
}

func (test *serveMuxTest) run(t *testing.T, c choices) {
	mux, r := http.NewServeMux(), router.New()
	var patterns []string
	for range 1 + c.upTo(8) {
		pattern := c.pattern()
		handler := func(w http.ResponseWriter, request *http.Request) {
			w.Header().Set("Route", muxRoute(request, pattern))
		}
		refusedThere := panicOf(func() { mux.HandleFunc(pattern, handler) })
		refusedHere := panicOf(func() { r.Handle(pattern, show) })
		if (refusedThere == "") != (refusedHere == "") {
			t.Fatalf("after %q, %q: ServeMux: %q, here: %q", patterns, pattern, refusedThere, refusedHere)
		}
		if refusedThere == "" {
			patterns = append(patterns, pattern)
		}
	}
	test.current.Store(r)
	var requests []*http.Request
	var raw bytes.Buffer
	for range 8 {
		method, target, host := c.of("GET", "HEAD", "POST", "PURGE"), c.target(), c.of("a.test", "a.test:8080", "c.test")
		text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n\r\n", method, target, host)
		raw.WriteString(text)
		request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, request)
	}
	answers := bufio.NewReader(strings.NewReader(test.server.Raw(t, raw.String())))
	for _, request := range requests {
		response, err := http.ReadResponse(answers, request)
		if err != nil {
			t.Fatalf("%s %s: %v", request.Method, request.RequestURI, err)
		}
		io.Copy(io.Discard, response.Body)
		recorder := httptest.NewRecorder()
		mux.ServeHTTP(recorder, request)
		want := outcome(recorder.Code, recorder.Header(), request.RequestURI)
		if got := outcome(response.StatusCode, response.Header, request.RequestURI); got != want {
			t.Errorf("%q: %s %s of %s: %s; ServeMux: %s", patterns, request.Method, request.RequestURI, request.Host, got, want)
		}
	}
}

// muxRoute returns the text that show would send for a request that a ServeMux has matched.
func muxRoute(request *http.Request, pattern string) string {
	text := strings.Join(strings.Fields(pattern), " ")
	for part := range strings.SplitSeq(pattern, "/") {
		name := strings.TrimSuffix(strings.Trim(part, "{}"), "...")
		if strings.HasPrefix(part, "{") && name != "$" {
			text += fmt.Sprintf(" %s=%s", name, request.PathValue(name))
		}
	}
	return text
}

// The router finds the same routes as net/http.ServeMux, and refuses the same patterns.
func FuzzServeMux(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomBytes(seed))
	}
	test := newServeMuxTest(f)
	f.Fuzz(func(t *testing.T, data []byte) { test.run(t, data) })
}

// TestServeMux makes the comparison of FuzzServeMux for random choices.
func TestServeMux(t *testing.T) {
	test := newServeMuxTest(t)
	for seed := range uint64(1000) {
		test.run(t, randomBytes(seed))
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func randomBytes(seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, 160)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}
