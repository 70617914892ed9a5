package health_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/internal/logtest"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

var errSecret = errors.New("dial db.internal:5432\nas admin: refused")

func quiet(options health.Options) health.Options {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return options
}

func passing(context.Context) error { return nil }
func failing(context.Context) error { return errSecret }

// probes serves the handlers of h at their usual paths.
func probes(t testing.TB, h *health.Health) *servertest.Server {
	r := router.New()
	r.GET("/livez", h.Live).Inline()
	r.GET("/readyz", h.Ready).Inline()
	s := servertest.NewServer(t, &filo.Server{Handler: r.Serve})
	return s
}

// Each kind of check, in each state, has the right effect on the verdict.
func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		says        string
		options     health.Options
		setUp       func(*health.Health)
		live, ready string
	}{
		{"without checks all is well", health.Options{}, func(h *health.Health) {}, "200 ok", "200 ok"},
		{"not before it is said", health.Options{NotReady: true}, func(h *health.Health) {}, "200 ok", "503 not ready"},
		{"it was said", health.Options{NotReady: true}, func(h *health.Health) { h.SetReady(true) }, "200 ok", "200 ok"},
		{"it was taken back", health.Options{}, func(h *health.Health) { h.SetReady(false) }, "200 ok", "503 not ready"},
		{"a check passes", health.Options{}, func(h *health.Health) { h.Add("a", passing, health.Check{}) }, "200 ok", "200 ok"},
		{"a check fails, which is nothing to kill for", health.Options{}, func(h *health.Health) { h.Add("a", failing, health.Check{}) }, "200 ok", "503 failed"},
		{"one of many fails", health.Options{Concurrency: 1}, func(h *health.Health) {
			h.Add("a", passing, health.Check{})
			h.Add("b", failing, health.Check{})
			h.Add("c", passing, health.Check{})
		}, "200 ok", "503 failed"},
		{"the server does without", health.Options{}, func(h *health.Health) { h.Add("a", failing, health.Check{Optional: true}) }, "200 ok", "200 ok, but degraded"},
		{"a critical one after one to do without", health.Options{}, func(h *health.Health) {
			h.Add("a", failing, health.Check{Optional: true})
			h.Add("b", failing, health.Check{})
		}, "200 ok", "503 failed"},
		{"only a restart can mend it", health.Options{}, func(h *health.Health) { h.Add("a", failing, health.Check{Live: true}) }, "503 failed", "503 failed"},
		{"a check panics", health.Options{}, func(h *health.Health) {
			h.Add("a", func(context.Context) error { panic("oh") }, health.Check{})
		}, "200 ok", "503 failed"},
	} {
		h := health.New(quiet(test.options))
		test.setUp(h)
		s := probes(t, h)
		for path, want := range map[string]string{"/livez": test.live, "/readyz": test.ready} {
			got := s.Do(t, "GET "+path)
			if line := fmt.Sprintf("%d %s", got.Status, got.Body); line != want+"\n" {
				t.Errorf("%s: %s: %q, want %q", test.says, path, line, want)
			}
			if (got.Header.Get("Retry-After") == "5") != (got.Status == 503) {
				t.Errorf("%s: %s: %d with Retry-After %q", test.says, path, got.Status, got.Header.Get("Retry-After"))
			}
			if got.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %s: Cache-Control %q", test.says, path, got.Header.Get("Cache-Control"))
			}
		}
	}
}

