package failsafe_test

import (
	"io"
	"log/slog"
	"maps"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/priority"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/failsafe"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/middleware/idempotency"
	"github.com/filohttp/filo/servertest"
)

// fixed is a limiter whose limit doesn't change.
func fixed(limit uint) adaptivelimiter.AdaptiveLimiter[any] {
	return adaptivelimiter.NewBuilder[any]().WithLimits(limit, limit, limit).Build()
}

// "A request holds its permit until its handler returns, panics, or ends its goroutine", and then releases it exactly once: the limiter
// panics if a permit is released that isn't held.
func TestPermitIsGivenBack(t *testing.T) {
	for name, driver := range map[string]filo.Driver{"loops": filo.DriverLoop, "blocking": filo.DriverBlocking} {
		t.Run(name, func(t *testing.T) {
			if driver == filo.DriverLoop && runtime.GOOS != "linux" {
				t.Skip("no loops here")
			}
			limiter := fixed(1)
			limit := failsafe.AdaptiveLimit(failsafe.AdaptiveLimitOptions{Limiter: limiter})
			s := &filo.Server{Driver: driver, Logger: slog.New(slog.DiscardHandler), Handler: limit(func(c *filo.Ctx) error {
				switch c.Path() {
				case "/panic":
					panic("in the handler")
				case "/exit":
					runtime.Goexit()
				case "/error":
					return filo.Error(500, "")
				case "/hijack":
					conn, _, err := c.Hijack()
					if err == nil {
						io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
						conn.Close()
					}
					return err
				case "/stream":
					w := c.Stream()
					w.WriteString("a")
					if err := w.Flush(); err != nil {
						return err
					}
					panic("in the stream")
				}
				return c.NoContent()
			})}
			address := tcptest.Serve(t, s)
			for range 3 {
				for path, want := range map[string]int{"/panic": 500, "/exit": 500, "/error": 500, "/hijack": 200, "/stream": 200, "/": 204} {
					await(t, "the permit to be free", func() bool { return limiter.Inflight() == 0 })
					response, err := http.Get("http://" + address + path)
					if err != nil {
						t.Fatal(path, err)
					}
					response.Body.Close()
					if response.StatusCode != want {
						t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
					}
				}
			}
			await(t, "the last permit to be free", func() bool { return limiter.Inflight() == 0 })
		})
	}
}

func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited a minute for " + what)
		}
	}
}

// Requests beyond the limit get 503 with Retry-After at once, or wait for MaxWait.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inside, leave := make(chan struct{}), make(chan struct{})
		limit := failsafe.AdaptiveLimit(failsafe.AdaptiveLimitOptions{Limiter: fixed(1), MaxWait: 3 * time.Second, RetryAfter: 7 * time.Second})
		var log strings.Builder
		s := servertest.NewServer(t, &filo.Server{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Handler: limit(func(c *filo.Ctx) error {
				inside <- struct{}{}
				<-leave
				return c.NoContent()
			}),
		})
		var clients sync.WaitGroup
		clients.Go(func() {
			if got := s.Do(t, "GET /"); got.Status != 204 {
				t.Error(got)
			}
		})
		<-inside
		start := time.Now()
		got := s.Do(t, "GET /")
		if took := time.Since(start); got.Status != 503 || got.Header.Get("Retry-After") != "7" || took != 3*time.Second {
			t.Errorf("one that waits too long: %v after %v, want 503 after 3 s", got, took)
		}
		clients.Go(func() {
			if got := s.Do(t, "GET /"); got.Status != 204 {
				t.Error("one that waits:", got)
			}
		})
		synctest.Wait()
		leave <- struct{}{}
		<-inside
		leave <- struct{}{}
		clients.Wait()
		if n := strings.Count(log.String(), "AdaptiveLimit refuses requests"); n != 1 {
			t.Errorf("%d records, want 1:\n%s", n, &log)
		}
	})
}

// If the client leaves while its request waits for a permit, middleware outside sees a 503, because the handler hasn't run. So the client's
// Idempotency-Key can be used again.
func TestClientLeavesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, leave := 0, make(chan struct{})
		limit := failsafe.AdaptiveLimit(failsafe.AdaptiveLimitOptions{Limiter: fixed(1), MaxWait: time.Hour})
		s := servertest.New(t, idempotency.New(idempotency.Options{Scope: func(*filo.Ctx) []byte { return []byte("all") }})(limit(func(c *filo.Ctx) error {
			calls++
			<-leave
			return c.NoContent()
		})))
		first := make(chan int)
		go func() { first <- s.DoBody(t, "POST /", "a", "Idempotency-Key: a").Status }()
		synctest.Wait()
		second := s.Dial(t)
		io.WriteString(second, servertest.Request("POST /", "b", "Idempotency-Key: b"))
		synctest.Wait()
		second.Reset()
		synctest.Wait()
		close(leave)
		<-first
		synctest.Wait()
		if got := s.DoBody(t, "POST /", "b", "Idempotency-Key: b"); got.Status != 204 || calls != 2 {
			t.Errorf("a repetition: %v, and %d requests have run", got, calls)
		}
	})
}

