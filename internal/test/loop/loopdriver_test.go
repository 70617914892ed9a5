package loop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/inside"
)

// If a request arrives together with the last bytes of a body that the server reads directly into the handler's buffer, it is answered
// although epoll reports no further event.
func TestRequestBehindALargeBody(t *testing.T) {
	s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(len(body)))
	}})
	body := strings.Repeat("x", 30_000)
	for _, cut := range []int{0, 1, 1000, 3900, 7000, 29_999} {
		c := s.Dial(t)
		c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n" + body[:cut])
		filotest.Await(t, "the beginning to be read", func() bool { return s.Stats().ConnsActive == 1 })
		c.Send(body[cut:] + "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.Want(200, "30000", false)
		c.Want(200, "0", false)
		c.Close()
		filotest.Await(t, "the connection to go", func() bool { return s.Stats().ConnsOpen == 0 })
	}
}

// A leader hands its seat off before it calls a handler of an unknown class, and calls a handler of a quick class directly. When the class
// has become slow, the leader hands off again. Inline and Offload apply from the beginning.
func TestClasses(t *testing.T) {
	filotest.NeedLoops(t)
	var learned class.Class
	learned.Name = "learned"
	answer := func(c *filo.Ctx) error { return c.Text(200, "fine") }
	inline, offload := filo.Inline(answer), filo.Offload(answer)
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		switch c.Path() {
		case "/inline":
			return inline(c)
		case "/offload":
			return offload(c)
		}
		if err := inside.Enter(c, &learned); err != nil {
			return err
		}
		if c.Path() == "/slow" {
			time.Sleep(time.Millisecond)
		}
		return answer(c)
	}})
	c := s.Dial(t)
	ask := func(path string, n int) (handoffs uint64) {
		t.Helper()
		before := s.Stats().Handoffs
		for range n {
			c.Get(path)
			c.Want(200, "fine", false)
		}
		return s.Stats().Handoffs - before
	}
	ask("/", 1) // the first call: the server hasn't measured the handler yet
	if kind := filotest.ClassOf(s.Server, "learned").Kind; kind == "unknown" {
		t.Errorf("after a call it is %q", kind)
	}
	// A worker that has left its loop may find the next request on its connection and serve it as well, so not every call needs a handoff.
	filotest.Await(t, "an offloaded call to be handed off", func() bool { return ask("/offload", 20) > 0 })
	// If a busy machine interrupts a worker in an inline call, the worker loses its loop.
	filotest.Await(t, "inline calls to be run where they were read", func() bool { return ask("/inline", 10) == 0 })
	filotest.Await(t, "the class to be quick", func() bool { ask("/", 50); return filotest.ClassOf(s.Server, "learned").Kind == "quick" })
	// On a busy machine, the server may measure even a quick class as slow for a while.
	filotest.Await(t, "quick calls to be run where they were read", func() bool { return ask("/", 1000) <= 500 })
	filotest.Await(t, "the class to be slow", func() bool { ask("/slow", 20); return filotest.ClassOf(s.Server, "learned").Kind == "slow" })
	filotest.Await(t, "a slow call to be handed off", func() bool { return ask("/slow", 20) > 0 })
}

// The work of a handler before it enters a class is measured for the server's own class. If most calls of this class wait, or some of them
// have blocked the loop, the leader hands its seat off before it calls the handler.
func TestClassBeforeEnter(t *testing.T) {
	t.Parallel()
	filotest.NeedLoops(t)
	learned := class.Class{Name: "learned"}
	calls := 0 // the number of calls, by one client
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		calls++
		if c.Path() == "/slow" || c.Path() == "/sometimes" && calls%10 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		if err := inside.Enter(c, &learned); err != nil {
			return err
		}
		return c.Text(200, "fine")
	}})
	c := s.Dial(t)
	ask := func(path string, n int) filo.ClassStats {
		for range n {
			c.Get(path)
			c.Want(200, "fine", false)
		}
		return filotest.ClassOf(s.Server, "")
	}
	filotest.Await(t, "the beginning to be quick", func() bool { return ask("/", 50).Kind == "quick" })
	filotest.Await(t, "a beginning that waits to be slow", func() bool { return ask("/slow", 10).Kind == "slow" })
	handoffs := filotest.ClassOf(s.Server, "").Handoffs
	filotest.Await(t, "it to be handed off", func() bool { return ask("/slow", 10).Handoffs > handoffs })
	filotest.Await(t, "the beginning to be quick again", func() bool { return ask("/", 50).Kind == "quick" })
	retakes := filotest.ClassOf(s.Server, "").Retakes
	filotest.Await(t, "a beginning that waits at times to be blamed", func() bool { return ask("/sometimes", 10).Retakes > retakes+2 })
}

