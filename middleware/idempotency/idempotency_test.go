package idempotency_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/middleware/idempotency"
	"github.com/filohttp/filo/servertest"
)

// order is a handler that counts its calls. The path selects its answer.
type order struct{ count int }

func (o *order) serve(c *filo.Ctx) error {
	o.count++
	switch c.Path() {
	case "/error":
		return filo.Error(422, fmt.Sprint("error ", o.count))
	case "/busy":
		return filo.Error(503, "")
	case "/limited":
		return filo.Error(429, "")
	case "/broken":
		return errors.New("broken")
	case "/abort":
		return filo.ErrAbort
	case "/panic":
		panic("in the handler")
	case "/stream":
		w := c.Stream()
		io.WriteString(w, "order")
		return w.Flush()
	case "/large":
		return c.Text(200, strings.Repeat("x", 101))
	}
	c.Response.Header.Set("Location", fmt.Sprint("/orders/", o.count))
	c.Response.Header.Add("Link", "<a>")
	c.Response.Header.Add("Link", "<b>")
	return c.Text(201, fmt.Sprint("order ", o.count))
}

// scopeOf is AuthorizationScope, except that all clients without Authorization share one scope.
func scopeOf(c *filo.Ctx) []byte {
	if scope := idempotency.AuthorizationScope(c); len(scope) > 0 {
		return scope
	}
	return []byte("nobody")
}

// A client that can't be distinguished from other clients must not get their answers, so its requests with a key are refused.
func TestNoScope(t *testing.T) {
	o := new(order)
	s := servertest.New(t, idempotency.New(idempotency.Options{Scope: idempotency.AuthorizationScope})(o.serve))
	for _, fields := range [][]string{nil, {"Authorization: "}} {
		if got := s.DoBody(t, "POST /", "a", append(fields, "Idempotency-Key: a")...); got.Status != 400 || o.count != 0 {
			t.Errorf("%q: %v, and the handler has run %d times", fields, got, o.count)
		}
	}
	if got := s.DoBody(t, "POST /", "a"); got.Status != 201 {
		t.Errorf("without a key: %v", got)
	}
}

