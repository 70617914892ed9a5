package redisfilo_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/filohttp/filo"
	redisfilo "github.com/filohttp/filo/contrib/redis"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/middleware/idempotency"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/middleware/session"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
	"github.com/redis/go-redis/v9"
)

// eachRedis runs a test with redis-server, and with miniredis, which imitates it and needs no installation.
func eachRedis(t *testing.T, test func(t *testing.T, r *redisfilo.Redis)) {
	t.Run("miniredis", func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), ContextTimeoutEnabled: true})
		t.Cleanup(func() { client.Close() })
		test(t, redisfilo.New(client, redisfilo.Options{Timeout: patience}))
	})
	t.Run("redis-server", func(t *testing.T) { test(t, startRedis(t, false).connect(redisfilo.Options{Timeout: patience})) })
}

func TestSessions(t *testing.T) {
	eachRedis(t, func(t *testing.T, r *redisfilo.Redis) {
		store := r.Sessions(redisfilo.Refuse)
		within(t, func(c *filo.Ctx) {
			if got, err := store.Load(c, "a"); err != nil || got.Version != 0 {
				t.Errorf("an absent session is %+v, %v", got, err)
			}
			record := session.Record{Data: []byte("one\x00"), Expires: time.Now().Add(time.Hour)}
			if saved, err := store.Save(c, "a", record); !saved || err != nil {
				t.Errorf("saved: %v, %v", saved, err)
			}
			outdated := session.Record{Data: []byte("another"), Expires: record.Expires}
			if saved, err := store.Save(c, "a", outdated); saved || err != nil {
				t.Errorf("saved with an old version: %v, %v", saved, err)
			}
			got, err := store.Load(c, "a")
			if err != nil || got.Version != 1 || string(got.Data) != "one\x00" || got.Expires.Sub(record.Expires).Abs() > time.Second {
				t.Errorf("loaded %+v, %v", got, err)
			}
			if saved, err := store.Save(c, "a", got); !saved || err != nil {
				t.Error(saved, err)
			}
			if err := store.Delete(c, "a"); err != nil {
				t.Error(err)
			}
			got.Version = 2 // as in a request that has loaded the session before the deletion
			if saved, err := store.Save(c, "a", got); saved || err != nil {
				t.Errorf("a deleted session came back: %v, %v", saved, err)
			}
		})
		var saved, requests atomic.Int32
		s := servertest.New(t, func(c *filo.Ctx) error {
			data := fmt.Append(nil, requests.Add(1))
			ok, err := store.Save(c, "contended", session.Record{Data: data, Expires: time.Now().Add(time.Hour)})
			if ok {
				saved.Add(1)
			}
			return err
		})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if got := s.Do(t, "GET /"); got.Status != 200 {
					t.Error(got)
				}
			})
		}
		all.Wait()
		if saved.Load() != 1 {
			t.Errorf("%d of 20 have saved the same version", saved.Load())
		}
	})
}

func TestRateLimits(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, r *redisfilo.Redis) {
		logins, again, searches := r.RateLimits("logins", redisfilo.Refuse), r.RateLimits("logins", redisfilo.Refuse), r.RateLimits("searches", redisfilo.Refuse)
		quota := ratelimit.Quota{Limit: 7, Burst: 3, Window: time.Hour}
		within(t, func(c *filo.Ctx) {
			for i, step := range []struct {
				store     ratelimit.Store
				key       string
				allowed   bool
				remaining int
			}{
				{logins, "a", true, 2}, {again, "a", true, 1}, {logins, "a", true, 0}, {again, "a", false, 0},
				{logins, "b", true, 2}, {searches, "a", true, 2},
			} {
				got, err := step.store.Take(c, []byte(step.key), quota)
				if err != nil || got.Allowed != step.allowed || got.Remaining != step.remaining {
					t.Errorf("%d: got %+v, %v", i, got, err)
				}
				interval := quota.Window / time.Duration(quota.Limit)
				if taken := time.Duration(quota.Burst - step.remaining); (got.Reset - taken*interval).Abs() > patience {
					t.Errorf("%d: reset after %v", i, got.Reset)
				}
				if wait := !step.allowed; wait != (got.RetryAfter > interval-patience) || got.RetryAfter > interval {
					t.Errorf("%d: retry after %v", i, got.RetryAfter)
				}
			}
			for range quota.Burst + 1 { // more requests than were taken
				if err := logins.Return(c, []byte("a"), quota); err != nil {
					t.Error(err)
				}
			}
			if got, err := again.Take(c, []byte("a"), quota); err != nil || !got.Allowed || got.Remaining != quota.Burst-1 {
				t.Errorf("when all were given back: got %+v, %v", got, err)
			}
			// A key that has its whole burst again behaves like a new key.
			short := ratelimit.Quota{Limit: 1, Burst: 1, Window: time.Second}
			poll(t, "a request to be refused", func() bool {
				got, err := logins.Take(c, []byte("short"), short)
				return err == nil && !got.Allowed
			})
			poll(t, "another request to be allowed", func() bool {
				got, _ := logins.Take(c, []byte("short"), short)
				return got.Allowed
			})
		})
	})
}

