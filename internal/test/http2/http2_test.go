package http2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// route returns a handler that calls the handler for the request's path.
func route(routes map[string]filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		if h := routes[c.Path()]; h != nil {
			return h(c)
		}
		return filo.Error(404, "")
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	source.Read(b)
	return b
}

// unknownLength hides a reader's length from net/http.
func unknownLength(r io.Reader) io.Reader { return struct{ io.Reader }{r} }

func echoBody(c *filo.Ctx) error {
	b, err := c.Body()
	if err != nil {
		return err
	}
	return c.Bytes(200, "application/octet-stream", b)
}

func echoReader(c *filo.Ctx) error {
	c.Response.SetBodyStream(c.BodyReader(), -1)
	return nil
}

func TestHTTP2Answers(t *testing.T) {
	large := randomBytes(3 << 20)
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{MaxBodyBytes: 8 << 20, Handler: route(map[string]filo.Handler{
			"/":       func(c *filo.Ctx) error { return c.Text(200, "Hello, "+c.Request.Proto()) },
			"/none":   func(c *filo.Ctx) error { return c.NoContent() },
			"/large":  func(c *filo.Ctx) error { return c.BytesNoCopy(200, "application/octet-stream", large) },
			"/copied": func(c *filo.Ctx) error { return c.Bytes(200, "application/octet-stream", large[:40_000]) },
			"/fails":  func(c *filo.Ctx) error { return filo.Error(418, "no coffee") },
			"/panics": func(c *filo.Ctx) error { panic("on purpose") },
			"/query":  func(c *filo.Ctx) error { return c.Text(200, c.Query("a")+" "+c.Host()) },
			"/stream": func(c *filo.Ctx) error {
				w := c.Stream()
				for i := range 3 {
					fmt.Fprintf(w, "%d,", i)
					if err := w.Flush(); err != nil {
						return err
					}
				}
				w.Write(large)
				return nil
			},
			"/reader": func(c *filo.Ctx) error {
				c.Response.SetBodyStream(bytes.NewReader(large), int64(len(large)))
				return nil
			},
			"/echo": echoBody, "/echo-reader": echoReader,
			"/unread": func(c *filo.Ctx) error { return c.Text(200, "not read") },
		})})
		c.Want("GET", "/", nil, 200, "Hello, HTTP/2.0")
		c.Want("HEAD", "/", nil, 200, "")
		c.Want("GET", "/none", nil, 204, "")
		c.Want("GET", "/large", nil, 200, string(large))
		c.Want("HEAD", "/large", nil, 200, "")
		c.Want("GET", "/copied", nil, 200, string(large[:40_000]))
		c.Want("GET", "/fails", nil, 418, "Status 418: no coffee\n")
		c.Want("GET", "/panics", nil, 500, "Internal Server Error\n")
		c.Want("GET", "/nothing", nil, 404, "Not Found\n")
		c.Want("GET", "/query?a=b%20c", nil, 200, "b c "+strings.TrimPrefix(strings.TrimPrefix(c.URL, "http://"), "https://"))
		c.Want("GET", "/stream", nil, 200, "0,1,2,"+string(large))
		c.Want("GET", "/reader", nil, 200, string(large))
		for _, n := range []int{0, 1, 1000, 16 << 10, 16<<10 + 1, 65535, 65536, 200_000, len(large)} {
			for _, path := range []string{"/echo", "/echo-reader"} {
				c.Want("POST", path, bytes.NewReader(large[:n]), 200, string(large[:n]))
				c.Want("POST", path, unknownLength(bytes.NewReader(large[:n])), 200, string(large[:n]))
			}
		}
		c.Want("POST", "/unread", bytes.NewReader(large[:100]), 200, "not read")
		c.Want("POST", "/unread", bytes.NewReader(large), 200, "not read")
		c.Want("POST", "/echo", bytes.NewReader(append(large, make([]byte, 8<<20)...)), 413, "Content Too Large: request body too large\n")
		c.Want("GET", "/", nil, 200, "Hello, HTTP/2.0")
	})
}

