package adaptor_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/router"
)

// eachServer calls f with each kind of connection whose requests need a place. (With the blocking driver, each HTTP/1.1 connection has a
// place of its own, so its requests never wait.)
func eachServer(t *testing.T, f func(t *testing.T, start func(*filo.Server) *front)) {
	eachFront(t, func(t *testing.T, start func(*filo.Server) *front) { f(t, start) })
	for name, driver := range map[string]filo.Driver{"loop": filo.DriverLoop, "blocking": filo.DriverBlocking} {
		for _, h2 := range []bool{false, true} {
			if driver == filo.DriverBlocking && !h2 {
				continue
			}
			t.Run(map[bool]string{false: name + "/HTTP/1.1", true: name + "/HTTP/2.0"}[h2], func(t *testing.T) {
				f(t, func(s *filo.Server) *front {
					s.Logger, s.Driver, s.HTTP2.Unencrypted = quiet, driver, true
					address := tcptest.Serve(t, s)
					protocols := new(http.Protocols)
					protocols.SetHTTP1(!h2)
					protocols.SetUnencryptedHTTP2(h2)
					transport := &http.Transport{Protocols: protocols}
					t.Cleanup(transport.CloseIdleConnections)
					return &front{"http://" + address, &http.Client{Transport: transport}}
				})
			})
		}
	}
}

// A slow handler behind a middleware of net/http needs a place like any other. It uses the place of the outer request, or a place of its
// own once the middleware has given up.
func TestPartsTakePlaces(t *testing.T) {
	wraps := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&wrapper{w}, r) })
	}
	for name, around := range map[string]func(filo.Handler) filo.Handler{
		"writer":   adaptor.Middleware(wraps),
		"two":      func(h filo.Handler) filo.Handler { return adaptor.Middleware(wraps)(adaptor.Middleware(wraps)(h)) },
		"time-out": adaptor.Middleware(func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Hour, "") }),
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, start func(*filo.Server) *front) {
				holds := newHeld()
				r := router.New()
				r.GET("/held", holds.serve).Offload()
				r.GET("/inline", func(c *filo.Ctx) error { return c.Text(200, "inline") }).Inline()
				s := &filo.Server{Concurrency: 2, Queue: 1, QueueTimeout: time.Hour, Handler: around(r.Serve)}
				f := start(s)
				for range 50 { // afterwards the server knows that its handler enters classes
					f.ask(t, "GET", "/inline", "")
				}
				var got [3]<-chan *answer
				for i := range 2 {
					got[i] = f.later(t, "GET", "/held", "")
					<-holds.begun
				}
				got[2] = f.later(t, "GET", "/held", "")
				eventually(t, "a request to wait", func() bool { return s.Stats().RequestsQueued == 1 || len(holds.begun) > 0 })
				select {
				case got := <-f.later(t, "GET", "/held", ""):
					if !got.isRefusal() {
						t.Errorf("over the queue: %v", got.Response)
					}
				case <-holds.begun:
					t.Error("more than two handlers run")
				}
				if got := f.ask(t, "GET", "/inline", ""); got.StatusCode != 200 {
					t.Errorf("a quick one: %v", got.Response)
				}
				if st := s.Stats(); st.Refusals != (filo.Refusals{QueueFull: 1}) {
					t.Errorf("%+v", st.Refusals)
				}
				close(holds.release)
				for _, each := range got {
					if got := <-each; got.body != "held" {
						t.Errorf("%v %q", got.Response, got.body)
					}
				}
			})
		})
	}
}

// An inner request (a part) that continues after its middleware has given up keeps its place, Server.Running lists it, and a shutdown
// waits for it. It may have entered a class of its own, or run in the server's.
func TestPartsOutliveMiddleware(t *testing.T) {
	t.Run("router", func(t *testing.T) {
		testOutlives(t, "GET /held", func(h filo.Handler) filo.Handler {
			r := router.New()
			r.GET("/held", h).Offload()
			return r.Serve
		})
	})
	t.Run("handler", func(t *testing.T) {
		testOutlives(t, "", func(h filo.Handler) filo.Handler { return h })
	})
}

