package adaptor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
)

// front is a server of net/http that runs the handler of a filo server.
type front struct {
	url    string
	client *http.Client
}

// eachFront calls f with a server of net/http that speaks HTTP/1.1, and with one that speaks HTTP/2.
func eachFront(t *testing.T, f func(t *testing.T, start func(*filo.Server) *front)) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			f(t, func(s *filo.Server) *front {
				if s.Logger == nil {
					s.Logger = quiet
				}
				server := httptest.NewUnstartedServer(adaptor.ToHTTPServer(s))
				server.Config.ErrorLog = log.New(io.Discard, "", 0)
				server.EnableHTTP2 = proto == "HTTP/2.0"
				server.StartTLS()
				t.Cleanup(server.Close)
				t.Cleanup(func() { s.Close() })
				return &front{server.URL, server.Client()}
			})
		})
	}
}

// answer is an answer that a client has received, with its whole body.
type answer struct {
	*http.Response
	body string
}

// ask sends a request, and waits for the answer.
func (f *front) ask(t *testing.T, method, path, body string) *answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := f.client.Do(r)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return &answer{Response: &http.Response{}}
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
	return &answer{response, string(got)}
}

// later calls ask on another goroutine.
func (f *front) later(t *testing.T, method, path, body string) <-chan *answer {
	got := make(chan *answer, 1)
	go func() { got <- f.ask(t, method, path, body) }()
	return got
}

// isRefusal reports whether an answer is a 503 with Retry-After.
func (a *answer) isRefusal() bool { return a.StatusCode == 503 && a.Header.Get("Retry-After") != "" }

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never:", what)
		}
	}
}

// held is a handler that waits until release is closed.
type held struct{ begun, release chan struct{} }

func newHeld() *held { return &held{make(chan struct{}, 100), make(chan struct{})} }

func (h *held) serve(c *filo.Ctx) error {
	h.begun <- struct{}{}
	select {
	case <-h.release:
		return c.Text(200, "held")
	case <-c.Context().Done():
		return context.Cause(c.Context())
	}
}

// begin sends a request and waits until its handler, which is h.serve, has begun. A refused request is sent again: on a busy machine, an
// earlier quick handler may have lost its loop, and then its worker keeps a place until it runs again.
func (h *held) begin(t *testing.T, f *front, path string) <-chan *answer {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		got := f.later(t, "GET", path, "")
		select {
		case <-h.begun:
			return got
		case a := <-got:
			if !a.isRefusal() || time.Now().After(end) {
				t.Fatalf("%s has not begun: %v %q", path, a.Status, a.body)
			}
		}
	}
}

