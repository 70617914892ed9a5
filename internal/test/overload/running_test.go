package overload

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/router"
)

// runningPrime is the number of calls after which the server has measured a handler as quick.
const runningPrime = 100

// runningCase is a combination of driver and protocol.
type runningCase struct {
	name  string
	serve func(t *testing.T, config *filo.Server) (s *filo.Server, url string, client *http.Client)
}

func runningCases() []runningCase {
	socket := func(driver filo.Driver, http2 bool) func(*testing.T, *filo.Server) (*filo.Server, string, *http.Client) {
		return func(t *testing.T, config *filo.Server) (*filo.Server, string, *http.Client) {
			config.Driver, config.HTTP2.Unencrypted = driver, http2
			s := filotest.Serve(t, config)
			if http2 {
				return config, "http://" + s.Addr, filotest.NewHTTP2Client(t, "", nil, nil).Client
			}
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			return config, "http://" + s.Addr, &http.Client{Transport: transport}
		}
	}
	return []runningCase{
		{"HTTP/1", socket(filo.DriverAuto, false)},
		{"HTTP/1, blocking", socket(filo.DriverBlocking, false)},
		{"HTTP/2", socket(filo.DriverAuto, true)},
		{"HTTP/2, blocking", socket(filo.DriverBlocking, true)},
		{"ServeConn, HTTP/2", func(t *testing.T, config *filo.Server) (*filo.Server, string, *http.Client) {
			config.HTTP2.Unencrypted = true
			s, listener := filotest.Serve(t, config), filotest.Listen(t, "tcp", "127.0.0.1:0")
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go s.ServeConn(conn)
				}
			}()
			return config, "http://" + listener.Addr().String(), filotest.NewHTTP2Client(t, "", nil, nil).Client
		}},
		{"net/http", func(t *testing.T, config *filo.Server) (*filo.Server, string, *http.Client) {
			outer := httptest.NewServer(adaptor.ToHTTPServer(config))
			t.Cleanup(outer.Close)
			return config, outer.URL, outer.Client()
		}},
	}
}