// The middleware answers as draft-ietf-httpapi-idempotency-key-header-07, section 2.7, says.
func TestNew(t *testing.T) {
	const key = `Idempotency-Key: "8e03978e-40d5-43e8-bc93-6894a57f9324"`
	type request struct {
		line, body string
		fields     []string
	}
	for _, test := range []struct {
		why           string
		options       idempotency.Options
		first, second request
		status        int
		body          string
		replayed      bool
		count         int
	}{
		{"the same again", idempotency.Options{}, request{"POST /", "a", []string{key}}, request{"POST /", "a", []string{key}}, 201, "order 1", true, 1},
		{"PATCH", idempotency.Options{}, request{"PATCH /", "a", []string{key}}, request{"PATCH /", "a", []string{key}}, 201, "order 1", true, 1},
		{"without a key", idempotency.Options{}, request{"POST /", "a", nil}, request{"POST /", "a", nil}, 201, "order 2", false, 2},
		{"another key", idempotency.Options{}, request{"POST /", "a", []string{key}}, request{"POST /", "a", []string{"Idempotency-Key: \"b\""}}, 201, "order 2", false, 2},
		{"a token is the same as a string", idempotency.Options{}, request{"POST /", "a", []string{"Idempotency-Key: b"}}, request{"POST /", "a", []string{`Idempotency-Key: "b"`}}, 201, "order 1", true, 1},
		{"another body", idempotency.Options{}, request{"POST /", "a", []string{key}}, request{"POST /", "b", []string{key}}, 422, "used for another", false, 1},
		{"another target", idempotency.Options{}, request{"POST /", "a", []string{key}}, request{"POST /x", "a", []string{key}}, 422, "used for another", false, 1},
		{"another method", idempotency.Options{}, request{"POST /", "a", []string{key}}, request{"PATCH /", "a", []string{key}}, 422, "used for another", false, 1},
		{"another type", idempotency.Options{}, request{"POST /", "a", []string{key}}, request{"POST /", "a", []string{key, "Content-Type: x"}}, 422, "used for another", false, 1},
		{"another client", idempotency.Options{}, request{"POST /", "a", []string{key, "Authorization: a"}}, request{"POST /", "a", []string{key, "Authorization: b"}}, 201, "order 2", false, 2},
		{"a method that needs no key", idempotency.Options{}, request{"PUT /", "a", []string{key}}, request{"PUT /", "a", []string{key}}, 201, "order 2", false, 2},
		{"a method of its own", idempotency.Options{Methods: []string{"PUT"}}, request{"PUT /", "a", []string{key}}, request{"PUT /", "a", []string{key}}, 201, "order 1", true, 1},
		{"an error is an answer too", idempotency.Options{}, request{"POST /error", "a", []string{key}}, request{"POST /error", "a", []string{key}}, 422, "error 1", true, 1},
		{"even one of the server", idempotency.Options{}, request{"POST /broken", "a", []string{key}}, request{"POST /broken", "a", []string{key}}, 500, "Internal", true, 1},
		{"but not 503", idempotency.Options{}, request{"POST /busy", "a", []string{key}}, request{"POST /busy", "a", []string{key}}, 503, "", false, 2},
		{"nor 429", idempotency.Options{}, request{"POST /limited", "a", []string{key}}, request{"POST /limited", "a", []string{key}}, 429, "", false, 2},
		{"what a panic leaves isn't known", idempotency.Options{}, request{"POST /panic", "a", []string{key}}, request{"POST /panic", "a", []string{key}}, 409, "wasn't kept", false, 1},
		{"a stream isn't kept, and isn't done twice", idempotency.Options{}, request{"POST /stream", "a", []string{key}}, request{"POST /stream", "a", []string{key}}, 409, "wasn't kept", false, 1},
		{"nor is a large body", idempotency.Options{MaxBodyBytes: 100}, request{"POST /large", "a", []string{key}}, request{"POST /large", "a", []string{key}}, 409, "wasn't kept", false, 1},
		{"the scope is an option", idempotency.Options{Scope: func(c *filo.Ctx) []byte { return []byte("all") }}, request{"POST /", "a", []string{key, "Authorization: a"}}, request{"POST /", "a", []string{key, "Authorization: b"}}, 201, "order 1", true, 1},
	} {
		if test.options.Scope == nil {
			test.options.Scope = scopeOf
		}
		o := new(order)
		id := 0
		outside := func(next filo.Handler) filo.Handler {
			return func(c *filo.Ctx) error {
				id++
				c.Response.Header.Set("X-Request-Id", fmt.Sprint(id))
				return next(c)
			}
		}
		s := servertest.New(t, mwtest.Wrap(o.serve, outside, idempotency.New(test.options)))
		first := s.DoBody(t, test.first.line, test.first.body, test.first.fields...)
		got := s.DoBody(t, test.second.line, test.second.body, test.second.fields...)
		replayed := got.Header.Get("Idempotency-Replayed") == "true"
		if got.Status != test.status || !strings.Contains(got.Body, test.body) || replayed != test.replayed || o.count != test.count {
			t.Errorf("%s: %v after %d calls, want %d %s after %d", test.why, got, o.count, test.status, test.body, test.count)
		}
		if replayed && (got.Header.Get("Location") != first.Header.Get("Location") || strings.Join(got.Header.Values("Link"), ",") != strings.Join(first.Header.Values("Link"), ",") ||
			got.Header.Get("Content-Type") != first.Header.Get("Content-Type")) {
			t.Errorf("%s: %v, want the fields of %v", test.why, got.Header, first.Header)
		}
		if first.Header.Get("X-Request-Id") != "1" || got.Header.Get("X-Request-Id") != "2" {
			t.Errorf("%s: %v, want the request's own id", test.why, got.Header)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, test := range []struct {
		why    string
		fields []string
		status int
	}{
		{"a string", []string{`Idempotency-Key: "a key, with a comma"`}, 201},
		{"a token", []string{`Idempotency-Key: 8e03978e-40d5`}, 201},
		{"255 bytes", []string{"Idempotency-Key: " + strings.Repeat("a", 255)}, 201},
		{"none, though it is required", nil, 400},
		{"256 bytes", []string{"Idempotency-Key: " + strings.Repeat("a", 256)}, 400},
		{"an empty one", []string{"Idempotency-Key: "}, 400},
		{"an empty string", []string{`Idempotency-Key: ""`}, 400},
		{"half a string", []string{`Idempotency-Key: "a`}, 400},
		{"two keys", []string{"Idempotency-Key: a", "Idempotency-Key: b"}, 400},
		{"a list", []string{`Idempotency-Key: "a", "b"`}, 400},
		{"a parameter", []string{`Idempotency-Key: "a";b=c`}, 400},
		{"a space", []string{`Idempotency-Key: a b`}, 400},
		{"not ASCII", []string{"Idempotency-Key: \"é\""}, 400},
	} {
		h := idempotency.New(idempotency.Options{Scope: scopeOf, Required: true})(new(order).serve)
		if got := mwtest.Do(t, h, "POST /", test.fields...); got.Status != test.status {
			t.Errorf("%s: %v, want %d", test.why, got, test.status)
		}
	}
}

// While a request runs, another request with the same key gets 409, however the first request ends. The request is executed only once.
func TestConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := new(order)
		var mu sync.Mutex
		s := servertest.New(t, idempotency.New(idempotency.Options{Scope: scopeOf})(func(c *filo.Ctx) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			return o.serve(c)
		}))
		statuses := make(chan int, 10)
		for range 10 {
			go func() { statuses <- s.DoBody(t, "POST /", "a", "Idempotency-Key: a").Status }()
		}
		counts := make(map[int]int)
		for range 10 {
			counts[<-statuses]++
		}
		if counts[201] != 1 || counts[409] != 9 || o.count != 1 {
			t.Errorf("%v, and %d were done, want one 201 and nine 409", counts, o.count)
		}
		if got := s.DoBody(t, "POST /", "a", "Idempotency-Key: a"); got.Status != 201 {
			t.Errorf("afterwards: %v", got)
		}
	})
}