// The form of an answer depends on Accept and the query. Only clients that Details admits see the errors.
func TestAnswers(t *testing.T) {
	h := health.New(quiet(health.Options{Details: func(c *filo.Ctx) bool { return c.Request.Header.Get("Who") == "operator" }}))
	h.Add("database", failing, health.Check{})
	h.Add("cache", failing, health.Check{Optional: true})
	h.Add("disk", passing, health.Check{})
	s := probes(t, h)
	const operator = "Who: operator"
	for _, test := range []struct {
		query, accept, who string
		contentType, body  string
	}{
		{"", "", "", "text/plain; charset=utf-8", "failed\n"},
		{"", "*/*", operator, "text/plain; charset=utf-8", "failed\n"},
		{"?verbose", "", "", "text/plain; charset=utf-8", "[-] database failed\n[-] cache failed (optional)\n[+] disk ok\nfailed\n"},
		{"?verbose=1", "", operator, "text/plain; charset=utf-8", "[-] database failed: dial db.internal:5432 as admin: refused\n" +
			"[-] cache failed (optional): dial db.internal:5432 as admin: refused\n[+] disk ok\nfailed\n"},
		{"", "application/health+json", "", "application/health+json", `{"status":"fail"}` + "\n"},
		{"", "application/json", "", "application/json", `{"status":"fail"}` + "\n"},
		{"", "text/html, application/json;q=0.9, */*;q=0.1", "", "application/json", `{"status":"fail"}` + "\n"},
		{"", "image/png", "", "text/plain; charset=utf-8", "failed\n"}, // a probe that accepts none of the formats still gets an answer
	} {
		got := s.Do(t, "GET /readyz"+test.query, "Accept: "+test.accept, test.who+"\r\nA: b")
		if test.accept == "" {
			got = s.Do(t, "GET /readyz"+test.query, test.who+"\r\nA: b")
		}
		if got.Body != test.body || got.Header.Get("Content-Type") != test.contentType || got.Header.Get("Vary") != "Accept" {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// The object follows draft-inadarei-api-health-check: a status, and for each check a list of observations.
func TestDocument(t *testing.T) {
	h := health.New(quiet(health.Options{Details: func(c *filo.Ctx) bool { return c.Request.Header.Has("Operator") }}))
	h.Add("database", failing, health.Check{Optional: true})
	h.Add("disk", passing, health.Check{})
	s := probes(t, h)
	for who, output := range map[string]string{"Stranger: 1": "", "Operator: 1": errSecret.Error()} {
		got := s.Do(t, "GET /readyz?verbose", "Accept: application/health+json", who)
		var document struct {
			Status string
			Checks map[string][]struct {
				Status, Unit, Output string
				ObservedUnit         string
				ObservedValue        float64
				Time                 time.Time
			}
		}
		if err := json.Unmarshal([]byte(got.Body), &document); err != nil {
			t.Fatalf("%s: %v in %q", who, err, got.Body)
		}
		database, disk := document.Checks["database"], document.Checks["disk"]
		if len(database) != 1 || len(disk) != 1 || document.Status != "warn" || database[0].Status != "warn" || disk[0].Status != "pass" ||
			database[0].Output != output || disk[0].ObservedUnit != "ms" || time.Since(disk[0].Time) > time.Minute {
			t.Errorf("%s: %s", who, got.Body)
		}
	}
}

// A flood of probes runs each check once in its period, and all of them see its result.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		h := health.New(quiet(health.Options{}))
		h.Add("a", func(context.Context) error {
			runs.Add(1)
			time.Sleep(100 * time.Millisecond)
			return nil
		}, health.Check{Period: 10 * time.Second})
		s := probes(t, h)
		flood := func() {
			var group sync.WaitGroup
			for range 50 {
				group.Go(func() {
					if got := s.Do(t, "GET /readyz"); got.Status != 200 {
						t.Errorf("%d", got.Status)
					}
				})
			}
			group.Wait()
		}
		start := time.Now()
		flood()
		if runs.Load() != 1 || time.Since(start) != 100*time.Millisecond {
			t.Errorf("%d runs in %v, want the probes to share one", runs.Load(), time.Since(start))
		}
		for range 30 { // half a minute
			time.Sleep(time.Second)
			start := time.Now()
			if flood(); time.Since(start) > 0 {
				t.Errorf("a probe waited for %v", time.Since(start))
			}
		}
		if got := runs.Load(); got < 3 || got > 4 {
			t.Errorf("%d runs in 30 s, want one in 10.1 s", got)
		}
		// Without further probes, the checks stop.
		time.Sleep(3 * time.Minute)
		before := runs.Load()
		time.Sleep(10 * time.Minute)
		if got := runs.Load(); got != before || before > 20 {
			t.Errorf("%d runs, and then %d while nobody asked", before, got)
		}
		flood()
		if runs.Load() != before+1 {
			t.Errorf("%d runs, want another one for the probe that comes late", runs.Load()-before)
		}
	})
}