// A retake is counted once, for the server's own class, whether or not the handler has entered another class.
func TestRetakeIsBlamedOnce(t *testing.T) {
	filotest.NeedLoops(t)
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/slow" {
			time.Sleep(20 * time.Millisecond)
		}
		return c.Text(200, "fine")
	}})
	c := s.Dial(t)
	ask := func(path string, n int) {
		for range n {
			c.Get(path)
			c.Want(200, "fine", false)
		}
	}
	filotest.Await(t, "the handler to hold up its loop", func() bool {
		ask("/", 100)
		ask("/slow", 1)
		return s.Stats().Retakes > 0
	})
	blamed := filotest.ClassOf(s.Server, "").Retakes
	if retakes := s.Stats().Retakes; blamed > retakes {
		t.Errorf("the class is blamed for %d retakes of %d", blamed, retakes)
	}
}

// If a handler that has always been quick never returns, only its own client is affected.
func TestHandlerThatNeverReturns(t *testing.T) {
	filotest.NeedLoops(t)
	release := make(chan struct{})
	handler := filo.Inline(func(c *filo.Ctx) error {
		if c.Path() == "/never" {
			<-release
		}
		return c.Text(200, "fine")
	})
	s := filotest.Serve(t, &filo.Server{Leaders: 2, Handler: handler})
	t.Cleanup(func() { close(release) })
	var others []*filotest.Client
	for range 8 {
		c := s.Dial(t)
		c.Get("/")
		c.Want(200, "fine", false)
		others = append(others, c)
	}
	for i := range 4 {
		s.Dial(t).Get("/never")
		for _, c := range others {
			c.Get("/")
			c.Want(200, "fine", false)
		}
		filotest.Await(t, "the loops to be retaken", func() bool { return s.Stats().Retakes > uint64(i) })
	}
	// On a busy machine, the monitor also takes seats from leaders whose threads got no processor. These leaders return later.
	filotest.Await(t, "two workers to lead, and four to run", func() bool {
		stats := s.Stats()
		return stats.WorkersLeading == 2 && stats.WorkersRunning == 4
	})
}

// Handlers that never return are limited by Concurrency, even if the server has measured them as quick, because a worker that has lost its
// loop occupies a place. Beyond Concurrency, there is at most one worker for each seat, and one for each place that is reserved for quick
// handlers. Further requests get a 503. If the ErrorHandler doesn't return either, further clients wait.
func TestHandlersThatNeverReturn(t *testing.T) {
	filotest.NeedLoops(t)
	const concurrency, loops, kept, clients = 3, 2, 32, 200
	for name, test := range map[string]struct {
		stuck string // the user's function that never returns
		most  int
	}{
		"handler":       {"handler", concurrency + loops + kept},
		"error handler": {"error handler", concurrency + loops + kept + kept + loops},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			var running, most, done atomic.Int64
			hang := func() {
				n := running.Add(1)
				for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
				}
				<-release
				running.Add(-1)
				done.Add(1)
			}
			s := filotest.Serve(t, &filo.Server{Concurrency: concurrency, Leaders: loops, Handler: filo.Inline(func(c *filo.Ctx) error {
				switch {
				case c.Path() == "/never" && test.stuck == "handler":
					hang()
				case c.Path() == "/never":
					return filo.Error(418, "see the error handler")
				}
				return c.Text(200, "fine")
			}), ErrorHandler: func(c *filo.Ctx, err error) {
				if test.stuck == "error handler" {
					hang()
				}
				c.Text(filotest.StatusOf(err), "error")
			}})
			free := sync.OnceFunc(func() { close(release) })
			t.Cleanup(free)
			first := s.Dial(t)
			first.Get("/")
			first.Want(200, "fine", false)
			before := runtime.NumGoroutine()
			var asked []*filotest.Client
			for range clients {
				c := s.Dial(t)
				c.Get("/never")
				asked = append(asked, c)
			}
			if test.stuck == "handler" {
				filotest.Await(t, "each to run or to be refused", func() bool { return running.Load()+int64(s.Stats().RequestsRefused) == clients })
				filotest.Await(t, "a quick one to be refused", func() bool {
					c := s.Dial(t)
					c.Get("/")
					if response, body := c.Answer(); response.StatusCode != 200 {
						if response.StatusCode != 503 || body != "error" {
							t.Errorf("got %d %q", response.StatusCode, body)
						}
						return true
					}
					// A leader may have lost its loop outside of handlers, and occupied a place for some time. The place is free again, so
					// one more handler can block.
					c.Get("/never")
					asked = append(asked, c)
					return false
				})
			} else {
				// One leader may be idle while the other one is blocked.
				filotest.Await(t, "as many as may be to run", func() bool { return running.Load() > int64(test.most-loops) })
			}
			if n := most.Load(); n < concurrency || n > int64(test.most) {
				t.Errorf("%d ran at once, want %d at most", n, test.most)
			}
			var n int
			if !filotest.Try(func() bool { n = runtime.NumGoroutine() - before; return n <= test.most+loops }) { // plus loops, for the ready workers
				t.Errorf("%d goroutines more than before", n)
			}
			free()
			for _, c := range asked {
				response, _ := c.Answer()
				if status := response.StatusCode; status != 200 && status != 503 && status != 418 {
					t.Errorf("got %d", status)
				}
			}
			filotest.Await(t, "the places to be free", func() bool { return s.Stats().WorkersRunning == 0 })
			c := s.Dial(t)
			c.Get("/")
			c.Want(200, "fine", false)
		})
	}
}