// A request whose handler aborted isn't executed again, since nobody knows what the handler has already done.
func TestAbort(t *testing.T) {
	o := new(order)
	s := servertest.New(t, idempotency.New(idempotency.Options{Scope: scopeOf})(o.serve))
	if got := s.Raw(t, servertest.Request("POST /abort", "a", "Idempotency-Key: a")); got != "" {
		t.Errorf("%q, want no answer", got)
	}
	if got := s.DoBody(t, "POST /abort", "a", "Idempotency-Key: a"); got.Status != 409 || o.count != 1 {
		t.Errorf("%v, and it was done %d times, want 409 and once", got, o.count)
	}
}

// After a time-out the handler has run, and may have done everything: a repetition doesn't run it again.
func TestTimeout(t *testing.T) {
	for _, test := range []struct {
		why    string
		answer filo.Handler
	}{
		{"an answer that comes too late", mwtest.Hello},
		{"the handler's own 503", func(*filo.Ctx) error { return filo.Error(503, "") }},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			s := servertest.New(t, mwtest.Wrap(func(c *filo.Ctx) error {
				calls++
				<-c.Context().Done()
				time.Sleep(time.Second)
				return test.answer(c)
			}, idempotency.New(idempotency.Options{Scope: scopeOf}),
				middleware.Timeout(middleware.TimeoutOptions{Timeout: time.Second})))
			for _, want := range []int{503, 409} {
				if got := s.DoBody(t, "POST /", "a", "Idempotency-Key: a"); got.Status != want {
					t.Errorf("%s: %v, want %d", test.why, got, want)
				}
				time.Sleep(2 * time.Second)
			}
			if calls != 1 {
				t.Errorf("%s: the handler ran %d times", test.why, calls)
			}
		})
	}
}

// A request that leaves ConcurrencyLimit's queue without a place hasn't run, even if its client has left or its Timeout has answered. So its
// key can be used again.
func TestNoPlace(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			calls, release := 0, make(chan struct{})
			s := servertest.New(t, mwtest.Wrap(func(c *filo.Ctx) error {
				calls++
				<-release
				return c.NoContent()
			}, idempotency.New(idempotency.Options{Scope: scopeOf}),
				middleware.Timeout(middleware.TimeoutOptions{Timeout: time.Second, Error: filo.Error(504, "")}),
				middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: 1, Queue: 1, MaxWait: time.Hour})))
			first := make(chan int)
			go func() { first <- s.DoBody(t, "POST /", "a", "Idempotency-Key: a").Status }()
			synctest.Wait()
			second := s.Dial(t)
			io.WriteString(second, servertest.Request("POST /", "b", "Idempotency-Key: b"))
			if leaves {
				synctest.Wait()
				second.Reset()
			} else if answer, err := io.ReadAll(second); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 504 ") {
				t.Errorf("the time-out's answer: %q, %v", answer, err)
			}
			close(release)
			<-first
			synctest.Wait()
			if got := s.DoBody(t, "POST /", "b", "Idempotency-Key: b"); got.Status != 204 || calls != 2 {
				t.Errorf("a repetition, client has left %v: %v, and %d requests have run", leaves, got, calls)
			}
		})
	}
}