// A check that doesn't return fails at its time-out. It isn't called again until it returns, and then recovers.
func TestHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int64
		h := health.New(quiet(health.Options{Concurrency: 1}))
		h.Add("hangs", func(ctx context.Context) error {
			if calls.Add(1) == 1 {
				<-release // even after its context has ended
			}
			return ctx.Err()
		}, health.Check{Timeout: time.Second, Period: time.Second})
		h.Add("other", passing, health.Check{})
		s := probes(t, h)
		start := time.Now()
		if got := s.Do(t, "GET /readyz?verbose"); got.Status != 503 || !strings.Contains(got.Body, "[+] other ok") || time.Since(start) != time.Second {
			t.Errorf("after %v: %d %s", time.Since(start), got.Status, got.Body)
		}
		for range 10 {
			time.Sleep(time.Second)
			if got := s.Do(t, "GET /readyz"); got.Status != 503 {
				t.Errorf("while it hangs: %d", got.Status)
			}
		}
		if calls.Load() != 1 {
			t.Errorf("%d calls while the first one hangs", calls.Load())
		}
		close(release)
		time.Sleep(2 * time.Second)
		if got := s.Do(t, "GET /readyz"); got.Status != 200 {
			t.Errorf("after it has returned: %d", got.Status)
		}
	})
}

// A check that ends without returning has failed, and is called again.
func TestAbruptEnds(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("oh") }, "Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			var ended atomic.Bool
			h := health.New(quiet(health.Options{Concurrency: 1}))
			h.Add("a", func(context.Context) error {
				if !ended.Swap(true) {
					end()
				}
				return nil
			}, health.Check{Timeout: time.Second, Period: time.Second})
			s := probes(t, h)
			start := time.Now()
			if got := s.Do(t, "GET /readyz"); got.Status != 503 || time.Since(start) != 0 {
				t.Errorf("%s: %d after %v, want 503 at once", name, got.Status, time.Since(start))
			}
			time.Sleep(2 * time.Second)
			if got := s.Do(t, "GET /readyz"); got.Status != 200 {
				t.Errorf("%s: %d when it passes again", name, got.Status)
			}
		})
	}
}

// Live waits only for the checks that it depends on.
func TestLiveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health.New(quiet(health.Options{}))
		sleep := func(d time.Duration) func(context.Context) error {
			return func(context.Context) error { time.Sleep(d); return nil }
		}
		h.Add("slow", sleep(3*time.Second), health.Check{})
		h.Add("live", sleep(time.Second), health.Check{Live: true})
		s := probes(t, h)
		for path, want := range map[string]time.Duration{"/livez": time.Second, "/readyz": 3 * time.Second} {
			start := time.Now()
			if got := s.Do(t, "GET "+path); got.Status != 200 || time.Since(start) > want {
				t.Errorf("%s: %d after %v, want 200 after %v", path, got.Status, time.Since(start), want)
			}
		}
	})
}

// No more checks run at once than Concurrency allows, and the time that a check waits for a place doesn't count against its Timeout.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		h := health.New(quiet(health.Options{Concurrency: 3}))
		for i := range 10 {
			h.Add(fmt.Sprint("check-", i), func(ctx context.Context) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				time.Sleep(time.Second)
				return ctx.Err()
			}, health.Check{Timeout: 1500 * time.Millisecond, Period: time.Minute})
		}
		s := probes(t, h)
		start := time.Now()
		if got := s.Do(t, "GET /readyz"); got.Status != 200 {
			t.Errorf("%d: the time that a check waits for its turn counted", got.Status)
		}
		if most.Load() != 3 || time.Since(start) != 4*time.Second {
			t.Errorf("%d at once, in %v; want 3, in 4s", most.Load(), time.Since(start))
		}
	})
}

