package middleware_test

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
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

// do sends a request, such as "GET /path" or "GET http://host/path", with fields such as "Name: value", to a server of its
// own with h as its handler.
func do(t testing.TB, h filo.Handler, request string, fields ...string) servertest.Answer {
	t.Helper()
	return servertest.New(t, h).Do(t, request, fields...)
}

func tcpAddress(address string) net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))
}

// inHandler runs f in the handler of a request from 192.0.2.1. What f leaves as the response isn't looked at.
func inHandler(t testing.TB, request string, fields []string, f func(*filo.Ctx)) {
	t.Helper()
	ran := false
	s := servertest.New(t, func(c *filo.Ctx) error {
		ran = true
		f(c)
		c.Response.Header.Reset()
		return c.NoContent()
	})
	s.DoFrom(t, tcpAddress("192.0.2.1:1234"), request, fields...)
	if !ran {
		t.Fatalf("%s: the handler didn't run", request)
	}
}

// again calls h for the request that c has, as if it had just come.
func again(c *filo.Ctx, h filo.Handler) error {
	c.Response.Header.Reset()
	c.Response.SetStatus(200)
	c.Response.SetBody(nil)
	return h(c)
}

// benchmark measures h, with what it wraps, and nothing of the server around it: it is called over and over in the handler
// of one request. So it can't be used for what ends the request, such as errors that are rendered and streamed bodies:
// see benchmarkServer.
func benchmark(b *testing.B, h filo.Handler, request string, fields ...string) {
	b.Helper()
	b.ReportAllocs()
	inHandler(b, request, fields, func(c *filo.Ctx) {
		if err := again(c, h); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		for range b.N {
			_ = again(c, h)
		}
		b.StopTimer()
	})
}

// allocations returns how many allocations a call of h takes; the same restriction holds as for benchmark.
func allocations(t testing.TB, h filo.Handler, request string, fields ...string) (n float64) {
	t.Helper()
	inHandler(t, request, fields, func(c *filo.Ctx) {
		n = testing.AllocsPerRun(1000, func() {
			if err := again(c, h); err != nil {
				t.Error(err)
			}
		})
	})
	return n
}

// benchmarkServer measures whole requests, one after the other on one connection in memory, the server's part and two changes
// of goroutine included. All answers must have the same length.
func benchmarkServer(b *testing.B, h filo.Handler, request, body string, fields ...string) {
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

// statusText is a status as it is written in tables.
func statusText(status int) string { return strconv.Itoa(status) }

// hello is a handler to put middleware around.
func hello(c *filo.Ctx) error { return c.Text(200, "hello") }

// wrap puts middleware around h, the first one outermost, as a router does.
func wrap(h filo.Handler, middleware ...filo.Middleware) filo.Handler {
	for i := len(middleware) - 1; i >= 0; i-- {
		h = middleware[i](h)
	}
	return h
}

// panicOf returns what f panics with, "" if it doesn't.
func panicOf(f func()) (message string) {
	defer func() {
		if value := recover(); value != nil {
			message = fmt.Sprint(value)
		}
	}()
	f()
	return ""
}

// mustPanic checks that each of the constructions panics, with a message of this package.
func mustPanic(t *testing.T, constructions map[string]func()) {
	t.Helper()
	for name, construct := range constructions {
		if message := panicOf(construct); !strings.HasPrefix(message, "middleware: ") {
			t.Errorf("%s: panics with %q, want one of middleware", name, message)
		}
	}
}

// show prints, for examples, the status that h answers a request with, the fields that are asked for and have a value, and
// the body. The address of the client is 192.0.2.1.
func show(h filo.Handler, names []string, request string, fields ...string) {
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