// Fields arrive on both sides with names in lower case, as HTTP/2 requires.
func TestHTTP2Fields(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{Name: "test", Handler: func(c *filo.Ctx) error {
			for name, value := range c.Request.Header.All() {
				if strings.HasPrefix(strings.ToLower(string(name)), "x-") || strings.EqualFold(string(name), "cookie") {
					c.Response.Header.AddBytes("Got-"+string(name), value)
				}
			}
			c.Response.Header.Set("Connection", "keep-alive, X-Hop")
			c.Response.Header.Set("Keep-Alive", "timeout=5")
			c.Response.Header.Set("X-Long", strings.Repeat("long ", 4000))
			c.Response.Header.Set("Set-Cookie", "a=b")
			return c.Text(203, "hi")
		}})
		response, _ := c.Ask("GET", "/", nil, "X-A", "1", "X-A", "2", "Cookie", "a=1; b=2", "X-Empty", "")
		want := http.Header{"Got-X-A": {"1", "2"}, "Got-Cookie": {"a=1; b=2"}, "Got-X-Empty": {""}, "X-Long": {strings.Repeat("long ", 3999) + "long"},
			"Set-Cookie": {"a=b"}, "Server": {"test"}, "Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": {"2"},
			"Date": response.Header["Date"]}
		if got := fmt.Sprint(response.Header); response.StatusCode != 203 || got != fmt.Sprint(want) || len(want["Date"]) != 1 {
			t.Errorf("%d %v\nwant %v", response.StatusCode, filotest.CutText(got), want)
		}
	})
}

// Requests and answers may have trailers, and interim answers precede the final one.
func TestHTTP2TrailersAndInterim(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			c.Response.Header.Set("Link", "</a.css>; rel=preload")
			if err := c.EarlyHints(); err != nil {
				return err
			}
			body, err := c.Body()
			if err != nil {
				return err
			}
			w := c.Stream()
			fmt.Fprintf(w, "%s, %s", body, c.Request.Trailer.Get("X-After"))
			if err := w.Flush(); err != nil {
				return err
			}
			c.Response.Trailer.Set("X-Sum", "42")
			return nil
		}})
		var hints []int
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			hints = append(hints, code)
			if got := header.Get("Link"); got != "</a.css>; rel=preload" {
				t.Errorf("%d has Link %q", code, got)
			}
			return nil
		}})
		request, err := http.NewRequestWithContext(ctx, "POST", c.URL+"/", unknownLength(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		request.Trailer = http.Header{"X-After": {"trailer"}}
		response, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || string(body) != "body, trailer" || response.Trailer.Get("X-Sum") != "42" || fmt.Sprint(hints) != "[103]" {
			t.Errorf("%q, trailer %v, interim %v: %v", body, response.Trailer, hints, err)
		}
	})
}

// A client that waits for a 100 gets it when the handler reads the body, and not before.
func TestHTTP2Continue(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{Handler: route(map[string]filo.Handler{
			"/read":   echoBody,
			"/unread": func(c *filo.Ctx) error { return c.Text(403, "no") },
		})})
		c.Transport.(*http.Transport).ExpectContinueTimeout = filotest.Bound
		for path, want := range map[string]string{"/read": "200 hello", "/unread": "403 no"} {
			response, text := c.Ask("POST", path, strings.NewReader("hello"), "Expect", "100-continue")
			if got := fmt.Sprint(response.StatusCode, " ", text); got != want {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
	})
}

