package adaptor_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/h2test"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// on runs a test on every side, and on net/http itself, so that the test can't expect more than net/http provides.
func on(t *testing.T, h http.Handler, test func(t *testing.T, dial func() (net.Conn, error))) {
	t.Helper()
	for _, side := range append([]side{reference}, sides...) {
		t.Run(side.name, func(t *testing.T) { test(t, side.start(t, h)) })
	}
}

// client sends a request on a new connection with a time limit, and returns the connection and a reader of it.
func client(t *testing.T, dial func() (net.Conn, error), request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// expect reads from r, and fails the test unless it reads want.
func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(r, got)
	if string(got[:n]) != want {
		t.Fatalf("got %q (%v), want %q", got[:n], err, want)
	}
}

// Hijack returns the connection and the bytes that were received after the request's head. Afterwards the ResponseWriter refuses
// every use.
func TestHijack(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		if _, err := w.Write([]byte("x")); err != http.ErrHijacked {
			t.Errorf("Write after Hijack: %v", err)
		}
		w.WriteHeader(500)
		if _, _, err := w.(http.Hijacker).Hijack(); err != http.ErrHijacked {
			t.Errorf("second Hijack: %v", err)
		}
		line, err := rw.ReadString('\n')
		fmt.Fprintf(rw, "raw %q %v\n", line, err)
		rw.Flush()
		line, err = rw.ReadString('\n')
		fmt.Fprintf(conn, "raw %q %v\n", line, err)
	})
	on(t, h, func(t *testing.T, dial func() (net.Conn, error)) {
		conn, r := client(t, dial, "GET / HTTP/1.1\r\nHost: a\r\n\r\nbehind the head\n")
		expect(t, r, "raw \"behind the head\\n\" <nil>\n")
		io.WriteString(conn, "more\n")
		expect(t, r, "raw \"more\\n\" <nil>\n")
		if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
			t.Errorf("at the end %q, %v", rest, err)
		}
	})
}

// A handler can switch protocols with WriteHeader(101) and Hijack, as WebSocket libraries do.
func TestSwitchProtocols(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		w.Header().Set("Connection", "Upgrade")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		io.CopyN(conn, rw, 5)
	})
	on(t, h, func(t *testing.T, dial func() (net.Conn, error)) {
		conn, r := client(t, dial, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		response, err := http.ReadResponse(r, nil)
		if err != nil || response.StatusCode != 101 || response.Header.Get("Upgrade") != "echo" {
			t.Fatalf("got %v, %v", response, err)
		}
		io.WriteString(conn, "hello")
		expect(t, r, "hello")
	})
}

// Over HTTP/2 the 101 becomes the answer to a request by extended CONNECT, if it comes before Hijack. A handler that hijacks first, to
// write the head itself, gets an error.
func TestSwitchProtocolsHTTP2(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Chosen", r.Header.Get("Upgrade"))
		if r.URL.Path == "/switches" {
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		io.Copy(conn, rw)
	})
	address := tcptest.Serve(t, &filo.Server{Handler: adaptor.FromHTTP(h), Logger: slog.New(slog.DiscardHandler),
		HTTP2: filo.HTTP2Options{Unencrypted: true, ExtendedConnect: true}})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	c, err := h2test.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	s := c.Connect("echo", "/switches")
	if status, err := s.Status(); status != 200 || err != nil || s.Field("x-chosen") != "echo" {
		t.Fatalf("%d, %v, %q", status, err, s.Field("x-chosen"))
	}
	s.Write([]byte("hello"))
	s.CloseWrite()
	if got, err := io.ReadAll(s); string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if status, err := c.Connect("echo", "/hijacks").Status(); status != 500 || err != nil {
		t.Errorf("%d, %v", status, err)
	}
	if status, _, err := c.Get("/switches"); status != 426 || err != nil {
		t.Errorf("who hasn't asked: %d, %v", status, err)
	}
}

// 100 (Continue) is sent when the body is first read, and not before.
func TestExpectContinue(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			w.WriteHeader(403)
			return
		}
		io.Copy(w, r.Body)
	})
	const headers = " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	on(t, h, func(t *testing.T, dial func() (net.Conn, error)) {
		conn, r := client(t, dial, "POST /read"+headers)
		expect(t, r, "HTTP/1.1 100 Continue\r\n\r\n")
		io.WriteString(conn, "hello")
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, response.Body, "hello")

		_, r = client(t, dial, "POST /refuse"+headers)
		if response, err = http.ReadResponse(r, nil); err != nil || response.StatusCode != 403 || !response.Close {
			t.Fatalf("got %v, %v", response, err)
		}
	})
}