// A 503 means that the handler did nothing, even if its client has left before.
func TestBusyWithoutClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := servertest.New(t, idempotency.New(idempotency.Options{Scope: scopeOf})(func(c *filo.Ctx) error {
			if calls++; calls > 1 {
				return c.NoContent()
			}
			<-c.Context().Done()
			return filo.Error(503, "")
		}))
		first := s.Dial(t)
		io.WriteString(first, servertest.Request("POST /", "a", "Idempotency-Key: a"))
		synctest.Wait()
		first.Reset()
		synctest.Wait()
		if got := s.DoBody(t, "POST /", "a", "Idempotency-Key: a"); got.Status != 204 || calls != 2 {
			t.Errorf("a repetition: %v, and %d requests have run", got, calls)
		}
	})
}

// In memory a key isn't free while its request runs, however long that takes.
func TestRunsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := servertest.New(t, idempotency.New(idempotency.Options{
			Scope: scopeOf, MaxRun: time.Second,
		})(func(c *filo.Ctx) error {
			calls++
			time.Sleep(3 * time.Second)
			return mwtest.Hello(c)
		}))
		first := make(chan int)
		go func() { first <- s.DoBody(t, "POST /", "a", "Idempotency-Key: a").Status }()
		time.Sleep(2 * time.Second)
		if got := s.DoBody(t, "POST /", "a", "Idempotency-Key: a"); got.Status != 409 {
			t.Errorf("while it runs: %v", got)
		}
		if status := <-first; status != 200 {
			t.Errorf("the first one: %d", status)
		}
		if got := s.DoBody(t, "POST /", "a", "Idempotency-Key: a"); got.Header.Get("Idempotency-Replayed") != "true" || calls != 1 {
			t.Errorf("afterwards: %v, and the handler ran %d times", got, calls)
		}
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := new(order)
		s := servertest.New(t, idempotency.New(idempotency.Options{Scope: scopeOf, TTL: time.Hour})(o.serve))
		for _, step := range []struct {
			sleep time.Duration
			want  string
		}{{0, "order 1"}, {time.Hour - 1, "order 1"}, {1, "order 2"}} {
			time.Sleep(step.sleep)
			if got := s.DoBody(t, "POST /", "a", "Idempotency-Key: a"); got.Body != step.want {
				t.Errorf("%v later: %v, want %s", step.sleep, got, step.want)
			}
		}
	})
}

// One client's answers don't displace another client's. The client's own oldest answers are removed, but no request is executed twice.
func TestMemory(t *testing.T) {
	calls := make(map[string]int)
	const body = 10_000
	s := servertest.New(t, idempotency.New(idempotency.Options{
		Scope: scopeOf, MaxBytes: 64 * body,
	})(func(c *filo.Ctx) error {
		calls[c.Path()]++
		if c.Path() == "/huge" {
			return c.Text(200, strings.Repeat("x", 17*body))
		}
		return c.Text(200, strings.Repeat("x", body))
	}))
	ask := func(client string, i int) servertest.Answer {
		return s.DoBody(t, fmt.Sprintf("POST /%s/%d", client, i), "a", fmt.Sprint("Idempotency-Key: ", i), "Authorization: "+client)
	}
	victim := ask("victim", 0)
	for i := range 100 {
		if got := ask("other", i); got.Status != 200 {
			t.Fatalf("request %d: %v", i, got.Status)
		}
	}
	if got := ask("victim", 0); got.Header.Get("Idempotency-Replayed") != "true" || got.Body != victim.Body {
		t.Errorf("another client's retry: %d %v", got.Status, got.Header)
	}
	replayed := 0
	for i := range 100 {
		got := ask("other", i)
		switch {
		case got.Header.Get("Idempotency-Replayed") == "true":
			replayed++
		case got.Status != 409 || !strings.Contains(got.Body, "wasn't kept"):
			t.Errorf("retry %d: %d %v", i, got.Status, got.Header)
		case i == 99:
			t.Error("the last answer wasn't kept")
		}
	}
	if replayed < 8 || replayed > 16 {
		t.Errorf("%d answers of a 64th of MaxBytes were kept, want a quarter of that, less the keys", replayed)
	}
	if got := s.DoBody(t, "POST /x", "a", "Idempotency-Key: 0", "Authorization: other"); got.Status != 422 {
		t.Errorf("another request with the key of one whose answer has gone: %v", got)
	}
	for range 2 {
		s.DoBody(t, "POST /huge", "a", "Idempotency-Key: huge", "Authorization: other") // more than the limit of a scope
	}
	if got := ask("other", 99); got.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("what is too large to be kept at all has driven out others: %v", got.Status)
	}
	for path, n := range calls {
		if n != 1 {
			t.Errorf("%s was done %d times", path, n)
		}
	}
}

