package redisfilo_test

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	redisfilo "github.com/filohttp/filo/contrib/redis"
	"github.com/filohttp/filo/middleware/idempotency"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/middleware/session"
	"github.com/redis/go-redis/v9"
)

// together calls f in n goroutines at once, and returns how many calls have succeeded.
func together(n int, f func() error) int {
	var succeeded atomic.Int64
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if f() == nil {
				succeeded.Add(1)
			}
		})
	}
	all.Wait()
	return int(succeeded.Load())
}

// figure returns a figure, or -1 if there is none.
func figure(r *redisfilo.Redis, name string, labels ...string) float64 {
	found := -1.0
	r.Figures(func(each, help string, counts bool, value float64, its ...string) {
		if each == name && strings.Join(its, ",") == strings.Join(labels, ",") {
			found = value
		}
	})
	return found
}

// A Redis may take less than Timeout for an answer, but more than Timeout for a new connection. After a silence in which all connections were
// lost, such a Redis is used again, since making a connection may take ConnectTimeout. The brokers' hubs get messages again, too.
func TestSlowRedisComesBack(t *testing.T) {
	t.Parallel()
	const delay, calls = 300 * time.Millisecond, 16
	server := startRedis(t, false)
	l := newLink(t, filepath.Join(server.dir, "s"))
	var log records
	r := redisfilo.New(l.client(t, calls+8), redisfilo.Options{Timeout: 3 * delay, ConnectTimeout: patience, Logger: log.logger()})
	news := r.Stream("news")
	follow(t, news)
	l.slow(delay)
	for _, when := range []string{"at the start", "after a silence"} {
		poll(t, "all calls to succeed "+when, func() bool {
			return together(calls, func() error { return r.Check(t.Context()) }) == calls
		})
		poll(t, "the broker to be connected "+when, func() bool { return news.Err() == nil })
		if when == "after a silence" {
			break
		}
		l.silence(true)
		poll(t, "calls to fail at once", func() bool {
			err := r.Check(t.Context())
			return err != nil && strings.Contains(err.Error(), "the last calls have failed")
		})
		l.silence(false)
	}
	if log.count("Redis answers again") == 0 {
		t.Errorf("there is no record of Redis' return:\n%s", &log.text)
	}
}

// If there are too few connections, calls that wait for one in vain don't count as an outage while other calls are answered.
func TestCrowdedPool(t *testing.T) {
	t.Parallel()
	server := startRedis(t, false)
	l := newLink(t, filepath.Join(server.dir, "s"))
	var log records
	r := redisfilo.New(l.client(t, 1), redisfilo.Options{Timeout: 4 * time.Second, Logger: log.logger()})
	poll(t, "a connection", func() bool { return r.Check(t.Context()) == nil })
	l.slow(100 * time.Millisecond)
	var strange atomic.Pointer[error]
	together(100, func() error {
		err := r.Check(t.Context())
		if err != nil && (!errors.Is(err, redisfilo.ErrDown) || !strings.Contains(err.Error(), "no connection was ready in time")) {
			strange.Store(&err)
		}
		return err
	})
	if err := strange.Load(); err != nil {
		t.Errorf("got %v", *err)
	}
	if log.count("doesn't answer") != 0 || log.count("wait too long for a connection") != 1 {
		t.Errorf("the log has\n%s", &log.text)
	}
	if n := figure(r, "filo_redis_errors_total", "store", "check", "kind", "busy"); n < 1 {
		t.Errorf("%v calls count as having waited too long", n)
	}
	poll(t, "another call to succeed", func() bool { return r.Check(t.Context()) == nil })
	if figure(r, "filo_redis_up", "store", "check", "access", "read") != 1 {
		t.Error("Redis counts as down")
	}
}

