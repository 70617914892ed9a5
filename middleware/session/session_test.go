package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/middleware/session"
	"github.com/filohttp/filo/servertest"
)

var sessionSecret = bytes.Repeat([]byte("k"), 32)

// browser sends requests with the cookie of the last answer that set one.
type browser struct {
	t      testing.TB
	s      *servertest.Server
	cookie string // "name=value"
	set    string // the last answer's Set-Cookie
}

func (b *browser) get(path string) servertest.Answer {
	b.t.Helper()
	var fields []string
	if b.cookie != "" {
		fields = []string{"Cookie: other=x; " + b.cookie}
	}
	got := b.s.Do(b.t, "GET "+path, fields...)
	b.set = got.Header.Get("Set-Cookie")
	if len(got.Header.Values("Set-Cookie")) > 1 {
		b.t.Errorf("%s: more than one cookie: %v", path, got.Header)
	}
	if b.set != "" {
		b.cookie, _, _ = strings.Cut(b.set, ";")
		if strings.Contains(b.set, "Max-Age=0") {
			b.cookie = ""
		}
	}
	return got
}

// sessionHandler does what the path says to the session: "/set/key/value", "/get/key" and so on.
func sessionHandler(c *filo.Ctx) error {
	parts := strings.Split(c.Path(), "/")
	if parts[1] == "none" {
		return c.Text(200, "")
	}
	s, err := session.Get(c)
	if err != nil {
		return err
	}
	switch parts[1] {
	case "set":
		s.Set(parts[2], parts[3])
	case "delete":
		s.Delete(parts[2])
	case "clear":
		s.Clear()
	case "renew":
		s.Renew()
	case "login":
		s.Renew()
		s.Set("user", parts[2])
		s.Set("only"+parts[2], "1")
	case "destroy":
		s.Destroy()
	case "destroyset":
		s.Destroy()
		s.Set("new", "1")
	case "fail":
		s.Set("failed", "yes")
		return filo.Error(400, "")
	case "panic":
		s.Set("panicked", "yes")
		panic("in the handler")
	case "stream":
		s.Set("streamed", "yes")
		w := c.Stream()
		io.WriteString(w, "streamed")
		return w.Flush()
	case "late":
		w := c.Stream()
		if err := w.Flush(); err != nil {
			return err
		}
		s.Set("late", "yes")
		return nil
	case "latedestroy":
		w := c.Stream()
		if err := w.Flush(); err != nil {
			return err
		}
		s.Destroy()
		return nil
	case "large":
		s.Set("large", strings.Repeat("x", 20_000))
	}
	return c.Text(200, s.Get(parts[len(parts)-1])+fmt.Sprint(s.New()))
}

// eachStore runs f with sessions in a store, and again with sessions in cookies.
func eachStore(t *testing.T, f func(t *testing.T, options session.Options)) {
	t.Run("store", func(t *testing.T) {
		f(t, session.Options{Store: new(session.Memory)})
	})
	t.Run("cookie", func(t *testing.T) {
		f(t, session.Options{Keys: [][]byte{sessionSecret}})
	})
}

func newBrowser(t testing.TB, options session.Options) *browser {
	return &browser{t: t, s: servertest.New(t, session.New(options)(sessionHandler))}
}

