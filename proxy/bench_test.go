package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/filohttp/filo/proxy"
)

// BenchmarkServe measures a small answer on one connection over TCP, directly from an upstream and through a proxy.
func BenchmarkServe(b *testing.B) {
	upstream := backend(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, "Hello, World!")
	})
	for _, each := range []struct {
		name string
		addr func(b *testing.B) string
	}{
		{"upstream", func(*testing.B) string { return upstream[len("http://"):] }},
		{"proxy", func(b *testing.B) string { return newFront(b, proxy.Options{Upstreams: []string{upstream}}).addr }},
	} {
		b.Run(each.name, func(b *testing.B) { benchmark(b, each.addr(b)) })
	}
}

func benchmark(b *testing.B, addr string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	request := []byte("GET /path?q=1 HTTP/1.1\r\nHost: example.com\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, response.Body); n != 13 || err != nil || response.StatusCode != 200 {
			b.Fatal(response.StatusCode, n, err)
		}
	}
}