// publicError is an error whose JSON is meant for clients, and isn't its text.
type publicError struct{}

func (publicError) Error() string                { return "db.internal: connection refused" }
func (publicError) MarshalJSON() ([]byte, error) { return []byte(`"no details"`), nil }

// In a log in JSON, too, the records have the texts of errors, and of the values that checks panic with.
func TestLogInJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, logger := logtest.New(t)
		h := health.New(health.Options{Logger: logger})
		h.Add("a", func(context.Context) error { return publicError{} }, health.Check{Period: time.Second})
		h.Add("b", func(context.Context) error { panic(publicError{}) }, health.Check{Period: time.Second})
		probes(t, h).Do(t, "GET /readyz")
		synctest.Wait()
		if panics := records.Lines(`"panic":"db.internal`); len(panics) != 1 {
			t.Errorf("logged %q", panics)
		}
		if lines := records.Lines("db.internal: connection refused"); len(lines) != 3 {
			t.Errorf("logged %q", lines)
		}
	})
}

// A change is logged once, with the error that clients don't see.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var fail atomic.Bool
		h := health.New(health.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		h.Add("a", func(context.Context) error {
			if fail.Load() {
				return errSecret
			}
			return nil
		}, health.Check{Period: time.Second})
		s := probes(t, h)
		for i := range 12 {
			fail.Store(i >= 3 && i < 8)
			s.Do(t, "GET /readyz")
			time.Sleep(1500 * time.Millisecond)
		}
		synctest.Wait()
		text := log.String()
		if strings.Count(text, "check fails") != 1 || strings.Count(text, "passes again") != 1 || !strings.Contains(text, "db.internal") {
			t.Errorf("%s", text)
		}
	})
}

// Drain first makes the server not ready, then lets it serve as before for a time, and then shuts it down.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health.New(quiet(health.Options{}))
		s := probes(t, h)
		start := time.Now()
		drained := make(chan error, 1)
		go func() { drained <- h.Drain(t.Context(), s.Config, 20*time.Second) }()
		synctest.Wait()
		h.SetReady(true) // too late, since the server is shutting down
		for range 19 {
			time.Sleep(time.Second)
			if got := s.Do(t, "GET /readyz"); got.Status != 503 || got.Body != "shutting down\n" {
				t.Errorf("ready: %d %q", got.Status, got.Body)
			}
			if got := s.Do(t, "GET /livez"); got.Status != 200 {
				t.Errorf("live: %d", got.Status)
			}
		}
		if err := <-drained; err != nil || time.Since(start) < 20*time.Second || time.Since(start) > 21*time.Second {
			t.Errorf("drained after %v: %v", time.Since(start), err)
		}
		if _, err := s.Listener.Dial(); err == nil {
			t.Error("the server still accepts")
		}
	})
}

// If the context is done before the delay ends, the server is shut down at once.
func TestDrainCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health.New(quiet(health.Options{}))
		s := probes(t, h)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		h.Drain(ctx, s.Config, time.Hour)
		if time.Since(start) != time.Second {
			t.Errorf("it took %v", time.Since(start))
		}
		if _, err := s.Listener.Dial(); err == nil {
			t.Error("the server still accepts")
		}
	})
}