// When Concurrency is reached, a request gets a complete 503 at once, and quick handlers still answer.
func TestConcurrencyOfRequests(t *testing.T) {
	filotest.NeedLoops(t)
	gate := filotest.NewGate()
	health := filo.Inline(func(c *filo.Ctx) error { return c.Text(200, "healthy") })
	work := filo.Offload(gate.Handle)
	s := filotest.Serve(t, &filo.Server{Concurrency: 1, Leaders: 2, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/health" {
			return health(c)
		}
		return work(c)
	}})
	defer gate.Open()
	// served makes a request, and reports whether it was served.
	served := func(c *filotest.Client) bool {
		t.Helper()
		c.Get("/")
		response, body := c.Answer()
		if response.StatusCode == 200 {
			return true
		}
		// A leader whose thread gets no processor for a long time loses its loop, and occupies a place until it has a loop again.
		if s.Stats().Retakes == 0 {
			t.Fatalf("got %d %q", response.StatusCode, body)
		}
		return false
	}
	var idle []*filotest.Client
	for range 10 { // idle connections occupy no place
		filotest.Await(t, "a place beside idle connections", func() bool {
			c := s.Dial(t)
			if !served(c) {
				return false
			}
			idle = append(idle, c)
			return true
		})
	}
	filotest.Await(t, "the workers to be free", func() bool { return s.Stats().WorkersRunning == 0 })
	holder := s.Dial(t)
	gate.HoldPlace(t, s, holder)
	for _, c := range idle {
		c.Get("/health")
		c.Want(200, "healthy", false)
		c.Get("/")
		response, body := c.Answer()
		if response.StatusCode != 503 || !strings.Contains(body, "too many requests") {
			t.Errorf("got %d %q", response.StatusCode, body)
		}
	}
	gate.Open()
	holder.Want(200, "held", false)
	filotest.Await(t, "a place", func() bool { return served(s.Dial(t)) })
}

// Slow clients occupy no worker: with only one place, many of them wait at the same time, and other clients are served.
func TestSlowClientsHoldNoWorker(t *testing.T) {
	filotest.NeedLoops(t)
	large := strings.Repeat("0123456789abcdef", 200<<10/16)
	s := filotest.Serve(t, &filo.Server{Concurrency: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/large" {
			return c.Text(200, large)
		}
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, "got "+string(body))
	}})
	heads, bodies, readers := s.Dial(t), s.Dial(t), s.Dial(t)
	heads.Send("GET / HTTP/1.1\r\nHo")
	bodies.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
	for range 100 {
		readers.Get("/large") // twenty megabytes, more than the system's buffers hold
	}
	filotest.Await(t, "the clients to be waited for", func() bool {
		stats := s.Stats()
		return stats.ConnsActive == 3 && stats.WorkersRunning == 0
	})
	const get, post = "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde"
	other := s.Dial(t)
	other.Send(get)
	other.Served(get, "got ")
	heads.Send("st: a\r\n\r\n")
	heads.Served(get, "got ")
	bodies.Send("cde")
	bodies.Served(post, "got abcde")
	for range 100 {
		readers.Served("GET /large HTTP/1.1\r\nHost: a\r\n\r\n", large)
	}
}

// A client may send a chunk, and wait for an answer to it before it sends the next chunk.
func TestChunksAreAnsweredAsTheyCome(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			body, buffer := c.BodyReader(), make([]byte, 10)
			for {
				n, err := body.Read(buffer)
				if _, err := c.Stream().Write(buffer[:n]); err != nil {
					return err
				}
				if err == io.EOF {
					return nil
				}
				if err := errors.Join(err, c.Stream().Flush()); err != nil {
					return err
				}
			}
		}})
		client.Send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		client.Send("2\r\nab\r\n")
		response, err := http.ReadResponse(client.Reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range []string{"ab", "cde", "f"} {
			if piece != "ab" {
				client.Send(fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece))
			}
			got := make([]byte, len(piece))
			if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != piece {
				t.Fatalf("got %q, %v, want %q", got, err, piece)
			}
		}
		client.Send("0\r\n\r\n")
		if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
			t.Errorf("at the end %q, %v", rest, err)
		}
	})
}

