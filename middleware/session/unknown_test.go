package session_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/session"
	"github.com/filohttp/filo/servertest"
)

// openStore is a store that serves requests without their sessions while it can't load records.
type openStore struct {
	session.Memory
	down atomic.Int64 // how many loads fail
}

func (s *openStore) Load(c *filo.Ctx, id string) (session.Record, error) {
	if s.down.Add(-1) >= 0 {
		return session.Record{Unknown: errors.New("the store is down")}, nil
	}
	return s.Memory.Load(c, id)
}

// A logout whose request couldn't load the session ends that session, or fails. Another change fails, and replaces no session that lives.
func TestEndOfUnknownSession(t *testing.T) {
	for _, path := range []string{"/logout", "/another"} {
		store := new(openStore)
		s := servertest.New(t, session.New(session.Options{Store: store})(func(c *filo.Ctx) error {
			s, err := session.Get(c)
			if err != nil {
				return err
			}
			switch c.Path() {
			case "/login":
				s.Renew()
				s.Set("user", "ann")
			case "/logout":
				s.Destroy()
			case "/set":
				s.Set("cart", "book")
			case "/clear":
				s.Clear()
			case "/delete":
				s.Delete("user")
			case "/another":
				s.Destroy()
				s.Set("user", "bob")
			}
			return c.Text(200, "user "+s.Get("user"))
		}))
		cookie := func(got servertest.Answer) string {
			value, _, _ := strings.Cut(got.Header.Get("Set-Cookie"), ";")
			return value
		}
		ann := cookie(s.Do(t, "GET /login"))
		for _, test := range []struct {
			fail   int64
			path   string
			status int
			body   string
		}{
			{0, "/", 200, "user ann"},
			{1, "/", 200, "user "},
			{1, "/set", 500, ""},
			{2, "/set", 500, ""},
			{1, "/clear", 500, ""},
			{1, "/delete", 500, ""},
			{2, path, 500, ""},
			{0, "/", 200, "user ann"},
			{1, path, 200, ""},
			{0, "/", 200, "user "},
		} {
			store.down.Store(test.fail)
			got := s.Do(t, "GET "+test.path, "Cookie: "+ann)
			if got.Status != test.status || test.body != "" && got.Body != test.body {
				t.Errorf("%s after %d failures, for %s: %d %q, want %d %q", test.path, test.fail, path, got.Status, got.Body, test.status, test.body)
			}
			if got.Status == 500 && got.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s fails, and changes the cookie: %q", test.path, got.Header.Get("Set-Cookie"))
			}
			if test.path == "/logout" && test.status == 200 && !strings.Contains(got.Header.Get("Set-Cookie"), "Max-Age=0") {
				t.Errorf("the cookie stays: %q", got.Header.Get("Set-Cookie"))
			}
		}
	}
}
