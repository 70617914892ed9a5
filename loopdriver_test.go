package filo_test

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
	"github.com/filohttp/filo/internal/inside"
)

// lifeLooped skips a test of what only the loop driver does.
func lifeLooped(t *testing.T) {
	t.Helper()
	if lifeBlocking() {
		t.Skip("the blocking driver is under test")
	}
}

// served waits for the answer to a request. The last place may be another request's for a moment, or that of a leader whose thread doesn't
// get a processor and which has lost its loop: then the client asks once more.
func (c *lifeClient) served(again, want string) {
	c.t.Helper()
	lifeAwait(c.t, "a place for a request", func() bool {
		response, got := c.answer()
		if response.StatusCode == 503 {
			c.send(again)
			return false
		}
		if response.StatusCode != 200 || got != want {
			c.t.Errorf("got %d %.40q, want %.40q", response.StatusCode, got, want)
		}
		return true
	})
}

// holdPlace is hold for a server with few places: a leader that has lost its loop may have the last one for a moment, and then the
// client asks once more.
func (g *lifeGate) holdPlace(t *testing.T, s *lifeServer, c *lifeClient) {
	t.Helper()
	held := false
	for !held {
		refused := s.Stats().RequestsRefused
		c.get("/hold")
		lifeAwait(t, "the handler to run", func() bool {
			select {
			case <-g.entered:
				held = true
				return true
			default:
				return s.Stats().RequestsRefused > refused
			}
		})
		if !held {
			c.answer()
		}
	}
}

// A request that comes with the last bytes of a body, which the handler reads into its own buffer, is answered though no
// event says so.
func TestRequestBehindALargeBody(t *testing.T) {
	s := lifeServe(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(len(body)))
	}})
	body := strings.Repeat("x", 30_000)
	for _, cut := range []int{0, 1, 1000, 3900, 7000, 29_999} {
		c := s.dial(t)
		c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n" + body[:cut])
		lifeAwait(t, "the beginning to be read", func() bool { return s.Stats().ConnsActive == 1 })
		c.send(body[cut:] + "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.want(200, "30000", false)
		c.want(200, "0", false)
		c.Close()
		lifeAwait(t, "the connection to go", func() bool { return s.Stats().ConnsOpen == 0 })
	}
}

// classOf returns what is known of a class.
func classOf(s *filo.Server, name string) filo.ClassStats {
	for _, class := range s.Stats().Classes {
		if class.Name == name {
			return class
		}
	}
	return filo.ClassStats{}
}

// A class that isn't known is handed off, one that was quick runs where its request was read, one that is slow is handed off
// again; and what was said outright holds from the beginning.
func TestClasses(t *testing.T) {
	lifeLooped(t)
	var learned class.Class
	learned.Name = "learned"
	answer := func(c *filo.Ctx) error { return c.Text(200, "fine") }
	inline, offload := filo.Inline(answer), filo.Offload(answer)
	s := lifeServe(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
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
	c := s.dial(t)
	ask := func(path string, n int) (handoffs uint64) {
		t.Helper()
		before := s.Stats().Handoffs
		for range n {
			c.get(path)
			c.want(200, "fine", false)
		}
		return s.Stats().Handoffs - before
	}
	ask("/", 1) // before it the server knows nothing of its handler
	if kind := classOf(s.Server, "learned").Kind; kind == "unknown" {
		t.Errorf("after a call it is %q", kind)
	}
	// A worker that has left its loop and finds the next request there serves that too: so not each call is a handoff.
	lifeAwait(t, "an offloaded call to be handed off", func() bool { return ask("/offload", 20) > 0 })
	// A worker that a busy machine has stopped in an inline call loses its loop.
	lifeAwait(t, "inline calls to be run where they were read", func() bool { return ask("/inline", 10) == 0 })
	lifeAwait(t, "the class to be quick", func() bool { ask("/", 50); return classOf(s.Server, "learned").Kind == "quick" })
	// On a busy machine even a quick class may seem slow for a while.
	lifeAwait(t, "quick calls to be run where they were read", func() bool { return ask("/", 1000) <= 500 })
	lifeAwait(t, "the class to be slow", func() bool { ask("/slow", 20); return classOf(s.Server, "learned").Kind == "slow" })
	lifeAwait(t, "a slow call to be handed off", func() bool { return ask("/slow", 20) > 0 })
}

// What a handler does before it enters a class is in the server's own: it is left to another worker when it waits mostly, and
// when it has held up the loop now and then.
func TestClassBeforeEnter(t *testing.T) {
	t.Parallel()
	lifeLooped(t)
	learned := class.Class{Name: "learned"}
	calls := 0 // of one client
	s := lifeServe(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		calls++
		if c.Path() == "/slow" || c.Path() == "/sometimes" && calls%10 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		if err := inside.Enter(c, &learned); err != nil {
			return err
		}
		return c.Text(200, "fine")
	}})
	c := s.dial(t)
	ask := func(path string, n int) filo.ClassStats {
		for range n {
			c.get(path)
			c.want(200, "fine", false)
		}
		return classOf(s.Server, "")
	}
	lifeAwait(t, "the beginning to be quick", func() bool { return ask("/", 50).Kind == "quick" })
	lifeAwait(t, "a beginning that waits to be slow", func() bool { return ask("/slow", 10).Kind == "slow" })
	handoffs := classOf(s.Server, "").Handoffs
	lifeAwait(t, "it to be handed off", func() bool { return ask("/slow", 10).Handoffs > handoffs })
	lifeAwait(t, "the beginning to be quick again", func() bool { return ask("/", 50).Kind == "quick" })
	retakes := classOf(s.Server, "").Retakes
	lifeAwait(t, "a beginning that waits at times to be blamed", func() bool { return ask("/sometimes", 10).Retakes > retakes+2 })
}

