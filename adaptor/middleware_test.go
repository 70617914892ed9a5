package adaptor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

type contextKey struct{}

var userKey = filo.NewKey[string]("user")

// The inner handler sees a middleware's changes to the request, and filo's outer middleware sees the handler's changes to the
// Ctx.
func TestMiddlewareChangesRequest(t *testing.T) {
	change := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r = r.WithContext(context.WithValue(r.Context(), contextKey{}, "inside"))
			r.Header.Set("X-Added", "by middleware\r\nX-Evil: 1")
			r.Header.Del("X-Removed")
			r.URL.Path, r.URL.RawQuery = "/changed path", "q=2"
			r.RemoteAddr = "192.0.2.7"
			r.Host = "other.example"
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("before "), r.Body))
			r.ContentLength = -1
			next.ServeHTTP(w, r)
		})
	}
	outside := make(chan string, 1)
	r := router.New()
	r.Use(func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			userKey.Set(c, "outer")
			err := next(c)
			user, _ := userKey.Get(c)
			outside <- fmt.Sprint(user, " ", c.Param("id"), " ", c.Route(), " ", c.Status(), " ", err)
			return err
		}
	})
	r.POST("/items/{id}", func(c *filo.Ctx) error {
		user, _ := userKey.Get(c)
		userKey.Set(c, "inner")
		body, err := c.Body()
		return c.Text(201, fmt.Sprint(c.Path(), " ", c.Query("q"), " ", c.Request.Header.Get("X-Added"), " ", c.Request.Header.Has("X-Evil"), " ",
			c.Request.Header.Has("X-Removed"), " ", c.RemoteAddr(), " ", c.Host(), " ", c.Context().Value(contextKey{}), " ", user, " ",
			c.Param("id"), " ", c.Route(), " ", string(body), " ", err))
	}, adaptor.Middleware(change))
	s := servertest.New(t, r.Serve)
	request, _ := http.NewRequest("POST", s.URL+"/items/a%2Fb?q=1", strings.NewReader("body"))
	request.Header.Set("X-Removed", "1")
	response, err := s.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	want := "/changed path 2 by middleware  X-Evil: 1 false false 192.0.2.7:0 other.example inside outer a/b POST /items/{id} before body <nil>"
	if string(body) != want || response.StatusCode != 201 {
		t.Errorf("inside: %d %q,\nwant %q", response.StatusCode, body, want)
	}
	if got, want := <-outside, "inner a/b POST /items/{id} 201 <nil>"; got != want {
		t.Errorf("outside: %q, want %q", got, want)
	}
}

// upperWriter wraps a ResponseWriter, as middleware does.
type upperWriter struct {
	http.ResponseWriter
	status, writes int
}

func (w *upperWriter) WriteHeader(status int) {
	w.status = status
	w.Header().Set("X-Wrapped", "1")
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

func (w *upperWriter) Write(p []byte) (int, error) {
	w.writes++
	return w.ResponseWriter.Write([]byte(strings.ToUpper(string(p))))
}

func (w *upperWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A wrapper that a middleware puts around the ResponseWriter sees the whole answer, even that of an error.
func TestMiddlewareWrapsAnswer(t *testing.T) {
	seen := make(chan int, 1)
	wrap := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Before", "1")
			upper := &upperWriter{ResponseWriter: w}
			next.ServeHTTP(upper, r)
			seen <- upper.status
		})
	})
	for _, test := range []struct {
		name    string
		handler filo.Handler
		status  int
		body    string
	}{
		{"a whole body", func(c *filo.Ctx) error { return c.Text(200, "whole") }, 200, "WHOLE"},
		{"a stream", func(c *filo.Ctx) error {
			w := c.Stream()
			w.WriteString("one ")
			w.Flush()
			w.WriteString("two")
			return nil
		}, 200, "ONE TWO"},
		{"an error", func(c *filo.Ctx) error { return filo.Error(404, "nothing here") }, 404, "NOT FOUND: NOTHING HERE\n"},
		{"an unknown error", func(c *filo.Ctx) error { return errors.New("secret") }, 500, "INTERNAL SERVER ERROR\n"},
		{"a large body", func(c *filo.Ctx) error { return c.Text(200, strings.Repeat("a", 300000)) }, 200, strings.Repeat("A", 300000)},
		{"no content", func(c *filo.Ctx) error { return c.NoContent() }, 204, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := servertest.NewServer(t, &filo.Server{Handler: wrap(test.handler), Logger: quiet})
			response, err := s.Client().Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != test.status || string(body) != test.body {
				t.Errorf("got %d, %d bytes, %v", response.StatusCode, len(body), err)
			}
			if status := <-seen; status != test.status {
				t.Errorf("the middleware has seen %d", status)
			}
			if response.Header.Get("X-Before") != "1" || response.Header.Get("X-Wrapped") != "1" {
				t.Errorf("fields %v", response.Header)
			}
		})
	}
}