// When the keys without their answers fill the memory, further keys are refused, those of the scope with too many keys first. No key is
// forgotten before it expires.
func TestMemoryFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := servertest.New(t, idempotency.New(idempotency.Options{
			Scope: scopeOf, MaxBytes: 40_000, MaxScopeBytes: 10_000, TTL: time.Hour,
		})(func(c *filo.Ctx) error { calls++; return c.NoContent() }))
		ask := func(client, key string) int {
			return s.DoBody(t, "POST /", "a", "Idempotency-Key: "+key, "Authorization: "+client).Status
		}
		fill := func(client string, want int) (accepted int) {
			for i := range 100 {
				switch got := ask(client, fmt.Sprint(i)); got {
				case 204:
					accepted++
				case want:
					return accepted
				default:
					t.Fatalf("%s's key %d: %d, want %d", client, i, got, want)
				}
			}
			t.Fatalf("nothing of %s's was refused", client)
			return 0
		}
		total := fill("a", 429)
		if total < 10 || total > 20 {
			t.Errorf("%d keys in 10,000 bytes", total)
		}
		for _, client := range []string{"b", "c", "d"} {
			total += fill(client, 429)
		}
		for i := range 100 { // fills the rest of the store
			if ask(fmt.Sprint("e", i), "0") == 503 {
				break
			}
			total++
		}
		if got := ask("f", "0"); got != 503 {
			t.Errorf("a key that there is no room for: %d", got)
		}
		for _, client := range []string{"a", "b", "c", "d"} {
			if got := ask(client, "0"); got != 204 && got != 409 {
				t.Errorf("a retry of %s: %d", client, got)
			}
		}
		if calls != total {
			t.Errorf("%d requests were done, and %d accepted", calls, total)
		}
		time.Sleep(time.Hour)
		if again := fill("a", 429); again < 10 {
			t.Errorf("%d keys after all have expired", again)
		}
	})
}

// failingKeys is a store whose methods fail with the test's errors. Claim finds the test's record, if there is one.
type failingKeys struct {
	claim, complete error
	found           *idempotency.Record
}

func (s *failingKeys) Claim(_ *filo.Ctx, _ string, record idempotency.Record) (idempotency.Record, bool, error) {
	if s.found != nil {
		s.found.Fingerprint = record.Fingerprint
		return *s.found, false, nil
	}
	return record, true, s.claim
}
func (s *failingKeys) Complete(*filo.Ctx, string, idempotency.Record) (bool, error) {
	return true, s.complete
}
func (s *failingKeys) Release(*filo.Ctx, string, string) error { return s.complete }

// sharedKeys is a store that forgets claims when they expire, as a store for several servers does.
type sharedKeys struct {
	mu      sync.Mutex
	records map[string]idempotency.Record
}

func (s *sharedKeys) Claim(_ *filo.Ctx, key string, record idempotency.Record) (idempotency.Record, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.records[key]; ok && time.Now().Before(found.Expires) {
		return found, false, nil
	}
	s.records[key] = record
	return record, true, nil
}

func (s *sharedKeys) Complete(_ *filo.Ctx, key string, record idempotency.Record) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.records[key]; ok && found.Claim != record.Claim {
		return false, nil
	}
	s.records[key] = record
	return true, nil
}

func (s *sharedKeys) Release(_ *filo.Ctx, key, claim string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records[key].Claim == claim {
		delete(s.records, key)
	}
	return nil
}