// Stats counts the answers, by class of status, and the requests that are being handled.
func TestCarriedStats(t *testing.T) {
	eachFront(t, func(t *testing.T, start func(*filo.Server) *front) {
		holds := newHeld()
		s := &filo.Server{Handler: func(c *filo.Ctx) error {
			switch c.Path() {
			case "/held":
				return holds.serve(c)
			case "/stream":
				_, err := c.Stream().WriteString("stream")
				return err
			case "/events":
				p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
				if err == nil {
					p.End()
				}
				return err
			case "/none":
				return filo.Error(404, "")
			case "/fails":
				return errors.New("failed")
			case "/slow":
				c.SetTimeout(time.Nanosecond, nil)
				<-c.Context().Done()
				return c.Context().Err()
			}
			return c.NoContent()
		}}
		f := start(s)
		for _, path := range []string{"/", "/stream", "/events", "/none", "/fails", "/slow"} {
			f.ask(t, "GET", path, "")
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = "a b"
		adaptor.ToHTTPServer(s).ServeHTTP(httptest.NewRecorder(), r) // is refused
		got := f.later(t, "GET", "/held", "")
		<-holds.begun
		// A client may receive its answer before the end of the handler is counted.
		eventually(t, "the answers to be counted", func() bool {
			st := s.Stats()
			return st.Requests == [6]uint64{2: 3, 4: 2, 5: 2} && st.RequestsCarried == 1 && st.ConnsOpen == 0
		})
		close(holds.release)
		<-got
		eventually(t, "the end of the request", func() bool { return s.Stats().RequestsCarried == 0 })
		if st := s.Stats(); st.Requests[2] != 4 {
			t.Errorf("%+v", st)
		}
	})
}

// However a handler ends, its request is no longer counted among those being handled.
func TestCarriedEnds(t *testing.T) {
	s := &filo.Server{Logger: quiet, Handler: func(c *filo.Ctx) error {
		switch c.Path() {
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/goexit":
			runtime.Goexit()
		case "/abort":
			return filo.ErrAbort
		case "/hijack":
			conn, _, err := c.Hijack()
			if err != nil {
				return err
			}
			if n := c.Server().Stats().RequestsCarried; n != 0 {
				t.Errorf("%d requests are counted, whose connection was taken over", n)
			}
			return conn.Close()
		}
		return nil
	}}
	dial := foreign(t, s)
	for _, path := range []string{"/panic", "/goexit", "/abort", "/hijack"} {
		exchangeRaw(t, dial, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		eventually(t, "the end of "+path, func() bool { return s.Stats().RequestsCarried == 0 })
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// If a middleware of net/http runs a handler of filo, the server counts the request once, not again for the inner handler.
func TestMiddlewareCountsOnce(t *testing.T) {
	wraps := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&wrapper{w}, r) })
	})
	for name, start := range map[string]func(*filo.Server) func() (net.Conn, error){
		"filo":     func(s *filo.Server) func() (net.Conn, error) { return startTCP(t, s) },
		"net/http": func(s *filo.Server) func() (net.Conn, error) { return foreign(t, s) },
		"its own guest": func(s *filo.Server) func() (net.Conn, error) {
			h := s.Handler
			s.Handler = func(c *filo.Ctx) error {
				if c.Request.Header.Has("X-Inside") {
					return h(c)
				}
				c.Request.Header.Set("X-Inside", "1")
				return adaptor.FromHTTP(adaptor.ToHTTPServer(s))(c)
			}
			return startTCP(t, s)
		},
		"its own guest's": func(s *filo.Server) func() (net.Conn, error) {
			h := s.Handler
			s.Handler = func(c *filo.Ctx) error {
				if c.Request.Header.Has("X-Inside") {
					return h(c)
				}
				c.Request.Header.Set("X-Inside", "1")
				return adaptor.FromHTTP(adaptor.ToHTTP(adaptor.FromHTTP(adaptor.ToHTTPServer(s))))(c)
			}
			return startTCP(t, s)
		},
	} {
		want := 0
		if name == "net/http" {
			want = 1
		}
		s := &filo.Server{Concurrency: 1, Handler: wraps(wraps(func(c *filo.Ctx) error {
			if n := c.Server().Stats().RequestsCarried; n != want {
				t.Errorf("%s: %d are being handled, want %d", name, n, want)
			}
			return c.Text(200, "ok")
		}))}
		if got := string(exchangeRaw(t, start(s), get)); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("%s: got %q", name, got)
		}
		if got := s.Stats().Requests; got != [6]uint64{2: 1} {
			t.Errorf("%s: counted %v", name, got)
		}
	}
}

// If the deadline of a request's context passes while the request waits in the queue, it gets a 503, because its client hasn't
// left.
func TestCarriedQueueDeadline(t *testing.T) {
	holds := newHeld()
	s := &filo.Server{Concurrency: 1, Queue: 1, QueueTimeout: time.Hour, Handler: holds.serve, Logger: quiet}
	h := adaptor.ToHTTPServer(s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}()
	<-holds.begun
	const requests = 20
	for range requests {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		cancel()
		if w.Code != 503 {
			t.Errorf("got %d %q", w.Code, w.Body)
		}
	}
	if got := s.Stats().Refusals.QueueTimeout; got != requests {
		t.Errorf("%d requests are counted as refused after their time in the queue, want %d", got, requests)
	}
	close(holds.release)
	<-ended
}