func TestIdempotency(t *testing.T) {
	eachRedis(t, func(t *testing.T, r *redisfilo.Redis) {
		store := r.Idempotency(redisfilo.Refuse)
		within(t, func(c *filo.Ctx) {
			record := func(claim, answer string) idempotency.Record {
				r := idempotency.Record{Fingerprint: [32]byte{1, 0, 3}, Claim: claim, Expires: time.Now().Add(time.Hour)}
				if answer != "" {
					r.Response = []byte(strings.TrimPrefix(answer, "-"))
				}
				return r
			}
			claim := func(key, claim, holder string, first bool, response []byte) {
				t.Helper()
				got, ok, err := store.Claim(c, key, record(claim, ""))
				if err != nil || ok != first || got.Claim != holder || got.Fingerprint != [32]byte{1, 0, 3} || (got.Response == nil) != (response == nil) || string(got.Response) != string(response) {
					t.Errorf("claim of %s by %s: got %+v, %v, %v", key, claim, got, ok, err)
				}
			}
			claim("a", "one", "one", true, nil)
			claim("a", "two", "one", false, nil)
			claim("a", "one", "one", true, nil) // as if go-redis had sent the claim again
			for _, step := range []struct {
				claim string
				kept  bool
			}{{"two", false}, {"one", true}, {"one", true}} {
				if kept, err := store.Complete(c, "a", record(step.claim, "answer\x00\xff")); err != nil || kept != step.kept {
					t.Errorf("complete by %s: %v, %v", step.claim, kept, err)
				}
			}
			claim("a", "two", "one", false, []byte("answer\x00\xff"))
			claim("b", "one", "one", true, nil)
			if err := store.Release(c, "b", "two"); err != nil {
				t.Error(err)
			}
			claim("b", "two", "one", false, nil)
			if err := store.Release(c, "b", "one"); err != nil {
				t.Error(err)
			}
			claim("b", "two", "two", true, nil)
			if kept, err := store.Complete(c, "b", record("two", "-")); err != nil || !kept {
				t.Error(kept, err)
			}
			claim("b", "three", "two", false, []byte{}) // done, without an answer
		})
	})
}

