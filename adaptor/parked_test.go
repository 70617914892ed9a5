package adaptor_test

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/h2test"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/sse"
)

// way is a way in which requests reach a handler of filo.
type way struct {
	name  string
	start func(t testing.TB, h filo.Handler) (dial func() (net.Conn, error))
}

// plainWay is the way with which the others are compared.
var plainWay = way{"plain", func(t testing.TB, h filo.Handler) func() (net.Conn, error) {
	return startTCP(t, &filo.Server{Handler: marks(h)})
}}

// parkedWays are the ways in which requests reach a handler that parks its connection, with a server, mux or middleware of
// net/http around the handler.
var parkedWays = []way{
	{"behind a middleware that only looks", behind(func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) })},
	{"behind one that wraps", behind(func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(&wrapper{w}, r) })},
	{"behind one that wraps, blocking", func(t testing.TB, h filo.Handler) func() (net.Conn, error) {
		wraps := adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&wrapper{w}, r) })
		})
		return startTCP(t, &filo.Server{Handler: wraps(marks(h)), Driver: filo.DriverBlocking})
	}},
	{"behind one without Unwrap", behind(func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(&hijackable{w}, r) })},
	{"behind one that replaces the request", behind(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		r = r.Clone(r.Context())
		r.Header.Set("X-Replaced", "1")
		next.ServeHTTP(w, r)
	})},
	{"behind two", func(t testing.TB, h filo.Handler) func() (net.Conn, error) {
		wraps := adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&wrapper{w}, r) })
		})
		return startTCP(t, &filo.Server{Handler: wraps(wraps(marks(h)))})
	}},
	{"in a mux of net/http in filo", func(t testing.TB, h filo.Handler) func() (net.Conn, error) {
		mux := http.NewServeMux()
		mux.Handle("/", adaptor.ToHTTPServer(&filo.Server{Handler: marks(h), Logger: quiet}))
		return startTCP(t, &filo.Server{Handler: adaptor.FromHTTP(mux)})
	}},
	{"in net/http", func(t testing.TB, h filo.Handler) func() (net.Conn, error) {
		return startHTTP(t, adaptor.ToHTTPServer(&filo.Server{Handler: marks(h), Logger: quiet}))
	}},
	{"behind a wrapping middleware in net/http", func(t testing.TB, h filo.Handler) func() (net.Conn, error) {
		inner := adaptor.ToHTTPServer(&filo.Server{Handler: marks(h), Logger: quiet})
		return startHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(&hijackable{w}, r) }))
	}},
}

func behind(serve func(w http.ResponseWriter, r *http.Request, next http.Handler)) func(t testing.TB, h filo.Handler) func() (net.Conn, error) {
	return func(t testing.TB, h filo.Handler) func() (net.Conn, error) {
		middleware := adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, next) })
		})
		return startTCP(t, &filo.Server{Handler: middleware(marks(h))})
	}
}

// marks sets a field before h runs.
func marks(h filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		c.Response.Header.Set("X-Before", "1")
		return h(c)
	}
}

// hijackable wraps a ResponseWriter as many monitoring agents do: it implements a fixed list of optional interfaces, and has no
// Unwrap.
type hijackable struct{ w http.ResponseWriter }

func (h *hijackable) Header() http.Header         { return h.w.Header() }
func (h *hijackable) Write(p []byte) (int, error) { return h.w.Write(p) }
func (h *hijackable) WriteHeader(status int)      { h.w.WriteHeader(status) }
func (h *hijackable) Flush()                      { h.w.(http.Flusher).Flush() }
func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.w.(http.Hijacker).Hijack()
}