// While Redis is too slow for calls to make connections, a call fails at once if no connection is free. When Redis is quick again, calls wait
// for connections.
func TestCrowdedSlowPool(t *testing.T) {
	t.Parallel()
	const delay, callers = 300 * time.Millisecond, 8
	server := startRedis(t, false)
	l := newLink(t, filepath.Join(server.dir, "s"))
	var log records
	r := redisfilo.New(l.client(t, 2), redisfilo.Options{Timeout: 3 * delay, ConnectTimeout: patience, Logger: log.logger()})
	l.slow(delay)
	var succeeded atomic.Int64
	poll(t, "calls to succeed, and others to be refused at once", func() bool {
		succeeded.Add(int64(together(callers, func() error { return r.Check(t.Context()) })))
		return succeeded.Load() > 20 && figure(r, "filo_redis_errors_total", "store", "check", "kind", "busy") > 20
	})
	l.slow(0)
	poll(t, "all calls to wait for connections", func() bool {
		return together(callers, func() error { return r.Check(t.Context()) }) == callers
	})
}

// While Redis is slow, calls don't make connections. If Redis dies in that state, it is nevertheless recognized as down, since connecting fails
// in the background.
func TestSlowRedisDies(t *testing.T) {
	t.Parallel()
	const delay = 300 * time.Millisecond
	server := startRedis(t, false)
	l := newLink(t, filepath.Join(server.dir, "s"))
	var log records
	r := redisfilo.New(l.client(t, 4), redisfilo.Options{Timeout: 3 * delay, ConnectTimeout: patience, Logger: log.logger()})
	l.slow(delay)
	poll(t, "Redis to be known as slow", func() bool {
		together(4, func() error { return r.Check(t.Context()) })
		return figure(r, "filo_redis_errors_total", "store", "check", "kind", "busy") > 0
	})
	poll(t, "a call to succeed", func() bool { return r.Check(t.Context()) == nil })
	server.kill()
	up := func() float64 { return figure(r, "filo_redis_up", "store", "check", "access", "read") }
	poll(t, "Redis to count as down", func() bool {
		r.Check(t.Context())
		return up() == 0 && log.count("Redis doesn't answer") == 1
	})
	l.slow(0)
	server.start()
	poll(t, "Redis to count as up", func() bool { return r.Check(t.Context()) == nil && up() == 1 })
}

