package adaptor_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
)

// benchmark measures requests on one connection.
func benchmark(b *testing.B, dial func() (net.Conn, error)) {
	conn, err := dial()
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	request := []byte("GET /path?q=1 HTTP/1.1\r\nHost: example.com\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n")
	one := func() {
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				b.Fatal(err)
			}
			if len(line) == 2 {
				break
			}
		}
		r.Discard(len("Hello, World!"))
	}
	one()
	b.ReportAllocs()
	for b.Loop() {
		one()
	}
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, "Hello, World!")
})

func helloFilo(c *filo.Ctx) error { return c.Text(200, "Hello, World!") }

// BenchmarkServe runs a small handler under net/http and in filo, and shows how much time the package adds to each of them.
func BenchmarkServe(b *testing.B) {
	same := adaptor.Middleware(func(next http.Handler) http.Handler { return next })
	for _, each := range []struct {
		name  string
		start func(b *testing.B) func() (net.Conn, error)
	}{
		{"net-http", func(b *testing.B) func() (net.Conn, error) { return startHTTP(b, hello) }},
		{"filo", func(b *testing.B) func() (net.Conn, error) { return startTCP(b, &filo.Server{Handler: helloFilo}) }},
		{"FromHTTP", func(b *testing.B) func() (net.Conn, error) {
			return startTCP(b, &filo.Server{Handler: adaptor.FromHTTP(hello)})
		}},
		{"Middleware", func(b *testing.B) func() (net.Conn, error) {
			return startTCP(b, &filo.Server{Handler: same(helloFilo)})
		}},
		{"ToHTTP", func(b *testing.B) func() (net.Conn, error) { return startHTTP(b, adaptor.ToHTTP(helloFilo)) }},
	} {
		b.Run(each.name, func(b *testing.B) { benchmark(b, each.start(b)) })
	}
}

// discarder is an http.ResponseWriter that does almost no work.
type discarder struct{ header http.Header }

func (d *discarder) Header() http.Header         { return d.header }
func (d *discarder) Write(p []byte) (int, error) { return len(p), nil }
func (d *discarder) WriteHeader(int)             {}

// BenchmarkToHTTP measures ToHTTP without a server.
func BenchmarkToHTTP(b *testing.B) {
	h := adaptor.ToHTTP(helloFilo)
	r := httptest.NewRequest("GET", "/path?q=1", nil)
	w := &discarder{header: make(http.Header)}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}