// Both directions are open at the same time: the handler receives bytes that the client sends after a part of the answer.
func TestHTTP2FullDuplex(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			w, buffer := c.Stream(), make([]byte, 100)
			if err := w.Flush(); err != nil {
				return err
			}
			for {
				n, err := c.BodyReader().Read(buffer)
				if n > 0 {
					w.Write(bytes.ToUpper(buffer[:n]))
					if err := w.Flush(); err != nil {
						return err
					}
				}
				if err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
			}
		}})
		reader, writer := io.Pipe()
		response, err := c.Fetch(context.Background(), "POST", "/", reader)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		for _, word := range []string{"one", "two", "three"} {
			if _, err := io.WriteString(writer, word); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(word))
			if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != strings.ToUpper(word) {
				t.Fatalf("%q came back for %q: %v", got, word, err)
			}
		}
		writer.Close()
		if rest, err := io.ReadAll(response.Body); len(rest) > 0 || err != nil {
			t.Errorf("the end is %q, %v", rest, err)
		}
	})
}

// Requests of one connection are served at the same time, whether their handlers are known to be quick or wait. If a handler was always quick
// and now waits for ever, other streams of the connection are still served.
func TestHTTP2StuckHandler(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		stuck, release := make(chan struct{}, 100), make(chan struct{})
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() == "/stuck" {
				stuck <- struct{}{}
				<-release
			}
			return c.Text(200, c.Path())
		}})
		for range 500 { // until the server has measured the handler as quick
			c.Want("GET", "/quick", nil, 200, "/quick")
		}
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() { c.Want("GET", "/stuck", nil, 200, "/stuck") })
			filotest.Recv(t, stuck, "the stuck handler")
			for range 10 {
				c.Want("GET", "/quick", nil, 200, "/quick")
			}
		}
		close(release)
		waiting.Wait()
	})
}

// Many streams of all kinds on few connections get the right answers.
func TestHTTP2Mixed(t *testing.T) {
	content := randomBytes(300_000)
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		s, c := serve(&filo.Server{Handler: route(map[string]filo.Handler{
			"/":      func(c *filo.Ctx) error { return c.Text(200, c.Query("n")) },
			"/sleep": func(c *filo.Ctx) error { time.Sleep(time.Millisecond); return c.Text(200, c.Query("n")) },
			"/part": func(c *filo.Ctx) error {
				n := 0
				fmt.Sscan(c.Query("n"), &n)
				return c.BytesNoCopy(200, "application/octet-stream", content[:n])
			},
			"/stream": func(c *filo.Ctx) error {
				n := 0
				fmt.Sscan(c.Query("n"), &n)
				w := c.Stream()
				for from := 0; from < n; from += 10_000 {
					if _, err := w.Write(content[from:min(n, from+10_000)]); err != nil {
						return err
					}
				}
				return nil
			},
			"/echo": echoBody, "/echo-reader": echoReader,
		})})
		var done sync.WaitGroup
		for i := range 32 {
			done.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				for range 30 {
					n := random.IntN(100_000)
					switch random.IntN(7) {
					case 0, 1:
						c.Want("GET", fmt.Sprint("/?n=", n), nil, 200, fmt.Sprint(n))
					case 2:
						c.Want("GET", fmt.Sprint("/sleep?n=", n), nil, 200, fmt.Sprint(n))
					case 3:
						c.Want("GET", fmt.Sprint("/part?n=", n), nil, 200, string(content[:n]))
					case 4:
						c.Want("GET", fmt.Sprint("/stream?n=", n), nil, 200, string(content[:n]))
					case 5:
						c.Want("POST", "/echo", bytes.NewReader(content[:n]), 200, string(content[:n]))
					case 6:
						c.Want("POST", "/echo-reader", unknownLength(bytes.NewReader(content[:n])), 200, string(content[:n]))
					}
				}
			})
		}
		done.Wait()
		filotest.Await(t, "the requests to be over", func() bool { return s.Stats().ConnsActive == 0 })
	})
}