// A handler that parks its connection gives the same answer behind any server, mux or middleware of net/http.
func TestParkedAnswers(t *testing.T) {
	hub := sse.NewHub()
	defer hub.Close()
	events := func(c *filo.Ctx) error {
		c.Response.Header.Add("Set-Cookie", "a=b")
		p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
		if err != nil {
			return err
		}
		p.Queue(filo.NewPreparedMessage([]byte("data: one\n\n")))
		io.WriteString(p, "data: two\n\n")
		p.End()
		return nil
	}
	echo := func(c *filo.Ctx) error {
		c.Response.Header.Add("Set-Cookie", "a=b")
		_, err := c.Park("echo", func(p *filo.ParkedConn, _ filo.Wake) error {
			var buffer [100]byte
			n, err := p.Read(buffer[:])
			p.Write(buffer[:n])
			return errors.Join(err, io.EOF)
		})
		return err
	}
	const upgrades = " / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello"
	for _, test := range []struct {
		name, request string
		h             filo.Handler
	}{
		{"a stream", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", events},
		{"a stream of HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\n\r\n", events},
		{"a stream with a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", func(c *filo.Ctx) error {
			if _, err := c.Body(); err != nil {
				return err
			}
			return events(c)
		}},
		{"a stream that is not found", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", func(c *filo.Ctx) error { c.Response.SetStatus(404); return events(c) }},
		{"a stream for HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", events},
		{"a hub for HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", func(c *filo.Ctx) error { return hub.Serve(c, "topic") }},
		{"a stream that is broken off", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", func(c *filo.Ctx) error {
			p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return errors.New("broken") })
			if err != nil {
				return err
			}
			io.WriteString(p, "data: one\n\n")
			return p.Close()
		}},
		{"another protocol", "GET" + upgrades, echo},
		{"another protocol by POST", "POST" + upgrades, echo},
		{"without an upgrade", get, echo},
		{"an upgrade to another one", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, Upgrade\r\nUpgrade: other\r\n\r\n", echo},
	} {
		t.Run(test.name, func(t *testing.T) {
			head := strings.HasPrefix(test.request, "HEAD ")
			want := describe(exchangeRaw(t, plainWay.start(t, test.h), test.request), head)
			for _, way := range parkedWays {
				if got := describe(exchangeRaw(t, way.start(t, test.h), test.request), head); got != want {
					t.Errorf("%s: got\n%s\nwant\n%s", way.name, got, want)
				}
			}
		})
	}
}

// statusWriter is a ResponseWriter that adds a field to the head, as session managers do.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.Header().Set("X-Late", "1")
	w.ResponseWriter.WriteHeader(status)
}

// If a connection is parked behind a middleware that wraps the ResponseWriter, the middleware sees the head and may add fields to it. The
// middleware has returned when the parked connection's function is called.
func TestMiddlewareSeesParking(t *testing.T) {
	for _, protocol := range []string{"", "echo"} {
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		status := 0
		middleware := adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Early", "1")
				sees := &statusWriter{ResponseWriter: w}
				next.ServeHTTP(sees, r)
				status = sees.status // guarded by the lock that note holds
				note("middleware")
			})
		})
		dial := startTCP(t, &filo.Server{Handler: middleware(func(c *filo.Ctx) (err error) {
			serve := func(*filo.ParkedConn, filo.Wake) error {
				note("function")
				return io.EOF
			}
			if protocol == "" {
				_, err = c.ParkStream(serve)
			} else {
				_, err = c.Park(protocol, serve)
			}
			note("handler")
			return err
		})})
		got := string(exchangeRaw(t, dial, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello"))
		mu.Lock()
		if protocol == "" && status != 200 || protocol != "" && status != 101 {
			t.Errorf("%q: the middleware saw the status %d", protocol, status)
		}
		for _, field := range []string{"X-Early: 1\r\n", "X-Late: 1\r\n"} {
			if strings.Count(got, field) != 1 {
				t.Errorf("%q: got %q, want %q in it", protocol, got, field)
			}
		}
		if want := []string{"handler", "middleware", "function"}; !slices.Equal(order, want) {
			t.Errorf("%q: the order is %v, want %v", protocol, order, want)
		}
		mu.Unlock()
	}
}

// Over HTTP/2 a stream is parked, and switches protocols, behind a middleware that wraps the ResponseWriter.
func TestMiddlewareParksHTTP2(t *testing.T) {
	wraps := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&statusWriter{ResponseWriter: w}, r) })
	})
	echo := func(p io.ReadWriter) error {
		var buffer [100]byte
		n, err := p.Read(buffer[:])
		p.Write(buffer[:n])
		return err
	}
	address := tcptest.Serve(t, &filo.Server{Logger: quiet, HTTP2: filo.HTTP2Options{Unencrypted: true, ExtendedConnect: true},
		Handler: wraps(func(c *filo.Ctx) (err error) {
			switch c.Path() {
			case "/park":
				_, err = c.Park("echo", func(p *filo.ParkedConn, _ filo.Wake) error { return echo(p) })
			case "/upgrade":
				conn, _, err := c.Upgrade("echo")
				if err != nil {
					return err
				}
				defer conn.Close()
				for err == nil {
					err = echo(conn)
				}
			case "/stream":
				p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
				if err != nil {
					return err
				}
				io.WriteString(p, "hello")
				p.End()
			}
			return err
		})})
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
	for _, path := range []string{"/park", "/upgrade"} {
		s := c.Connect("echo", path)
		if status, err := s.Status(); status != 200 || err != nil || s.Field("x-late") != "1" {
			t.Fatalf("%s: %d, %v, %q", path, status, err, s.Field("x-late"))
		}
		s.Write([]byte("hello"))
		expect(t, s, "hello")
		s.CloseWrite()
		if got, err := io.ReadAll(s); len(got) > 0 || err != nil {
			t.Errorf("%s: %q, %v", path, got, err)
		}
		if status, _, err := c.Get(path); status != 426 || err != nil {
			t.Errorf("%s without an upgrade: %d, %v", path, status, err)
		}
	}
	if status, body, err := c.Get("/stream"); status != 200 || body != "hello" || err != nil {
		t.Errorf("%d, %q, %v", status, body, err)
	}
}