// A request that took longer than MaxRun doesn't settle the claim of another request that has claimed the key in the meantime.
func TestLate(t *testing.T) {
	for _, first := range []int{200, 503} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			log := new(strings.Builder)
			store := &sharedKeys{records: make(map[string]idempotency.Record)}
			s := servertest.NewServer(t, &filo.Server{
				Logger: slog.New(slog.NewTextHandler(log, nil)),
				Handler: idempotency.New(idempotency.Options{
					Scope: scopeOf, MaxRun: 2 * time.Second, Store: store,
				})(func(c *filo.Ctx) error {
					n := calls.Add(1)
					if n == 1 {
						time.Sleep(3 * time.Second) // until after the second request has claimed the key, and before it has ended
						return c.Text(first, "the first")
					}
					time.Sleep(1900 * time.Millisecond)
					return c.Text(200, fmt.Sprint("call ", n))
				}),
			})
			answers := make(chan servertest.Answer, 2)
			ask := func() { answers <- s.DoBody(t, "POST /", "a", "Idempotency-Key: a") }
			go ask()
			time.Sleep(2500 * time.Millisecond)
			go ask()
			if got := <-answers; got.Status != first {
				t.Errorf("the first one: %v", got)
			}
			if got := s.DoBody(t, "POST /", "a", "Idempotency-Key: a"); got.Status != 409 || !strings.Contains(got.Body, "being processed") {
				t.Errorf("while the second one runs: %v", got)
			}
			<-answers
			if got := s.DoBody(t, "POST /", "a", "Idempotency-Key: a"); got.Body != "call 2" || calls.Load() != 2 {
				t.Errorf("afterwards: %v, and the handler ran %d times", got, calls.Load())
			}
			if told := strings.Contains(log.String(), "longer than MaxRun"); told != (first == 200) {
				t.Errorf("the log: %s", log)
			}
		})
	}
}

func TestStoreErrors(t *testing.T) {
	failed := errors.New("failed")
	for _, test := range []struct {
		why    string
		store  *failingKeys
		path   string
		status int
	}{
		{"without a claim nothing is done", &failingKeys{claim: failed}, "/", 500},
		{"what was done is answered, though the answer can't be kept", &failingKeys{complete: failed}, "/", 201},
		{"a key that can't be released", &failingKeys{complete: failed}, "/busy", 503},
		{"an answer that is none", &failingKeys{found: &idempotency.Record{Response: []byte("x")}}, "/", 500},
		{"an answer that is cut off", &failingKeys{found: &idempotency.Record{Response: []byte{200, 1, 1, 50}}}, "/", 500},
		{"one with more fields than bytes", &failingKeys{found: &idempotency.Record{Response: []byte{200, 1, 0xFF, 0xFF, 0x7F}}}, "/", 500},
	} {
		h := idempotency.New(idempotency.Options{Scope: scopeOf, Store: test.store})(new(order).serve)
		if got := mwtest.Do(t, h, "POST "+test.path, "Idempotency-Key: a"); got.Status != test.status {
			t.Errorf("%s: %v, want %d", test.why, got, test.status)
		}
	}
}

// A failure to store an answer is logged, unless the Store logs its errors itself and says so by filo.ErrBusy.
func TestStoreErrorsLog(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		records int
	}{
		"a plain error":    {errors.New("down"), 1},
		"one that is busy": {&filo.HTTPError{Status: 503, Err: filo.ErrBusy}, 0},
	} {
		for path, status := range map[string]int{"/": 201, "/busy": 503} { // at / an answer is stored, at /busy a key is released
			var log strings.Builder
			s := servertest.NewServer(t, &filo.Server{
				Handler: idempotency.New(idempotency.Options{Scope: scopeOf, Store: &failingKeys{complete: test.err}})(new(order).serve),
				Logger:  slog.New(slog.NewTextHandler(&log, nil)),
			})
			if got := s.Do(t, "POST "+path, "Idempotency-Key: a"); got.Status != status {
				t.Errorf("%s: %v", name, got)
			}
			if got := strings.Count(log.String(), "storing a response"); got != test.records {
				t.Errorf("%s, %s: %d records, want %d:\n%s", name, path, got, test.records, log.String())
			}
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte{200, 1, 1, 1, 'A', 1, 'b', 'c'})
	f.Add([]byte{200, 1, 0})
	f.Fuzz(func(t *testing.T, response []byte) {
		store := &failingKeys{found: &idempotency.Record{Response: response}}
		h := idempotency.New(idempotency.Options{Scope: scopeOf, Store: store})(mwtest.Hello)
		if response == nil {
			t.Skip("a request that runs")
		}
		mwtest.InHandler(t, "POST /", []string{"Idempotency-Key: a"}, func(c *filo.Ctx) {
			if err := h(c); err == nil && (c.Status() < 200 || c.Status() > 599) {
				t.Errorf("a status of %d", c.Status())
			}
		})
	})
}