// A retake is blamed once on the server's own class, whether or not the handler has ever entered another one.
func TestRetakeIsBlamedOnce(t *testing.T) {
	lifeLooped(t)
	s := lifeServe(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/slow" {
			time.Sleep(20 * time.Millisecond)
		}
		return c.Text(200, "fine")
	}})
	c := s.dial(t)
	ask := func(path string, n int) {
		for range n {
			c.get(path)
			c.want(200, "fine", false)
		}
	}
	lifeAwait(t, "the handler to hold up its loop", func() bool {
		ask("/", 100)
		ask("/slow", 1)
		return s.Stats().Retakes > 0
	})
	blamed := classOf(s.Server, "").Retakes
	if retakes := s.Stats().Retakes; blamed > retakes {
		t.Errorf("the class is blamed for %d retakes of %d", blamed, retakes)
	}
}

// A handler that never returns, though it was quick until then, costs nobody but its client anything.
func TestHandlerThatNeverReturns(t *testing.T) {
	lifeLooped(t)
	release := make(chan struct{})
	handler := filo.Inline(func(c *filo.Ctx) error {
		if c.Path() == "/never" {
			<-release
		}
		return c.Text(200, "fine")
	})
	s := lifeServe(t, &filo.Server{Leaders: 2, Handler: handler})
	t.Cleanup(func() { close(release) })
	var others []*lifeClient
	for range 8 {
		c := s.dial(t)
		c.get("/")
		c.want(200, "fine", false)
		others = append(others, c)
	}
	for i := range 4 {
		s.dial(t).get("/never")
		for _, c := range others {
			c.get("/")
			c.want(200, "fine", false)
		}
		lifeAwait(t, "the loops to be retaken", func() bool { return s.Stats().Retakes > uint64(i) })
	}
	// On a busy machine loops are also taken from leaders that merely got no processor, and that come back.
	lifeAwait(t, "two workers to lead, and four to run", func() bool {
		stats := s.Stats()
		return stats.WorkersLeading == 2 && stats.WorkersRunning == 4
	})
}

