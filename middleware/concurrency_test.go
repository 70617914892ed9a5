package middleware_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/servertest"
)

// gate is a handler that reports when a request is inside, and holds the request until the test lets it go.
type gate struct{ inside, leave chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}), make(chan struct{})} }

func (g *gate) serve(c *filo.Ctx) error {
	g.inside <- struct{}{}
	<-g.leave
	return c.NoContent()
}

// begin sends a request and doesn't wait for the answer.
func begin(t testing.TB, s *servertest.Server) *servertest.Conn {
	t.Helper()
	c := s.Dial(t)
	if _, err := io.WriteString(c, servertest.Request("GET /", "", "Connection: close")); err != nil {
		t.Fatal(err)
	}
	return c
}

// statusOf waits for the answer of a request that was begun.
func statusOf(t testing.TB, c *servertest.Conn) (status string, header string) {
	t.Helper()
	raw, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := strings.CutPrefix(string(raw), "HTTP/1.1 ")
	return text[:min(3, len(text))], text
}

// Refusals aren't logged one by one: the first one is logged at once, and later ones by their number.
func TestConcurrencyLimitLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		var log strings.Builder
		s := servertest.NewServer(t, &filo.Server{
			Logger:  slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			Handler: middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 1})(g.serve),
		})
		first := begin(t, s)
		<-g.inside
		for _, step := range []struct {
			refuse int
			sleep  time.Duration
			want   string // the number of refusals in each record so far
		}{{1, 0, "1"}, {50, 0, "1"}, {1, 9 * time.Second, "1"}, {1, time.Second, "1 52"}, {1, time.Minute, "1 52 1"}} {
			time.Sleep(step.sleep)
			for range step.refuse {
				if got := s.Do(t, "GET /"); got.Status != 503 {
					t.Fatal(got)
				}
			}
			var numbers []string
			for line := range strings.Lines(log.String()) {
				_, number, _ := strings.Cut(line, "refused=")
				number, _, _ = strings.Cut(number, " ")
				numbers = append(numbers, number)
			}
			if got := strings.Join(numbers, " "); got != step.want {
				t.Fatalf("after %d more: %q, want %q\n%s", step.refuse, got, step.want, log.String())
			}
		}
		close(g.leave)
		if status, _ := statusOf(t, first); status != "204" {
			t.Error(status)
		}
	})
}

func TestConcurrencyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		limit := middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{
			Limit: 1, Queue: 1, MaxWait: 3 * time.Second, RetryAfter: 7 * time.Second,
		})
		s := servertest.New(t, limit(g.serve))
		first := begin(t, s)
		<-g.inside
		second := begin(t, s)
		synctest.Wait()
		start := time.Now()
		if status, text := statusOf(t, begin(t, s)); status != "503" || !strings.Contains(text, "Retry-After: 7\r\n") || time.Since(start) != 0 {
			t.Errorf("a request for which there is neither a place nor one in the queue: %s after %v, want 503 at once", text, time.Since(start))
		}
		g.leave <- struct{}{}
		<-g.inside // the second request
		if status, _ := statusOf(t, first); status != "204" {
			t.Errorf("the first request: %s", status)
		}
		third := begin(t, s)
		if status, _ := statusOf(t, third); status != "503" || time.Since(start) != 3*time.Second {
			t.Errorf("one that waits too long: %s after %v, want 503 after 3 s", status, time.Since(start))
		}
		fourth := begin(t, s)
		time.Sleep(time.Second)
		fourth.Close() // which frees its place in the queue
		synctest.Wait()
		fifth := begin(t, s)
		synctest.Wait()
		g.leave <- struct{}{}
		<-g.inside
		g.leave <- struct{}{}
		for _, c := range []*servertest.Conn{second, fifth} {
			if status, _ := statusOf(t, c); status != "204" {
				t.Errorf("a request that has waited: %s", status)
			}
		}
	})
}

// endedContext is a context that has ended. When a waiting request calls Done, a place becomes free at the same time.
type endedContext struct {
	context.Context
	free func()
}

func (c endedContext) Done() <-chan struct{} {
	c.free()
	return c.Context.Done()
}