func TestOptions(t *testing.T) {
	mwtest.MustPanic(t, "idempotency", map[string]func(){
		"no Scope": func() { idempotency.New(idempotency.Options{}) },
		"a negative TTL": func() {
			idempotency.New(idempotency.Options{Scope: scopeOf, TTL: -1})
		},
		"a negative MaxRun": func() {
			idempotency.New(idempotency.Options{Scope: scopeOf, MaxRun: -1})
		},
		"negative MaxBodyBytes": func() {
			idempotency.New(idempotency.Options{Scope: scopeOf, MaxBodyBytes: -1})
		},
		"negative MaxBytes": func() {
			idempotency.New(idempotency.Options{Scope: scopeOf, MaxBytes: -1})
		},
		"negative MaxScopeBytes": func() {
			idempotency.New(idempotency.Options{Scope: scopeOf, MaxScopeBytes: -1})
		},
		"a method that isn't one": func() {
			idempotency.New(idempotency.Options{Scope: scopeOf, Methods: []string{"PO ST"}})
		},
		"a new line in the method": func() {
			idempotency.New(idempotency.Options{Scope: scopeOf, Methods: []string{"A\r\nB"}})
		},
	})
}

func ExampleNew() {
	orders := 0
	h := idempotency.New(idempotency.Options{Scope: scopeOf})(func(c *filo.Ctx) error {
		orders++
		return c.Text(201, fmt.Sprint("order ", orders))
	})
	mwtest.Show(h, []string{"Idempotency-Replayed"}, "POST /orders", `Idempotency-Key: "7da7a728"`)
	mwtest.Show(h, []string{"Idempotency-Replayed"}, "POST /orders", `Idempotency-Key: "7da7a728"`)
	// Output:
	// 201 order 1
	// 201 order 1
	// Idempotency-Replayed: true
}

func BenchmarkNew(b *testing.B) {
	h := idempotency.New(idempotency.Options{Scope: scopeOf})(mwtest.Hello)
	b.Run("none", func(b *testing.B) { mwtest.Benchmark(b, h, "POST /") })
	b.Run("replayed", func(b *testing.B) { mwtest.Benchmark(b, h, "POST /", "Idempotency-Key: a") })
}

// The store doesn't keep the key of a request that was refused with 401 or 403. So a flood of requests with made-up names leaves room for
// other clients.
func TestUnauthorized(t *testing.T) {
	for _, refusal := range []int{401, 403} {
		m := idempotency.New(idempotency.Options{Scope: scopeOf, MaxBytes: 64 << 10})
		s := servertest.New(t, m(func(c *filo.Ctx) error {
			if c.Request.Header.Get("Authorization") != "known" {
				return filo.Error(refusal, "")
			}
			return mwtest.Hello(c)
		}))
		for i := range 300 {
			if got := s.Do(t, "POST /", "Idempotency-Key: a", fmt.Sprintf("Authorization: %d", i)); got.Status != refusal {
				t.Fatalf("request %d: %v, want %d", i, got, refusal)
			}
		}
		if got := s.Do(t, "POST /", "Idempotency-Key: a", "Authorization: known"); got.Status != 200 {
			t.Errorf("behind refusals with %d: %v", refusal, got)
		}
	}
}

// In a flood of keys for which there is no room, refusals aren't logged one by one, but by their number.
func TestMemoryFullLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := servertest.NewServer(t, &filo.Server{
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			Handler: idempotency.New(idempotency.Options{Scope: scopeOf, MaxBytes: 500, MaxScopeBytes: 1000})(
				func(c *filo.Ctx) error { return c.NoContent() }),
		})
		refused := 0
		ask := func() {
			if got := s.Do(t, "POST /", "Idempotency-Key: a", fmt.Sprintf("Authorization: %d", refused)); got.Status != 503 {
				t.Fatalf("request %d: %v, want 503", refused, got)
			}
			refused++
		}
		for range 100 {
			ask()
		}
		time.Sleep(10 * time.Second)
		ask()
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, " refused=1\n") || !strings.Contains(got, " refused=100\n") {
			t.Errorf("logged:\n%s", got)
		}
	})
}

