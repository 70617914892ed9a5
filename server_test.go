package filo

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The benchmarks serve connections in memory that cost next to nothing, so that they time the server. Each has a twin on net/http; the
// twins on fasthttp are in the bench module.

// benchConn is a connection in memory with its client, which sends the same bytes again and again.
type benchConn struct {
	input   []byte
	offset  int
	left    int // how many more times input will be sent
	written int
	closed  chan struct{}
}

func (c *benchConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.input[c.offset:])
	if c.offset += n; c.offset == len(c.input) {
		c.offset = 0
		c.left--
	}
	return n, nil
}

func (c *benchConn) Write(p []byte) (int, error) {
	c.written += len(p)
	return len(p), nil
}

func (c *benchConn) Close() error {
	select {
	case c.closed <- struct{}{}:
	default:
	}
	return nil
}

var benchAddr = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}

func (c *benchConn) LocalAddr() net.Addr              { return benchAddr }
func (c *benchConn) RemoteAddr() net.Addr             { return benchAddr }
func (c *benchConn) SetDeadline(time.Time) error      { return nil }
func (c *benchConn) SetReadDeadline(time.Time) error  { return nil }
func (c *benchConn) SetWriteDeadline(time.Time) error { return nil }

// benchListener accepts the connections that are sent to it.
type benchListener chan net.Conn

func (l benchListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l benchListener) Close() error   { return nil }
func (l benchListener) Addr() net.Addr { return benchAddr }

// benchWork is what a connection of a benchmark carries.
type benchWork struct {
	input    string // sent at once
	requests int    // in input
	perConn  int    // requests of a connection
	filo     Handler
	netHTTP  http.HandlerFunc
}

const benchGET = "GET /foobar?baz HTTP/1.1\r\nHost: www.example.com\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\r\n" +
	"Referer: https://www.example.com/some/page?with=query\r\nCookie: session=4f1d0e2c9a7b; theme=dark\r\n\r\n"

func benchHello(c *Ctx) error { return c.Text(200, "Hello, World!") }

func benchHelloNetHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", textPlain)
	io.WriteString(w, "Hello, World!")
}

func benchPlain(requests, perConn int) benchWork {
	return benchWork{strings.Repeat(benchGET, requests), requests, perConn, benchHello, benchHelloNetHTTP}
}

func benchManyHeaders() benchWork {
	var b strings.Builder
	b.WriteString("GET /foobar?baz HTTP/1.1\r\nHost: www.example.com\r\n")
	for i := range 28 {
		fmt.Fprintf(&b, "X-Trace-%d: 4f1d0e2c9a7b-%d\r\n", i, i)
	}
	return benchWork{b.String() + "\r\n", 1, 10_000,
		func(c *Ctx) error { return c.Bytes(200, textPlain, c.Request.Header.GetBytes("X-Trace-20")) },
		func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X-Trace-20")) }}
}

func benchPOST() benchWork {
	return benchWork{"POST /foobar?baz HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 1024\r\n\r\n" + strings.Repeat("x", 1024),
		1, 10_000,
		func(c *Ctx) error {
			body, err := c.Body()
			if err != nil {
				return err
			}
			return c.Bytes(200, textPlain, body)
		},
		func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }}
}

func benchHijack() benchWork {
	const answer = "hijacked"
	return benchWork{benchGET, 1, 1,
		func(c *Ctx) error {
			conn, _, err := c.Hijack()
			if err != nil {
				return err
			}
			io.WriteString(conn, answer)
			return conn.Close()
		},
		func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			io.WriteString(conn, answer)
			conn.Close()
		}}
}

// run serves b.N requests, on as many connections as this takes.
func (w benchWork) run(b *testing.B, serve func(*benchConn)) {
	b.ReportAllocs()
	for left := b.N; left > 0; {
		n := min(left, w.perConn)
		left -= n
		// A batch is sent whole, so the last connection may carry a little more.
		conn := &benchConn{input: []byte(w.input), left: (n + w.requests - 1) / w.requests, closed: make(chan struct{}, 1)}
		serve(conn)
		<-conn.closed
		if conn.written == 0 {
			b.Fatal("no answer")
		}
	}
}

func (w benchWork) compare(b *testing.B) {
	b.Run("filo", func(b *testing.B) {
		s := &Server{Handler: w.filo}
		defer s.Close()
		w.run(b, func(c *benchConn) { s.ServeConn(c) })
	})
	b.Run("nethttp", func(b *testing.B) {
		listener := make(benchListener)
		defer close(listener)
		go http.Serve(listener, w.netHTTP)
		w.run(b, func(c *benchConn) { listener <- c })
	})
}

func BenchmarkGET1PerConn(b *testing.B)     { benchPlain(1, 1).compare(b) }
func BenchmarkGET10PerConn(b *testing.B)    { benchPlain(1, 10).compare(b) }
func BenchmarkGET10000PerConn(b *testing.B) { benchPlain(1, 10_000).compare(b) }
func BenchmarkGETPipelined(b *testing.B)    { benchPlain(16, 9_600).compare(b) }
func BenchmarkPOST1KB(b *testing.B)         { benchPOST().compare(b) }
func BenchmarkManyHeaders(b *testing.B)     { benchManyHeaders().compare(b) }
func BenchmarkHijack(b *testing.B)          { benchHijack().compare(b) }

// The answers that the benchmarks time are right: each request gets the answer that net/http gives, except for the fields that a server
// chooses.
func TestBenchmarksAnswerAlike(t *testing.T) {
	for name, work := range map[string]benchWork{
		"one": benchPlain(1, 1), "pipelined": benchPlain(16, 32), "post": benchPOST(), "headers": benchManyHeaders(),
	} {
		t.Run(name, func(t *testing.T) {
			s := &Server{Handler: work.filo}
			defer s.Close()
			client, server := net.Pipe()
			defer client.Close()
			go s.ServeConn(server)
			go io.WriteString(client, work.input)
			reader := bufio.NewReader(client)
			for i := range work.requests {
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Fatalf("answer %d: %v", i, err)
				}
				got, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatalf("answer %d: %v", i, err)
				}
				request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(work.input)))
				if err != nil {
					t.Fatal(err)
				}
				want := &benchRecorder{header: make(http.Header)}
				work.netHTTP(want, request)
				if response.StatusCode != 200 || !bytes.Equal(got, want.body.Bytes()) {
					t.Errorf("answer %d: %d %q, want 200 %q", i, response.StatusCode, got, want.body.Bytes())
				}
			}
		})
	}
}

type benchRecorder struct {
	header http.Header
	body   bytes.Buffer
}

func (r *benchRecorder) Header() http.Header         { return r.header }
func (r *benchRecorder) WriteHeader(int)             {}
func (r *benchRecorder) Write(p []byte) (int, error) { return r.body.Write(p) }
