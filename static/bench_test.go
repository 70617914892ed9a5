package static_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/static"
)

var benchSizes = []struct {
	name string
	size int
}{{"1KB", 1 << 10}, {"1MB", 1 << 20}}

// BenchmarkServe sends files through a TCP socket. The figures include the client, which runs in the same process.
func BenchmarkServe(b *testing.B) {
	for _, each := range benchSizes {
		dir := tree(b, map[string]string{"file.bin": string(noise(each.size))})
		b.Run(each.name+"/filo", func(b *testing.B) {
			benchmarkSocket(b, tcptest.Serve(b, &filo.Server{Handler: open(b, dir).Serve}), each.size)
		})
		b.Run(each.name+"/nethttp", func(b *testing.B) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			server := &http.Server{Handler: http.FileServer(http.Dir(dir))}
			go server.Serve(ln)
			defer server.Close()
			benchmarkSocket(b, ln.Addr().String(), each.size)
		})
	}
}

func benchmarkSocket(b *testing.B, address string, size int) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	reader := bufio.NewReaderSize(conn, 64<<10)
	in := []byte("GET /file.bin HTTP/1.1\r\nHost: a\r\n\r\n")
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(in); err != nil {
			b.Fatal(err)
		}
		for {
			line, err := reader.ReadSlice('\n')
			if err != nil {
				b.Fatal(err)
			}
			if len(line) == 2 {
				break
			}
		}
		if n, err := reader.Discard(size); err != nil {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkInMemory measures only the handler, by calling it repeatedly in one request.
func BenchmarkInMemory(b *testing.B) {
	dir := tree(b, map[string]string{"a.txt": strings.Repeat("a", 1000), "b.js": "b", "b.js.gz": "bb"})
	files := open(b, dir, static.Options{Precompressed: true})
	for _, each := range []struct{ name, request string }{
		{"whole", "GET /a.txt HTTP/1.1\r\nHost: a\r\n"},
		{"range", "GET /a.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=10-19\r\n"},
		{"ranges", "GET /a.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=10-19,-5\r\n"},
		{"encoded", "GET /b.js HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"},
		{"not modified", "GET /a.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n"},
	} {
		b.Run(each.name, func(b *testing.B) {
			client, server := net.Pipe()
			defer client.Close()
			go func() {
				fmt.Fprint(client, each.request+"Connection: close\r\n\r\n")
				io.Copy(io.Discard, client)
			}()
			b.ReportAllocs()
			err := filo.ServeConn(server, func(c *filo.Ctx) error {
				for b.Loop() {
					c.Response.Header.Reset()
					c.Response.SetStatus(200)
					if err := files.Serve(c); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkNotFound measures a request for a file that doesn't exist, for which the server checks the disk.
func BenchmarkNotFound(b *testing.B) {
	address := tcptest.Serve(b, &filo.Server{Handler: open(b, b.TempDir()).Serve})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	in := []byte("GET /none HTTP/1.1\r\nHost: a\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(in); err != nil {
			b.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil || response.StatusCode != 404 {
			b.Fatal(response, err)
		}
		io.Copy(io.Discard, response.Body)
	}
}
