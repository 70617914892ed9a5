package overload

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"golang.org/x/net/http2"
)

// Requests beyond Concurrency wait in the order of their arrival. While they wait, quick handlers run, and the answers to earlier pipelined
// requests are sent. Requests beyond the queue's length are refused.
func TestQueue(t *testing.T) {
	filotest.NeedLoops(t)
	begun, release := make(chan string, 10), make(chan struct{})
	held := filo.Offload(func(c *filo.Ctx) error {
		begun <- c.Path()
		<-release
		return c.Text(200, c.Path())
	})
	quick := filo.Inline(func(c *filo.Ctx) error { return c.Text(200, "quick") })
	for name, handler := range map[string]filo.Handler{
		"of the server": held,
		"of a route": func(c *filo.Ctx) error {
			if c.Path() == "/quick" {
				return quick(c)
			}
			return held(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := filotest.Serve(t, &filo.Server{Concurrency: 1, Queue: 2, QueueTimeout: time.Hour, Handler: handler, ConnContext: func(net.Conn) context.Context {
				t.Error("a request that waits asks for its connection's context")
				return t.Context()
			}})
			first, second, third, fourth := s.Dial(t), s.Dial(t), s.Dial(t), s.Dial(t)
			first.Get("/1")
			filotest.Recv(t, begun, "the handler")
			if name == "of a route" {
				second.Get("/quick")
			}
			second.Get("/2")
			filotest.Await(t, "a request to wait", func() bool { return s.Stats().RequestsQueued == 1 })
			if name == "of a route" {
				second.Want(200, "quick", false)
			}
			third.Get("/3")
			filotest.Await(t, "another request to wait", func() bool { return s.Stats().RequestsQueued == 2 })
			fourth.Get("/4")
			if response, _ := fourth.Answer(); response.StatusCode != 503 {
				t.Errorf("a request that finds the queue full gets %d", response.StatusCode)
			}
			if got := s.Stats().Refusals; got != (filo.Refusals{QueueFull: 1}) {
				t.Errorf("a request that finds the queue full: %+v", got)
			}
			if name == "of a route" {
				fourth.Get("/quick")
				fourth.Want(200, "quick", false)
			}
			for i, c := range []*filotest.Client{first, second, third} {
				release <- struct{}{}
				c.Want(200, fmt.Sprint("/", i+1), false)
				if i < 2 {
					if got, want := filotest.Recv(t, begun, "the next handler"), fmt.Sprint("/", i+2); got != want {
						t.Errorf("%s is next, want %s", got, want)
					}
				}
			}
			filotest.Await(t, "the places to be free", func() bool { stats := s.Stats(); return stats.WorkersRunning == 0 && stats.RequestsQueued == 0 })
		})
	}
}

// A request that waits for longer than QueueTimeout gets a 503, and leaves no resources behind.
func TestQueueTimeout(t *testing.T) {
	filotest.NeedLoops(t)
	begun, release := make(chan struct{}, 1), make(chan struct{})
	s := filotest.Serve(t, &filo.Server{Concurrency: 1, Queue: 10, QueueTimeout: time.Millisecond, Handler: filo.Offload(func(c *filo.Ctx) error {
		begun <- struct{}{}
		<-release
		return c.Text(200, "ok")
	})})
	first, second := s.Dial(t), s.Dial(t)
	first.Get("/")
	filotest.Recv(t, begun, "the handler")
	for range 3 {
		second.Get("/")
		if response, _ := second.Answer(); response.StatusCode != 503 || response.Header.Get("Retry-After") == "" {
			t.Errorf("got %d", response.StatusCode)
		}
	}
	stats := s.Stats()
	if stats.RequestsRefused != 3 || stats.RequestsQueued != 0 {
		t.Errorf("%d refused, %d wait", stats.RequestsRefused, stats.RequestsQueued)
	}
	if stats.Refusals != (filo.Refusals{QueueTimeout: 3}) || stats.Timeouts != (filo.Timeouts{Queue: 3}) {
		t.Errorf("%+v, %+v", stats.Refusals, stats.Timeouts)
	}
	release <- struct{}{}
	first.Want(200, "ok", false)
	filotest.Await(t, "the place to be free", func() bool { return s.Stats().WorkersRunning == 0 })
	go func() { release <- struct{}{} }()
	second.Get("/")
	second.Served("GET / HTTP/1.1\r\nHost: filo.test\r\n\r\n", "ok")
}

// In whatever order requests begin and end, no place is lost, and no place is occupied twice.
func TestQueueUnderLoad(t *testing.T) {
	filotest.NeedLoops(t)
	const places, clients, each = 3, 16, 50
	var running, answered atomic.Int32
	s := filotest.Serve(t, &filo.Server{Concurrency: places, Queue: clients, QueueTimeout: time.Hour, Handler: filo.Offload(func(c *filo.Ctx) error {
		if n := running.Add(1); n > places {
			t.Errorf("%d handlers run", n)
		}
		time.Sleep(20 * time.Microsecond)
		running.Add(-1)
		return c.Text(200, "ok")
	})})
	var done sync.WaitGroup
	for range clients {
		c := s.Dial(t)
		done.Go(func() {
			for range each {
				c.Get("/")
				if response, _ := c.Answer(); response.StatusCode == 200 {
					answered.Add(1)
				}
			}
		})
	}
	done.Wait()
	if n := answered.Load(); n != clients*each {
		t.Errorf("%d of %d requests are answered", n, clients*each)
	}
	filotest.Await(t, "the places to be free", func() bool { stats := s.Stats(); return stats.WorkersRunning == 0 && stats.RequestsQueued == 0 })
}