// A shutdown waits for the requests that are being handled, makes their answers the last ones of their connections, and refuses further
// requests.
func TestCarriedShutdown(t *testing.T) {
	eachFront(t, func(t *testing.T, start func(*filo.Server) *front) {
		holds := newHeld()
		s := &filo.Server{Handler: holds.serve}
		f := start(s)
		got := f.later(t, "GET", "/", "")
		<-holds.begun
		ended := make(chan error, 1)
		go func() { ended <- s.Shutdown(t.Context()) }()
		eventually(t, "the shutdown", func() bool { return s.Stats().Draining })
		for _, method := range []string{"GET", "HEAD"} {
			if late := f.ask(t, method, "/", ""); !late.isRefusal() || late.ProtoMajor == 1 && !late.Close {
				t.Errorf("%s during the shutdown: %v", method, late.Response)
			}
		}
		select {
		case err := <-ended:
			t.Fatalf("the shutdown didn't wait: %v", err)
		default:
		}
		close(holds.release)
		if last := <-got; last.body != "held" || last.ProtoMajor == 1 && !last.Close {
			t.Errorf("the last answer: %v %q", last.Response, last.body)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if late := f.ask(t, "GET", "/", ""); !late.isRefusal() {
			t.Errorf("after the shutdown: %v", late.Response)
		}
		if st := s.Stats(); st.Requests != [6]uint64{2: 1, 5: 3} || st.RequestsCarried != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A Close, and a Shutdown whose time has run out, end the contexts of the requests.
func TestCarriedShutdownGivesUp(t *testing.T) {
	for _, end := range []func(s *filo.Server) error{
		func(s *filo.Server) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return s.Shutdown(ctx)
		},
		(*filo.Server).Close,
	} {
		holds, causes := newHeld(), make(chan error, 1)
		s := &filo.Server{Handler: func(c *filo.Ctx) error {
			err := holds.serve(c)
			causes <- err
			return err
		}}
		conn, _ := client(t, foreign(t, s), get)
		<-holds.begun
		end(s)
		if cause := <-causes; cause != filo.ErrServerClosed {
			t.Errorf("the cause is %v", cause)
		}
		conn.Close()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A drain tells clients to leave before it refuses them, and then waits as a shutdown does.
func TestCarriedDrain(t *testing.T) {
	holds := newHeld()
	s := &filo.Server{Handler: func(c *filo.Ctx) error {
		if c.Path() == "/held" {
			return holds.serve(c)
		}
		return c.Text(200, "ok")
	}}
	dial := foreign(t, s)
	ask := func(path string) (*http.Response, error) {
		_, r := client(t, dial, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
		return http.ReadResponse(r, nil)
	}
	_, held := client(t, dial, "GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
	<-holds.begun
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- health.New(health.Options{}).Drain(ctx, s, time.Hour) }()
	eventually(t, "the drain", func() bool { return s.Stats().KeepAlivesOff })
	if response, err := ask("/"); err != nil || response.StatusCode != 200 || !response.Close {
		t.Errorf("%v, %v", response, err)
	}
	close(holds.release)
	if response, err := http.ReadResponse(held, nil); err != nil || response.StatusCode != 200 || !response.Close {
		t.Errorf("%v, %v", response, err)
	}
	cancel()
	<-ended
	if response, err := ask("/"); err != nil || response.StatusCode != 503 {
		t.Errorf("%v, %v", response, err)
	}
}

// The Ctx, the access log, and inner handlers of net/http see the protocol of the client's request.
func TestCarriedProtocol(t *testing.T) {
	for proto, version := range map[string][2]int{"HTTP/1.0": {1, 0}, "HTTP/1.1": {1, 1}, "HTTP/2.0": {2, 0}, "HTTP/3.0": {3, 0}} {
		var log bytes.Buffer
		access := middleware.AccessLog(middleware.AccessLogOptions{Combined: &log})
		inside := adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
		changes := adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&wrapper{w}, r) })
		})
		var seen string
		h := adaptor.ToHTTP(access(changes(func(c *filo.Ctx) error {
			seen = c.Request.Proto()
			return inside(c)
		})))
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Proto, r.ProtoMajor, r.ProtoMinor = proto, version[0], version[1]
		h.ServeHTTP(w, r)
		if seen != proto || w.Body.String() != proto || !strings.Contains(log.String(), ` "GET / `+proto+`" 200 `) {
			t.Errorf("%s is %s, to net/http's handlers %s, and in the log %s", proto, seen, w.Body, log.String())
		}
	}
}

// A middleware of net/http doesn't change the protocol that inner handlers see.
func TestProtocolBehindMiddleware(t *testing.T) {
	wraps := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&wrapper{w}, r) })
	})
	url, client := startHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		adaptor.ToHTTP(wraps(func(c *filo.Ctx) error { return c.Text(200, c.Request.Proto()) })).ServeHTTP(w, r)
	})
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); string(got) != "HTTP/2.0" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// Over HTTP/2, trailer fields may follow a body whose length was announced, both with filo's server and with net/http's.
func TestCarriedTrailerBesideLength(t *testing.T) {
	s := httptest.NewUnstartedServer(adaptor.ToHTTP(func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Length", "5")
		c.Response.Trailer.Set("X-Sum", "7")
		_, err := c.Stream().WriteString("hello")
		return err
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	for _, method := range []string{"GET", "HEAD"} {
		r, err := http.NewRequest(method, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if got := response.Trailer.Get("X-Sum"); err != nil || response.ContentLength != 5 || method == "GET" && (string(body) != "hello" || got != "7") {
			t.Errorf("%s: %q of %d, trailer %q, %v", method, body, response.ContentLength, got, err)
		}
	}
}

// Requests over Concurrency wait in Queue, or get a 503, like requests of filo's own connections. Inline handlers and Always
// handlers run even when Concurrency is reached.
func TestCarriedAdmission(t *testing.T) {
	eachFront(t, func(t *testing.T, start func(*filo.Server) *front) {
		holds := newHeld()
		r := router.New()
		r.GET("/held", holds.serve).Offload()
		r.GET("/inline", func(c *filo.Ctx) error { return c.Text(200, "inline") }).Inline()
		r.GET("/always", func(c *filo.Ctx) error {
			time.Sleep(time.Microsecond) // so that the handler isn't quick
			return c.Text(200, "always")
		}).Offload().Always()
		r.POST("/inline", func(c *filo.Ctx) error {
			body, err := c.Body()
			return errors.Join(err, c.Bytes(200, "text/plain", body))
		}).Inline()
		s := &filo.Server{Concurrency: 2, Queue: 1, QueueTimeout: time.Hour, Handler: r.Serve}
		f := start(s)
		f.ask(t, "GET", "/inline", "") // from now on the server knows that its handler enters classes
		first, second := f.later(t, "GET", "/held", ""), f.later(t, "GET", "/held", "")
		<-holds.begun
		<-holds.begun
		third := f.later(t, "GET", "/held", "")
		eventually(t, "a request to wait", func() bool { return s.Stats().RequestsQueued == 1 })
		if got := f.ask(t, "GET", "/held", ""); !got.isRefusal() {
			t.Errorf("over the queue: %v", got.Response)
		}
		for _, path := range []string{"/inline", "/always"} {
			if got := f.ask(t, "GET", path, ""); got.StatusCode != 200 {
				t.Errorf("%s: %v", path, got.Response)
			}
		}
		if got := f.ask(t, "POST", "/inline", "body"); !got.isRefusal() {
			t.Errorf("an inline handler that waits for its body: %v", got.Response)
		}
		eventually(t, "the ends of those who were answered", func() bool { return s.Stats().WorkersRunning == 2 })
		if st := s.Stats(); st.RequestsRefused != 2 || st.Refusals != (filo.Refusals{QueueFull: 1, Concurrency: 1}) {
			t.Errorf("%+v", st)
		}
		close(holds.release)
		for _, each := range []<-chan *answer{first, second, third} {
			if got := <-each; got.body != "held" {
				t.Errorf("%v %q", got.Response, got.body)
			}
		}
		eventually(t, "the places to be free", func() bool { return s.Stats().WorkersRunning == 0 })
		if got := f.ask(t, "POST", "/inline", "body"); got.body != "body" {
			t.Errorf("%v %q", got.Response, got.body)
		}
	})
}

// A server without a queue refuses a request over Concurrency at once. With a queue, a request that gets no place within
// QueueTimeout is refused.
func TestCarriedRefusals(t *testing.T) {
	for _, test := range []struct {
		queue int
		want  filo.Refusals
	}{{0, filo.Refusals{Concurrency: 1}}, {1, filo.Refusals{QueueTimeout: 1}}} {
		holds := newHeld()
		s := &filo.Server{Concurrency: 1, Queue: test.queue, QueueTimeout: time.Millisecond, Handler: holds.serve}
		dial := foreign(t, s)
		_, first := client(t, dial, get)
		<-holds.begun
		if got := string(exchangeRaw(t, dial, get)); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "Retry-After: 1") {
			t.Errorf("got %q", got)
		}
		if st := s.Stats(); st.Refusals != test.want || st.RequestsRefused != 1 || st.Requests[5] != 1 {
			t.Errorf("%+v", st)
		}
		close(holds.release)
		expect(t, first, "HTTP/1.1 200 OK")
		eventually(t, "the place to be free", func() bool { return s.Stats().WorkersRunning == 0 })
	}
}

// A request leaves the queue when its client leaves, and when the server is closed.
func TestCarriedLeavesQueue(t *testing.T) {
	begun, release := make(chan struct{}, 1), make(chan struct{})
	s := &filo.Server{Concurrency: 1, Queue: 2, QueueTimeout: time.Hour, Handler: func(c *filo.Ctx) error {
		begun <- struct{}{}
		<-release // the handler keeps its place, even if its context ends
		return c.NoContent()
	}}
	dial := foreign(t, s)
	client(t, dial, get)
	<-begun
	leaves, _ := client(t, dial, get)
	eventually(t, "a request to wait", func() bool { return s.Stats().RequestsQueued == 1 })
	leaves.Close()
	eventually(t, "its end", func() bool { st := s.Stats(); return st.RequestsQueued == 0 && st.RequestsCarried == 1 })
	_, stays := client(t, dial, get)
	eventually(t, "a request to wait", func() bool { return s.Stats().RequestsQueued == 1 })
	s.Close()
	if got, err := io.ReadAll(stays); len(got) > 0 {
		t.Errorf("got %q, %v", got, err)
	}
	close(release)
	eventually(t, "the end of all", func() bool { st := s.Stats(); return st.RequestsCarried == 0 && st.WorkersRunning == 0 })
	if st := s.Stats(); st.Refusals != (filo.Refusals{}) {
		t.Errorf("%+v", st.Refusals)
	}
}

// Requests from another server share the places of Concurrency with requests of filo's own connections: a place that either kind of request
// releases can go to the other kind.
func TestCarriedSharesPlaces(t *testing.T) {
	holds := newHeld()
	s := &filo.Server{Concurrency: 1, Queue: 1, QueueTimeout: time.Hour, Driver: filo.DriverBlocking, Logger: quiet, Handler: holds.serve}
	own, other := startTCP(t, s), foreign(t, s)
	_, first := client(t, other, get)
	<-holds.begun
	if got := string(exchangeRaw(t, own, get)); !strings.HasPrefix(got, "HTTP/1.1 503 ") {
		t.Errorf("got %q", got)
	}
	holds.release <- struct{}{}
	expect(t, first, "HTTP/1.1 200 OK")
	eventually(t, "the place to be free", func() bool { return s.Stats().WorkersRunning == 0 })
	_, second := client(t, own, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	<-holds.begun
	_, third := client(t, other, get)
	eventually(t, "a request to wait", func() bool { return s.Stats().RequestsQueued == 1 })
	holds.release <- struct{}{}
	expect(t, second, "HTTP/1.1 200 OK")
	<-holds.begun
	holds.release <- struct{}{}
	expect(t, third, "HTTP/1.1 200 OK")
}

// In whatever order requests arrive, are canceled and end, no place is lost, and no place is given to two requests.
func TestCarriedPlacesUnderLoad(t *testing.T) {
	const places, clients, each = 3, 12, 20
	var running, answered atomic.Int32
	r := router.New()
	r.GET("/", func(c *filo.Ctx) error {
		if n := running.Add(1); n > places {
			t.Errorf("%d handlers run", n)
		}
		defer running.Add(-1)
		for range 20 {
			runtime.Gosched()
		}
		if c.Query("n") == "7" {
			panic(http.ErrAbortHandler)
		}
		return c.Text(200, "ok")
	}).Offload()
	s := &filo.Server{Logger: quiet, Concurrency: places, Queue: clients, QueueTimeout: time.Hour, Handler: r.Serve}
	h := adaptor.ToHTTPServer(s)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for n := range each {
				ctx, cancel := context.WithCancel(t.Context())
				if n%5 == 0 {
					time.AfterFunc(10*time.Microsecond, cancel)
				}
				w := httptest.NewRecorder()
				func() {
					defer func() { recover() }()
					h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", fmt.Sprint("/?n=", n), nil))
				}()
				if n%5 != 0 && n != 7 && w.Code == 200 {
					answered.Add(1)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if n := answered.Load(); n != clients*(each-each/5-1) {
		t.Errorf("%d answers", n)
	}
	if st := s.Stats(); st.WorkersRunning != 0 || st.RequestsQueued != 0 || st.RequestsCarried != 0 {
		t.Errorf("%+v", st)
	}
}

// interruptible is a ResponseWriter, and the body of its request: a Read of the body waits until the read deadline has passed.
type interruptible struct {
	*httptest.ResponseRecorder
	passed chan struct{}
}

// SetReadDeadline is called with a time that has passed.
func (w *interruptible) SetReadDeadline(time.Time) error {
	close(w.passed)
	return nil
}

// Read waits for the deadline.
func (w *interruptible) Read([]byte) (int, error) {
	<-w.passed
	return 0, os.ErrDeadlineExceeded
}

// Bodies that handlers read as a whole count against MaxBufferedBodies, and the body of a silent client is given up to make room
// for others.
func TestCarriedBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, part = 800_000, 700_000
		s := &filo.Server{Logger: quiet, MaxBufferedBodies: 1_000_000, Handler: func(c *filo.Ctx) error {
			body, err := c.Body()
			if st := c.Server().Stats(); err == nil && st.BodiesBuffered < int64(len(body)) {
				t.Errorf("%d bytes count, of a body of %d", st.BodiesBuffered, len(body))
			}
			return errors.Join(err, c.NoContent())
		}}
		h := adaptor.ToHTTPServer(s)
		post := func(body io.Reader, w http.ResponseWriter) {
			r := httptest.NewRequest("POST", "/", body)
			r.ContentLength = size
			h.ServeHTTP(w, r)
		}
		silent := &interruptible{httptest.NewRecorder(), make(chan struct{})}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			post(io.MultiReader(strings.NewReader(strings.Repeat("x", part)), silent), &wrapper{silent})
		}()
		synctest.Wait()
		for _, test := range []struct {
			later  time.Duration
			status int
		}{{0, 503}, {2 * time.Second, 204}} {
			time.Sleep(test.later)
			w := httptest.NewRecorder()
			post(strings.NewReader(strings.Repeat("y", size)), w)
			if w.Code != test.status || test.status == 503 && w.Header().Get("Retry-After") == "" {
				t.Errorf("after %v: got %d, %v", test.later, w.Code, w.Header())
			}
		}
		if <-ended; silent.Code != 408 {
			t.Errorf("the silent client got %d", silent.Code)
		}
		if st := s.Stats(); st.BodiesBuffered != 0 || st.Refusals != (filo.Refusals{BufferedBodies: 1}) || st.Timeouts != (filo.Timeouts{Body: 1}) {
			t.Errorf("%+v", st)
		}
	})
}

// A request whose body panicked in Read isn't interrupted later, as if its client were silent.
func TestCarriedReadPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &filo.Server{Logger: quiet, MaxBufferedBodies: 1_000_000, Handler: func(c *filo.Ctx) error {
			_, err := c.Body()
			return errors.Join(err, c.NoContent())
		}}
		h := adaptor.ToHTTPServer(s)
		post := func(size int, body io.Reader, w http.ResponseWriter) (panicked any) {
			defer func() { panicked = recover() }()
			r := httptest.NewRequest("POST", "/", body)
			r.ContentLength = int64(size)
			h.ServeHTTP(w, r)
			return nil
		}
		over := &interruptible{httptest.NewRecorder(), make(chan struct{})}
		if post(800_000, io.MultiReader(strings.NewReader(strings.Repeat("x", 300_000)), panicking{}), over) == nil {
			t.Error("the panic hasn't reached the other server")
		}
		time.Sleep(2 * time.Second)
		holder := &interruptible{httptest.NewRecorder(), make(chan struct{})}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			post(900_000, io.MultiReader(strings.NewReader(strings.Repeat("y", 700_000)), holder), holder)
		}()
		synctest.Wait()
		w := httptest.NewRecorder()
		if post(900_000, strings.NewReader(strings.Repeat("z", 900_000)), w); w.Code != 503 {
			t.Errorf("got %d beside a body that isn't silent for long", w.Code)
		}
		select {
		case <-over.passed:
			t.Error("a request that is over was interrupted")
		default:
		}
		holder.SetReadDeadline(time.Now())
		<-ended
	})
}

