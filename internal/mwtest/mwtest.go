// Package mwtest has helpers for tests of middleware.
package mwtest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

// Do sends a request, such as "GET /path" or "GET http://host/path", with fields such as "Name: value", to a new server with h as its handler.
func Do(t testing.TB, h filo.Handler, request string, fields ...string) servertest.Answer {
	t.Helper()
	return servertest.New(t, h).Do(t, request, fields...)
}

// TCPAddress is an address such as "192.0.2.1:1234".
func TCPAddress(address string) net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))
}

// InHandler runs f in the handler of a request from 192.0.2.1. It ignores the response.
func InHandler(t testing.TB, request string, fields []string, f func(*filo.Ctx)) {
	t.Helper()
	ran := false
	s := servertest.New(t, func(c *filo.Ctx) error {
		ran = true
		f(c)
		c.Response.Header.Reset()
		return c.NoContent()
	})
	s.DoFrom(t, TCPAddress("192.0.2.1:1234"), request, fields...)
	if !ran {
		t.Fatalf("%s: the handler didn't run", request)
	}
}

// Again calls h for the request of c, as if the request had just arrived.
func Again(c *filo.Ctx, h filo.Handler) error {
	c.Response.Header.Reset()
	c.Response.SetStatus(200)
	c.Response.SetBody(nil)
	return h(c)
}

// Benchmark measures h and the handlers that it calls, without the server: it calls h repeatedly in the handler of one request. So it can't measure
// handlers that begin the answer, such as by rendering errors or streaming bodies: for these use BenchmarkServer.
func Benchmark(b *testing.B, h filo.Handler, request string, fields ...string) {
	b.Helper()
	b.ReportAllocs()
	calls := callsPerRequest
	s := servertest.New(b, func(c *filo.Ctx) error {
		if err := Again(c, h); err != nil {
			b.Error(err)
		}
		b.StartTimer()
		for range calls {
			_ = Again(c, h)
		}
		b.StopTimer()
		c.Response.Header.Reset()
		return c.NoContent()
	})
	b.StopTimer()
	s.DoFrom(b, TCPAddress("192.0.2.1:1234"), request, fields...) // lets all buffers grow to their final size
	b.ResetTimer()
	for left := b.N; left > 0 && !b.Failed(); left -= calls {
		calls = min(left, callsPerRequest)
		s.DoFrom(b, TCPAddress("192.0.2.1:1234"), request, fields...)
	}
}

// callsPerRequest bounds how often Benchmark calls h in one request. A middleware that adds an attribute to the request's Logger adds one with each
// call. With too many of them, the benchmark would measure the garbage collector.
const callsPerRequest = 10_000

// Allocations returns how many allocations a call of h makes. It has the same restriction as Benchmark.
func Allocations(t testing.TB, h filo.Handler, request string, fields ...string) (n float64) {
	t.Helper()
	InHandler(t, request, fields, func(c *filo.Ctx) {
		n = testing.AllocsPerRun(1000, func() {
			if err := Again(c, h); err != nil {
				t.Error(err)
			}
		})
	})
	return n
}

// BenchmarkServer measures whole requests, one after the other on one in-memory connection, including the server's work and two goroutine
// switches. All answers must have the same length.
func BenchmarkServer(b *testing.B, h filo.Handler, request, body string, fields ...string) {
	b.Helper()
	b.ReportAllocs()
	s := servertest.New(b, h)
	c := s.Dial(b)
	in, out := []byte(servertest.Request(request, body, fields...)), make([]byte, 64<<10)
	if _, err := c.Write(in); err != nil {
		b.Fatal(err)
	}
	reader := bufio.NewReader(c)
	var first bytes.Buffer
	response, err := http.ReadResponse(bufio.NewReader(io.TeeReader(reader, &first)), nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		b.Fatal(err)
	}
	size := first.Len()
	if size > len(out) || reader.Buffered() > 0 {
		b.Fatalf("an answer of %d bytes, with %d behind it", size, reader.Buffered())
	}
	b.ResetTimer()
	for range b.N {
		if _, err := c.Write(in); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, out[:size]); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}

// StatusText formats a status for tables of test cases.
func StatusText(status int) string { return strconv.Itoa(status) }

// Hello is a handler for tests to wrap in middleware.
func Hello(c *filo.Ctx) error { return c.Text(200, "hello") }

// Wrap wraps h in middleware as a router does. The first middleware is the outermost one.
func Wrap(h filo.Handler, middleware ...filo.Middleware) filo.Handler {
	for i := len(middleware) - 1; i >= 0; i-- {
		h = middleware[i](h)
	}
	return h
}

// PanicOf returns the value with which f panics as text, or "" if f doesn't panic.
func PanicOf(f func()) (message string) {
	defer func() {
		if value := recover(); value != nil {
			message = fmt.Sprint(value)
		}
	}()
	f()
	return ""
}

// MustPanic checks that each of the functions panics with a message that begins with pkg.
func MustPanic(t *testing.T, pkg string, constructions map[string]func()) {
	t.Helper()
	for name, construct := range constructions {
		if message := PanicOf(construct); !strings.HasPrefix(message, pkg+": ") {
			t.Errorf("%s: panics with %q, want one of %s", name, message, pkg)
		}
	}
}

// Show is for examples. It prints the status of h's answer to a request, those of the named header fields that have a value, and the body. The
// client's address is 192.0.2.1.
func Show(h filo.Handler, names []string, request string, fields ...string) {
	ln := servertest.NewListener()
	s := &filo.Server{Handler: h}
	go s.Serve(ln)
	defer s.Shutdown(context.Background())
	c, err := ln.DialFrom(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	io.WriteString(c, servertest.Request(request, "", append(fields, "Connection: close")...))
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	fmt.Println(strings.TrimSpace(fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(body)))))
	for _, name := range names {
		for _, value := range response.Header.Values(name) {
			fmt.Printf("%s: %s\n", name, value)
		}
	}
}

// NewRequest returns a GET request with fields such as "Name: value".
func NewRequest(t testing.TB, url string, fields ...string) *http.Request {
	t.Helper()
	request, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		request.Header.Add(name, value)
	}
	return request
}

// Log is a log that tests may read while servers write to it.
type Log struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// SomeDate is a date for Last-Modified.
const SomeDate = "Tue, 01 Feb 2022 03:04:05 GMT"

// Counting is a handler that answers with the number of its calls, and with fields such as "Name: value".
type Counting struct {
	Calls  atomic.Int64
	Status int
	Fields []string
}

// Serve is the handler function.
func (h *Counting) Serve(c *filo.Ctx) error {
	n := h.Calls.Add(1)
	for _, f := range h.Fields {
		name, value, _ := strings.Cut(f, ": ")
		c.Response.Header.Add(name, value)
	}
	return c.Text(max(h.Status, 200), fmt.Sprint(n))
}
