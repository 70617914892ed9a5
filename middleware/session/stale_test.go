package session_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/session"
	"github.com/filohttp/filo/servertest"
)

// slowStore is a store whose saves take a second, and fail while it is broken.
type slowStore struct {
	session.Memory
	saves  atomic.Int64
	broken atomic.Bool
}

func (s *slowStore) Save(c *filo.Ctx, id string, record session.Record) (bool, error) {
	time.Sleep(time.Second)
	s.saves.Add(1)
	if s.broken.Load() {
		return false, errors.New("the store is down")
	}
	return s.Memory.Save(c, id, record)
}

// When many requests renew the expiry of a session at once, one of them does it for all. A failure to renew it fails no request.
func TestRenewedExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests = 64
		store := new(slowStore)
		s := servertest.New(t, session.New(session.Options{Store: store})(func(c *filo.Ctx) error {
			s, err := session.Get(c)
			if err != nil {
				return err
			}
			if c.Path() == "/set" {
				s.Set("user", "ann")
			}
			return c.Text(200, s.Get("user"))
		}))
		cookie, _, _ := strings.Cut(s.Do(t, "GET /set").Header.Get("Set-Cookie"), ";")
		get := func() servertest.Answer { return s.Do(t, "GET /", "Cookie: "+cookie) }
		time.Sleep(time.Hour)
		store.saves.Store(0)
		store.broken.Store(true)
		if got := get(); got.Status != 200 || got.Body != "ann" || store.saves.Load() != 1 {
			t.Errorf("with a broken store: %v after %d saves", got, store.saves.Load())
		}
		store.saves.Store(0)
		store.broken.Store(false)
		done := make(chan servertest.Answer)
		for range requests {
			go func() { done <- get() }()
		}
		for range requests {
			if got := <-done; got.Status != 200 || got.Body != "ann" || !strings.Contains(got.Header.Get("Set-Cookie"), "Max-Age=7") {
				t.Errorf("got %v", got)
			}
		}
		if n := store.saves.Load(); n > requests {
			t.Errorf("%d saves for %d requests", n, requests)
		}
		time.Sleep(90 * time.Minute)
		if got := get(); got.Body != "ann" {
			t.Errorf("the expiry wasn't renewed: %v", got)
		}
	})
}