// A handler can answer each piece of a body before the next one comes.
func TestFullDuplex(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); err != nil {
			t.Errorf("EnableFullDuplex: %v", err)
		}
		control.Flush()
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(w, strings.ToUpper(line))
			if err := control.Flush(); err != nil {
				t.Errorf("Flush: %v", err)
			}
		}
	})
	on(t, h, func(t *testing.T, dial func() (net.Conn, error)) {
		// The loop driver waits for the first 16 KB of a body before it runs a handler.
		first := strings.Repeat("first", 5000)
		conn, r := client(t, dial, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\n\r\n", len(first)+1, first))
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, response.Body, strings.ToUpper(first)+"\n")
		for _, word := range []string{"one", "two", "three"} {
			fmt.Fprintf(conn, "%x\r\n%s\n\r\n", len(word)+1, word)
			expect(t, response.Body, strings.ToUpper(word)+"\n")
		}
		io.WriteString(conn, "0\r\n\r\n")
		if rest, err := io.ReadAll(response.Body); len(rest) > 0 || err != nil {
			t.Errorf("at the end %q, %v", rest, err)
		}
	})
}

// The context ends when the client leaves, and when the handler has returned.
func TestContextEnds(t *testing.T) {
	ended := make(chan error, 1)
	kept := make(chan context.Context, 1)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keep" {
			kept <- r.Context()
			return
		}
		done := r.Context().Done() // called before the client gets the head, so that the server watches the client from now on
		w.(http.Flusher).Flush()
		select {
		case <-done:
			ended <- r.Context().Err()
		case <-time.After(time.Minute):
			ended <- errors.New("the context hasn't ended")
		}
	})
	on(t, h, func(t *testing.T, dial func() (net.Conn, error)) {
		conn, r := client(t, dial, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := http.ReadResponse(r, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // if the client left at once, filo would be sure of that only seconds later
		conn.Close()
		if err := <-ended; err != context.Canceled {
			t.Errorf("client left: %v", err)
		}
		client(t, dial, "GET /keep HTTP/1.1\r\nHost: a\r\n\r\n")
		ctx := <-kept
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
			t.Error("the context outlives the handler")
		}
		if ctx.Err() != context.Canceled {
			t.Errorf("after the handler: %v", ctx.Err())
		}
		ctx.Value("anything")
		ctx.Deadline()
	})
}

// leaving describes a client that leaves while a handler waits for the context's end, as in net/http's own tests.
type leaving struct {
	name, request string
	behindHead    bool // the client reads the head before it leaves
	handler       func(w http.ResponseWriter, r *http.Request, left <-chan bool) error
}

func leavings(backend string) []leaving {
	const get = "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"
	wait := func(w http.ResponseWriter, r *http.Request, _ <-chan bool) error { return nil }
	to, _ := url.Parse(backend)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval, proxy.ErrorLog = time.Microsecond, log.New(io.Discard, "", 0)
	return []leaving{
		{"before the head", get, false, wait},
		{"behind the head", get, true, func(w http.ResponseWriter, r *http.Request, _ <-chan bool) error {
			w.Write([]byte("Hello"))
			return http.NewResponseController(w).Flush()
		}},
		{"and the connection is hijacked", get, false, func(w http.ResponseWriter, r *http.Request, _ <-chan bool) error {
			<-r.Context().Done()
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return err
			}
			defer conn.Close()
			if n, err := conn.Read([]byte{0}); n != 0 || err != io.EOF {
				return fmt.Errorf("read %d, %v", n, err)
			}
			return nil
		}},
		{"a proxy", get, true, func(w http.ResponseWriter, r *http.Request, _ <-chan bool) error {
			defer func() { recover() }() // http.ErrAbortHandler
			proxy.ServeHTTP(w, r)
			return nil
		}},
		{"within a body", "POST /%d HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", false,
			func(w http.ResponseWriter, r *http.Request, _ <-chan bool) error {
				if _, err := io.ReadAll(r.Body); err == nil {
					return errors.New("the body has an end")
				}
				return nil
			}},
		{"and a write fails", get, false, func(w http.ResponseWriter, r *http.Request, left <-chan bool) error {
			<-left
			for {
				io.WriteString(w, "some more")
				if http.NewResponseController(w).Flush() != nil {
					return nil
				}
			}
		}},
	}
}