// The program that repeats a request may differ from the program that has sent the first one. It never gets a coding that it doesn't accept.
func TestCodings(t *testing.T) {
	text := strings.Repeat("order ", 1000)
	plain := func(c *filo.Ctx) error { return c.Text(200, text) }
	encoded := func(c *filo.Ctx) error {
		c.Response.Header.Set("Content-Encoding", "gzip")
		return c.Text(200, text) // the test doesn't decode it
	}
	keep := idempotency.New(idempotency.Options{Scope: scopeOf})
	for _, test := range []struct {
		why           string
		handler       filo.Handler
		first, second string
		status        int
		coding        string
	}{
		{"inside of idempotency nothing is compressed", mwtest.Wrap(plain, keep, middleware.Compress()), "gzip", "identity", 200, ""},
		{"outside it is", mwtest.Wrap(plain, middleware.Compress(), keep), "gzip", "zstd", 200, "zstd"},
		{"outside it isn't for those who don't accept it", mwtest.Wrap(plain, middleware.Compress(), keep), "gzip", "br", 200, ""},
		{"a client that refuses what is uncompressed", mwtest.Wrap(plain, keep, middleware.Compress()), "gzip, identity;q=0", "identity", 406, ""},
		{"twice", mwtest.Wrap(plain, keep, middleware.Compress()), "gzip, identity;q=0", "*", 200, "gzip"},
		{"a handler's own", mwtest.Wrap(encoded, keep), "gzip", "zstd", 406, ""},
		{"a handler's own that is accepted", mwtest.Wrap(encoded, keep), "gzip", "gzip;q=0.1", 200, "gzip"},
		{"a handler's own that is refused", mwtest.Wrap(encoded, keep), "gzip", "*, gzip;q=0", 406, ""},
	} {
		s := servertest.New(t, test.handler)
		key := fmt.Sprintf("Idempotency-Key: %q", test.why)
		if got := s.Do(t, "POST /", key, "Accept-Encoding: "+test.first); got.Status != 200 {
			t.Errorf("%s: first %d", test.why, got.Status)
		}
		got := s.Do(t, "POST /", key, "Accept-Encoding: "+test.second)
		if got.Status != test.status || got.Header.Get("Content-Encoding") != test.coding {
			t.Errorf("%s: %d, %q, want %d, %q", test.why, got.Status, got.Header.Get("Content-Encoding"), test.status, test.coding)
		}
	}
}

// If middleware outside has read a part of the body, two different bodies aren't treated as equal.
func TestBodyReadBefore(t *testing.T) {
	form := func(value string) string {
		return "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + value + "\r\n--x--\r\n"
	}
	for _, test := range []struct {
		why          string
		read         func(c *filo.Ctx) error
		first, other int
	}{
		{"all of it", func(c *filo.Ctx) error { _, err := io.Copy(io.Discard, c.BodyReader()); return err }, 500, 500},
		{"a byte", func(c *filo.Ctx) error { _, err := io.ReadFull(c.BodyReader(), make([]byte, 1)); return err }, 500, 500},
		{"a byte, by a decoder", func(c *filo.Ctx) error {
			c.Request.SetBodyReader(io.MultiReader(c.BodyReader()))
			_, err := io.ReadFull(c.BodyReader(), make([]byte, 1))
			return err
		}, 500, 500},
		{"as a form", func(c *filo.Ctx) error { _, err := c.Request.MultipartForm(); return err }, 500, 500},
		{"as a whole", func(c *filo.Ctx) error { _, err := c.Body(); return err }, 201, 422},
		{"not at all, by a decoder", func(c *filo.Ctx) error {
			c.Request.SetBodyReader(io.MultiReader(c.BodyReader()))
			return nil
		}, 201, 422},
	} {
		for _, chunked := range []bool{false, true} {
			o := &order{}
			outer := func(next filo.Handler) filo.Handler {
				return func(c *filo.Ctx) error {
					if err := test.read(c); err != nil {
						return err
					}
					return next(c)
				}
			}
			s := servertest.New(t, mwtest.Wrap(o.serve, outer, idempotency.New(idempotency.Options{Scope: scopeOf})))
			for _, step := range []struct {
				value string
				want  int
			}{{"alice", test.first}, {"bobby", test.other}} {
				body, fields := form(step.value), []string{"Idempotency-Key: a", "Content-Type: multipart/form-data; boundary=x"}
				if chunked {
					body, fields = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body), append(fields, "Transfer-Encoding: chunked")
				}
				if got := s.DoBody(t, "POST /", body, fields...); got.Status != step.want {
					t.Errorf("%s was read, chunked %t: %s gets %v, want %d", test.why, chunked, step.value, got, step.want)
				}
			}
		}
	}
}
