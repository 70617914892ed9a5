package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo/proxy"
)

// A client's mistake is answered with a 4xx error, and doesn't make the proxy avoid an upstream.
func TestClientsFault(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
	for _, test := range []struct {
		name, request string
		options       proxy.Options
		status        int
	}{
		{"a small body that ends early", head + "Content-Length: 100\r\n\r\nabc", proxy.Options{}, 400},
		{"a small body that isn't kept", head + "Content-Length: 100\r\n\r\nabc", proxy.Options{Retries: -1}, 400},
		{"a large body that ends early", head + "Content-Length: 1000000\r\n\r\nabc", proxy.Options{}, 400},
		{"chunks that end early", head + "Transfer-Encoding: chunked\r\n\r\n5\r\nab", proxy.Options{}, 400},
		{"invalid chunks", head + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\nx\r\n", proxy.Options{}, 400},
		{"a body that is too large", head + "Transfer-Encoding: chunked\r\n\r\n500000\r\n" + strings.Repeat("x", 5<<20) + "\r\n0\r\n\r\n", proxy.Options{}, 413},
		{"no name of a trailer field", head + "Transfer-Encoding: chunked\r\nTrailer: a b, X-Sum\r\n\r\n1\r\na\r\n0\r\nX-Sum: 7\r\n\r\n", proxy.Options{}, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			var counts [2]atomic.Int32 // how many GET requests each upstream got
			for i := range counts {
				test.options.Upstreams = append(test.options.Upstreams, backend(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == "GET" {
						counts[i].Add(1)
					}
					io.Copy(io.Discard, r.Body)
				}))
			}
			test.options.MaxFailures, test.options.FailTime = 1, time.Hour
			f := newFront(t, test.options)
			for range 2 {
				if got := f.raw(test.request); !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", test.status)) {
					t.Errorf("answered %q", got)
				}
			}
			for range 4 {
				f.do("GET", "/", "")
			}
			if a, b := counts[0].Load(), counts[1].Load(); a != 2 || b != 2 {
				t.Errorf("of 4 requests afterwards the upstreams have got %d and %d", a, b)
			}
		})
	}
}

// If an upstream closes its connection while the proxy sends it a body, that counts as the upstream's failure, and not as the
// client's.
func TestUpstreamsFault(t *testing.T) {
	var asked atomic.Int32
	bad := backend(t, func(w http.ResponseWriter, r *http.Request) { asked.Add(1); panic(http.ErrAbortHandler) })
	f := newFront(t, proxy.Options{Upstreams: []string{bad, backend(t, echo)}, MaxFailures: 1, FailTime: time.Hour})
	large := strings.Repeat("x", 1<<20)
	if response, _ := f.do("POST", "/", large); response.StatusCode != 502 {
		t.Errorf("answered %d", response.StatusCode)
	}
	for range 4 {
		if response, _ := f.do("GET", "/", ""); response.StatusCode != 200 {
			t.Errorf("answered %d", response.StatusCode)
		}
	}
	if got := asked.Load(); got != 1 {
		t.Errorf("the bad upstream was asked %d times, want 1", got)
	}
}