// The context ends when the client has left, however soon it leaves. The situations are those of net/http's tests
// TestServerRequestContextCancel_ConnClose, TestClientTimeout, TestClientTimeoutKillsConn_BeforeHeaders and
// TestReverseProxyFlushIntervalHeaders, and of connect-go's TestClientDisconnect.
func TestContextOfAClientThatLeaves(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer backend.Close()
	var clients sync.WaitGroup // the clients run concurrently, since some take seconds
	for _, side := range append([]side{reference}, sides...) {
		all := leavings(backend.URL)
		running, left, ended := make([]chan bool, len(all)), make([]chan bool, len(all)), make([]chan error, len(all))
		for i := range all {
			running[i], left[i], ended[i] = make(chan bool, 1), make(chan bool, 1), make(chan error, 1)
		}
		dial := side.start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			i, _ := strconv.Atoi(r.URL.Path[1:])
			done := r.Context().Done()
			running[i] <- true
			if err := all[i].handler(w, r, left[i]); err != nil {
				ended[i] <- err
				return
			}
			select {
			case <-done:
				ended[i] <- r.Context().Err()
			case <-time.After(30 * time.Second):
				ended[i] <- errors.New("the context hasn't ended")
			}
		}))
		for i, l := range all {
			clients.Go(func() {
				conn, r := client(t, dial, fmt.Sprintf(l.request, i))
				<-running[i]
				if l.behindHead {
					http.ReadResponse(r, nil)
				}
				conn.Close()
				left[i] <- true
				if err := <-ended[i]; err != context.Canceled {
					t.Errorf("%s, %s: %v", side.name, l.name, err)
				}
			})
		}
	}
	clients.Wait()
}

// A request that a handler keeps after it has returned doesn't change, and the kept ResponseWriter refuses every use.
func TestRequestIsKept(t *testing.T) {
	type kept struct {
		w http.ResponseWriter
		r *http.Request
	}
	requests := make(chan kept, 8)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { requests <- kept{w, r} })
	s := servertest.New(t, adaptor.FromHTTP(h))
	s.Raw(t, "POST /first?a=1 HTTP/1.1\r\nHost: one\r\nX-A: first\r\nContent-Length: 3\r\n\r\nabc"+
		"POST /other?b=2 HTTP/1.1\r\nHost: two\r\nX-A: other\r\nContent-Length: 3\r\n\r\nxyz")
	first := <-requests
	r := first.r
	if r.URL.String() != "/first?a=1" || r.Host != "one" || r.Header.Get("X-A") != "first" || r.RequestURI != "/first?a=1" || r.Method != "POST" {
		t.Errorf("kept %v %v %v", r.URL, r.Host, r.Header)
	}
	if _, err := r.Body.Read(make([]byte, 1)); err != http.ErrBodyReadAfterClose {
		t.Errorf("body: %v", err)
	}
	if _, err := first.w.Write([]byte("x")); err == nil {
		t.Error("a write after the handler has returned isn't refused")
	}
	first.w.WriteHeader(500)
	first.w.Header().Set("X", "y")
	if err := http.NewResponseController(first.w).Flush(); err == nil {
		t.Error("a flush after the handler has returned isn't refused")
	}
	if _, _, err := http.NewResponseController(first.w).Hijack(); err == nil {
		t.Error("a hijack after the handler has returned isn't refused")
	}
}

// The ErrorHandler answers a panic, and middleware around the handler sees the panic.
func TestPanic(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{Logger: quiet, Handler: adaptor.FromHTTP(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "half of an answer")
			panic("wrong")
		}))})
	got := s.Raw(t, get)
	if !strings.HasPrefix(got, "HTTP/1.1 500 ") || strings.Contains(got, "half") {
		t.Errorf("got %q", got)
	}
}

// The request has the path parameters and the pattern of filo's router, and the context that middleware has set.
func TestRouterParameters(t *testing.T) {
	type key struct{}
	r := router.New()
	r.Use(func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.SetContext(context.WithValue(c.Context(), key{}, "value"))
			c.Response.Header.Set("X-Before", "kept")
			c.Response.Header.Set("X-Gone", "1")
			return next(c)
		}
	})
	r.GET("/users/{id}/{rest...}", adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Del("X-Gone")
		fmt.Fprint(w, r.PathValue("id"), " ", r.PathValue("rest"), " ", r.Pattern, " ", r.Context().Value(key{}))
	})))
	s := servertest.New(t, r.Serve)
	response, err := s.Client().Get(s.URL + "/users/a%20b/c/d")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if want := "a b c/d GET /users/{id}/{rest...} value"; string(body) != want {
		t.Errorf("got %q, want %q", body, want)
	}
	if response.Header.Get("X-Before") != "kept" || response.Header.Get("X-Gone") != "" {
		t.Errorf("fields %v", response.Header)
	}
}

