//go:build !race

package static_test

import (
	"io"
	"strings"
	"testing"

	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/static"
)

// Serving a file from memory, a range of it, or one of its encodings allocates nothing.
func TestAllocations(t *testing.T) {
	dir := tree(t, map[string]string{"a.txt": strings.Repeat("a", 1000), "b.js": "b", "b.js.gz": "bb", "index.html": "home"})
	files := open(t, dir, static.Options{Precompressed: true, CacheControl: static.CacheFingerprinted})
	r := router.New()
	r.GET("/{path...}", files.Serve)
	s := servertest.New(t, r.Serve)
	for _, request := range []string{
		servertest.Request("GET /a.txt", ""),
		servertest.Request("HEAD /a.txt", ""),
		servertest.Request("GET /", ""),
		servertest.Request("GET /a.txt", "", "Range: bytes=10-19"),
		servertest.Request("GET /b.js", "", "Accept-Encoding: gzip, br"),
	} {
		conn := s.Dial(t)
		request = strings.Replace(request, "Connection: close\r\n", "", 1)
		in, out := []byte(request), make([]byte, 64<<10)
		n := 0
		exchange := func() {
			if _, err := conn.Write(in); err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				if _, err := io.ReadFull(conn, out[:n]); err != nil {
					t.Fatal(err)
				}
				return
			}
			if err := conn.WaitRead(); err != nil {
				t.Fatal(err)
			}
			var err error
			if n, err = conn.Read(out); err != nil {
				t.Fatal(err)
			}
			if answer := string(out[:n]); !strings.HasPrefix(answer, "HTTP/1.1 20") || strings.Contains(answer, "Connection: close") {
				t.Fatal(answer)
			}
		}
		for range 200 {
			exchange()
		}
		if allocs := testing.AllocsPerRun(1000, exchange); allocs > 0 {
			t.Errorf("%q: %v allocations", request, allocs)
		}
	}
}