// A limit for bodies that was set outside of a middleware also applies inside of it. It may be higher or lower than the server's,
// whether or not the middleware wraps the ResponseWriter.
func TestMiddlewareBodyLimit(t *testing.T) {
	wrap := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&upperWriter{ResponseWriter: w}, r) })
	})
	same := adaptor.Middleware(func(next http.Handler) http.Handler { return next })
	for _, test := range []struct {
		limit  int64
		size   int
		status int
	}{{20, 20, 200}, {20, 21, 413}, {5, 5, 200}, {5, 6, 413}, {-1, 100, 200}} {
		for name, middleware := range map[string]filo.Middleware{"wraps": wrap, "doesn't wrap": same} {
			h := middleware(func(c *filo.Ctx) error {
				body, err := c.Body()
				if err != nil {
					return err
				}
				return c.Text(200, fmt.Sprint(len(body)))
			})
			s := servertest.NewServer(t, &filo.Server{MaxBodyBytes: 10, Logger: quiet, Handler: func(c *filo.Ctx) error {
				c.SetMaxBodyBytes(test.limit)
				return h(c)
			}})
			got := s.Raw(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", test.size, strings.Repeat("x", test.size)))
			if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", test.status)) {
				t.Errorf("%s: %d bytes, limit %d: %q", name, test.size, test.limit, got)
			}
		}
	}
}