// If a client keeps sending, its connection releases its place to a waiting request between two requests, and between two messages of a
// parked connection.
func TestQueueBesideBusyClient(t *testing.T) {
	filotest.NeedLoops(t)
	const get = "GET %s HTTP/1.1\r\nHost: filo.test\r\n\r\n"
	for name, test := range map[string]struct{ sends, goesOn string }{
		"requests":      {"", fmt.Sprintf(get, "/")},
		"large answers": {"", fmt.Sprintf(get, "/large")},
		"messages":      {"GET / HTTP/1.1\r\nHost: filo.test\r\nConnection: Upgrade\r\nUpgrade: messages\r\n\r\n", "m"},
	} {
		t.Run(name, func(t *testing.T) {
			const pieces = 300
			begun, release := make(chan string), make(chan struct{})
			work := func(name string) {
				begun <- name
				<-release
				time.Sleep(time.Millisecond) // otherwise the waiting goroutines might never run
			}
			s := filotest.Serve(t, &filo.Server{Concurrency: 1, Queue: 10, QueueTimeout: time.Hour, Handler: filo.Offload(func(c *filo.Ctx) error {
				switch {
				case c.Request.Header.Get("Upgrade") != "":
					_, err := c.Park("messages", func(p *filo.ParkedConn, why filo.Wake) error {
						if _, err := p.Read(make([]byte, 1)); why != filo.WakeData || err != nil {
							return io.EOF
						}
						work("busy")
						return nil
					})
					return err
				case c.Path() == "/polite":
					work("polite")
				default:
					work("busy")
					if c.Path() == "/large" {
						return c.BytesNoCopy(200, "text/plain", make([]byte, 1<<20))
					}
				}
				return c.NoContent()
			})})
			busy, polite := s.Dial(t), s.Dial(t)
			go io.Copy(io.Discard, busy)
			busy.Send(test.sends + strings.Repeat(test.goesOn, pieces))
			filotest.Recv(t, begun, "the busy client's handler")
			polite.Get("/polite")
			filotest.Await(t, "the polite client's request to wait", func() bool { return s.Stats().RequestsQueued == 1 })
			for i := range pieces {
				release <- struct{}{}
				if filotest.Recv(t, begun, "the next handler") == "polite" {
					break
				}
				if i > pieces/2 {
					t.Error("the busy client doesn't give its place away")
					break
				}
			}
			go func() {
				for range begun {
				}
			}()
			close(release)
			polite.Want(204, "", false)
			busy.Close()
			filotest.Await(t, "the busy client's end", func() bool { return s.Stats().ConnsOpen == 1 })
			close(begun)
		})
	}
}

// unwanted is a server with one place. A request for /hold occupies it, and requests for other paths wait. For /timed, the handler sets a time-out.
type unwanted struct {
	*filotest.Server
	release chan struct{}
	ran     sync.Map // the paths whose handlers have run
}

func serveUnwanted(t *testing.T, serve func(*filo.Server) *filotest.Server, routed bool) *unwanted {
	u := &unwanted{release: make(chan struct{})}
	held := filo.Offload(func(c *filo.Ctx) error {
		u.ran.Store(c.Path(), true)
		if c.Path() == "/hold" {
			<-u.release
		}
		return c.Text(200, c.Path())
	})
	quick := filo.Inline(func(c *filo.Ctx) error { return c.Text(200, "quick") })
	handler := held
	if routed {
		handler = func(c *filo.Ctx) error {
			switch c.Path() {
			case "/quick":
				return quick(c)
			case "/timed":
				c.SetTimeout(time.Millisecond, nil)
			}
			return held(c)
		}
	}
	u.Server = serve(&filo.Server{Concurrency: 1, Queue: 10, QueueTimeout: time.Hour, Handler: handler})
	t.Cleanup(u.let)
	return u
}

// let lets the handler of /hold return.
func (u *unwanted) let() {
	select {
	case <-u.release:
	default:
		close(u.release)
	}
}

func (u *unwanted) awaitQueued(t *testing.T, n int) {
	t.Helper()
	filotest.Await(t, fmt.Sprint(n, " requests to wait"), func() bool { return u.Stats().RequestsQueued == n })
}

// wantNotRun waits until no handler runs, and checks that the handler for the path hasn't run.
func (u *unwanted) wantNotRun(t *testing.T, path string) {
	t.Helper()
	filotest.Await(t, "the place to be free", func() bool { return u.Stats().WorkersRunning == 0 })
	if _, ran := u.ran.Load(path); ran {
		t.Errorf("the handler for %s has run, though nobody wants its answer", path)
	}
}