// panicking is a body made by the program, whose Read panics.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic(http.ErrAbortHandler) }

// A request that finds no place is refused or served, even if its class becomes quick, and slow again, while the request waits.
func TestCarriedClassBecomesQuick(t *testing.T) {
	route, slow := &class.Class{Name: "/route"}, &class.Class{Name: "/hold"}
	slow.SetOffload()
	holds := newHeld()
	s := &filo.Server{Concurrency: 1, Logger: quiet, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/hold" {
			return errors.Join(inside.Enter(c, slow), holds.serve(c))
		}
		return inside.Enter(c, route)
	}}
	h := adaptor.ToHTTPServer(s)
	ask := func(path string) {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	ask("/") // from now on the server knows that its handler enters classes
	var running sync.WaitGroup
	running.Go(func() { ask("/hold") })
	<-holds.begun
	var asked atomic.Bool
	running.Go(func() {
		for i := int64(0); !asked.Load(); i++ {
			route.Median.Store(9_000 + i%2*2_000)
		}
	})
	for range 3_000 {
		ask("/")
	}
	asked.Store(true)
	close(holds.release)
	running.Wait()
}

// Over HTTP/2, trailer fields can follow an answer that is sent as a whole.
func TestCarriedTrailerOfWholeAnswer(t *testing.T) {
	for _, body := range []string{"whole", ""} {
		front := httptest.NewUnstartedServer(adaptor.ToHTTP(func(c *filo.Ctx) error {
			c.Response.Trailer.Set("X-Sum", "42")
			return c.Text(200, body)
		}))
		front.EnableHTTP2 = true
		front.StartTLS()
		got, err := front.Client().Get(front.URL)
		if err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(got.Body); string(content) != body || err != nil || got.Trailer.Get("X-Sum") != "42" {
			t.Errorf("%s: %q, %v, trailer %v", got.Proto, content, err, got.Trailer)
		}
		got.Body.Close()
		front.Close()
	}
}