// If a request gets a place after its context has ended, it releases the place.
func TestConcurrencyLimitUnwanted(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // select chooses at random
		inside, release, left, ran := make(chan struct{}), make(chan struct{}), make(chan struct{}), 0
		limit := middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 1, Queue: 1, MaxWait: time.Hour})
		held := limit(func(c *filo.Ctx) error {
			close(inside)
			<-release
			return c.NoContent()
		})
		counted := limit(func(c *filo.Ctx) error {
			ran++
			return c.NoContent()
		})
		s := servertest.New(t, func(c *filo.Ctx) error {
			switch c.Path() {
			case "/":
				defer close(left)
				return held(c)
			case "/unwanted":
				c.SetContext(endedContext{ended, func() {
					close(release)
					<-left
				}})
			}
			return counted(c)
		})
		first := begin(t, s)
		<-inside
		if got := s.Do(t, "GET /unwanted"); got.Status != 503 || ran != 0 {
			t.Fatalf("%v, and %d handlers have run", got, ran)
		}
		if status, _ := statusOf(t, first); status != "204" {
			t.Error(status)
		}
		if got := s.Do(t, "GET /wanted"); got.Status != 204 {
			t.Errorf("the place is gone: %v", got)
		}
	}
}

// A place is free again after a panic, and after an error.
func TestConcurrencyLimitFrees(t *testing.T) {
	fail := true
	limit := middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 1})
	s := servertest.New(t, limit(func(c *filo.Ctx) error {
		if fail = !fail; fail {
			return filo.Error(400, "")
		}
		panic("in the handler")
	}))
	for _, want := range []int{500, 400, 500, 400} {
		if got := s.Do(t, "GET /"); got.Status != want {
			t.Errorf("%d, want %d", got.Status, want)
		}
	}
}

func TestConcurrencyLimitOptions(t *testing.T) {
	mwtest.MustPanic(t, "middleware", map[string]func(){
		"no Limit":            func() { middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{}) },
		"a negative Queue":    func() { middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 1, Queue: -1}) },
		"a negative MaxWait":  func() { middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 1, MaxWait: -1}) },
		"negative RetryAfter": func() { middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 1, RetryAfter: -1}) },
	})
}

func ExampleConcurrencyLimit() {
	limit := middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 1, RetryAfter: 5 * time.Second})
	inner := limit(mwtest.Hello)
	h := limit(func(c *filo.Ctx) error { return inner(c) }) // inner asks for a second place while it has the first
	mwtest.Show(h, []string{"Retry-After"}, "GET /")
	// Output:
	// 503 Service Unavailable: too many requests at once: see Retry-After
	// Retry-After: 5
}

func BenchmarkConcurrencyLimit(b *testing.B) {
	mwtest.Benchmark(b, mwtest.Wrap(mwtest.Hello, middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 100})), "GET /")
}

// A request that waits in ConcurrencyLimit's queue, or waits for the answer to another request in the cache, leaves the loop that serves its
// connection, even if its handler is usually quick.
func TestWaitingLeavesTheLoop(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no loops here")
	}
	for name, around := range map[string]filo.Middleware{
		"ConcurrencyLimit": middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 1, Queue: 100, MaxWait: time.Minute}),
		"Cache":            cache.New(),
	} {
		t.Run(name, func(t *testing.T) {
			const waiting = 20
			release, calls := make(chan struct{}), make(chan struct{}, 1+waiting)
			hold := filo.Offload(func(c *filo.Ctx) error {
				calls <- struct{}{}
				<-release
				c.Response.Header.Set("Cache-Control", "max-age=60")
				return c.Text(200, "held")
			})
			s := &filo.Server{Leaders: 1, Handler: filo.Inline(around(hold)), Logger: slog.New(slog.DiscardHandler)}
			address := tcptest.Serve(t, s)
			var clients sync.WaitGroup
			get := func() {
				response, err := http.Get("http://" + address)
				if err != nil {
					t.Error(err)
					return
				}
				response.Body.Close()
			}
			handoffs := func() (n uint64) { // counts those of all classes: if the server's own class was measured slow, its handler leaves the loop first
				for _, class := range s.Stats().Classes {
					n += class.Handoffs
				}
				return n
			}
			clients.Go(get)
			<-calls
			before := handoffs()
			for range waiting {
				clients.Go(get)
			}
			// On a busy machine, the monitor may take the loop away before the handler leaves it.
			for deadline := time.Now().Add(time.Minute); handoffs()-before+s.Stats().Retakes < waiting; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Error("some aren't waiting")
					break
				}
			}
			if n := handoffs() - before; n == 0 {
				t.Errorf("none of %d left the loop to wait", waiting)
			}
			close(release)
			clients.Wait()
		})
	}
}