// FileServer and ServeContent send whole files and ranges, and evaluate conditions, as under net/http.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("filo serves files\n"), 20000)
	if err := os.WriteFile(filepath.Join(dir, "large.txt"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "small.html"), []byte("<p>small"), 0o600); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /files/", http.StripPrefix("/files", http.FileServer(http.Dir(dir))))
	mux.HandleFunc("/typeless", func(w http.ResponseWriter, r *http.Request) {
		file, err := os.Open(filepath.Join(dir, "large.txt"))
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		w.Write(content[:100])
		file.Seek(100, io.SeekStart)
		if n, err := io.Copy(w, file); n != int64(len(content)-100) || err != nil {
			t.Errorf("copied %d, %v", n, err)
		}
	})
	for _, request := range []string{
		"GET /files/large.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"HEAD /files/large.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"GET /files/large.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=100000-300000\r\n\r\n",
		"GET /files/large.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=999999999-\r\n\r\n",
		"GET /files/large.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIf-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n\r\n",
		"GET /files/small.html HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"GET /files/none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"POST /files/small.html HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"GET /files HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"GET /typeless HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
	} {
		t.Run(strings.SplitN(request, " HTTP", 2)[0], func(t *testing.T) { compare(t, mux, request) })
	}
	for _, side := range sides {
		t.Run("whole on "+side.name, func(t *testing.T) {
			got := exchangeRaw(t, side.start(t, mux), "GET /files/large.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			if !bytes.HasSuffix(got, content) {
				t.Errorf("%d bytes, which don't end with the file", len(got))
			}
		})
	}
}

// TimeoutHandler answers in time, although the inner handler continues to run and to read.
func TestTimeoutHandler(t *testing.T) {
	answered, returned := make(chan struct{}), make(chan struct{})
	h := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		<-answered
		io.ReadAll(r.Body)
		if _, err := io.WriteString(w, "late"); err != http.ErrHandlerTimeout {
			t.Errorf("a late write: %v", err)
		}
		returned <- struct{}{}
	}), 20*time.Millisecond, "too late")
	on(t, h, func(t *testing.T, dial func() (net.Conn, error)) {
		got := string(exchangeRaw(t, dial, post))
		if !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.HasSuffix(got, "too late") {
			t.Errorf("got %q", got)
		}
		answered <- struct{}{}
		<-returned
	})
}

// A body over the server's limit yields an error that is both filo's and net/http's.
func TestServerLimit(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{MaxBodyBytes: 3, Logger: quiet, Handler: adaptor.FromHTTP(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			var limit *http.MaxBytesError
			fmt.Fprint(w, errors.As(err, &limit) && limit.Limit == 3, errors.Is(err, filo.ErrBodyTooLarge))
		}))})
	if got := s.Raw(t, post); !strings.HasSuffix(got, "true true") {
		t.Errorf("got %q", got)
	}
}

// A text that can't be a field's name isn't announced as a trailer field: an http.Client would refuse to forward such a request.
func TestAnnouncedTrailer(t *testing.T) {
	names := make(chan string, 1)
	s := servertest.New(t, adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		names <- fmt.Sprint(slices.Sorted(maps.Keys(r.Trailer)))
	})))
	for list, want := range map[string]string{
		"X-Sum, x-other":         "[X-Other X-Sum]",
		"a b, X-Sum,, \x80, (x)": "[X-Sum]",
		"a b":                    "[]",
		"content-length, Trailer, Transfer-Encoding,": "[]",
	} {
		s.Raw(t, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: "+list+"\r\n\r\n0\r\n\r\n")
		if got := <-names; got != want {
			t.Errorf("%q: announced %s, want %s", list, got, want)
		}
	}
}