// Each setting of a filo server applies to requests from another server, or is listed as a setting of that other server;
// docs/internals/NETHTTP.md says which.
func TestCarriedSettings(t *testing.T) {
	var logged bytes.Buffer
	big := strings.Repeat("x", 300)
	echo := func(c *filo.Ctx) error {
		body, err := c.Body()
		return errors.Join(err, c.Bytes(200, "text/plain", body))
	}
	refused := func(status int) string { return fmt.Sprint(status, " ", http.StatusText(status)) }
	// For each setting: a server that has it, a request, and a text that the whole answer (status, header and body) must contain. Without a
	// server, another test covers the setting.
	holds := map[string]struct {
		s             *filo.Server
		request, want string
	}{
		"Handler":             {&filo.Server{Handler: echo}, "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", "body"},
		"ErrorHandler":        {&filo.Server{Handler: func(*filo.Ctx) error { return errors.New("e") }, ErrorHandler: func(c *filo.Ctx, _ error) { c.Text(418, "mine") }}, "GET / HTTP/1.1\r\n\r\n", "418 "},
		"Name":                {&filo.Server{Handler: echo, Name: "other"}, "GET / HTTP/1.1\r\n\r\n", "Server: other"},
		"MaxHeaderBytes":      {&filo.Server{Handler: echo, MaxHeaderBytes: 200}, "GET / HTTP/1.1\r\nA: " + big + "\r\n\r\n", refused(431)},
		"MaxHeaderFields":     {&filo.Server{Handler: echo, MaxHeaderFields: 2}, "GET / HTTP/1.1\r\nA: b\r\nB: c\r\nC: d\r\n\r\n", refused(431)},
		"MaxRequestLineBytes": {&filo.Server{Handler: echo, MaxRequestLineBytes: 200}, "GET /" + big + " HTTP/1.1\r\n\r\n", refused(414)},
		"MaxBodyBytes":        {&filo.Server{Handler: echo, MaxBodyBytes: 3}, "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", refused(413)},
		"MultipartLimits": {&filo.Server{MultipartLimits: filo.MultipartLimits{MaxParts: 1}, Handler: func(c *filo.Ctx) error { _, err := c.Request.MultipartForm(); return err }},
			"POST / HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 127\r\n\r\n" +
				strings.Repeat("--b\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n", 2) + "--b--\r\n" + strings.Repeat(" ", 14), refused(413)},
		"JSON":     {&filo.Server{JSON: settingCodec{}, Handler: func(c *filo.Ctx) error { return c.JSON(200, 1) }}, "GET / HTTP/1.1\r\n\r\n", "of the codec"},
		"Renderer": {&filo.Server{Renderer: settingCodec{}, Handler: func(c *filo.Ctx) error { return c.Render(200, "a", 1) }}, "GET / HTTP/1.1\r\n\r\n", "of the codec"},
		"ForOperator": {&filo.Server{ForOperator: true, Handler: func(c *filo.Ctx) error { return c.Text(200, fmt.Sprint(c.Server().ForOperator)) }},
			"GET / HTTP/1.1\r\n\r\n", "true"},
		"LogAllErrors": {&filo.Server{Handler: func(*filo.Ctx) error { return filo.Error(404, "") }, LogAllErrors: true, Logger: slog.New(slog.NewTextHandler(&logged, nil))},
			"GET / HTTP/1.1\r\n\r\n", "404"},
		"Concurrency": {}, "Queue": {}, "QueueTimeout": {}, "MaxBufferedBodies": {}, "Logger": {}, "Tasks": {},
	}
	const others = " Driver Leaders SocketOptions MaxIdleWorkerDuration MaxConns MaxConnsPerIP MaxRequestsPerConn ReadHeaderTimeout ReadTimeout WriteTimeout " +
		"IdleTimeout GracePeriod IdleGrace MinTransferRate MaxBufferedAnswers TLSConfig HTTP2 ProxyProtocol ConnState ConnContext "
	page, err := os.ReadFile("../docs/internals/NETHTTP.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[filo.Server]()) {
		if !field.IsExported() {
			continue
		}
		test, ok := holds[field.Name]
		if ok == strings.Contains(others, " "+field.Name+" ") {
			t.Errorf("%s: does it hold for requests of another server, or not?", field.Name)
		}
		if !strings.Contains(string(page), "`"+field.Name+"`") {
			t.Errorf("%s isn't in NETHTTP.md", field.Name)
		}
		if test.s == nil {
			continue
		}
		if test.s.Logger == nil {
			test.s.Logger = quiet
		}
		h := adaptor.ToHTTPServer(test.s)
		line, rest, _ := strings.Cut(test.request, "\r\n")
		got := string(exchangeRaw(t, startHTTP(t, h), line+"\r\nHost: a\r\nConnection: close\r\n"+rest))
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q in it", field.Name, got, test.want)
		}
	}
	if !strings.Contains(logged.String(), "handler failed") {
		t.Errorf("logged %q", logged.String())
	}
}