func TestCache(t *testing.T) {
	eachRedis(t, func(t *testing.T, r *redisfilo.Redis) {
		store := r.Cache(redisfilo.Refuse)
		within(t, func(c *filo.Ctx) {
			if got, err := store.Get(c, "k\x00"); got != nil || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			if err := store.Put(c, "k\x00", []byte("v\xff"), time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
			if got, err := store.Get(c, "k\x00"); string(got) != "v\xff" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			if err := store.Remove(c, "k\x00"); err != nil {
				t.Error(err)
			}
			if got, err := store.Get(c, "k\x00"); got != nil || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	})
}

// routes is an application with all stores.
func routes(r *redisfilo.Redis, when redisfilo.WhenDown) filo.Handler {
	scope := func(*filo.Ctx) []byte { return []byte("everybody") }
	say := func(text string) filo.Handler {
		return func(c *filo.Ctx) error { return c.Text(200, text) }
	}
	routes := router.New()
	routes.GET("/limited", say("fine"), ratelimit.New(1e6, time.Minute, ratelimit.Options{Store: r.RateLimits("all", when)}))
	routes.POST("/once", say("fine"), idempotency.New(idempotency.Options{Scope: scope, Store: r.Idempotency(when)}))
	routes.GET("/cached", say("fine"), cache.New(cache.Options{TTL: time.Minute, Store: r.Cache(when)}))
	sessions := session.New(session.Options{Store: r.Sessions(when), Insecure: true})
	routes.GET("/user", func(c *filo.Ctx) error {
		s, err := session.Get(c)
		if err != nil {
			return err
		}
		return c.Text(200, "user "+s.Get("user"))
	}, sessions)
	routes.POST("/login", func(c *filo.Ctx) error {
		s, err := session.Get(c)
		if err != nil {
			return err
		}
		s.Set("user", "ann")
		return c.Text(200, "welcome")
	}, sessions)
	return routes.Serve
}

// application starts a server of routes.
func application(t *testing.T, r *redisfilo.Redis, when redisfilo.WhenDown, log *slog.Logger) *servertest.Server {
	return servertest.NewServer(t, &filo.Server{Handler: routes(r, when), Logger: log})
}

// While Redis is down after a kill, requests are refused, or served without the stores, as the argument of each store says. The log has one
// record of the outage, however many requests there are.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	for _, when := range []redisfilo.WhenDown{redisfilo.Refuse, redisfilo.Open} {
		t.Run(map[redisfilo.WhenDown]string{redisfilo.Refuse: "refuse", redisfilo.Open: "open"}[when], func(t *testing.T) {
			var log records
			redis := startRedis(t, true)
			r := redis.connect(redisfilo.Options{Logger: log.logger()})
			s := application(t, r, when, log.logger())
			login := s.Do(t, "POST /login")
			cookie, _, _ := strings.Cut(login.Header.Get("Set-Cookie"), ";")
			fields := []string{"Cookie: " + cookie, `Idempotency-Key: "k"`}
			fieldsOf := func(request string) []string {
				if request == "GET /cached" {
					return nil // an answer to a request with cookies isn't stored
				}
				return fields
			}
			requests := []string{"GET /limited", "POST /once", "GET /cached", "GET /user", "POST /login"}
			for _, request := range requests {
				if got := s.Do(t, request, fieldsOf(request)...); got.Status != 200 {
					t.Errorf("%s: %v", request, got)
				}
			}
			if got := s.Do(t, "GET /user", fields...); got.Body != "user ann" {
				t.Errorf("the session has got lost: %v", got)
			}
			redis.kill()
			for range 10 {
				for _, request := range requests {
					want := 503
					if when == redisfilo.Open && request != "POST /login" {
						want = 200
					}
					got := s.Do(t, request, fieldsOf(request)...)
					if got.Status != want || (got.Header.Get("Retry-After") != "") != (want == 503) {
						t.Errorf("without Redis: %s: %v, want %d", request, got, want)
					}
				}
			}
			within(t, func(c *filo.Ctx) {
				if record, err := r.Sessions(when).Load(c, "x"); errors.Is(err, redisfilo.ErrDown) == errors.Is(record.Unknown, redisfilo.ErrDown) {
					t.Errorf("without Redis: Load returned %v, and a record with %v", err, record.Unknown)
				}
			})
			if down := log.count("level=ERROR"); down != 1 || log.count("Redis doesn't answer") == 0 {
				t.Errorf("there are %d records of errors:\n%s", down, &log.text)
			}
			redis.start()
			poll(t, "Redis to be used again", func() bool { return s.Do(t, "POST /login").Status == 200 })
			if got := s.Do(t, "GET /user", fields...); got.Body != "user ann" {
				t.Errorf("the session has got lost: %v", got)
			}
			if log.count("answers again") != 1 {
				t.Errorf("there is no record of Redis' return:\n%s", &log.text)
			}
		})
	}
}

// A Redis that doesn't answer, but keeps its connections open, delays each of the first requests by the time-out, and doesn't delay later
// requests.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	redis := startRedis(t, false)
	r := redis.connect(redisfilo.Options{Timeout: 300 * time.Millisecond})
	s := application(t, r, redisfilo.Refuse, slog.New(slog.DiscardHandler))
	poll(t, "Redis to be used", func() bool { return s.Do(t, "GET /limited").Status == 200 })
	redis.signal(syscall.SIGSTOP)
	const requests = 60
	for i := range requests {
		if got := s.Do(t, "GET /limited"); got.Status != 503 {
			t.Fatalf("request %d: %v", i, got)
		}
	}
	if n := figure(r, "filo_redis_errors_total", "store", "ratelimits/all", "kind", "skipped"); n < requests/3 {
		t.Errorf("%v of %d requests didn't wait for Redis", n, requests)
	}
	if err := r.Check(t.Context()); !errors.Is(err, redisfilo.ErrDown) || !errors.Is(err, filo.ErrBusy) {
		t.Errorf("got %v", err)
	}
	redis.signal(syscall.SIGCONT)
	poll(t, "Redis to be used again", func() bool { return s.Do(t, "GET /limited").Status == 200 })
	poll(t, "the check", func() bool { return r.Check(t.Context()) == nil })
}

// A value that another program has stored leads to an error that names the key.
func TestForeignValues(t *testing.T) {
	server := startRedis(t, false)
	r, client := server.connect(redisfilo.Options{Prefix: "p:"}), server.client()
	defer client.Close()
	within(t, func(c *filo.Ctx) {
		for _, key := range []string{"p:session:x", "p:idempotency:x"} {
			if err := client.Set(t.Context(), key, "short", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Sessions(redisfilo.Open).Load(c, "x"); err == nil || !strings.Contains(err.Error(), `"p:session:x"`) {
			t.Errorf("got %v", err)
		}
		if _, _, err := r.Idempotency(redisfilo.Open).Claim(c, "x", idempotency.Record{Claim: "c", Expires: time.Now().Add(time.Hour)}); err == nil || !strings.Contains(err.Error(), `"p:idempotency:x"`) {
			t.Errorf("got %v", err)
		}
	})
}

func TestNewPanics(t *testing.T) {
	strict := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer strict.Close()
	lax := redis.NewClient(&redis.Options{})
	defer lax.Close()
	for want, f := range map[string]func(){
		"ContextTimeoutEnabled": func() { redisfilo.New(lax) },
		"needs a client":        func() { redisfilo.New(nil) },
		"Timeout":               func() { redisfilo.New(strict, redisfilo.Options{Timeout: -1}) },
		"ConnectTimeout":        func() { redisfilo.New(strict, redisfilo.Options{ConnectTimeout: -1}) },
		"one Options":           func() { redisfilo.New(strict, redisfilo.Options{}, redisfilo.Options{}) },
		"MaxLen":                func() { redisfilo.New(strict).Stream("s", redisfilo.StreamOptions{MaxLen: -1}) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("%s: got %q", want, got)
				}
			}()
			f()
		}()
	}
}