// A trailer may have as many fields as a head, over both versions of HTTP.
func TestManyTrailerFields(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, len(r.Trailer)) }
	s := servertest.New(t, adaptor.FromHTTP(http.HandlerFunc(handler)))
	url, client := startHTTP2(t, handler)
	for most, status := range map[int]int{filo.DefaultMaxHeaderFields: 200, filo.DefaultMaxHeaderFields + 1: 431} {
		trailer, list := http.Header{}, ""
		for i := range most {
			trailer[fmt.Sprint("X-", i)] = nil
			list += fmt.Sprint(", x-", i)
		}
		got := s.Raw(t, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: "+list[2:]+"\r\n\r\n0\r\n\r\n")
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", status)) {
			t.Errorf("%d names: %.40q", most, got)
		}
		request, _ := http.NewRequest("POST", url, io.MultiReader(strings.NewReader("x")))
		request.Trailer = trailer
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != status {
			t.Errorf("%d names by HTTP/2: %d", most, response.StatusCode)
		}
	}
}

// A body that ends early is io.ErrUnexpectedEOF, as in net/http.
func TestTruncatedBody(t *testing.T) {
	errs := make(chan error, 1)
	s := servertest.New(t, adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		errs <- err
	})))
	s.Raw(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\nhello")
	if err := <-errs; err != io.ErrUnexpectedEOF {
		t.Errorf("got %v", err)
	}
}

// A handler's mistake is logged with its location in the code.
func TestComplaints(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	s := servertest.NewServer(t, &filo.Server{
		Logger: slog.New(slog.NewTextHandler(&lockedWriter{&mu, &log}, nil)),
		Handler: adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "many")
			w.WriteHeader(200)
			w.WriteHeader(500)
		}))})
	s.Raw(t, get)
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"superfluous WriteHeader", "invalid Content-Length", "fromhttp_test.go:"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log %q has no %q", log.String(), want)
		}
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// Invalid statuses panic as in net/http.
func TestInvalidStatus(t *testing.T) {
	values := make(chan any, 1)
	s := servertest.New(t, adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { values <- recover() }()
		w.WriteHeader(42)
	})))
	s.Raw(t, get)
	if value := <-values; value == nil {
		t.Error("WriteHeader(42) doesn't panic")
	}
}

// Goroutines of a handler may read, write, flush and look at the context at the same time.
func TestConcurrentUse(t *testing.T) {
	body := strings.Repeat("x", 100<<10)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var all sync.WaitGroup
		w.Header().Set("X-Set", "before")
		w.WriteHeader(200)
		all.Go(func() { io.Copy(io.Discard, r.Body) })
		all.Go(func() {
			for range 100 {
				io.WriteString(w, "0123456789")
				w.(http.Flusher).Flush()
			}
		})
		all.Go(func() {
			for range 100 {
				r.Context().Err()
				r.Context().Value("x")
			}
		})
		go r.Context().Value("after the handler has returned, perhaps")
		all.Wait()
	})
	for _, side := range sides {
		t.Run(side.name, func(t *testing.T) {
			dial := side.start(t, h)
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					got := exchangeRaw(t, dial, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
					if n := strings.Count(string(got), "0123456789"); n != 100 {
						t.Errorf("%d pieces of 100: %q", n, got)
					}
				})
			}
			all.Wait()
		})
	}
}

// The deadlines of http.ResponseController end reads and writes that wait for the client.
func TestDeadlines(t *testing.T) {
	errs := make(chan error, 1)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		soon := time.Now().Add(20 * time.Millisecond)
		if r.URL.Path == "/read" {
			if err := control.SetReadDeadline(soon); err != nil {
				t.Errorf("SetReadDeadline: %v", err)
			}
			_, err := io.ReadAll(r.Body)
			errs <- err
			return
		}
		if err := control.SetWriteDeadline(soon); err != nil {
			t.Errorf("SetWriteDeadline: %v", err)
		}
		var err error
		for piece := strings.Repeat("x", 1<<20); err == nil; {
			_, err = io.WriteString(w, piece)
		}
		errs <- err
	})
	on(t, h, func(t *testing.T, dial func() (net.Conn, error)) {
		client(t, dial, "POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\npart")
		if err := <-errs; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		client(t, dial, "GET /write HTTP/1.1\r\nHost: a\r\n\r\n")
		if err := <-errs; err == nil {
			t.Error("write: no error")
		}
	})
}

// A nil handler panics at once.
func TestNil(t *testing.T) {
	for name, f := range map[string]func(){
		"FromHTTP":     func() { adaptor.FromHTTP(nil) },
		"ToHTTP":       func() { adaptor.ToHTTP(nil) },
		"ToHTTPServer": func() { adaptor.ToHTTPServer(&filo.Server{}) },
		"Middleware":   func() { adaptor.Middleware(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if value, _ := recover().(string); !strings.HasPrefix(value, "adaptor: ") {
					t.Errorf("panic %q", value)
				}
			}()
			f()
		})
	}
}