func TestNew(t *testing.T) {
	eachStore(t, func(t *testing.T, options session.Options) {
		b := newBrowser(t, options)
		for i, step := range []struct {
			why, path, want string
			sets            bool
		}{
			{"a request that doesn't ask for the session costs no cookie", "/none", "", false},
			{"nor one that only reads it", "/get/a", "true", false},
			{"nor one that deletes what isn't there", "/delete/a", "true", false},
			{"nor one that renews or clears nothing", "/renew", "true", false},
			{"nor one that ends none", "/destroy", "true", false},
			{"a value makes a session", "/set/a/1", "true", true},
			{"the next request has it, and nothing is sent", "/get/a", "1false", false},
			{"a request that doesn't ask leaves the cookie", "/none", "", false},
			{"a second value", "/set/b/2", "false", true},
			{"both are there", "/get/a", "1false", false},
			{"both are there", "/get/b", "2false", false},
			{"a value is deleted", "/delete/a", "false", true},
			{"it isn't there any more", "/get/a", "false", false},
			{"the session is renewed", "/renew", "false", true},
			{"with its values", "/get/b", "2false", false},
			{"an error keeps what was set", "/fail", "Bad Request\n", true},
			{"it is there", "/get/failed", "yesfalse", false},
			{"a panic doesn't", "/panic", "Internal Server Error\n", false},
			{"it isn't there", "/get/panicked", "false", false},
			{"a streamed answer has the cookie", "/stream", "streamed", true},
			{"and the value is there", "/get/streamed", "yesfalse", false},
			{"the values are cleared", "/clear", "false", true},
			{"none is left", "/get/b", "false", false},
			{"too large a value is an error", "/large", "Internal Server Error\n", false},
			{"the session ends", "/destroy", "true", true},
			{"and is gone", "/get/b", "true", false},
			{"a new one", "/set/a/9", "true", true},
			{"one that ends and begins again", "/destroyset", "", true},
			{"has only what was set since", "/get/a", "false", false},
			{"namely this", "/get/new", "1false", false},
		} {
			before := b.cookie
			got := b.get(step.path)
			if step.want != "" && got.Body != step.want && step.path != "/destroy" {
				t.Errorf("%d %s: %q, want %q", i, step.why, got.Body, step.want)
			}
			if (b.set != "") != step.sets {
				t.Errorf("%d %s: Set-Cookie: %q", i, step.why, b.set)
			}
			if (step.path == "/renew" || step.path == "/destroyset") && step.sets && before == b.cookie {
				t.Errorf("%d %s: the cookie is the same", i, step.why)
			}
			if asked := step.path != "/none"; asked != (got.Header.Get("Vary") == "Cookie") && got.Status == 200 {
				t.Errorf("%d %s: Vary: %q", i, step.why, got.Header.Get("Vary"))
			}
			if step.sets && got.Header.Get("Cache-Control") != "private" {
				t.Errorf("%d %s: Cache-Control: %q", i, step.why, got.Header.Get("Cache-Control"))
			}
		}
	})
}

func TestCookie(t *testing.T) {
	for _, test := range []struct {
		why     string
		options session.Options
		want    string
	}{
		{"the defaults are safe", session.Options{}, "__Host-session=X; Path=/; Max-Age=7200; HttpOnly; Secure; SameSite=Lax"},
		{"for development", session.Options{Insecure: true}, "session=X; Path=/; Max-Age=7200; HttpOnly; SameSite=Lax"},
		{"for subdomains", session.Options{CookieName: "id", Domain: "example.com", SameSite: filo.SameSiteStrict, IdleTimeout: time.Minute},
			"id=X; Path=/; Domain=example.com; Max-Age=60; HttpOnly; Secure; SameSite=Strict"},
		{"Lifetime goes before IdleTimeout", session.Options{Lifetime: time.Hour}, "__Host-session=X; Path=/; Max-Age=3600; HttpOnly; Secure; SameSite=Lax"},
	} {
		test.options.Keys = [][]byte{sessionSecret}
		synctest.Test(t, func(t *testing.T) {
			b := newBrowser(t, test.options)
			b.get("/set/a/1")
			name, rest, _ := strings.Cut(b.set, "=")
			_, rest, _ = strings.Cut(rest, ";")
			got := strings.Split(name+"=X;"+rest, "; ")
			for _, attribute := range strings.Split(test.want, "; ") {
				found := false
				for _, a := range got {
					found = found || a == attribute
				}
				if !found || len(got) != len(strings.Split(test.want, "; ")) {
					t.Errorf("%s: %q, want %q", test.why, got, test.want)
				}
			}
		})
	}
}

func TestExpiry(t *testing.T) {
	eachStore(t, func(t *testing.T, options session.Options) {
		options.IdleTimeout, options.Lifetime = 10*time.Minute, time.Hour
		synctest.Test(t, func(t *testing.T) {
			b := newBrowser(t, options)
			b.get("/set/a/1")
			time.Sleep(30 * time.Second)
			if got := b.get("/get/a"); got.Body != "1false" || b.set != "" {
				t.Errorf("soon after: %v, want no new cookie", got)
			}
			for range 10 { // a session that is used doesn't expire
				time.Sleep(5 * time.Minute)
				if got := b.get("/get/a"); got.Body != "1false" || b.set == "" {
					t.Errorf("in use: %v, want a new cookie", got)
				}
			}
			time.Sleep(10 * time.Minute)
			if got := b.get("/get/a"); got.Body != "true" {
				t.Errorf("after its whole life: %v", got)
			}
			b.get("/set/a/1")
			stolen := b.cookie
			time.Sleep(10 * time.Minute)
			b.cookie = stolen // a browser would have dropped the cookie by now
			if got := b.get("/get/a"); got.Body != "true" {
				t.Errorf("unused: %v", got)
			}
		})
	})
}