// awaitRunning waits until exactly these requests run, each given as "route state". It returns them.
func awaitRunning(t *testing.T, s *filo.Server, want ...string) (running []filo.RunningRequest) {
	t.Helper()
	slices.Sort(want)
	var got []string
	if !filotest.Try(func() bool {
		running, got = s.Running(), nil
		for _, each := range running {
			got = append(got, each.Route+" "+each.State.String())
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	}) {
		t.Fatalf("running: %q, want %q", got, want)
	}
	return running
}

// Whatever protocol a request has, and wherever its handler runs: while the handler waits, Running lists the request with its route, its
// client and its state. Afterwards it doesn't. This includes a handler that was quick so far, runs in the leader, and blocks on a lock.
func TestRunning(t *testing.T) {
	for _, test := range runningCases() {
		t.Run(test.name, func(t *testing.T) {
			var lock sync.Mutex
			var begun atomic.Int32
			release := make(chan struct{})
			r := router.New()
			r.GET("/lock/{secret}", func(c *filo.Ctx) error {
				begun.Add(1)
				lock.Lock()
				defer lock.Unlock()
				return c.Text(200, "quick")
			})
			r.GET("/offload", func(c *filo.Ctx) error { <-release; return c.NoContent() }).Offload()
			r.GET("/stream", func(c *filo.Ctx) error {
				io.WriteString(c.Stream(), "begun")
				c.Stream().Flush()
				<-release
				return nil
			})
			r.POST("/upload", func(c *filo.Ctx) error {
				_, err := io.Copy(io.Discard, c.BodyReader())
				return errors.Join(err, c.NoContent())
			})
			outer := func(c *filo.Ctx) error {
				if c.Path() == "/outer" {
					<-release
				}
				return r.Serve(c)
			}
			s, url, client := test.serve(t, &filo.Server{Handler: outer, Logger: slog.New(slog.DiscardHandler)})
			for range runningPrime {
				if response, err := client.Get(url + "/lock/quick"); err != nil {
					t.Fatal(err)
				} else {
					io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			}
			awaitRunning(t, s)

			var requests sync.WaitGroup
			ask := func(method, path string, body io.Reader) {
				requests.Go(func() {
					request, _ := http.NewRequest(method, url+path, body)
					response, err := client.Do(request)
					if err != nil {
						t.Errorf("%s: %v", path, err)
						return
					}
					io.Copy(io.Discard, response.Body)
					response.Body.Close()
				})
			}
			lock.Lock()
			reader, writer := io.Pipe()
			free := sync.OnceFunc(func() {
				lock.Unlock()
				close(release)
				writer.Close()
			})
			t.Cleanup(free)
			was := begun.Load()
			ask("GET", "/lock/token?key=secret", nil)
			filotest.Await(t, "the handler", func() bool { return begun.Load() > was })
			stuck := awaitRunning(t, s, "GET /lock/{secret} handler")[0]
			if address := stuck.Client.Addr(); !address.IsLoopback() || stuck.Client.Port() == 0 {
				t.Errorf("the client is %v", stuck.Client)
			}
			ask("GET", "/offload?b=2", nil)
			awaitRunning(t, s, "GET /lock/{secret} handler", "GET /offload handler")
			ask("GET", "/stream", nil)
			awaitRunning(t, s, "GET /lock/{secret} handler", "GET /offload handler", "GET /stream answering")
			ask("POST", "/upload", reader)
			if _, err := writer.Write(make([]byte, 64<<10)); err != nil { // the client sends the head only together with a full buffer of the body
				t.Fatal(err)
			}
			awaitRunning(t, s, "GET /lock/{secret} handler", "GET /offload handler", "GET /stream answering", "POST /upload reading")
			ask("GET", "/outer", nil)
			running := awaitRunning(t, s, "GET /lock/{secret} handler", "GET /offload handler", "GET /stream answering", "POST /upload reading", " handler")
			if !slices.IsSortedFunc(running, func(a, b filo.RunningRequest) int { return int(b.Age - a.Age) }) || running[len(running)-1].Age < 0 {
				t.Errorf("not the oldest first: %v", running)
			}
			free()
			requests.Wait()
			awaitRunning(t, s)
		})
	}
}

// Running reports a request's route even if the request lost its loop, or its connection, while it was still in middleware, before the router
// found the route.
func TestRunningRouteFoundLate(t *testing.T) {
	for _, test := range runningCases() {
		t.Run(test.name, func(t *testing.T) {
			var slow atomic.Bool
			release, stuck := make(chan struct{}), make(chan struct{})
			r := router.New()
			r.GET("/lock/{secret}", func(c *filo.Ctx) error {
				if slow.Load() {
					<-stuck
				}
				return c.Text(200, "quick")
			})
			outer := func(c *filo.Ctx) error {
				if slow.Load() {
					<-release
				}
				return r.Serve(c)
			}
			s, url, client := test.serve(t, &filo.Server{Handler: outer, Logger: slog.New(slog.DiscardHandler)})
			get := func() {
				response, err := client.Get(url + "/lock/key")
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
			for range runningPrime {
				get()
			}
			awaitRunning(t, s)
			slow.Store(true)
			free := sync.OnceFunc(func() { close(stuck) })
			var requests sync.WaitGroup
			t.Cleanup(requests.Wait)
			t.Cleanup(free)
			requests.Go(get)
			awaitRunning(t, s, " handler")
			close(release)
			awaitRunning(t, s, "GET /lock/{secret} handler")
			free()
			requests.Wait()
			awaitRunning(t, s)
		})
	}
}

// If a handler lost its connection while it was in middleware, it needs a place when it waits for its body, like any other handler. The test
// uses the blocking driver, where the number of refusals is fixed. In the loop driver, the monitor stops taking seats away when it has done
// so too often.
func TestPlaceAfterMiddleware(t *testing.T) {
	const requests, places = 70, 1 + admit.MaxQuick
	var slow atomic.Bool
	var began, refused atomic.Int32
	taken := make(chan struct{})
	r := router.New()
	r.POST("/body", func(c *filo.Ctx) error {
		if slow.Load() {
			began.Add(1)
		}
		if _, err := c.Body(); err != nil {
			return err
		}
		return c.NoContent()
	})
	config := &filo.Server{Driver: filo.DriverBlocking, Concurrency: 1, Logger: slog.New(slog.DiscardHandler), Handler: func(c *filo.Ctx) error {
		if slow.Load() {
			<-taken
		}
		err := r.Serve(c)
		if errors.Is(err, filo.ErrBusy) { // in the route's handler, or when the router has entered the route's class
			refused.Add(1)
		}
		return err
	}}
	config.HTTP2.Unencrypted = true
	_, dial := filotest.ServeRawHTTP2(t, config, false)
	c, id := dial(), uint32(1)
	for range runningPrime {
		c.Request(id, "/body", false, ":method", "POST").Data(id, true, []byte("x")).Send()
		c.Answer(id)
		id += 2
	}
	slow.Store(true)
	inMiddleware := func() bool {
		return slices.ContainsFunc(config.Running(), func(r filo.RunningRequest) bool { return r.Route == "" })
	}
	for i := range int32(requests) {
		c.Request(id, "/body", false, ":method", "POST").Send()
		id += 2
		filotest.Await(t, "a handler in middleware", inMiddleware)
		taken <- struct{}{}
		// A refused request has a place until it has ended. If the next one came before, the server could refuse it without calling its handler.
		filotest.Await(t, "the handler or a refusal", func() bool { return began.Load()+refused.Load() > i && !inMiddleware() })
	}
	filotest.Await(t, "the refusals", func() bool { return refused.Load() == requests-places })
}

// If a client doesn't read its answer, the request's state differs from that of a request whose handler is stuck.
func TestRunningAnswerNotTaken(t *testing.T) {
	for _, test := range runningCases() {
		t.Run(test.name, func(t *testing.T) {
			begun := make(chan struct{}, 1)
			answer := make([]byte, 64<<20) // larger than windows and socket buffers
			r := router.New()
			r.GET("/", func(c *filo.Ctx) error {
				c.Response.SetBodyNoCopy(answer)
				begun <- struct{}{}
				return nil
			}).Offload()
			s, url, client := test.serve(t, &filo.Server{Handler: r.Serve})
			response, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			filotest.Recv(t, begun, "the handler")
			var running []filo.RunningRequest
			if !filotest.Try(func() bool {
				running = s.Running()
				return !slices.ContainsFunc(running, func(r filo.RunningRequest) bool { return r.State == filo.RunningHandler })
			}) {
				t.Errorf("running: %+v", running)
			}
		})
	}
}

// Running lists a request while it waits in Server.Queue, and then with its new state.
func TestRunningQueued(t *testing.T) {
	for _, driver := range []string{"HTTP/1", "HTTP/2", "net/http"} {
		t.Run(driver, func(t *testing.T) {
			release := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
			r := router.New()
			r.GET("/first", func(c *filo.Ctx) error { <-release[0]; return c.NoContent() }).Offload()
			r.GET("/second", func(c *filo.Ctx) error { <-release[1]; return c.NoContent() }).Offload()
			for _, test := range runningCases() {
				if test.name != driver {
					continue
				}
				if driver == "HTTP/1" && filotest.Blocking() {
					t.Skip("in the blocking driver a connection of HTTP/1.1 doesn't wait for a place")
				}
				s, url, client := test.serve(t, &filo.Server{Handler: r.Serve, Concurrency: 1, Queue: 1, QueueTimeout: time.Hour})
				var requests sync.WaitGroup
				ask := func(path string) {
					requests.Go(func() {
						if response, err := client.Get(url + path); err != nil {
							t.Error(err)
						} else {
							response.Body.Close()
						}
					})
				}
				ask("/first")
				awaitRunning(t, s, "GET /first handler")
				ask("/second")
				if !filotest.Try(func() bool {
					return slices.ContainsFunc(s.Running(), func(r filo.RunningRequest) bool { return r.State == filo.RunningQueued })
				}) {
					t.Errorf("nothing is queued: %v", s.Running())
				}
				close(release[0])
				awaitRunning(t, s, "GET /second handler")
				close(release[1])
				requests.Wait()
				awaitRunning(t, s)
			}
		})
	}
}

// Running doesn't list a request whose handler has taken the connection over.
func TestRunningHijacked(t *testing.T) {
	release := make(chan struct{})
	r := router.New()
	r.GET("/", func(c *filo.Ctx) error {
		conn, _, err := c.Hijack()
		if err != nil {
			return err
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		<-release
		return nil
	}).Offload()
	s := filotest.Serve(t, &filo.Server{Handler: r.Serve})
	c := s.Dial(t)
	c.Get("/")
	c.Want(200, "", false)
	awaitRunning(t, s.Server)
	close(release)
	c.WantEOF()
}

// After a panic, or after a handler has ended its goroutine, Running doesn't list the request.
func TestRunningEnds(t *testing.T) {
	for _, test := range runningCases() {
		t.Run(test.name, func(t *testing.T) {
			r := router.New()
			r.GET("/panic", func(*filo.Ctx) error { panic("on purpose") }).Offload()
			r.GET("/wrong", func(*filo.Ctx) error { return errors.New("on purpose") }).Offload()
			s, url, client := test.serve(t, &filo.Server{Handler: r.Serve, Logger: slog.New(slog.DiscardHandler)})
			for range 10 {
				for _, path := range []string{"/panic", "/wrong", "/none"} {
					response, err := client.Get(url + path)
					if err == nil {
						response.Body.Close()
					} else if path != "/panic" || test.name != "net/http" { // the panic reaches net/http's server, which aborts the connection
						t.Fatal(err)
					}
				}
			}
			awaitRunning(t, s)
		})
	}
}

// If a shutdown is forced, its log record and Run's error name the requests that were cut off.
func TestStopNamesWhatItHasCut(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{}, 3)
	r := router.New()
	wait := func(*filo.Ctx) error { begun <- struct{}{}; <-release; return nil }
	r.GET("/report/{id}", wait).Offload()
	r.GET("/slow", wait).Offload()
	var log bytes.Buffer
	config := &filo.Server{Handler: r.Serve, GracePeriod: time.Millisecond, Logger: slog.New(slog.NewJSONHandler(&log, nil))}
	listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- config.RunListener(ctx, listener) }()
	var requests sync.WaitGroup
	for _, path := range []string{"/report/secret?token=secret", "/report/2", "/slow"} {
		requests.Go(func() {
			if response, err := http.Get("http://" + listener.Addr().String() + path); err == nil {
				response.Body.Close()
			}
		})
	}
	for range 3 {
		filotest.Recv(t, begun, "a handler")
	}
	awaitRunning(t, config, "GET /report/{id} handler", "GET /report/{id} handler", "GET /slow handler")
	stop()
	err := filotest.Recv(t, ended, "the end")
	var unfinished *filo.UnfinishedError
	if !errors.As(err, &unfinished) || len(unfinished.Running) != 3 || !strings.Contains(err.Error(), "GET /report/{id} 2 (") {
		t.Errorf("Run returns %v", err)
	}
	if got := log.String(); !strings.Contains(got, `"requests_cut":"GET /`) || !strings.Contains(got, "GET /slow 1 (") || strings.Contains(got, "secret") {
		t.Errorf("logged %s", got)
	}
	close(release)
	requests.Wait()
}