// foreign runs the handler of a filo server in a server of net/http, and returns a function that connects to the latter.
func foreign(t *testing.T, s *filo.Server) (dial func() (net.Conn, error)) {
	t.Helper()
	if s.Logger == nil {
		s.Logger = quiet
	}
	dial = startHTTP(t, adaptor.ToHTTPServer(s))
	t.Cleanup(func() { s.Close() }) // before net/http's server is closed, which waits for the streams
	return dial
}

// In net/http a parked connection wakes at a deadline, when data comes, when the client ends and at a shutdown, which waits for the
// connection.
func TestParkedInHTTPWakes(t *testing.T) {
	for _, protocol := range []string{"", "echo"} {
		wakes := make(chan string, 10)
		s := &filo.Server{Handler: func(c *filo.Ctx) (err error) {
			deadlines := 0
			serve := func(p *filo.ParkedConn, why filo.Wake) error {
				switch why {
				case filo.WakeDeadline:
					if deadlines++; deadlines < 3 {
						p.SetWait(time.Now().Add(40 * time.Millisecond))
						return nil
					}
					wakes <- "deadline"
				case filo.WakeShutdown:
					wakes <- "shutdown"
					io.WriteString(p, "bye")
				case filo.WakeData:
					var buffer [10]byte
					n, err := p.Read(buffer[:])
					if n == 0 {
						wakes <- "end"
						return err
					}
					wakes <- string(buffer[:n])
				}
				return nil
			}
			var p *filo.ParkedConn
			if protocol == "" {
				p, err = c.ParkStream(serve)
			} else {
				p, err = c.Park(protocol, serve)
			}
			if err == nil {
				p.SetWait(time.Now().Add(40 * time.Millisecond))
				p.OnClose(func() { wakes <- "closed" })
			}
			return err
		}}
		dial := foreign(t, s)
		want := func(whats ...string) {
			t.Helper()
			for _, what := range whats {
				if got := <-wakes; got != what {
					t.Fatalf("%q: woken for %q, want %q", protocol, got, what)
				}
			}
		}
		const request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
		leaves, r := client(t, dial, request)
		if response, err := http.ReadResponse(r, nil); err != nil || protocol == "" && response.StatusCode != 200 {
			t.Fatal(response, err)
		}
		want("deadline")
		if protocol != "" {
			io.WriteString(leaves, "hello")
			want("hello")
		}
		leaves.Close()
		want("end", "closed")
		_, r = client(t, dial, request)
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		want("deadline")
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		want("shutdown", "closed")
		rest := io.Reader(r)
		if protocol == "" {
			rest = response.Body
		}
		if got, err := io.ReadAll(rest); string(got) != "bye" || err != nil {
			t.Errorf("%q: got %q, %v", protocol, got, err)
		}
		_, r = client(t, dial, request)
		if response, err := http.ReadResponse(r, nil); err != nil || response.StatusCode != 503 {
			t.Errorf("after the shutdown: %v, %v", response, err)
		}
	}
}

// A client that reads nothing is disconnected after WriteTimeout.
func TestParkedInHTTPSlowClient(t *testing.T) {
	closed := make(chan struct{})
	s := &filo.Server{WriteTimeout: 100 * time.Millisecond, MinTransferRate: -1, Handler: func(c *filo.Ctx) error {
		p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return errors.New("left") })
		if err != nil {
			return err
		}
		p.OnClose(func() { close(closed) })
		return p.Queue(filo.NewPreparedMessage(make([]byte, 16<<20)))
	}}
	conn, _ := client(t, foreign(t, s), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-closed
	if n := s.Stats().Timeouts.Write; n != 1 {
		t.Errorf("%d clients were too slow", n)
	}
	conn.Close()
}