// A client that sends a made-up or changed cookie doesn't get a session with it.
func TestForged(t *testing.T) {
	eachStore(t, func(t *testing.T, options session.Options) {
		b := newBrowser(t, options)
		b.get("/set/a/1")
		good := b.cookie
		for why, cookie := range map[string]string{
			"no value":            "__Host-session=",
			"not base64":          "__Host-session=...",
			"made up":             "__Host-session=AAAAAAAAAAAAAAAAAAAAAAAAAA",
			"another name":        strings.Replace(good, "__Host-session", "session", 1),
			"changed":             good[:len(good)-4] + "AAAA",
			"cut off":             good[:len(good)-3],
			"longer":              good + "AAAA",
			"the key of a value":  "__Host-session=a",
			"as long as a header": "__Host-session=" + strings.Repeat("A", 8000),
		} {
			b.cookie = cookie
			if got := b.get("/get/a"); got.Body != "true" || got.Status != 200 {
				t.Errorf("%s: %v", why, got)
			}
			// An id that a client has made up is never adopted.
			if b.get("/set/x/1"); b.cookie == cookie {
				t.Errorf("%s: the session has the client's id", why)
			}
		}
	})
}

// If many requests of one session set values at the same time, no value is lost, and there is no data race.
func TestConcurrent(t *testing.T) {
	const n = 10
	b := newBrowser(t, session.Options{Store: new(session.Memory)})
	b.get("/set/first/1")
	client := b.s.Client()
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			request := mwtest.NewRequest(t, fmt.Sprintf("%s/set/key%d/%d", b.s.URL, i, i), "Cookie: "+b.cookie)
			response, err := client.Do(request)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Error(response, err)
				return
			}
			response.Body.Close()
		})
	}
	wait.Wait()
	for i := range n {
		if got := b.get(fmt.Sprintf("/get/key%d", i)); got.Body != fmt.Sprintf("%dfalse", i) {
			t.Errorf("the value of request %d: %q", i, got.Body)
		}
	}
}

// A session that one request has ended isn't restored by another request that had begun before.
func TestNotBroughtBack(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	options := session.Options{Store: new(session.Memory)}
	b := &browser{t: t}
	b.s = servertest.New(t, session.New(options)(func(c *filo.Ctx) error {
		if c.Path() != "/slow" {
			return sessionHandler(c)
		}
		s, err := session.Get(c)
		close(begun)
		<-goOn
		s.Set("slow", "1")
		return errors.Join(err, c.NoContent())
	}))
	b.get("/set/a/1")
	cookie := b.cookie
	slow := b.s.Dial(t)
	io.WriteString(slow, servertest.Request("GET /slow", "", "Cookie: "+cookie, "Connection: close"))
	<-begun
	b.get("/destroy")
	close(goOn)
	if raw, err := io.ReadAll(slow); err != nil || !strings.Contains(string(raw), " 204 ") {
		t.Fatalf("%q, %v", raw, err)
	}
	if b.cookie = cookie; b.get("/get/slow").Body != "true" {
		t.Error("the session is there again")
	}
}

// steppedStore is a store in memory that calls step, if there is one, before each of its operations.
type steppedStore struct {
	session.Store
	step func()
}

func (s *steppedStore) before() {
	if s.step != nil {
		s.step()
	}
}

func (s *steppedStore) Load(c *filo.Ctx, id string) (session.Record, error) {
	s.before()
	return s.Store.Load(c, id)
}

func (s *steppedStore) Save(c *filo.Ctx, id string, record session.Record) (bool, error) {
	s.before()
	return s.Store.Save(c, id, record)
}

func (s *steppedStore) Delete(c *filo.Ctx, id string) error {
	s.before()
	return s.Store.Delete(c, id)
}

// If one request renews a session and another request ends it, the session ends. It doesn't matter which request begins first, or between
// which steps of the first request the second one runs.
func TestRenewedAndEnded(t *testing.T) {
	for _, test := range []struct{ first, second string }{{"/renew", "/destroy"}, {"/destroy", "/renew"}, {"/destroyset", "/renew"}, {"/renew", "/destroyset"}} {
		ran := true
		for k := 1; ran; k++ {
			ran = false
			store := &steppedStore{Store: new(session.Memory)}
			b := newBrowser(t, session.Options{Store: store})
			b.get("/set/a/1")
			first := *b
			others := []string{first.cookie}
			steps := 0
			store.step = func() {
				if steps++; steps != k {
					return
				}
				store.step, ran = nil, true
				second := *b
				second.get(test.second)
				others = append(others, second.cookie)
			}
			first.get(test.first)
			if store.step = nil; !ran {
				continue
			}
			for i, cookie := range append(others, first.cookie) {
				if b.cookie = cookie; b.get("/get/a").Body[0] == '1' {
					t.Errorf("%s during step %d of %s: session %d is there", test.second, k, test.first, i)
				}
			}
		}
	}
}