// If a middleware answers without calling next, the chain ends there. A middleware that recovers catches the handler's panic.
func TestMiddlewareAnswers(t *testing.T) {
	guard := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if value := recover(); value != nil {
					http.Error(w, fmt.Sprint("recovered ", value), 500)
				}
			}()
			if r.URL.Path == "/refused" {
				http.Error(w, "refused", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	s := servertest.New(t, guard(func(c *filo.Ctx) error {
		if c.Path() == "/panic" {
			panic("oh")
		}
		return c.Text(200, "through")
	}))
	for path, want := range map[string]string{"/refused": "refused\n", "/": "through", "/panic": "recovered oh\n"} {
		response, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if string(body) != want {
			t.Errorf("%s: %q, want %q", path, body, want)
		}
	}
}

// A stream passes through a middleware without delay, and ends when the client leaves.
func TestMiddlewareStreams(t *testing.T) {
	ended := make(chan error, 1)
	same := adaptor.Middleware(func(next http.Handler) http.Handler { return next })
	dial := startTCP(t, &filo.Server{Handler: same(same(func(c *filo.Ctx) error {
		ctx := c.Context()
		done := ctx.Done() // called before the client gets the head, so that the server watches the client from now on
		w := c.Stream()
		w.WriteString("first")
		w.Flush()
		select {
		case <-done:
			ended <- context.Cause(ctx)
		case <-time.After(time.Minute):
			ended <- nil
		}
		return nil
	}))})
	conn, r := client(t, dial, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, response.Body, "first")
	time.Sleep(100 * time.Millisecond) // if the client left at once, filo would take that for a half-close
	conn.Close()
	if err := <-ended; err != filo.ErrClientGone {
		t.Errorf("the context ended with %v", err)
	}
}

// If a middleware gives up and answers, the rest of the chain goes on, but adds nothing to that answer.
func TestMiddlewareGivesUp(t *testing.T) {
	release, returned := make(chan struct{}), make(chan error)
	limit := adaptor.Middleware(func(next http.Handler) http.Handler { return http.TimeoutHandler(next, 10*time.Millisecond, "late") })
	s := servertest.New(t, limit(func(c *filo.Ctx) error {
		<-c.Context().Done()
		<-release
		w := c.Stream()
		w.WriteString("too late")
		returned <- w.Flush()
		return nil
	}))
	response, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if response.StatusCode != 503 || string(body) != "late" {
		t.Errorf("got %d %q", response.StatusCode, body)
	}
	close(release)
	if err := <-returned; err == nil {
		t.Error("a late flush isn't refused")
	}
}

// A handler can take over its connection inside a middleware of net/http, and inside net/http's server.
func TestUpgradeInside(t *testing.T) {
	echo := func(c *filo.Ctx) error {
		conn, received, err := c.Upgrade("echo")
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.Write(received)
		io.CopyN(conn, conn, int64(len("earlylater")-len(received)))
		return nil
	}
	same := adaptor.Middleware(func(next http.Handler) http.Handler { return next })
	for name, dial := range map[string]func() (net.Conn, error){
		"behind a middleware": startTCP(t, &filo.Server{Handler: same(echo)}),
		"in net/http":         startHTTP(t, adaptor.ToHTTP(echo)),
	} {
		t.Run(name, func(t *testing.T) {
			conn, r := client(t, dial, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly")
			response, err := http.ReadResponse(r, nil)
			if err != nil || response.StatusCode != 101 {
				t.Fatalf("got %v, %v", response, err)
			}
			expect(t, r, "early")
			io.WriteString(conn, "later")
			expect(t, r, "later")
		})
		t.Run(name+", refused", func(t *testing.T) {
			if got := exchangeRaw(t, dial, get); !strings.HasPrefix(string(got), "HTTP/1.1 426 ") {
				t.Errorf("got %q", got)
			}
		})
	}
}

// A handler of filo in net/http gets the request, and its errors, time-outs and limits work.
func TestToHTTP(t *testing.T) {
	r := router.New()
	r.GET("/users/{id}", func(c *filo.Ctx) error { return c.JSON(200, map[string]string{"id": c.Param("id")}) })
	r.POST("/echo", func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(200, "text/plain", body)
	})
	r.GET("/slow", func(c *filo.Ctx) error {
		c.SetTimeout(10*time.Millisecond, nil)
		<-c.Context().Done()
		time.Sleep(50 * time.Millisecond) // the handler runs on for a while
		return c.Context().Err()
	})
	r.GET("/where", func(c *filo.Ctx) error {
		return c.Text(200, fmt.Sprint(c.TLS() != nil, " ", c.Request.URI().Scheme(), " ", c.LocalAddr().Network(), " ", c.RemoteAddr().Network()))
	})
	s := httptest.NewTLSServer(http.StripPrefix("/api", adaptor.ToHTTPServer(&filo.Server{Handler: r.Serve, MaxBodyBytes: 10, Logger: quiet})))
	defer s.Close()
	for _, test := range []struct {
		name, method, path, body string
		status                   int
		want                     string
	}{
		{"parameters", "GET", "/api/users/7", "", 200, "{\"id\":\"7\"}\n"},
		{"a body", "POST", "/api/echo", "hello", 200, "hello"},
		{"a body over the limit", "POST", "/api/echo", "hello hello hello", 413, "Content Too Large: request body too large\n"},
		{"no route", "GET", "/api/none", "", 404, "Not Found\n"},
		{"another method", "DELETE", "/api/echo", "", 405, "Method Not Allowed\n"},
		{"HEAD", "HEAD", "/api/users/7", "", 200, ""},
		{"a time-out", "GET", "/api/slow", "", 503, "Service Unavailable: the handler took too long\n"},
		{"the connection", "GET", "/api/where", "", 200, "true https tcp tcp"},
	} {
		t.Run(test.name, func(t *testing.T) {
			request, _ := http.NewRequest(test.method, s.URL+test.path, strings.NewReader(test.body))
			response, err := s.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode != test.status || string(body) != test.want {
				t.Errorf("got %d %q, want %d %q", response.StatusCode, body, test.status, test.want)
			}
		})
	}
}

// Nothing in a request of net/http, which other middleware may have changed, can turn it into a different request.
func TestToHTTPInjection(t *testing.T) {
	show := adaptor.ToHTTP(func(c *filo.Ctx) error {
		fields := 0
		for range c.Request.Header.All() {
			fields++
		}
		return c.Text(200, fmt.Sprint(c.Method(), " ", c.Path(), " ", c.Host(), " ", fields, " ", c.Request.Header.Has("Evil")))
	})
	const evil = " HTTP/1.1\r\nEvil: 1\r\n\r\nGET /evil HTTP/1.1\r\n"
	for name, change := range map[string]func(r *http.Request){
		"value":  func(r *http.Request) { r.Header.Set("X", evil) },
		"name":   func(r *http.Request) { r.Header["X"+evil] = []string{"1"} },
		"path":   func(r *http.Request) { r.URL.Path = "/" + evil },
		"raw":    func(r *http.Request) { r.URL.RawPath = "/" + evil },
		"query":  func(r *http.Request) { r.URL.RawQuery = evil },
		"opaque": func(r *http.Request) { r.URL.Opaque = evil },
		"host":   func(r *http.Request) { r.Host = evil },
		"method": func(r *http.Request) { r.Method = "GET" + evil },
		"length": func(r *http.Request) {
			r.Header.Set("Content-Length", "100")
			r.Header.Set("Transfer-Encoding", "chunked")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			change(r)
			w := httptest.NewRecorder()
			show.ServeHTTP(w, r)
			if w.Code != 400 && (w.Code != 200 || strings.HasSuffix(w.Body.String(), "true")) {
				t.Errorf("got %d %q", w.Code, w.Body)
			}
		})
	}
}

