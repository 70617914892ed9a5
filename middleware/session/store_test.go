package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/middleware/session"
	"github.com/filohttp/filo/servertest"
)

// A cookie that was sealed with an older key is accepted, and replaced by a cookie of the newest key. A cookie of a removed key isn't
// accepted.
func TestKeyRotation(t *testing.T) {
	newer, newest := bytes.Repeat([]byte("n"), 32), bytes.Repeat([]byte("m"), 40)
	b := newBrowser(t, session.Options{Keys: [][]byte{sessionSecret}})
	b.get("/set/a/1")
	old := b.cookie
	b.s = servertest.New(t, session.New(session.Options{Keys: [][]byte{newer, sessionSecret}})(sessionHandler))
	if got := b.get("/get/a"); got.Body != "1false" || b.set == "" {
		t.Errorf("an older key: %v, want a new cookie", got)
	}
	if got := b.get("/get/a"); got.Body != "1false" || b.set != "" {
		t.Errorf("the newest key: %v", got)
	}
	b.s = servertest.New(t, session.New(session.Options{Keys: [][]byte{newest, newer}})(sessionHandler))
	if got := b.get("/get/a"); got.Body != "1false" {
		t.Errorf("a key that was in front before: %v", got)
	}
	if b.cookie = old; b.get("/get/a").Body != "true" {
		t.Error("a key that is gone")
	}
	other := servertest.New(t, session.New(session.Options{Keys: [][]byte{newest}, CookieName: "__Host-other"})(sessionHandler))
	if got := other.Do(t, "GET /get/a", "Cookie: "+strings.Replace(b.cookie, "__Host-session", "__Host-other", 1)); got.Body != "true" {
		t.Errorf("the value of another cookie: %v", got)
	}
}

// The store doesn't exceed its memory limit, and doesn't overwrite a record that has another version.
func TestMemory(t *testing.T) {
	store := &session.Memory{MaxBytes: 1000}
	expires := time.Now().Add(time.Hour)
	for i := range 100 {
		if saved, err := store.Save(nil, fmt.Sprint(i), session.Record{Data: make([]byte, 100), Expires: expires}); !saved || err != nil {
			t.Fatal(saved, err)
		}
	}
	left := 0
	for i := range 100 {
		record, err := store.Load(nil, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		left += int(record.Version)
	}
	if left == 0 || left > 10 {
		t.Errorf("%d sessions of 100 bytes in 1000", left)
	}
	if saved, _ := store.Save(nil, "99", session.Record{Version: 7, Expires: expires}); saved {
		t.Error("a record was saved over one of another version")
	}
}

// Sessions of visitors who never come back don't displace sessions of visitors who do. Neither kind displaces sessions of users who have
// logged in.
func TestMemoryFlood(t *testing.T) {
	options := session.Options{Store: &session.Memory{MaxBytes: 100_000}}
	s := servertest.New(t, session.New(options)(sessionHandler))
	visitors := func(n int, paths ...string) (browsers []*browser) {
		for range n {
			b := &browser{t: t, s: s}
			for _, path := range paths {
				b.get(path)
			}
			browsers = append(browsers, b)
		}
		return browsers
	}
	left := func(browsers []*browser) (n int) {
		for _, b := range browsers {
			if strings.HasSuffix(b.get("/get/a").Body, "false") {
				n++
			}
		}
		return n
	}
	loggedIn := visitors(50, "/login/gopher")
	after := visitors(10, "/set/a/1", "/login/gopher")
	again := visitors(50, "/set/a/1", "/get/a")
	once := visitors(1000, "/set/a/1")
	if n := left(loggedIn) + left(after); n != 60 {
		t.Errorf("of 60 who have logged in %d are left after visitors who came once", n)
	}
	if n := left(again); n != 50 {
		t.Errorf("of 50 who came again %d are left after visitors who came once", n)
	}
	if n := left(once[len(once)-10:]); n != 10 {
		t.Errorf("of the last 10 who came once %d are left", n)
	}
	visitors(1000, "/set/a/1", "/get/a", "/set/b/2")
	if n := left(loggedIn) + left(after); n != 60 {
		t.Errorf("of 60 who have logged in %d are left after visitors who came again", n)
	}
	// An anonymous visitor can't make the store treat a session as a logged-in user's session.
	visitors(1000, "/set/a/1", "/destroyset", "/get/a")
	if n := left(loggedIn) + left(after); n != 60 {
		t.Errorf("of 60 who have logged in %d are left after visitors who ended their sessions", n)
	}
}

// A cookie that wasn't sealed with these keys gives no session.
func FuzzCookie(f *testing.F) {
	f.Add("AAAA")
	f.Add(strings.Repeat("A", 64))
	h := session.New(session.Options{Keys: [][]byte{sessionSecret}})(func(c *filo.Ctx) error {
		s, err := session.Get(c)
		if err == nil && !s.New() {
			panic("a session was made up")
		}
		return errors.Join(err, c.NoContent())
	})
	f.Fuzz(func(t *testing.T, value string) {
		mwtest.InHandler(t, "GET /", nil, func(c *filo.Ctx) {
			c.Request.Header.Set("Cookie", "__Host-session="+value)
			if err := h(c); err != nil {
				t.Error(err)
			}
		})
	})
}

func ExampleMemory() {
	store := &session.Memory{MaxBytes: 1 << 20}
	record := session.Record{Data: []byte("data"), Expires: time.Now().Add(time.Hour)}
	fmt.Println(store.Save(nil, "id", record))
	fmt.Println(store.Save(nil, "id", record)) // the stored record has a later version by now
	// Output:
	// true <nil>
	// false <nil>
}

func BenchmarkMemory(b *testing.B) {
	b.ReportAllocs()
	store := new(session.Memory)
	record := session.Record{Data: make([]byte, 100), Expires: time.Now().Add(time.Hour)}
	if _, err := store.Save(nil, "id", record); err != nil {
		b.Fatal(err)
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if loaded, err := store.Load(nil, "id"); err != nil || loaded.Version != 1 {
				b.Error(loaded, err)
			}
		}
	})
}