// If a request sets a value while another request renews the session, the value isn't lost, and only one session is left.
func TestRenewedAndChanged(t *testing.T) {
	ran := true
	for k := 1; ran; k++ {
		ran = false
		memory := new(session.Memory)
		store := &steppedStore{Store: memory}
		b := newBrowser(t, session.Options{Store: store})
		b.get("/set/a/1")
		old, saved, steps := b.cookie, false, 0
		store.step = func() {
			if steps++; steps != k {
				return
			}
			store.step, ran = nil, true
			second := *b
			second.get("/set/b/2")
			saved = second.set != "" && second.cookie == old
		}
		b.get("/renew")
		if store.step = nil; !ran {
			continue
		}
		if got := b.get("/get/b"); b.cookie == old || got.Body != "2false" && saved {
			t.Errorf("a change at step %d: %v", k, got)
		}
		if b.cookie = old; b.get("/get/a").Body != "true" {
			t.Errorf("a change at step %d: the old id is a session", k)
		}
	}
}

// If two clients with the same session log in at once, each gets a session of its own, without the other client's values.
func TestRenewedTwice(t *testing.T) {
	ran := true
	for k := 1; ran; k++ {
		ran = false
		store := &steppedStore{Store: new(session.Memory)}
		b := newBrowser(t, session.Options{Store: store})
		b.get("/set/a/1")
		one, other := *b, *b
		steps := 0
		store.step = func() {
			if steps++; steps == k {
				store.step, ran = nil, true
				other.get("/login/other")
			}
		}
		one.get("/login/one")
		if store.step = nil; !ran {
			continue
		}
		for _, each := range []struct {
			browser     *browser
			name, other string
		}{{&one, "one", "other"}, {&other, "other", "one"}} {
			if got := each.browser.get("/get/user"); got.Body != each.name+"false" {
				t.Errorf("at step %d, %s: %v", k, each.name, got)
			}
			if got := each.browser.get("/get/only" + each.other); got.Body != "false" {
				t.Errorf("at step %d, %s has the other one's: %v", k, each.name, got)
			}
		}
		if b.get("/get/a").Body != "true" {
			t.Errorf("at step %d: the old id is a session", k)
		}
	}
}

// A browser that logs out before it has received the renewed session's cookie is logged out nevertheless.
func TestEndedByOldCookie(t *testing.T) {
	b := newBrowser(t, session.Options{Store: new(session.Memory)})
	b.get("/set/a/1")
	late := *b
	b.get("/renew")
	b.get("/renew") // twice
	if got := late.get("/get/a"); got.Body != "true" {
		t.Errorf("the old id: %v", got)
	}
	if late.get("/destroy"); !strings.Contains(late.set, "Max-Age=0") {
		t.Errorf("the cookie isn't removed: %q", late.set)
	}
	if got := b.get("/get/a"); got.Body != "true" {
		t.Errorf("after the logout: %v", got)
	}
}

// While a renewed session lives, a request that still has the old id can't replace the renewed session's cookie by the cookie of a new
// session, unless the request renews or destroys its session.
func TestOldIDKeepsCookie(t *testing.T) {
	for path, sets := range map[string]bool{"/set/b/2": false, "/stream": false, "/login/eve": true, "/destroyset": true} {
		begun, goOn := make(chan struct{}), make(chan struct{})
		b := &browser{t: t}
		b.s = servertest.New(t, session.New(session.Options{Store: new(session.Memory)})(func(c *filo.Ctx) error {
			if c.Request.Header.Has("Late") {
				close(begun)
				<-goOn
			}
			return sessionHandler(c)
		}))
		b.get("/set/a/1")
		late := b.s.Dial(t)
		io.WriteString(late, servertest.Request("GET "+path, "", "Cookie: "+b.cookie, "Late: yes", "Connection: close"))
		<-begun
		old := *b
		b.get("/login/ann")
		close(goOn)
		raw, err := io.ReadAll(late)
		if err != nil || !strings.Contains(string(raw), " 200 ") || strings.Contains(string(raw), "Set-Cookie:") != sets {
			t.Errorf("%s: %q, %v, want a cookie: %t", path, raw, err, sets)
		}
		if got := b.get("/get/user"); !sets && got.Body != "annfalse" {
			t.Errorf("%s: the renewed session: %v", path, got)
		}
		b.get("/destroy")
		if old.get("/set/b/2"); old.set == "" {
			t.Errorf("%s: no new session after the end of the renewed one", path)
		}
	}
}

// forgetful is a store in memory. A test can make it drop the record that was loaded last, as if there were no room left.
type forgetful struct {
	session.Memory
	last string
}

func (s *forgetful) Load(c *filo.Ctx, id string) (session.Record, error) {
	s.last = id
	return s.Memory.Load(c, id)
}