// Slow requests lower the limit. Streams and hijacked connections don't change it, however long they take.
func TestStreamsDontCount(t *testing.T) {
	limits := map[string]int{}
	for _, how := range []string{"slow", "stream", "hijack"} {
		synctest.Test(t, func(t *testing.T) {
			limiter := adaptivelimiter.NewBuilder[any]().WithLimits(1, 100, 50).WithRecentWindow(time.Millisecond, time.Second, 10).
				WithMaxLimitFactor(100).Build()
			limit := failsafe.AdaptiveLimit(failsafe.AdaptiveLimitOptions{Limiter: limiter})
			s := servertest.New(t, limit(func(c *filo.Ctx) error {
				if c.Path() == "/quick" {
					time.Sleep(10 * time.Millisecond)
					return c.NoContent()
				}
				switch how {
				case "stream":
					if err := c.Stream().Flush(); err != nil {
						return err
					}
				case "hijack":
					conn, _, err := c.Hijack()
					if err != nil {
						return err
					}
					defer conn.Close()
					defer io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				}
				time.Sleep(4 * time.Second)
				return nil
			}))
			for range 300 {
				s.Do(t, "GET /quick")
			}
			for range 20 {
				for range 10 {
					s.Do(t, "GET /long")
				}
				for range 2 {
					s.Do(t, "GET /quick")
				}
			}
			limits[how] = limiter.Limit()
		})
	}
	if limits["stream"] <= limits["slow"] || limits["hijack"] <= limits["slow"] {
		t.Errorf("the limits are %v", limits)
	}
}

// With priorities, while all permits are held, requests of high priority are served and requests of low priority are refused.
func TestPriorities(t *testing.T) {
	prioritizer := adaptivelimiter.NewPrioritizer()
	limiter := adaptivelimiter.NewBuilder[any]().WithLimits(1, 1, 1).WithQueueing(1, 40).BuildPrioritized(prioritizer)
	limit := failsafe.AdaptiveLimit(failsafe.AdaptiveLimitOptions{
		PriorityLimiter: limiter, MaxWait: time.Minute,
		Priority: func(c *filo.Ctx) priority.Priority {
			if c.Path() == "/high" {
				return priority.VeryHigh
			}
			return priority.VeryLow
		},
	})
	inside, leave := make(chan struct{}, 100), make(chan struct{})
	s := servertest.New(t, limit(func(c *filo.Ctx) error {
		inside <- struct{}{}
		<-leave
		return c.NoContent()
	}))
	var clients sync.WaitGroup
	var refused atomic.Int64
	ask := func(path string) {
		clients.Go(func() {
			switch got := s.Do(t, "GET "+path); got.Status {
			case 204:
			case 503:
				refused.Add(1)
			default:
				t.Error(path, got)
			}
		})
	}
	ask("/low")
	<-inside
	settled := func() int { return limiter.Queued() + int(refused.Load()) }
	// The fuller the queue, the more requests of low priority are refused. In this test at least one of 30 is, except in one of millions of runs.
	for n := 1; n <= 30; n++ {
		ask("/low")
		await(t, "it to be refused, or to wait", func() bool { return settled() == n })
		prioritizer.Calibrate()
	}
	low := refused.Load()
	if low == 0 {
		t.Error("nothing of low priority is refused")
	}
	ask("/high")
	await(t, "the one of high priority", func() bool { return settled() == 31 })
	if refused.Load() > low {
		t.Error("the one of high priority is refused")
	}
	close(leave)
	clients.Wait()
}

func TestOptions(t *testing.T) {
	prioritized := adaptivelimiter.NewBuilder[any]().BuildPrioritized(adaptivelimiter.NewPrioritizer())
	one := func(*filo.Ctx) priority.Priority { return priority.Medium }
	for why, options := range map[string]failsafe.AdaptiveLimitOptions{
		"no limiter":            {},
		"both limiters":         {Limiter: fixed(1), PriorityLimiter: prioritized, Priority: one},
		"no Priority":           {PriorityLimiter: prioritized},
		"Priority without any":  {Limiter: fixed(1), Priority: one},
		"a negative MaxWait":    {Limiter: fixed(1), MaxWait: -1},
		"a negative RetryAfter": {Limiter: fixed(1), RetryAfter: -1},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", why)
				}
			}()
			failsafe.AdaptiveLimit(options)
		}()
	}
}

// While a request runs, the exported figures are equal to the limiter's.
func TestFigures(t *testing.T) {
	limiter := fixed(7)
	figures := map[string]float64{}
	s := servertest.New(t, failsafe.AdaptiveLimit(failsafe.AdaptiveLimitOptions{Limiter: limiter})(func(c *filo.Ctx) error {
		failsafe.Figures("database", limiter).Figures(func(name, help string, counts bool, value float64, labels ...string) {
			figures[name+" "+strings.Join(labels, "=")] = value
		})
		return c.NoContent()
	}))
	s.Do(t, "GET /")
	want := map[string]float64{"filo_adaptive_limit limit=database": 7, "filo_adaptive_limit_running limit=database": 1, "filo_adaptive_limit_waiting limit=database": 0}
	if !maps.Equal(figures, want) {
		t.Errorf("got %v, want %v", figures, want)
	}
}

// The middleware adds one allocation: the limiter's permit.
func TestAllocations(t *testing.T) {
	limit := failsafe.AdaptiveLimit(failsafe.AdaptiveLimitOptions{Limiter: fixed(10)})
	plain := func(c *filo.Ctx) error { return c.NoContent() }
	allocations := func(h filo.Handler) float64 {
		var n float64
		s := servertest.New(t, func(c *filo.Ctx) error {
			if c.Path() != "/measure" {
				return h(c)
			}
			n = testing.AllocsPerRun(100, func() { h(c) })
			return nil
		})
		s.Do(t, "GET /measure")
		return n
	}
	if with, without := allocations(limit(plain)), allocations(plain); with > without+1 {
		t.Errorf("%v allocations, and %v without the middleware", with, without)
	}
}