// settingCodec is a JSONCodec and a Renderer.
type settingCodec struct{}

func (settingCodec) Marshal(any) ([]byte, error) { return []byte("of the codec"), nil }
func (settingCodec) Unmarshal([]byte, any) error { return nil }
func (settingCodec) Render(w io.Writer, _ string, _ any) error {
	_, err := io.WriteString(w, "of the codec")
	return err
}

// A ResponseWriter whose Write panics on a goroutine of the server's own doesn't end the process: neither at a time-out's answer nor at a message
// to a parked connection. The panic is logged.
func TestPanicsBesideHandler(t *testing.T) {
	for _, path := range []string{"/timeout", "/park"} {
		log := &panicLog{logged: make(chan struct{})}
		s := &filo.Server{Logger: slog.New(slog.NewTextHandler(log, nil)), Handler: func(c *filo.Ctx) error {
			if c.Path() == "/timeout" {
				c.SetTimeout(time.Nanosecond, nil)
				<-log.logged // not the end of the context, after which the methods of the Ctx may send the answer on this goroutine
				return nil
			}
			p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
			if err != nil {
				return err
			}
			return p.Queue(filo.NewPreparedMessage([]byte("x")))
		}}
		func() {
			defer func() {
				if got := recover(); got != http.ErrAbortHandler {
					t.Errorf("%s: the other server got %v", path, got)
				}
			}()
			adaptor.ToHTTPServer(s).ServeHTTP(panickingWriter{httptest.NewRecorder()}, httptest.NewRequest("GET", path, nil))
		}()
		<-log.logged
	}
}