// If the client of a queued request disconnects, or a time-out answers the request, the request leaves the queue at once, and its handler
// doesn't run.
func TestQueueUnwanted(t *testing.T) {
	filotest.NeedLoops(t)
	const large = "POST /gone HTTP/1.1\r\nHost: filo.test\r\nContent-Length: 100000\r\n\r\n"
	for name, leave := range map[string]func(u *unwanted, c *filotest.Client){
		"reset":                  func(u *unwanted, c *filotest.Client) { c.Reset() },
		"reset inside of a body": func(u *unwanted, c *filotest.Client) { c.Reset() },
		"an end of the client's side": func(u *unwanted, c *filotest.Client) {
			time.Sleep(50 * time.Millisecond) // after an earlier half-close, the client might still wait for its answer
			other := u.Dial(c.T)
			other.Get("/none") // the request makes the loop check its connections
			u.awaitQueued(c.T.(*testing.T), 2)
			other.Reset()
			u.awaitQueued(c.T.(*testing.T), 1)
			c.Conn.(*net.TCPConn).CloseWrite()
			c.Want(503, "Service Unavailable: too many requests at once\n", false)
		},
	} {
		for _, routed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", routed ", routed), func(t *testing.T) {
				u := serveUnwanted(t, func(s *filo.Server) *filotest.Server { return filotest.Serve(t, s) }, routed)
				first, gone, last := u.Dial(t), u.Dial(t), u.Dial(t)
				first.Get("/hold")
				filotest.Await(t, "the handler", func() bool { _, ran := u.ran.Load("/hold"); return ran })
				inBody := name == "reset inside of a body"
				if inBody {
					gone.Send(large)
				} else {
					gone.Get("/gone")
				}
				u.awaitQueued(t, 1)
				leave(u, gone)
				waiting := 0
				if inBody { // the loop receives the reset no later than the last request, but nobody watches the connection
					waiting = 1
				}
				u.awaitQueued(t, waiting)
				last.Get("/wanted")
				u.awaitQueued(t, waiting+1)
				u.let()
				first.Want(200, "/hold", false)
				last.Want(200, "/wanted", false)
				u.wantNotRun(t, "/gone")
				if got := u.Stats().Requests[5]; strings.HasPrefix(name, "reset") && got != 0 {
					t.Errorf("%d answers with a 5xx are counted", got)
				}
			})
		}
	}
	t.Run("timeout", func(t *testing.T) {
		u := serveUnwanted(t, func(s *filo.Server) *filotest.Server { return filotest.Serve(t, s) }, true)
		first, timed := u.Dial(t), u.Dial(t)
		first.Get("/hold")
		filotest.Await(t, "the handler", func() bool { _, ran := u.ran.Load("/hold"); return ran })
		timed.Get("/timed")
		timed.Want(503, "Service Unavailable: the handler took too long\n", true)
		u.awaitQueued(t, 0)
		u.let()
		first.Want(200, "/hold", false)
		u.wantNotRun(t, "/timed")
	})
}

// HTTP/2 streams leave the queue in the same way, and their connection stays open.
func TestQueueUnwantedHTTP2(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		for _, routed := range []bool{false, true} {
			var dial func(...http2.Setting) *filotest.RawHTTP2
			u := serveUnwanted(t, func(config *filo.Server) (s *filotest.Server) { s, dial = serve(config); return s }, routed)
			// In the blocking driver, a connection needs a place until the server knows that it speaks HTTP/2.
			known := func() *filotest.RawHTTP2 {
				c := dial()
				c.Request(1, "/first", true).Send()
				c.WantAnswer(1, "200 /first")
				filotest.Await(t, "the place to be free", func() bool { return u.Stats().WorkersRunning == 0 })
				return c
			}
			c, other := known(), known()
			c.Request(11, "/hold", true).Send()
			filotest.Await(t, "the handler", func() bool { _, ran := u.ran.Load("/hold"); return ran })
			c.Request(13, "/gone", true).Request(15, "/gone", false).Send()
			other.Request(3, "/gone", true).Send()
			u.awaitQueued(t, 3)
			for _, id := range []uint32{13, 15} {
				c.Add(func(f *http2.Framer) { f.WriteRSTStream(id, http2.ErrCodeCancel) })
			}
			c.Send()
			other.Close()
			u.awaitQueued(t, 0)
			if routed {
				c.Request(17, "/timed", true).Send()
				c.WantAnswer(17, "503 Service Unavailable: the handler took too long\n")
				u.awaitQueued(t, 0)
			}
			c.Request(19, "/wanted", true).Send()
			u.awaitQueued(t, 1)
			u.let()
			c.WantAnswer(11, "200 /hold")
			c.WantAnswer(19, "200 /wanted")
			u.wantNotRun(t, "/gone")
			u.wantNotRun(t, "/timed")
			timed := uint64(0)
			if routed {
				timed = 1
			}
			if got := u.Stats().Requests[5]; got != timed {
				t.Errorf("%d answers with a 5xx are counted, want %d", got, timed)
			}
		}
	})
}