// If a client closes its writing half together with its request, the server answers, and then ends the connection at once.
func TestEndWithTheRequest(t *testing.T) {
	s, _ := filotest.ServeGated(t, &filo.Server{IdleTimeout: time.Hour})
	for range 50 {
		c, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(filotest.Bound))
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.(*net.TCPConn).CloseWrite()
		if answer, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(answer), "quick") {
			t.Fatalf("got %q, %v", answer, err)
		}
	}
	filotest.Await(t, "the connections to go", func() bool { return s.Stats().ConnsOpen == 0 })
}

// A second server can't listen at the address, although the sockets of the loops share it.
func TestAddressOfItsOwn(t *testing.T) {
	filotest.NeedLoops(t)
	s := &filo.Server{Handler: filotest.NewGate().Handle, Leaders: 3}
	listener, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	filotest.Await(t, "the server", func() bool { return s.Stats().WorkersLeading == 3 })
	if second, err := new(filo.Server).Listen(address); err == nil {
		second.Close()
		t.Error("a second instance listens on the address")
	}
	for range 30 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		client := filotest.NewClient(t, c)
		client.Get("/")
		client.Want(200, "quick", false)
	}
	s.Close()
	if err := filotest.Recv(t, served, "Serve to return"); err != filo.ErrServerClosed {
		t.Errorf("Serve returned %v", err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("a loop still listens")
	}
}

// If a handler computes for long in a loop that was idle before, it loses the loop, even if no thread waits in the runtime's poller.
func TestComputingAfterIdleness(t *testing.T) {
	filotest.NeedLoops(t)
	var computes atomic.Bool
	begun := make(chan struct{}, 1)
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: filo.Inline(func(c *filo.Ctx) error {
		if c.Path() == "/compute" {
			for begun <- struct{}{}; computes.Load(); {
			}
		}
		return c.Text(200, "done")
	})})
	computing, other := s.Dial(t), s.Dial(t)
	for _, idle := range []int{0, 5, 10, 15, 20, 25, 30, 35, 1500} { // milliseconds; after 35 the monitor checks rarely, after 1500 never
		time.Sleep(time.Duration(idle) * time.Millisecond)
		computes.Store(true)
		computing.Get("/compute")
		filotest.Recv(t, begun, "the handler to begin")
		other.Get("/")
		other.Want(200, "done", false)
		computes.Store(false)
		computing.Want(200, "done", false)
	}
}

// All clients are served while other work occupies all processors, and afterwards. A shutdown isn't delayed.
func TestLeadersWithoutProcessors(t *testing.T) {
	filotest.NeedLoops(t)
	if runtime.NumCPU() > 8 {
		t.Skip("there are too many processors to keep busy")
	}
	spin := filo.Inline(func(c *filo.Ctx) error {
		for begin := time.Now(); time.Since(begin) < 20*time.Microsecond; {
		}
		return c.Text(200, "spun")
	})
	s := filotest.Serve(t, &filo.Server{Leaders: 2, Handler: spin})
	var clients sync.WaitGroup
	ended := make(chan struct{})
	for range 32 {
		c := s.Dial(t)
		clients.Go(func() {
			for {
				select {
				case <-ended:
					c.Close()
					return
				default:
				}
				c.Send(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 50))
				for range 50 {
					if response, body, err := c.TryAnswer(); err != nil || response.StatusCode != 200 {
						t.Errorf("got %q, %v", body, err)
						return
					}
				}
			}
		})
	}
	var others []*exec.Cmd
	stopOthers := func() {
		for _, other := range others {
			other.Process.Kill()
			other.Wait()
		}
		others = nil
	}
	defer stopOthers()
	for range 2 * runtime.NumCPU() {
		other := exec.Command("sh", "-c", "while :; do :; done")
		if err := other.Start(); err != nil {
			t.Skip(err)
		}
		others = append(others, other)
	}
	for range 2 {
		for range 10 {
			c := s.Dial(t)
			c.Get("/")
			c.Want(200, "spun", false)
			c.Close()
		}
		stopOthers()
	}
	close(ended)
	clients.Wait()
	if err := s.ShutdownInTime(); err != nil {
		t.Error(err)
	}
	s.WantServed(t, filo.ErrServerClosed)
	s.WantNoGoroutine(t)
}