// If the store drops a visitor's session while a request runs, neither the values that the request sets nor a login are lost. But if the
// session of a logged-in user is missing, it has ended, since another request may have ended it.
func TestForgotten(t *testing.T) {
	for _, test := range []struct {
		why, before, request, want string
	}{
		{"a visitor logs in", "/set/a/1", "/login/ann", "ann 1"},
		{"a visitor sets a value", "/set/a/1", "/set/user/bob", "bob 1"},
		{"somebody who has logged in sets a value", "/login/ann", "/set/a/1", " "},
		{"somebody who has logged in logs in again", "/login/ann", "/login/bob", " "},
	} {
		store := &forgetful{}
		forget := false
		b := newBrowser(t, session.Options{Store: store})
		b.s = servertest.New(t, session.New(session.Options{Store: store})(func(c *filo.Ctx) error {
			if _, err := session.Get(c); err != nil {
				return err
			}
			if forget {
				store.Memory.Delete(c, store.last)
			}
			return sessionHandler(c)
		}))
		b.get(test.before)
		forget = true
		b.get(test.request)
		forget = false
		user, a := b.get("/get/user").Body, b.get("/get/a").Body
		got := strings.TrimSuffix(strings.TrimSuffix(user, "false"), "true") + " " + strings.TrimSuffix(strings.TrimSuffix(a, "false"), "true")
		if got != test.want {
			t.Errorf("%s: the session has %q, want %q", test.why, got, test.want)
		}
	}
}

// Two nested session middlewares have a session each. Inside of the inner middleware, Get returns the inner session; between the two
// middlewares, Get returns the outer session.
func TestNested(t *testing.T) {
	eachStore(t, func(t *testing.T, options session.Options) {
		inner := options
		inner.CookieName = "__Host-inner"
		count := func(next filo.Handler) filo.Handler { // between the two
			return func(c *filo.Ctx) error {
				s, err := session.Get(c)
				if err != nil {
					return err
				}
				s.Set("requests", s.Get("requests")+"+")
				if err = next(c); err != nil {
					return err
				}
				again, err := session.Get(c)
				if again != s {
					t.Error("the outer session isn't the current one when the inner one is over")
				}
				return err
			}
		}
		h := mwtest.Wrap(func(c *filo.Ctx) error {
			s, err := session.Get(c)
			if err != nil {
				return err
			}
			s.Set("inner", s.Get("inner")+"i")
			return c.Text(200, s.Get("inner")+s.Get("requests"))
		}, session.New(options), count, session.New(inner))
		s := servertest.New(t, h)
		cookies := ""
		for i := 1; i <= 3; i++ {
			var fields []string
			if cookies != "" {
				fields = []string{"Cookie: " + cookies}
			}
			got := s.Do(t, "GET /", fields...)
			if want := strings.Repeat("i", i); got.Body != want {
				t.Errorf("request %d: the inner session has %q, want %q", i, got.Body, want)
			}
			var pairs []string
			for _, set := range got.Header.Values("Set-Cookie") {
				pair, _, _ := strings.Cut(set, ";")
				pairs = append(pairs, pair)
			}
			if cookies = strings.Join(pairs, "; "); len(pairs) != 2 {
				t.Fatalf("request %d: %v, want two cookies", i, got.Header)
			}
		}
		outer := servertest.New(t, session.New(options)(sessionHandler))
		if got := outer.Do(t, "GET /get/requests", "Cookie: "+cookies); got.Body != "+++false" {
			t.Errorf("the outer session: %v, want what was set between the two", got)
		}
	})
}

// A cache doesn't store an answer if an outer session has yet to be saved.
func TestNestedCache(t *testing.T) {
	options := session.Options{Keys: [][]byte{sessionSecret}}
	inner := options
	inner.CookieName = "__Host-inner"
	h := mwtest.Wrap(func(c *filo.Ctx) error {
		if _, err := session.Get(c); err != nil {
			return err
		}
		c.Response.Header.Set("Cache-Control", "max-age=60")
		return mwtest.Hello(c)
	}, session.New(options), func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			s, err := session.Get(c)
			if err == nil {
				s.Set("a", "1")
				err = next(c)
			}
			return err
		}
	}, session.New(inner), cache.New())
	s := servertest.New(t, h)
	s.Do(t, "GET /")
	if got := s.Do(t, "GET /"); got.Header.Get("Age") != "" {
		t.Errorf("an answer for which the outer session is to be saved was kept: %v", got.Header)
	}
}