// A full Redis reads but doesn't write. The log, the figures and the check say so until it writes again.
func TestFullRedis(t *testing.T) {
	server := startRedis(t, false)
	client := server.client()
	defer client.Close()
	memory := func(limit string) {
		t.Helper()
		if err := client.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var log records
	r := server.connect(redisfilo.Options{Timeout: patience, Logger: log.logger()})
	s := application(t, r, redisfilo.Refuse, slog.New(slog.DiscardHandler))
	login := func(want int) *string {
		t.Helper()
		got := s.Do(t, "POST /login")
		if got.Status != want {
			t.Errorf("a login: %v, want %d", got, want)
		}
		cookie, _, _ := strings.Cut(got.Header.Get("Set-Cookie"), ";")
		return &cookie
	}
	up := func(store, access string) float64 {
		return figure(r, "filo_redis_up", "store", store, "access", access)
	}
	cookie := login(200)
	memory("1")
	for range 10 {
		login(503)
		if got := s.Do(t, "GET /user", "Cookie: "+*cookie); got.Body != "user ann" {
			t.Errorf("a full Redis still reads: %v", got)
		}
	}
	if up("sessions", "read") != 1 || up("sessions", "write") != 0 || up("ratelimits/all", "write") != 0 {
		t.Errorf("the figures are wrong: %v, %v, %v", up("sessions", "read"), up("sessions", "write"), up("ratelimits/all", "write"))
	}
	if n := figure(r, "filo_redis_errors_total", "store", "sessions", "kind", "full"); n != 10 {
		t.Errorf("%v calls have failed", n)
	}
	if err := r.Check(t.Context()); !errors.Is(err, redisfilo.ErrDown) || !strings.Contains(err.Error(), "OOM") || strings.Contains(err.Error(), filo.ErrBusy.Error()) {
		t.Errorf("the check says %v", err)
	}
	if log.count("refuses to write") != 1 || log.count("again") != 0 || log.count("doesn't answer") != 0 {
		t.Errorf("the log has\n%s", &log.text)
	}
	memory("0")
	// Any call makes the package notice that Redis writes again, even a call that only reads.
	poll(t, "Redis to count as one that writes", func() bool {
		s.Do(t, "GET /user", "Cookie: "+*cookie)
		return up("sessions", "write") == 1
	})
	login(200)
	if err := r.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if log.count("writes again") != 1 {
		t.Errorf("the log has\n%s", &log.text)
	}
}

// Reading the figures of a Redis that was down or full starts a check: otherwise, if no call used Redis for hours, the figures would be wrong
// for hours.
func TestFiguresOfIdle(t *testing.T) {
	t.Parallel()
	server := startRedis(t, false)
	client := server.client()
	defer client.Close()
	r := server.connect(redisfilo.Options{Timeout: 5 * time.Second})
	up := func(access string) float64 { return figure(r, "filo_redis_up", "store", "check", "access", access) }
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if r.Check(t.Context()) == nil || up("write") != 0 {
		t.Error("a full Redis counts as one that writes")
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	poll(t, "the figures to say that Redis writes", func() bool { return up("write") == 1 })
	server.kill()
	poll(t, "Redis to be down", func() bool { return r.Check(t.Context()) != nil && up("read") == 0 })
	server.start()
	poll(t, "the figures to say that Redis answers", func() bool { return up("read") == 1 })
}

// An unlimited number of names, such as a channel for each chat, doesn't create an unlimited number of figures.
func TestManyNames(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer client.Close()
	r := redisfilo.New(client, redisfilo.Options{Timeout: patience, Logger: slog.New(slog.DiscardHandler)})
	for i := range 1000 {
		r.Channel(fmt.Sprint(i))
	}
	stores := 0
	r.Figures(func(name, _ string, _ bool, _ float64, _ ...string) {
		if name == "filo_redis_calls_total" {
			stores++
		}
	})
	if stores > 101 {
		t.Errorf("there are figures of %d stores", stores)
	}
	if n := figure(r, "filo_redis_calls_total", "store", "other"); n != 0 {
		t.Errorf("there are %v calls of the other stores", n)
	}
}

// An error about one key or one command isn't treated as a state of Redis.
func TestOneKeyRefused(t *testing.T) {
	server := startRedis(t, false)
	client := server.client()
	defer client.Close()
	var log records
	r := server.connect(redisfilo.Options{Timeout: patience, Logger: log.logger()})
	if err := client.LPush(t.Context(), "filo:session:x", "").Err(); err != nil {
		t.Fatal(err)
	}
	within(t, func(c *filo.Ctx) {
		if _, err := r.Sessions(redisfilo.Refuse).Load(c, "x"); !errors.Is(err, redisfilo.ErrDown) {
			t.Errorf("got %v", err)
		}
	})
	if figure(r, "filo_redis_up", "store", "sessions", "access", "read") != 1 || log.count("Redis refuses a call") != 1 {
		t.Errorf("the log has\n%s", &log.text)
	}
}

// When a reply is lost, go-redis repeats a command that Redis has executed already. The outcome is the same as if the reply had arrived.
func TestLostReplies(t *testing.T) {
	server := startRedis(t, false)
	l := newLink(t, filepath.Join(server.dir, "s"))
	r := redisfilo.New(l.client(t, 1), redisfilo.Options{Timeout: patience})
	sessions, keys, limits := r.Sessions(redisfilo.Refuse), r.Idempotency(redisfilo.Refuse), r.RateLimits("all", redisfilo.Refuse)
	stream, channel := r.Stream("s"), r.Channel("c")
	expires := time.Now().Add(time.Hour)
	quota := ratelimit.Quota{Limit: 1000, Burst: 10, Window: time.Hour}
	claim := idempotency.Record{Claim: "claim", Expires: expires}
	answer := idempotency.Record{Claim: "claim", Expires: expires, Response: []byte("answer")}
	published := func(number uint64, err error) string {
		return fmt.Sprint(number > 0, err)
	}
	within(t, func(c *filo.Ctx) {
		for _, step := range []struct {
			name, want string
			do         func(key string) string
		}{
			{"save a session", "true <nil>", func(key string) string {
				return fmt.Sprint(sessions.Save(c, key, session.Record{Data: []byte(key), Expires: expires}))
			}},
			{"save it again", "true <nil>", func(key string) string {
				return fmt.Sprint(sessions.Save(c, key, session.Record{Data: []byte(key + "2"), Version: 1, Expires: expires}))
			}},
			{"its version", "2 <nil>", func(key string) string {
				record, err := sessions.Load(c, key)
				return fmt.Sprint(record.Version, err)
			}},
			{"delete it", "<nil>", func(key string) string { return fmt.Sprint(sessions.Delete(c, key)) }},
			{"take", "true 9 <nil>", func(key string) string {
				state, err := limits.Take(c, []byte(key), quota)
				return fmt.Sprint(state.Allowed, state.Remaining, err)
			}},
			{"take again", "true 8 <nil>", func(key string) string {
				state, err := limits.Take(c, []byte(key), quota)
				return fmt.Sprint(state.Allowed, state.Remaining, err)
			}},
			{"give back", "<nil>", func(key string) string { return fmt.Sprint(limits.Return(c, []byte(key), quota)) }},
			{"take what was given back", "true 8 <nil>", func(key string) string {
				state, err := limits.Take(c, []byte(key), quota)
				return fmt.Sprint(state.Allowed, state.Remaining, err)
			}},
			{"claim", "claimtrue <nil>", func(key string) string {
				record, first, err := keys.Claim(c, key, claim)
				return fmt.Sprint(record.Claim, first, err)
			}},
			{"complete", "true <nil>", func(key string) string { return fmt.Sprint(keys.Complete(c, key, answer)) }},
			{"release", "<nil>", func(key string) string { return fmt.Sprint(keys.Release(c, key, "claim")) }},
			{"publish in a stream", "true <nil>", func(string) string { return published(stream.Publish(t.Context(), "t", nil)) }},
			{"publish in a channel", "true <nil>", func(string) string { return published(channel.Publish(t.Context(), "t", nil)) }},
		} {
			if got := step.do("plain"); got != step.want { // this also makes the connection, and loads the script
				t.Errorf("%s: %s, want %s", step.name, got, step.want)
			}
			l.lose()
			if got := step.do("repeated"); got != step.want {
				t.Errorf("%s, when its reply is lost: %s, want %s", step.name, got, step.want)
			}
			if l.loses() {
				t.Errorf("%s: no reply was lost", step.name)
			}
		}
	})
}

// A claim whose answer arrives too late is undone in Redis, because its request was refused: a repetition of the request must be executed.
func TestLateClaims(t *testing.T) {
	t.Parallel()
	const claims = 10
	server := startRedis(t, false)
	l := newLink(t, filepath.Join(server.dir, "s"))
	discard := slog.New(slog.DiscardHandler)
	r := redisfilo.New(l.client(t, claims), redisfilo.Options{Timeout: time.Second, Logger: discard})
	s := application(t, r, redisfilo.Refuse, discard)
	post := func(key string) int { return s.DoBody(t, "POST /once", "", "Idempotency-Key: "+key).Status }
	var last atomic.Int64
	poll(t, "connections", func() bool {
		return together(claims, func() error {
			if status := post(fmt.Sprint("first", last.Add(1))); status != 200 {
				return fmt.Errorf("status %d", status)
			}
			return nil
		}) == claims
	})
	l.silence(true)
	last.Store(0)
	together(claims, func() error {
		if status := post(fmt.Sprint("late", last.Add(1))); status != 503 {
			t.Errorf("while Redis is silent: status %d", status)
		}
		return nil
	})
	l.silence(false)
	for i := range claims {
		poll(t, "a key to be free", func() bool { return post(fmt.Sprint("late", i+1)) == 200 })
	}
}