func testOutlives(t *testing.T, class string, route func(filo.Handler) filo.Handler) {
	eachServer(t, func(t *testing.T, start func(*filo.Server) *front) {
		begun, release := make(chan struct{}), make(chan struct{})
		handler := route(func(c *filo.Ctx) error {
			close(begun)
			<-release
			return c.Text(200, "too late")
		})
		// givesUp does what http.TimeoutHandler does, but gives up when the handler has begun.
		givesUp := adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				go next.ServeHTTP(httptest.NewRecorder(), r)
				<-begun
				http.Error(w, "late", http.StatusGatewayTimeout)
			})
		})
		s := &filo.Server{Concurrency: 1, Handler: givesUp(handler)}
		f := start(s)
		if got := f.ask(t, "GET", "/held", ""); got.StatusCode != 504 {
			t.Fatalf("%v %q", got.Response, got.body)
		}
		eventually(t, "the part has the only place", func() bool { return s.Stats().WorkersRunning == 1 })
		eventually(t, "the part alone to be listed", func() bool {
			running := s.Running()
			return len(running) == 1 && running[0].Route == class && running[0].State == filo.RunningHandler && running[0].Client.Addr().IsLoopback()
		})
		f.client.CloseIdleConnections()
		ended := make(chan error)
		go func() { ended <- s.Shutdown(t.Context()) }()
		eventually(t, "the shutdown waits for the part alone", func() bool {
			st := s.Stats()
			return st.Draining && st.ConnsOpen == 0
		})
		select {
		case err := <-ended:
			t.Fatalf("the shutdown didn't wait: %v", err)
		default:
		}
		close(release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		eventually(t, "its place to be free", func() bool { st := s.Stats(); return st.WorkersRunning == 0 && st.RequestsCarried == 0 })
		if running := s.Running(); len(running) != 0 {
			t.Errorf("then there is still %+v", running)
		}
	})
}

// A middleware may make two concurrent calls of next, for example to try another version of a handler. One call may run with the Ctx of the
// request. Then the other call neither uses that Ctx nor shares its place.
func TestNextTwice(t *testing.T) {
	eachServer(t, func(t *testing.T, start func(*filo.Server) *front) {
		begun, ended := make(chan struct{}), make(chan struct{})
		running := make(chan int, 1)
		var s *filo.Server
		r := router.New()
		r.GET("/", func(c *filo.Ctx) error {
			if c.Request.Header.Has("Beside") {
				running <- s.Stats().WorkersRunning
				c.Set("key", "beside")
				return c.Text(200, "beside")
			}
			close(begun)
			for {
				c.Set("key", "first")
				select {
				case <-ended:
					return c.Text(200, c.Get("key").(string))
				default:
					runtime.Gosched()
				}
			}
		}).Offload()
		twice := adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				go func() {
					defer close(ended)
					<-begun
					beside := r.Clone(r.Context())
					beside.Header.Set("Beside", "1")
					next.ServeHTTP(httptest.NewRecorder(), beside)
				}()
				next.ServeHTTP(w, r)
			})
		})
		s = &filo.Server{Concurrency: 2, Handler: twice(r.Serve)}
		if got := start(s).ask(t, "GET", "/", ""); got.body != "first" {
			t.Errorf("%v %q", got.Response, got.body)
		}
		if n := <-running; n != 2 {
			t.Errorf("%d places are taken by two handlers", n)
		}
	})
}

// A part that is an Always handler stays in the reserve of such handlers when its middleware has given up. So it takes no place from other
// handlers, and the limit of the reserve holds.
func TestAlwaysPartsStayInReserve(t *testing.T) {
	const reserve = 16
	eachServer(t, func(t *testing.T, start func(*filo.Server) *front) {
		begun, release := make(chan struct{}), make(chan struct{})
		end := sync.OnceFunc(func() { close(release) })
		defer end()
		first, second := newHeld(), newHeld()
		r := router.New()
		r.GET("/first", first.serve).Offload()
		r.GET("/second", second.serve).Offload()
		r.GET("/always", func(c *filo.Ctx) error {
			begun <- struct{}{}
			<-release
			return nil
		}).Always()
		// givesUp doesn't wait for the Always handler to end: it answers with 504 once that handler has begun, and with 503 if it was refused.
		givesUp := adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/always" {
					next.ServeHTTP(w, r)
					return
				}
				refused := make(chan struct{})
				go func() {
					defer close(refused)
					next.ServeHTTP(httptest.NewRecorder(), r)
				}()
				select {
				case <-begun:
					w.WriteHeader(http.StatusGatewayTimeout)
				case <-refused:
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
		})
		s := &filo.Server{Concurrency: 1, Handler: givesUp(r.Serve)}
		f := start(s)
		got := f.later(t, "GET", "/first", "")
		<-first.begun
		ask := func() int { return f.ask(t, "GET", "/always", "").StatusCode }
		for range reserve { // the previous request may not have released its own place yet
			eventually(t, "a place in the reserve", func() bool { return ask() == http.StatusGatewayTimeout })
		}
		if got := ask(); got != http.StatusServiceUnavailable {
			t.Errorf("over the reserve: %d", got)
		}
		close(first.release)
		<-got
		eventually(t, "the place to be free", func() bool { return s.Stats().WorkersRunning == 0 })
		got = f.later(t, "GET", "/second", "")
		select {
		case <-second.begun:
			close(second.release)
			<-got
		case got := <-got:
			t.Errorf("then another: %v", got.Response)
		}
		end()
		eventually(t, "all to end", func() bool { return s.Stats().RequestsCarried == 0 })
	})
}