// panickingWriter is a ResponseWriter of the program, whose Write panics.
type panickingWriter struct{ *httptest.ResponseRecorder }

func (panickingWriter) Write([]byte) (int, error) { panic("broken") }

// panicLog closes logged when a panic outside of a handler is logged.
type panicLog struct {
	once   sync.Once
	logged chan struct{}
}

// Write implements io.Writer.
func (l *panicLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("panic in another server's transport")) {
		l.once.Do(func() { close(l.logged) })
	}
	return len(p), nil
}

// The answer of a handler's time-out ends the handler's wait for the request's body.
func TestCarriedTimeoutEndsRead(t *testing.T) {
	read := make(chan error, 1)
	s := &filo.Server{Logger: quiet, Handler: func(c *filo.Ctx) error {
		c.SetTimeout(20*time.Millisecond, nil)
		_, err := io.Copy(io.Discard, c.BodyReader())
		read <- err
		return err
	}}
	server := httptest.NewServer(adaptor.ToHTTPServer(s))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\npart")
	if answer, err := io.ReadAll(conn); err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 503 ")) {
		t.Errorf("%q, %v", answer, err)
	}
	if err := <-read; !errors.Is(err, filo.ErrHandlerTimeout) {
		t.Errorf("the read ended with %v", err)
	}
	if got := s.Stats().Timeouts; got != (filo.Timeouts{Handler: 1}) {
		t.Errorf("the time-outs are %+v", got)
	}
}