// The context for Run ends a delay after the given context. During the delay the server isn't ready, and each answer is the last
// one of its connection.
func TestDrainContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		h := health.New(health.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		signaled, signal := context.WithCancelCause(t.Context())
		server := &filo.Server{Handler: h.Ready}
		ln := servertest.NewListener()
		h.Attach(server)
		ctx, cancel := h.DrainContext(signaled, 20*time.Second)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- server.RunListener(ctx, ln) }()
		ready := func() string {
			c, err := ln.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, servertest.Request("GET /readyz", "", "Connection: close"))
			answer, _ := io.ReadAll(c)
			_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
			return body
		}
		time.Sleep(time.Minute)
		if got := ready(); got != "ok\n" {
			t.Errorf("before: %q", got)
		}
		kept, err := ln.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		reader := bufio.NewReader(kept)
		lasts := func() bool {
			io.WriteString(kept, servertest.Request("GET /readyz", ""))
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, response.Body)
			return response.Close
		}
		if lasts() {
			t.Error("a connection ends before the drain")
		}
		told := errors.New("told to")
		signal(told)
		synctest.Wait()
		if !strings.Contains(log.String(), `level=INFO msg="health: not ready any more, since the program ends" drain=20s cause="told to"`) {
			t.Errorf("logged %q", &log)
		}
		if !lasts() {
			t.Error("a connection goes on after an answer in the drain")
		}
		start := time.Now()
		for range 19 {
			time.Sleep(time.Second)
			if got := ready(); got != "shutting down\n" {
				t.Errorf("in the delay: %q", got)
			}
		}
		if err := <-ended; err != nil || time.Since(start) < 20*time.Second || time.Since(start) > 21*time.Second {
			t.Errorf("ended after %v: %v", time.Since(start), err)
		}
		if cause := context.Cause(ctx); cause != told {
			t.Errorf("the cause is %v", cause)
		}
	})
}

// "If the cause of ctx is ErrReplaced, another process already serves at the same address." Nothing is drained, and a probe on an
// open connection still gets a 200.
func TestDrainContextReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health.New(quiet(health.Options{}))
		parent, replace := context.WithCancelCause(t.Context())
		server := &filo.Server{Handler: h.Ready, IdleGrace: time.Minute, Logger: slog.New(slog.DiscardHandler)}
		ln := servertest.NewListener()
		h.Attach(server)
		ctx, cancel := h.DrainContext(parent, time.Hour)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- server.RunListener(ctx, ln) }()
		kept, err := ln.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		reader := bufio.NewReader(kept)
		ask := func() *http.Response {
			io.WriteString(kept, servertest.Request("GET /readyz", ""))
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, response.Body)
			return response
		}
		if got := ask(); got.StatusCode != 200 || got.Close {
			t.Errorf("before: %d, the last one: %v", got.StatusCode, got.Close)
		}
		time.Sleep(time.Minute - time.Second)
		cause := fmt.Errorf("told so: %w", health.ErrReplaced)
		replace(cause)
		synctest.Wait()
		if got := context.Cause(ctx); got != cause {
			t.Errorf("then the context has ended by %v", got)
		}
		time.Sleep(time.Second) // the server drains
		if got := ask(); got.StatusCode != 200 || !got.Close {
			t.Errorf("then: %d, the last one: %v", got.StatusCode, got.Close)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Live ignores the shutdown even if no check has a result yet: it waits for the checks. Ready doesn't wait.
func TestFirstProbeInShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health.New(quiet(health.Options{}))
		h.Add("slow", func(context.Context) error {
			time.Sleep(time.Second)
			return nil
		}, health.Check{Live: true})
		server := &filo.Server{IdleGrace: time.Minute, Logger: slog.New(slog.DiscardHandler), Handler: func(c *filo.Ctx) error {
			switch c.Path() {
			case "/livez":
				return h.Live(c)
			case "/readyz":
				return h.Ready(c)
			}
			return c.NoContent()
		}}
		ln := servertest.NewListener()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- server.RunListener(ctx, ln) }()
		var clients []net.Conn
		ask := func(i int, path string) int {
			io.WriteString(clients[i], servertest.Request("GET "+path, ""))
			response, err := http.ReadResponse(bufio.NewReader(clients[i]), nil)
			if err != nil {
				t.Fatal(err)
			}
			return response.StatusCode
		}
		for i := range 2 {
			client, err := ln.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			clients = append(clients, client)
			ask(i, "/")
		}
		cancel()
		synctest.Wait()
		start := time.Now()
		if got := ask(0, "/readyz"); got != 503 || time.Since(start) >= time.Second {
			t.Errorf("/readyz: %d after %v", got, time.Since(start))
		}
		if got := ask(1, "/livez"); got != 200 {
			t.Errorf("/livez: %d", got)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The function that DrainContext returns ends the context, before or within the delay, and no goroutine is left.
func TestDrainContextCancel(t *testing.T) {
	for _, drains := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			signaled, signal := context.WithCancel(t.Context())
			defer signal()
			ctx, cancel := health.New(quiet(health.Options{})).DrainContext(signaled, time.Hour)
			if drains {
				signal()
				synctest.Wait()
			}
			if err := ctx.Err(); err != nil {
				t.Errorf("drains %v: the context is done: %v", drains, err)
			}
			cancel()
			if err := ctx.Err(); err != context.Canceled {
				t.Errorf("drains %v: then %v", drains, err)
			}
		})
	}
}