// Handlers that never return, though they are thought to be quick, are no way around Concurrency. What has lost its loop counts;
// beyond Concurrency there is one for each seat at most, and those that have one of the places which are kept for quick handlers.
// Who comes then gets a 503. An ErrorHandler that doesn't return either has its clients wait in the end.
func TestHandlersThatNeverReturn(t *testing.T) {
	lifeLooped(t)
	const concurrency, loops, kept, clients = 3, 2, 32, 200
	for name, test := range map[string]struct {
		stuck string // where
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
			s := lifeServe(t, &filo.Server{Concurrency: concurrency, Leaders: loops, Handler: filo.Inline(func(c *filo.Ctx) error {
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
				c.Text(statusOf(err), "error")
			}})
			free := sync.OnceFunc(func() { close(release) })
			t.Cleanup(free)
			first := s.dial(t)
			first.get("/")
			first.want(200, "fine", false)
			before := runtime.NumGoroutine()
			var asked []*lifeClient
			for range clients {
				c := s.dial(t)
				c.get("/never")
				asked = append(asked, c)
			}
			if test.stuck == "handler" {
				lifeAwait(t, "each to run or to be refused", func() bool { return running.Load()+int64(s.Stats().RequestsRefused) == clients })
				lifeAwait(t, "a quick one to be refused", func() bool {
					c := s.dial(t)
					c.get("/")
					if response, body := c.answer(); response.StatusCode != 200 {
						if response.StatusCode != 503 || body != "error" {
							t.Errorf("got %d %q", response.StatusCode, body)
						}
						return true
					}
					// A leader that had lost its loop without a handler has given its place back since: for another one.
					c.get("/never")
					asked = append(asked, c)
					return false
				})
			} else {
				// A leader may rest while another one is stuck.
				lifeAwait(t, "as many as may be to run", func() bool { return running.Load() > int64(test.most-loops) })
			}
			if n := most.Load(); n < concurrency || n > int64(test.most) {
				t.Errorf("%d ran at once, want %d at most", n, test.most)
			}
			if n := runtime.NumGoroutine() - before; n > test.most+loops { // the ready ones
				t.Errorf("%d goroutines more than before", n)
			}
			free()
			for _, c := range asked {
				response, _ := c.answer()
				if status := response.StatusCode; status != 200 && status != 503 && status != 418 {
					t.Errorf("got %d", status)
				}
			}
			lifeAwait(t, "the places to be free", func() bool { return s.Stats().WorkersRunning == 0 })
			c := s.dial(t)
			c.get("/")
			c.want(200, "fine", false)
		})
	}
}

// With Concurrency reached a request gets a whole 503 at once, and a quick handler answers all the same.
func TestConcurrencyOfRequests(t *testing.T) {
	lifeLooped(t)
	gate := newLifeGate()
	health := filo.Inline(func(c *filo.Ctx) error { return c.Text(200, "healthy") })
	work := filo.Offload(gate.handle)
	s := lifeServe(t, &filo.Server{Concurrency: 1, Leaders: 2, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/health" {
			return health(c)
		}
		return work(c)
	}})
	defer gate.open()
	// served reports whether a request finds a place.
	served := func(c *lifeClient) bool {
		t.Helper()
		c.get("/")
		response, body := c.answer()
		if response.StatusCode == 200 {
			return true
		}
		// A leader whose thread doesn't get a processor for long loses its loop, and counts until it has one again.
		if s.Stats().Retakes == 0 {
			t.Fatalf("got %d %q", response.StatusCode, body)
		}
		return false
	}
	var idle []*lifeClient
	for range 10 { // idle connections don't count
		lifeAwait(t, "a place beside idle connections", func() bool {
			c := s.dial(t)
			if !served(c) {
				return false
			}
			idle = append(idle, c)
			return true
		})
	}
	lifeAwait(t, "the workers to be free", func() bool { return s.Stats().WorkersRunning == 0 })
	holder := s.dial(t)
	gate.holdPlace(t, s, holder)
	for _, c := range idle {
		c.get("/health")
		c.want(200, "healthy", false)
		c.get("/")
		response, body := c.answer()
		if response.StatusCode != 503 || !strings.Contains(body, "too many requests") {
			t.Errorf("got %d %q", response.StatusCode, body)
		}
	}
	gate.open()
	holder.want(200, "held", false)
	lifeAwait(t, "a place", func() bool { return served(s.dial(t)) })
}

// Slow clients hold no worker: with one place only, all of them wait at once, and others are served.
func TestSlowClientsHoldNoWorker(t *testing.T) {
	lifeLooped(t)
	large := strings.Repeat("0123456789abcdef", 200<<10/16)
	s := lifeServe(t, &filo.Server{Concurrency: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/large" {
			return c.Text(200, large)
		}
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, "got "+string(body))
	}})
	heads, bodies, readers := s.dial(t), s.dial(t), s.dial(t)
	heads.send("GET / HTTP/1.1\r\nHo")
	bodies.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
	for range 100 {
		readers.get("/large") // twenty megabytes, more than the system's buffers take
	}
	lifeAwait(t, "the clients to be waited for", func() bool {
		stats := s.Stats()
		return stats.ConnsActive == 3 && stats.WorkersRunning == 0
	})
	const get, post = "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde"
	other := s.dial(t)
	other.send(get)
	other.served(get, "got ")
	heads.send("st: a\r\n\r\n")
	heads.served(get, "got ")
	bodies.send("cde")
	bodies.served(post, "got abcde")
	for range 100 {
		readers.served("GET /large HTTP/1.1\r\nHost: a\r\n\r\n", large)
	}
}