// A refusal without a call of the handler keeps the fields that net/http's middleware has set, except those about another content.
func TestRefusalKeepsOuterFields(t *testing.T) {
	s := &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }, Logger: quiet}
	inner := adaptor.ToHTTPServer(s)
	outer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Outer", "kept")
		w.Header().Set("ETag", `"other"`)
		inner.ServeHTTP(w, r)
	}))
	defer outer.Close()
	for _, status := range []int{200, 503} {
		response, err := http.Get(outer.URL)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != status || response.Header.Get("X-Outer") != "kept" || (response.Header.Get("ETag") == "") != (status == 503) {
			t.Errorf("%d, want %d: %v", response.StatusCode, status, response.Header)
		}
		if status == 200 {
			s.Shutdown(t.Context())
		}
	}
}

// In net/http a zero deadline means none.
func TestZeroDeadlineIsNone(t *testing.T) {
	address := tcptest.Serve(t, &filo.Server{Logger: quiet, ReadTimeout: 50 * time.Millisecond, Handler: adaptor.FromHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	}))})
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
	time.Sleep(300 * time.Millisecond)
	io.WriteString(c, "1\r\nb\r\n0\r\n\r\n")
	if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), "\r\n\r\nab") {
		t.Errorf("%q, %v", b, err)
	}
}