// A value that is set after the head was sent is saved only if the client already has the session's id. Otherwise the loss is logged.
func TestLate(t *testing.T) {
	b := newBrowser(t, session.Options{Store: new(session.Memory)})
	b.get("/late")
	if got := b.get("/get/late"); got.Body != "true" {
		t.Errorf("without a session: %v", got)
	}
	b.get("/set/a/1")
	b.get("/late")
	if got := b.get("/get/late"); got.Body != "yesfalse" {
		t.Errorf("with one: %v", got)
	}
}

// A session in a cookie can't be ended after the head was sent: this is logged as an error.
func TestDestroyedLate(t *testing.T) {
	eachStore(t, func(t *testing.T, options session.Options) {
		var log strings.Builder
		b := &browser{t: t, s: servertest.NewServer(t, &filo.Server{
			Logger:  slog.New(slog.NewTextHandler(&log, nil)),
			Handler: session.New(options)(sessionHandler),
		})}
		b.get("/set/a/1")
		if got := b.get("/latedestroy"); got.Status != 200 {
			t.Fatal(got)
		}
		ended := b.get("/get/a").Body == "true"
		if logged := strings.Contains(log.String(), "setting a session's cookie"); ended == logged || ended != (options.Store != nil) {
			t.Errorf("ended: %t, logged: %q", ended, log.String())
		}
	})
}

// The heads of a parked stream and of an upgrade have the cookie of a renewed session. A handler that takes the connection over without
// sending a head can't give the client a cookie, so the session isn't renewed, and this is logged.
func TestTakenOver(t *testing.T) {
	eachStore(t, func(t *testing.T, options session.Options) {
		for path, sends := range map[string]bool{"/parkstream": true, "/park": true, "/upgrade": true, "/hijack": false} {
			var log strings.Builder
			returned := make(chan struct{}, 1)
			b := &browser{t: t, s: servertest.NewServer(t, &filo.Server{
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Handler: mwtest.Wrap(func(c *filo.Ctx) error {
					if c.Path() != path {
						return sessionHandler(c)
					}
					s, err := session.Get(c)
					if err != nil {
						return err
					}
					s.Renew()
					s.Set("user", "ann")
					return takeOver(c)
				}, func(next filo.Handler) filo.Handler {
					return func(c *filo.Ctx) error {
						takes := c.Path() == path
						err := next(c)
						if takes {
							returned <- struct{}{}
						}
						return err
					}
				}, session.New(options)),
			})}
			b.get("/set/a/1")
			before := b.cookie
			got := b.s.Do(t, "GET "+path, "Cookie: "+before, "Connection: Upgrade", "Upgrade: echo")
			<-returned
			cookie, _, _ := strings.Cut(got.Header.Get("Set-Cookie"), ";")
			if sends != (cookie != "") || sends == strings.Contains(log.String(), "setting a session's cookie") {
				t.Errorf("%s: the cookie is %q, logged: %q", path, cookie, log.String())
			}
			want := "1false" // the old session, which is still valid
			if sends {
				b.cookie, want = cookie, "annfalse"
			}
			if got := b.get("/get/" + map[bool]string{true: "user", false: "a"}[sends]); got.Body != want {
				t.Errorf("%s: then %q, want %q", path, got.Body, want)
			}
		}
	})
}

// takeOver takes the connection over as the path says, and ends it.
func takeOver(c *filo.Ctx) error {
	end := func(*filo.ParkedConn, filo.Wake) error { return io.EOF }
	var conn interface{ Close() error }
	var err error
	switch c.Path() {
	case "/parkstream", "/park":
		var p *filo.ParkedConn
		if c.Path() == "/park" {
			p, err = c.Park("echo", end)
		} else {
			p, err = c.ParkStream(end)
		}
		if err == nil {
			p.End()
		}
		return err
	case "/upgrade":
		conn, _, err = c.Upgrade("echo")
	case "/hijack":
		var taken net.Conn
		if taken, _, err = c.Hijack(); err == nil {
			io.WriteString(taken, "HTTP/1.1 204 No Content\r\n\r\n")
		}
		conn = taken
	}
	if err != nil {
		return err
	}
	return conn.Close()
}

// passedOn wraps a ResponseWriter, so that an adaptor runs the rest of the chain with another Ctx.
type passedOn struct{ http.ResponseWriter }