// When a client resets a stream, only the context of this request ends.
func TestHTTP2ContextEnds(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		begun, ended := make(chan struct{}, 2), make(chan error, 2)
		release := make(chan struct{})
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			begun <- struct{}{}
			if c.Path() == "/stays" {
				select {
				case <-c.Context().Done():
					ended <- errors.New("the sibling's context has ended")
				case <-release:
				}
				return c.Text(200, "stayed")
			}
			<-c.Context().Done()
			ended <- context.Cause(c.Context())
			return nil
		}})
		var sibling sync.WaitGroup
		sibling.Go(func() { c.Want("GET", "/stays", nil, 200, "stayed") })
		filotest.Recv(t, begun, "the handler")
		ctx, cancel := context.WithCancel(context.Background())
		gone := make(chan error, 1)
		go func() {
			_, err := c.Fetch(ctx, "GET", "/leaves", nil)
			gone <- err
		}()
		filotest.Recv(t, begun, "the handler")
		cancel()
		if err := filotest.Recv(t, gone, "the client's error"); !errors.Is(err, context.Canceled) {
			t.Error("the client's error:", err)
		}
		if err := filotest.Recv(t, ended, "the end"); !errors.Is(err, filo.ErrClientGone) {
			t.Error("the context's cause:", err)
		}
		close(release)
		sibling.Wait()
	})
}

// A time-out answers instead of the handler, and other streams continue.
func TestHTTP2Timeout(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() != "/slow" {
				return c.Text(200, "ok")
			}
			c.SetTimeout(10*time.Millisecond, nil)
			<-c.Context().Done()
			return c.Context().Err()
		}})
		c.Want("GET", "/", nil, 200, "ok")
		c.Want("GET", "/slow", nil, 503, "Service Unavailable: the handler took too long\n")
		c.Want("HEAD", "/slow", nil, 503, "")
		c.Want("GET", "/", nil, 200, "ok")
	})
}

// If a handler ends its goroutine, the other streams of the connection continue.
func TestHTTP2Goexit(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		s, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			switch c.Path() {
			case "/inline":
				runtime.Goexit()
			case "/apart":
				time.Sleep(5 * time.Millisecond)
				runtime.Goexit()
			}
			return c.Text(200, "ok")
		}})
		for range 200 {
			c.Want("GET", "/", nil, 200, "ok")
		}
		for range 3 {
			c.Want("GET", "/inline", nil, 500, "Internal Server Error\n")
			c.Want("GET", "/apart", nil, 500, "Internal Server Error\n")
			c.Want("GET", "/", nil, 200, "ok")
		}
		if n := s.Stats().ConnsAccepted; n > 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// Beyond Concurrency, a request gets a 503, and the connection stays open.
func TestHTTP2Overload(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		begun, release := make(chan struct{}, 10), make(chan struct{})
		var refused atomic.Int32
		s, c := serve(&filo.Server{Concurrency: 2, Handler: filo.Offload(func(c *filo.Ctx) error {
			begun <- struct{}{}
			<-release
			return c.Text(200, "ok")
		})})
		var done sync.WaitGroup
		for range 2 {
			done.Go(func() { c.Want("GET", "/", nil, 200, "ok") })
			filotest.Recv(t, begun, "the handler")
		}
		for range 3 {
			response, _ := c.Ask("GET", "/", nil)
			if response.StatusCode == 503 && response.Header.Get("Retry-After") != "" {
				refused.Add(1)
			}
		}
		if n := refused.Load(); n != 3 {
			t.Errorf("%d of 3 requests were refused", n)
		}
		if n := s.Stats().RequestsRefused; n != 3 {
			t.Errorf("Stats says %d", n)
		}
		close(release)
		done.Wait()
		filotest.Await(t, "a free place", func() bool { return s.Stats().WorkersRunning == 0 })
		c.Want("GET", "/", nil, 200, "ok")
	})
}