// The shutdown of an attached server makes it not ready, as clients on open connections see.
func TestAttach(t *testing.T) {
	h := health.New(quiet(health.Options{}))
	inside, look := make(chan struct{}), make(chan struct{})
	s := servertest.New(t, func(c *filo.Ctx) error {
		close(inside)
		<-look
		deadline := time.Now().Add(time.Minute)
		for {
			if err := h.Ready(c); err != nil || c.Status() == 503 || time.Now().After(deadline) {
				return err
			}
			time.Sleep(time.Millisecond) // the function of Attach is called on a goroutine of its own
		}
	})
	h.Attach(s.Config)
	answer := make(chan servertest.Answer, 1)
	go func() { answer <- s.Do(t, "GET /") }()
	<-inside
	ended := make(chan error, 1)
	go func() { ended <- s.Config.Shutdown(t.Context()) }()
	close(look)
	if got := <-answer; got.Status != 503 || got.Body != "shutting down\n" {
		t.Errorf("%d %q", got.Status, got.Body)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	full := health.New()
	for i := range health.MaxChecks {
		full.Add(fmt.Sprint(i), passing, health.Check{})
	}
	probed := health.New()
	probes(t, probed).Do(t, "GET /livez")
	for name, construct := range map[string]func(){
		"negative concurrency": func() { health.New(health.Options{Concurrency: -1}) },
		"no name":              func() { health.New().Add("", passing, health.Check{}) },
		"a name with a break":  func() { health.New().Add("a\n[+] b ok", passing, health.Check{}) },
		"a long name":          func() { health.New().Add(strings.Repeat("a", 65), passing, health.Check{}) },
		"no function":          func() { health.New().Add("a", nil, health.Check{}) },
		"negative time-out":    func() { health.New().Add("a", passing, health.Check{Timeout: -1}) },
		"negative period":      func() { health.New().Add("a", passing, health.Check{Period: -1}) },
		"too many":             func() { full.Add("a", passing, health.Check{}) },
		"too late":             func() { probed.Add("a", passing, health.Check{}) },
		"twice": func() {
			h := health.New()
			h.Add("a", passing, health.Check{})
			h.Add("a", passing, health.Check{})
		},
	} {
		message := func() (message string) {
			defer func() { message = fmt.Sprint(recover()) }()
			construct()
			return ""
		}()
		if !strings.HasPrefix(message, "health: ") {
			t.Errorf("%s: panics with %q", name, message)
		}
	}
}

// BenchmarkReady shows that a probe is answered without allocating memory.
func BenchmarkReady(b *testing.B) {
	b.ReportAllocs()
	h := health.New()
	for i := range 10 {
		h.Add(fmt.Sprint(i), passing, health.Check{Period: time.Hour})
	}
	servertest.New(b, func(c *filo.Ctx) error {
		for b.Loop() {
			c.Response.Header.Reset()
			if err := h.Ready(c); err != nil {
				b.Fatal(err)
			}
		}
		return nil
	}).Do(b, "GET /")
}