// A 101 is sent even if the handler doesn't hijack afterwards. net/http leaves such a connection open.
func TestSwitchProtocolsAlone(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) })
	for _, side := range sides {
		t.Run(side.name, func(t *testing.T) {
			if got := string(exchangeRaw(t, side.start(t, h), upgrade)); !strings.HasPrefix(got, "HTTP/1.1 101 ") || !strings.HasSuffix(got, "\r\n\r\n") {
				t.Errorf("got %q", got)
			}
		})
	}
}

// A panic with nil, if GODEBUG allows that, aborts the answer as in net/http, so that no client mistakes a part for the whole.
func TestPanicWithNil(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	for name, begin := range map[string]func(w http.ResponseWriter){
		"at once":  func(http.ResponseWriter) {},
		"streamed": func(w http.ResponseWriter) { io.WriteString(w, "part"); http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { begin(w); panic(nil) }), get)
		})
	}
}

// gin's Context.Stream and other code still uses the deprecated http.CloseNotifier.
func TestCloseNotifier(t *testing.T) {
	told, running := make(chan bool, 1), make(chan bool, 1)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wrapped, ok := w.(*wrapper); ok {
			w = wrapped.ResponseWriter
		}
		gone := w.(interface{ CloseNotify() <-chan bool }).CloseNotify()
		running <- true
		select {
		case left := <-gone:
			told <- left
		case <-time.After(30 * time.Second):
			told <- false
		}
	})
	on(t, h, func(t *testing.T, dial func() (net.Conn, error)) {
		conn, _ := client(t, dial, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		<-running
		time.Sleep(100 * time.Millisecond) // if the client left at once, filo would be sure of that only seconds later
		conn.Close()
		if !<-told {
			t.Error("the handler wasn't told")
		}
	})
}

// An IPv4 client is shown with an IPv4 address even on a listener for both versions of IP.
func TestRemoteAddrOfBothVersions(t *testing.T) {
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		listener, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		s := &filo.Server{Driver: driver, Handler: adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.RemoteAddr)
		}))}
		go s.Serve(listener)
		dial := func() (net.Conn, error) { return net.Dial("tcp", "127.0.0.1:"+port) }
		if got := string(exchangeRaw(t, dial, get)); !strings.Contains(got, "\r\n\r\n127.0.0.1:") {
			t.Errorf("driver %v: got %q", driver, got)
		}
		s.Close()
	}
}

// After its handler has returned, a context that was kept has ended, but still has its values.
func TestContextValuesAfterwards(t *testing.T) {
	type connKey struct{}
	type middlewareKey struct{}
	kept := make(chan context.Context, 1)
	h := adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { kept <- r.Context() }))
	s := servertest.NewServer(t, &filo.Server{
		Handler: func(c *filo.Ctx) error {
			if c.Path() == "/values" {
				c.SetContext(context.WithValue(c.Context(), middlewareKey{}, "middleware"))
			}
			return h(c)
		},
		ConnContext: func(net.Conn) context.Context { return context.WithValue(context.Background(), connKey{}, "conn") },
	})
	for path, values := range map[string]string{"/": "conn <nil>", "/values": "conn middleware"} {
		s.Raw(t, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		ctx := <-kept
		if got := fmt.Sprint(ctx.Value(connKey{}), " ", ctx.Value(middlewareKey{})); got != values {
			t.Errorf("%s: got %s, want %s", path, got, values)
		}
		<-ctx.Done()
		if err := ctx.Err(); err != context.Canceled {
			t.Errorf("%s: the context ended by %v", path, err)
		}
	}
}

// After an interim answer Header restores the fields of filo's middleware once, so that a handler can then delete the last one.
func TestDeletedAfterInterim(t *testing.T) {
	h := adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>")
		w.WriteHeader(103)
		clear(w.Header())
		before := w.Header().Get("X-Own")
		w.Header().Del("X-Own")
		w.Header().Add("X-Own", "handler's, before "+before)
	}))
	url, client := startSocket(t, func(c *filo.Ctx) error {
		c.Response.Header.Set("X-Own", "middleware's")
		return h(c)
	}, false)
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := response.Header["X-Own"]; len(got) != 1 || got[0] != "handler's, before middleware's" {
		t.Errorf("%q", got)
	}
}