// A handler of filo can abort its answer in net/http, too.
func TestToHTTPAborts(t *testing.T) {
	for name, h := range map[string]filo.Handler{
		"at once": func(c *filo.Ctx) error { return filo.ErrAbort },
		"in a stream": func(c *filo.Ctx) error {
			w := c.Stream()
			w.WriteString("part")
			w.Flush()
			return errors.New("broken")
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := string(exchangeRaw(t, startHTTP(t, adaptor.ToHTTPServer(&filo.Server{Handler: h, Logger: quiet})), get))
			if strings.HasSuffix(got, "0\r\n\r\n") || name == "at once" && got != "" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// Streams and trailers of filo's handlers work over net/http's HTTP/2, too.
func TestToHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(adaptor.ToHTTP(func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		w := c.Stream()
		w.WriteString("got ")
		w.Flush()
		w.Write(body)
		c.Response.Trailer.Set("X-Sum", "7")
		return nil
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	response, err := s.Client().Post(s.URL, "text/plain", io.MultiReader(strings.NewReader("a "), strings.NewReader("body")))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if string(body) != "got a body" || err != nil || response.ProtoMajor != 2 || response.Trailer.Get("X-Sum") != "7" {
		t.Errorf("got %s %q, %v, %v", response.Proto, body, err, response.Trailer)
	}
}

// A space in HTTP/2's :path, which net/http lets pass, is percent-encoded. "Connection: close" isn't passed on to net/http, which would
// then close the connection of all these requests.
func TestToHTTP2Differences(t *testing.T) {
	s := httptest.NewUnstartedServer(adaptor.ToHTTP(func(c *filo.Ctx) error {
		return c.Text(200, c.Path()+" "+c.Query("do"))
	}))
	var conns atomic.Int32
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	host := s.Listener.Addr().String()
	for _, test := range []struct {
		name string
		url  url.URL
		size int // of a body
		want string
	}{
		{"path", url.URL{Opaque: "//" + host + "/del ete"}, 0, "/del ete "},
		{"query", url.URL{Path: "/", RawQuery: "do=del ete"}, 0, "/ del ete"},
		{"unread body", url.URL{Path: "/"}, 1 << 20, "/ "},
		{"after it", url.URL{Path: "/"}, 0, "/ "},
	} {
		test.url.Scheme, test.url.Host = "https", host
		response, err := s.Client().Do(&http.Request{Method: "POST", URL: &test.url, ContentLength: int64(test.size),
			Body: io.NopCloser(strings.NewReader(strings.Repeat("x", test.size)))})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.ProtoMajor != 2 || string(body) != test.want || err != nil {
			t.Errorf("%s: got %s %s %q, %v", test.name, response.Proto, response.Status, body, err)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("it took %d connections", n)
	}
}

// Behind a middleware that changes no more than the context and the fields of the answer, next runs with the middleware's own
// Ctx.
func TestMiddlewareDirect(t *testing.T) {
	type seen struct {
		inside, outside *filo.Ctx
		value, local    any
		fields          string
		late            error
		after           any // the value that the context has when next has returned
	}
	results := make(chan seen, 1)
	var got seen
	mark := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Mark", "1")
			w.Header().Set("X-Replaced", "outside")
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, "marked")))
			got.fields = fmt.Sprint(w.Header().Get("X-Mark"), w.Header().Get("X-Replaced"))
			_, got.late = io.WriteString(w, "more")
			w.WriteHeader(500)
			w.(http.Flusher).Flush()
		})
	})
	inner := mark(func(c *filo.Ctx) error {
		got.inside = c
		got.value, got.local = c.Context().Value(contextKey{}), c.Context().Value(http.LocalAddrContextKey)
		c.Response.Header.Set("X-Replaced", "inside")
		return c.Text(202, "inside")
	})
	s := servertest.NewServer(t, &filo.Server{Logger: quiet, Handler: func(c *filo.Ctx) error {
		got = seen{outside: c}
		err := inner(c)
		got.after = c.Context().Value(contextKey{})
		results <- got
		return err
	}})
	raw := s.Raw(t, get)
	r := <-results
	if r.inside != r.outside || r.value != "marked" || r.local == nil || r.after != nil {
		t.Errorf("inside %v, value %v, local address %v, value outside %v", r.inside == r.outside, r.value, r.local, r.after)
	}
	if r.fields != "1inside" || r.late != http.ErrContentLength {
		t.Errorf("behind next: fields %q, a write is %v", r.fields, r.late)
	}
	if !strings.HasPrefix(raw, "HTTP/1.1 202 ") || !strings.Contains(raw, "X-Mark: 1\r\n") || strings.Count(raw, "X-Replaced: inside") != 1 || !strings.HasSuffix(raw, "\r\n\r\ninside") {
		t.Errorf("got %q", raw)
	}
}