// With a Queue, a request beyond Concurrency waits for a place, and other streams continue. Requests beyond the queue's length are refused.
func TestHTTP2Queue(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		begun, release := make(chan string, 10), make(chan struct{})
		held := filo.Offload(func(c *filo.Ctx) error {
			begun <- c.Path()
			<-release
			return c.Text(200, "ok")
		})
		quick := filo.Inline(func(c *filo.Ctx) error { return c.Text(200, "quick") })
		s, c := serve(&filo.Server{Concurrency: 1, Queue: 2, QueueTimeout: time.Hour, Handler: func(c *filo.Ctx) error {
			if c.Path() == "/quick" {
				return quick(c)
			}
			return held(c)
		}})
		var done sync.WaitGroup
		done.Go(func() { c.Want("GET", "/1", nil, 200, "ok") })
		filotest.Recv(t, begun, "the handler")
		for n := 1; n <= 2; n++ {
			done.Go(func() { c.Want("GET", fmt.Sprint("/", n+1), nil, 200, "ok") })
			filotest.Await(t, "a request to wait", func() bool { return s.Stats().RequestsQueued == n })
		}
		c.Want("GET", "/quick", nil, 200, "quick")
		if response, _ := c.Ask("GET", "/4", nil); response.StatusCode != 503 {
			t.Errorf("a request that finds the queue full gets %d", response.StatusCode)
		}
		for _, want := range []string{"/2", "/3"} {
			release <- struct{}{}
			if got := filotest.Recv(t, begun, "the next handler"); got != want {
				t.Errorf("%s is next, want %s", got, want)
			}
		}
		release <- struct{}{}
		done.Wait()
		filotest.Await(t, "the places to be free", func() bool { stats := s.Stats(); return stats.WorkersRunning == 0 && stats.RequestsQueued == 0 })
	})
}

// A shutdown lets the streams end, and loses no request of a client that continues to send.
func TestHTTP2Shutdown(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		begun, release, draining := make(chan struct{}, 1), make(chan struct{}), make(chan (<-chan struct{}), 1)
		s, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() == "/slow" {
				draining <- c.ShuttingDown()
				begun <- struct{}{}
				<-release
			}
			return c.Text(200, c.Path())
		}})
		c.Want("GET", "/", nil, 200, "/")
		var slow sync.WaitGroup
		slow.Go(func() { c.Want("GET", "/slow", nil, 200, "/slow") })
		filotest.Recv(t, begun, "the handler")
		ended := s.BeginShutdown(t, <-draining)
		close(release)
		slow.Wait()
		if err := filotest.Recv(t, ended, "the end"); err != nil {
			t.Error(err)
		}
	})
}

// An idle connection ends after IdleTimeout, and at once during a shutdown.
func TestHTTP2Idle(t *testing.T) {
	for name, test := range map[string]struct {
		timeout time.Duration
		end     func(*testing.T, *filotest.Server)
	}{
		"shutdown": {end: func(t *testing.T, s *filotest.Server) {
			if err := s.ShutdownInTime(); err != nil {
				t.Error(err)
			}
		}},
		"timeout": {timeout: 50 * time.Millisecond, end: func(t *testing.T, s *filotest.Server) {}},
	} {
		t.Run(name, func(t *testing.T) {
			filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
				config := filo.Server{IdleTimeout: test.timeout, Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }}
				s, c := serve(&config)
				c.Want("GET", "/", nil, 200, "ok")
				test.end(t, s)
				filotest.Await(t, "the connection to end", func() bool { return s.Stats().ConnsOpen == 0 })
			})
		})
	}
}

// After MaxRequestsPerConn, the server makes the client use another connection, and no request is lost.
func TestHTTP2MaxRequests(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		s, c := serve(&filo.Server{MaxRequestsPerConn: 10, Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }})
		for range 35 {
			c.Want("GET", "/", nil, 200, "ok")
		}
		if n := s.Stats().ConnsAccepted; n < 3 {
			t.Errorf("35 requests came by %d connections", n)
		}
	})
}

// If a body doesn't arrive, the answer is a 408, and the connection stays open.
func TestHTTP2SlowBody(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{ReadTimeout: 50 * time.Millisecond, Handler: echoBody})
		for _, length := range []int64{100, 100_000, -1} {
			reader, writer := io.Pipe()
			request, err := http.NewRequest("POST", c.URL+"/", reader)
			if err != nil {
				t.Fatal(err)
			}
			request.ContentLength = length
			response, err := c.Do(request)
			if err != nil {
				t.Fatalf("length %d: %v", length, err)
			}
			response.Body.Close()
			if writer.Close(); response.StatusCode != 408 {
				t.Errorf("length %d: %d", length, response.StatusCode)
			}
		}
		// The connection goes on. A busy machine may send the head of a request long before its body.
		filotest.Await(t, "a body that comes in time", func() bool {
			response, text := c.Ask("POST", "/", strings.NewReader("ok"))
			if response.StatusCode != 408 && (response.StatusCode != 200 || text != "ok") {
				t.Fatalf("%d %q", response.StatusCode, text)
			}
			return response.StatusCode == 200
		})
	})
}