// The cookie is in the answer to its own request, even if the handler ran with an adaptor's Ctx, which has ended when the session is saved.
func TestInAdaptor(t *testing.T) {
	eachStore(t, func(t *testing.T, options session.Options) {
		passOn := adaptor.Middleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(passedOn{w}, r) })
		})
		for path, status := range map[string]int{"/204": 204, "/304": 304, "/200": 200, "/stream": 200} {
			b := &browser{t: t, s: servertest.New(t, mwtest.Wrap(func(c *filo.Ctx) error {
				if path == "/stream" {
					return sessionHandler(c)
				}
				s, err := session.Get(c)
				if err != nil {
					return err
				}
				s.Set("user", "alice")
				c.Response.SetStatus(status)
				return nil
			}, session.New(options), passOn))}
			if got := b.get(path); got.Status != status || b.set == "" || got.Header.Get("Vary") != "Cookie" {
				t.Errorf("%s: %v, want a cookie", path, got)
			}
		}
	})
}

// An answer with a session's cookie is private, whatever directives the handler has set for caches, including those of a CDN.
func TestPrivate(t *testing.T) {
	for says, want := range map[string]string{
		"":                        "private",
		"public, max-age=60":      "public, max-age=60,private",
		"no-cache":                "no-cache,private",
		"no-store":                "no-store",
		"max-age=60, Private":     "max-age=60, Private",
		"s-maxage=60, no-private": "s-maxage=60, no-private,private",
	} {
		h := mwtest.Wrap(func(c *filo.Ctx) error {
			if says != "" {
				c.Response.Header.Set("Cache-Control", says)
			}
			for _, targeted := range []string{"CDN-Cache-Control", "cloudflare-cdn-cache-control", "Surrogate-Control"} {
				c.Response.Header.Add(targeted, "max-age=60")
				c.Response.Header.Add(targeted, "public")
			}
			c.Response.Header.Set("X-Last", "1")
			return sessionHandler(c)
		}, session.New(session.Options{Keys: [][]byte{sessionSecret}}))
		got := mwtest.Do(t, h, "GET /set/a/1")
		if control := strings.Join(got.Header.Values("Cache-Control"), ","); control != want || got.Header.Get("Set-Cookie") == "" {
			t.Errorf("%q becomes %q, want %q", says, control, want)
		}
		for name := range got.Header {
			if strings.HasPrefix(name, "C") && strings.HasSuffix(name, "-Cache-Control") || name == "Surrogate-Control" {
				t.Errorf("the answer has %s", name)
			}
		}
		if got.Header.Get("X-Last") != "1" {
			t.Error("another field is lost")
		}
	}
}

// brokenStore is a store whose methods fail with the test's errors.
type brokenStore struct {
	session.Store
	load, save error
}

func (s brokenStore) Load(c *filo.Ctx, id string) (session.Record, error) {
	if s.load != nil {
		return session.Record{}, s.load
	}
	return s.Store.Load(c, id)
}

func (s brokenStore) Save(c *filo.Ctx, id string, record session.Record) (bool, error) {
	return false, s.save
}

func TestStoreErrors(t *testing.T) {
	failed := errors.New("failed")
	for why, store := range map[string]brokenStore{
		"load":                          {new(session.Memory), failed, nil},
		"save":                          {new(session.Memory), nil, failed},
		"a session that always changes": {new(session.Memory), nil, nil},
	} {
		var got error
		outside := func(next filo.Handler) filo.Handler {
			return func(c *filo.Ctx) error { got = next(c); return c.NoContent() }
		}
		h := mwtest.Wrap(sessionHandler, outside, session.New(session.Options{Store: store}))
		answer := mwtest.Do(t, h, "GET /set/a/1", "Cookie: __Host-session=x")
		if why != "a session that always changes" && !errors.Is(got, failed) || answer.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %v, %v", why, got, answer.Header)
		}
	}
}

// A session that can't be saved before a streamed answer begins is logged, unless the Store logs its errors itself and says so by
// filo.ErrBusy.
func TestStoreErrorsLog(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		records int
	}{
		"a plain error":    {errors.New("down"), 1},
		"one that is busy": {&filo.HTTPError{Status: 503, Err: filo.ErrBusy}, 0},
	} {
		var log strings.Builder
		handler := func(c *filo.Ctx) error {
			s, err := session.Get(c)
			if err == nil {
				s.Set("a", "1")
				c.Stream().WriteString("streamed")
				err = c.Stream().Flush()
			}
			return err
		}
		s := servertest.NewServer(t, &filo.Server{
			Handler: session.New(session.Options{Store: brokenStore{new(session.Memory), nil, test.err}})(handler),
			Logger:  slog.New(slog.NewTextHandler(&log, nil)),
		})
		if got := s.Do(t, "GET /"); got.Status != 200 {
			t.Errorf("%s: %v", name, got)
		}
		if got := strings.Count(log.String(), "saving a session failed"); got != test.records {
			t.Errorf("%s: %d records, want %d:\n%s", name, got, test.records, log.String())
		}
	}
}