// A handler behind a middleware that changes only the context and the fields of the answer can park its connection.
func TestMiddlewareParks(t *testing.T) {
	same := adaptor.Middleware(func(next http.Handler) http.Handler { return next })
	dial := startTCP(t, &filo.Server{Handler: same(func(c *filo.Ctx) error {
		_, err := c.Park("echo", func(p *filo.ParkedConn, _ filo.Wake) error {
			buffer := make([]byte, 100)
			n, err := p.Read(buffer)
			p.Write(buffer[:n])
			return err
		})
		return err
	})})
	conn, r := client(t, dial, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if response, err := http.ReadResponse(r, nil); err != nil || response.StatusCode != 101 {
		t.Fatalf("got %v, %v", response, err)
	}
	io.WriteString(conn, "hello")
	expect(t, r, "hello")
	conn.Close()
}

// A middleware doesn't disturb next's answer if it wrongly returns before next does, or passes its own ResponseWriter and request to
// next.
func TestMiddlewareMisbehaves(t *testing.T) {
	type lent struct {
		w http.ResponseWriter
		r *http.Request
	}
	leave := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun := make(chan struct{})
			ctx := context.WithValue(r.Context(), contextKey{}, &lent{w, r})
			go next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, http.ServerContextKey, begun)))
			<-begun
		})
	})
	s := servertest.NewServer(t, &filo.Server{Logger: quiet, Handler: leave(func(c *filo.Ctx) error {
		close(c.Context().Value(http.ServerContextKey).(chan struct{}))
		l := c.Context().Value(contextKey{}).(*lent)
		l.w.Header().Set("X-Lent", "1")
		l.w.WriteHeader(500)
		l.w.(http.Flusher).Flush()
		if _, err := l.w.Write([]byte("lent")); err == nil {
			t.Error("a write through what was lent isn't refused")
		}
		if _, err := l.r.Body.Read(make([]byte, 1)); err == nil {
			t.Error("a read through what was lent isn't refused")
		}
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(201, "text/plain", body)
	})})
	if got := s.Raw(t, post); !strings.HasPrefix(got, "HTTP/1.1 201 ") || !strings.HasSuffix(got, "\r\n\r\nhello") {
		t.Errorf("got %q", got)
	}
}