// stuckWriter is a ResponseWriter whose client reads nothing: a Write of the body waits for the deadline.
type stuckWriter struct {
	*httptest.ResponseRecorder
	begun, late chan struct{}
}

func (w *stuckWriter) Write([]byte) (int, error) {
	w.begun <- struct{}{}
	<-w.late
	return 0, os.ErrDeadlineExceeded
}

func (w *stuckWriter) SetReadDeadline(time.Time) error { return nil }

func (w *stuckWriter) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() {
		close(w.late)
	}
	return nil
}

// If the server's Close ends a write, the error isn't that the client was too slow.
func TestParkedInHTTPWritesWhenClosed(t *testing.T) {
	message := filo.NewPreparedMessage([]byte("text"))
	for name, write := range map[string]func(p *filo.ParkedConn, closed <-chan struct{}) error{
		"Write": func(p *filo.ParkedConn, _ <-chan struct{}) error { _, err := p.Write([]byte("text")); return err },
		"Queue": func(p *filo.ParkedConn, closed <-chan struct{}) error {
			p.Queue(message)
			<-closed
			return p.Queue(message)
		},
	} {
		t.Run(name, func(t *testing.T) {
			failed, closed := make(chan error, 1), make(chan struct{})
			s := &filo.Server{Logger: quiet, Handler: func(c *filo.Ctx) error {
				p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return errors.New("left") })
				if err == nil {
					p.OnClose(func() { close(closed) })
					go func() { failed <- write(p, closed) }()
				}
				return err
			}}
			w := &stuckWriter{httptest.NewRecorder(), make(chan struct{}, 1), make(chan struct{})}
			served := make(chan struct{})
			go func() {
				defer close(served)
				defer func() { recover() }() // an aborted answer ends with a panic
				adaptor.ToHTTPServer(s).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			}()
			<-w.begun
			s.Close()
			if err := <-failed; !errors.Is(err, net.ErrClosed) {
				t.Errorf("%v", err)
			}
			<-served
			if n := s.Stats().Timeouts.Write; n != 0 {
				t.Errorf("%d clients were too slow", n)
			}
		})
	}
}

// Behind a middleware that encodes the body, a parked stream goes through that middleware.
func TestParkedStreamIsEncoded(t *testing.T) {
	encodes := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(w)
			defer zip.Close()
			next.ServeHTTP(&encoder{&wrapper{w}, zip}, r)
		})
	}
	h := func(c *filo.Ctx) error {
		p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
		if err != nil {
			return err
		}
		io.WriteString(p, "data: one\n\n")
		p.End()
		return nil
	}
	for name, dial := range map[string]func() (net.Conn, error){
		"filo":     startTCP(t, &filo.Server{Handler: adaptor.Middleware(encodes)(h)}),
		"net/http": startHTTP(t, encodes(adaptor.ToHTTP(h))),
	} {
		_, r := client(t, dial, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(name, err)
		}
		zip, err := gzip.NewReader(response.Body)
		if err != nil {
			t.Fatal(name, err)
		}
		if got, err := io.ReadAll(zip); string(got) != "data: one\n\n" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

type encoder struct {
	*wrapper
	zip *gzip.Writer
}

func (e *encoder) Write(p []byte) (int, error) { return e.zip.Write(p) }

func (e *encoder) FlushError() error {
	e.zip.Flush()
	return http.NewResponseController(e.wrapper).Flush()
}

// In net/http's HTTP/2 server, a stream can be parked, but can't switch protocols.
func TestParkedInHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(adaptor.ToHTTP(func(c *filo.Ctx) (err error) {
		if c.Path() == "/upgrade" {
			c.Request.Header.Set("Connection", "Upgrade")
			c.Request.Header.Set("Upgrade", "echo")
			_, err = c.Park("echo", func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
			return err
		}
		var p *filo.ParkedConn
		p, err = c.ParkStream(func(*filo.ParkedConn, filo.Wake) error {
			io.WriteString(p, "late")
			return io.EOF
		})
		if err == nil {
			io.WriteString(p, "early ")
			p.SetWait(time.Now())
		}
		return err
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	for path, want := range map[string]string{"/": "200 early late", "/upgrade": "501 Not Implemented\n"} {
		response, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if got := fmt.Sprint(response.StatusCode, " ", string(body)); got != want || response.ProtoMajor != 2 || err != nil {
			t.Errorf("%s: got %q by %s, %v", path, got, response.Proto, err)
		}
	}
}