// A client that sends chunks may want an answer to each before it sends the next one.
func TestChunksAreAnsweredAsTheyCome(t *testing.T) {
	eachTransport(t, func(t *testing.T, serve func(*filo.Server) (*lifeServer, *lifeClient)) {
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
		client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		client.send("2\r\nab\r\n")
		response, err := http.ReadResponse(client.reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range []string{"ab", "cde", "f"} {
			if piece != "ab" {
				client.send(fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece))
			}
			got := make([]byte, len(piece))
			if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != piece {
				t.Fatalf("got %q, %v, want %q", got, err, piece)
			}
		}
		client.send("0\r\n\r\n")
		if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
			t.Errorf("at the end %q, %v", rest, err)
		}
	})
}

// The end of a client's side that comes with its request is no reason not to answer, and the connection ends at once.
func TestEndWithTheRequest(t *testing.T) {
	s, _ := lifeGated(t, &filo.Server{IdleTimeout: time.Hour})
	for range 50 {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(lifeBound))
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.(*net.TCPConn).CloseWrite()
		if answer, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(answer), "quick") {
			t.Fatalf("got %q, %v", answer, err)
		}
	}
	lifeAwait(t, "the connections to go", func() bool { return s.Stats().ConnsOpen == 0 })
}

// A second instance is refused the address, though the loops share it.
func TestAddressOfItsOwn(t *testing.T) {
	lifeLooped(t)
	s := &filo.Server{Handler: newLifeGate().handle, Leaders: 3}
	listener, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	lifeAwait(t, "the server", func() bool { return s.Stats().WorkersLeading == 3 })
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
		client := newLifeClient(t, c)
		client.get("/")
		client.want(200, "quick", false)
	}
	s.Close()
	if err := lifeRecv(t, served, "Serve to return"); err != filo.ErrServerClosed {
		t.Errorf("Serve returned %v", err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("a loop still listens")
	}
}

// A handler that computes in a loop that had nothing to do before loses that loop, though nobody may be waiting in the runtime's poller.
func TestComputingAfterIdleness(t *testing.T) {
	lifeLooped(t)
	var computes atomic.Bool
	begun := make(chan struct{}, 1)
	s := lifeServe(t, &filo.Server{Leaders: 1, Handler: filo.Inline(func(c *filo.Ctx) error {
		if c.Path() == "/compute" {
			for begun <- struct{}{}; computes.Load(); {
			}
		}
		return c.Text(200, "done")
	})})
	computing, other := s.dial(t), s.dial(t)
	for _, idle := range []int{0, 5, 10, 15, 20, 25, 30, 35, 1500} { // milliseconds: after the last ones the monitor looks seldom, and not at all
		time.Sleep(time.Duration(idle) * time.Millisecond)
		computes.Store(true)
		computing.get("/compute")
		lifeRecv(t, begun, "the handler to begin")
		other.get("/")
		other.want(200, "done", false)
		computes.Store(false)
		computing.want(200, "done", false)
	}
}

// All are served while leaders get no processor of their own, and when there are processors again, and a shutdown finds nothing in its
// way.
func TestLeadersWithoutProcessors(t *testing.T) {
	lifeLooped(t)
	if runtime.NumCPU() > 8 {
		t.Skip("there are too many processors to keep busy")
	}
	spin := filo.Inline(func(c *filo.Ctx) error {
		for begin := time.Now(); time.Since(begin) < 20*time.Microsecond; {
		}
		return c.Text(200, "spun")
	})
	s := lifeServe(t, &filo.Server{Leaders: 2, Handler: spin})
	var clients sync.WaitGroup
	ended := make(chan struct{})
	for range 32 {
		c := s.dial(t)
		clients.Go(func() {
			for {
				select {
				case <-ended:
					c.Close()
					return
				default:
				}
				c.send(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 50))
				for range 50 {
					if response, body, err := c.tryAnswer(); err != nil || response.StatusCode != 200 {
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
			c := s.dial(t)
			c.get("/")
			c.want(200, "spun", false)
			c.Close()
		}
		stopOthers()
	}
	close(ended)
	clients.Wait()
	if err := s.shutdown(); err != nil {
		t.Error(err)
	}
	s.wantServed(t, filo.ErrServerClosed)
	s.wantNoGoroutine(t)
}