func TestOptions(t *testing.T) {
	keys := [][]byte{sessionSecret}
	mwtest.MustPanic(t, "session", map[string]func(){
		"neither Store nor Keys": func() { session.New(session.Options{}) },
		"both": func() {
			session.New(session.Options{Keys: keys, Store: new(session.Memory)})
		},
		"a short key":            func() { session.New(session.Options{Keys: [][]byte{sessionSecret, make([]byte, 31)}}) },
		"a bad name":             func() { session.New(session.Options{Keys: keys, CookieName: "a b"}) },
		"a new line in the name": func() { session.New(session.Options{Keys: keys, CookieName: "a\r\nb"}) },
		"a new line in Domain":   func() { session.New(session.Options{Keys: keys, CookieName: "a", Domain: "a\r\nb"}) },
		"__Host- with a Domain":  func() { session.New(session.Options{Keys: keys, Domain: "example.com"}) },
		"__Host- and Insecure": func() {
			session.New(session.Options{Keys: keys, CookieName: "__Host-a", Insecure: true})
		},
		"SameSite=None, insecure": func() {
			session.New(session.Options{Keys: keys, SameSite: filo.SameSiteNone, Insecure: true})
		},
		"a negative IdleTimeout": func() { session.New(session.Options{Keys: keys, IdleTimeout: -1}) },
		"a negative Lifetime":    func() { session.New(session.Options{Keys: keys, Lifetime: -1}) },
		"negative MaxBytes":      func() { session.New(session.Options{Keys: keys, MaxBytes: -1}) },
		"a negative memory":      func() { session.New(session.Options{Store: &session.Memory{MaxBytes: -1}}) },
	})
	mwtest.InHandler(t, "GET /", nil, func(c *filo.Ctx) {
		if message := mwtest.PanicOf(func() { session.Get(c) }); !strings.Contains(message, "put New in front of all that calls Get") {
			t.Errorf("without New: %q", message)
		}
	})
}

// Package cache doesn't store an answer that will get a session's cookie, although the cookie is set only after the cache has returned.
func TestCached(t *testing.T) {
	eachStore(t, func(t *testing.T, options session.Options) {
		options.IdleTimeout = time.Hour
		synctest.Test(t, func(t *testing.T) {
			b := &browser{t: t, s: servertest.New(t, mwtest.Wrap(func(c *filo.Ctx) error {
				c.Response.Header.Set("Cache-Control", "max-age=10")
				return sessionHandler(c)
			}, session.New(options), cache.New()))}
			for _, step := range []struct {
				why, path string
				sleep     time.Duration
				kept      bool
			}{
				{"no session", "/get/a", 0, true},
				{"one that begins", "/set/a/1", 0, false},
				{"one that is only read", "/get/a", 0, true},
				{"one that lives on", "/get/a", 30 * time.Minute, false},
				{"one that is renewed", "/renew", 0, false},
				{"one that is cleared", "/clear", 0, false},
				{"one that ends", "/destroy", 0, false},
			} {
				time.Sleep(step.sleep)
				before := b.cookie
				b.get(step.path)
				after := b.cookie
				b.cookie = before
				got := b.get(step.path)
				if kept := got.Header.Get("Age") != ""; kept != step.kept {
					t.Errorf("%s: %v, want it kept: %t", step.why, got, step.kept)
				}
				if b.cookie == before {
					b.cookie = after
				}
			}
		})
	})
}

func ExampleNew() {
	sessions := session.New(session.Options{Store: &session.Memory{MaxBytes: 64 << 20}})
	login := sessions(func(c *filo.Ctx) error {
		s, err := session.Get(c)
		if err != nil {
			return err
		}
		s.Renew() // at every login
		s.Set("user", "gopher")
		return c.Text(200, "hello, "+s.Get("user"))
	})
	mwtest.Show(login, nil, "POST /login")
	// Output:
	// 200 hello, gopher
}

func BenchmarkNew(b *testing.B) {
	for name, options := range map[string]session.Options{
		"store":  {Store: new(session.Memory)},
		"cookie": {Keys: [][]byte{sessionSecret}},
	} {
		around := session.New(options)
		browser := &browser{t: b, s: servertest.New(b, around(sessionHandler))}
		browser.get("/set/user/gopher")
		b.Run(name+"/unused", func(b *testing.B) {
			mwtest.Benchmark(b, around(mwtest.Hello), "GET /", "Cookie: "+browser.cookie)
		})
		b.Run(name+"/read", func(b *testing.B) {
			mwtest.BenchmarkServer(b, around(func(c *filo.Ctx) error {
				s, err := session.Get(c)
				if err != nil {
					return err
				}
				return c.Text(200, s.Get("user"))
			}), "GET /", "", "Cookie: "+browser.cookie)
		})
	}
}