// If a client doesn't read a large answer, other streams continue, and the answer takes little of the server's memory. The server ends the
// stream after WriteTimeout.
func TestHTTP2SlowReader(t *testing.T) {
	t.Parallel()
	large := randomBytes(8 << 20)
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		s, c := serve(&filo.Server{WriteTimeout: time.Second, Handler: route(map[string]filo.Handler{
			"/": func(c *filo.Ctx) error { return c.Text(200, "ok") },
			"/stream": func(c *filo.Ctx) error {
				w := c.Stream()
				for range 20 {
					if _, err := w.Write(large); err != nil {
						return err
					}
				}
				return nil
			},
			"/whole": func(c *filo.Ctx) error { return c.BytesNoCopy(200, "application/octet-stream", large) },
		})})
		for _, path := range []string{"/stream", "/whole"} {
			response, err := c.Fetch(context.Background(), "GET", path, nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Want("GET", "/", nil, 200, "ok")
			filotest.Await(t, path+" to be given up", func() bool { return s.Stats().WorkersRunning == 0 })
			c.Want("GET", "/", nil, 200, "ok")
			response.Body.Close()
		}
	})
}

// ConnContext and ConnState are also called for HTTP/2 connections.
func TestHTTP2ConnState(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		type key struct{}
		var mu sync.Mutex
		all, contexts := make(map[net.Conn][]filo.ConnState), 0
		// states returns the states of the connection that has had a request. With TLS there is another connection, which has only checked
		// that the server listens.
		states := func() []filo.ConnState {
			mu.Lock()
			defer mu.Unlock()
			for _, states := range all {
				if len(states) > 1 && states[1] == filo.StateActive {
					return slices.Clone(states)
				}
			}
			return nil
		}
		_, c := serve(&filo.Server{
			ConnState: func(conn net.Conn, state filo.ConnState) {
				mu.Lock()
				defer mu.Unlock()
				all[conn] = append(all[conn], state)
			},
			ConnContext: func(net.Conn) context.Context {
				contexts++
				return context.WithValue(context.Background(), key{}, "value")
			},
			Handler: func(c *filo.Ctx) error { return c.Text(200, fmt.Sprint(c.Context().Value(key{}))) },
		})
		ends := func(state filo.ConnState) func() bool {
			return func() bool { got := states(); return len(got) > 0 && got[len(got)-1] == state }
		}
		for range 3 {
			c.Want("GET", "/", nil, 200, "value")
			filotest.Await(t, "an idle connection", ends(filo.StateIdle))
		}
		c.CloseIdleConnections()
		filotest.Await(t, "the connection to end", ends(filo.StateClosed))
		want := "[new active idle active idle active idle closed]"
		// Without TLS, the first bytes make the connection active. If the first request doesn't arrive together with the client's preface,
		// the connection becomes idle in between.
		if got := fmt.Sprint(states()); got != want && got != strings.Replace(want, "new", "new active idle", 1) || contexts != 1 {
			t.Errorf("%s, want %s; ConnContext was called %d times", got, want, contexts)
		}
	})
}

// Over HTTP/2, methods that would take the connection over fail with an error that says why.
func TestHTTP2Hijack(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			_, _, err := c.Hijack()
			return err
		}})
		c.Want("GET", "/", nil, 501, "Not Implemented: needs HTTP/1.1\n")
		c.Want("GET", "/", nil, 501, "Not Implemented: needs HTTP/1.1\n")
	})
}
