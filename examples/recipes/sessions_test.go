package recipes

import (
	"database/sql"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/session"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// stores returns a store of each kind.
func stores(t *testing.T) map[string]session.Store {
	all := map[string]session.Store{
		"SQLite": SQLSessions{sessionsTable(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "sessions.db")+"?_pragma=busy_timeout(10000)")},
	}
	if url := os.Getenv("DATABASE_URL"); url != "" {
		all["PostgreSQL"] = SQLSessions{sessionsTable(t, "pgx", url)}
	}
	return all
}

func sessionsTable(t *testing.T, driver, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`DROP TABLE IF EXISTS sessions`,
		`CREATE TABLE sessions (id text PRIMARY KEY, data bytea NOT NULL, version bigint NOT NULL, expires bigint NOT NULL)`,
		`CREATE INDEX sessions_expires ON sessions (expires)`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// Each store fulfils the contract of session.Store.
func TestSessionStores(t *testing.T) {
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			within(t, func(c *filo.Ctx) {
				record := session.Record{Data: []byte("one"), Expires: time.Now().Add(time.Hour)}
				if got, err := store.Load(c, "a"); err != nil || got.Version != 0 {
					t.Fatalf("an absent session is %+v, %v", got, err)
				}
				for i, want := range []bool{true, false} { // the second one has an old version
					if saved, err := store.Save(c, "a", record); saved != want || err != nil {
						t.Fatalf("save %d: %v, %v", i, saved, err)
					}
				}
				got, err := store.Load(c, "a")
				if err != nil || got.Version != 1 || string(got.Data) != "one" || got.Expires.Sub(record.Expires).Abs() > time.Second {
					t.Fatalf("loaded %+v, %v", got, err)
				}
				got.Data = []byte("two")
				if saved, err := store.Save(c, "a", got); !saved || err != nil {
					t.Fatal(saved, err)
				}
				if got, err := store.Load(c, "a"); err != nil || got.Version != 2 || string(got.Data) != "two" {
					t.Fatalf("loaded %+v, %v", got, err)
				}
				if err := store.Delete(c, "a"); err != nil {
					t.Fatal(err)
				}
				got.Version = 2 // as for a request that had loaded the session before the deletion
				if saved, err := store.Save(c, "a", got); saved || err != nil {
					t.Fatalf("a deleted session came back: %v, %v", saved, err)
				}
				expired := session.Record{Data: []byte("old"), Expires: time.Now().Add(time.Millisecond)}
				if saved, err := store.Save(c, "b", expired); !saved || err != nil {
					t.Fatal(saved, err)
				}
			})
		})
	}
}

// If several requests save a session with the same version at the same time, exactly one succeeds.
func TestSessionStoresAtOnce(t *testing.T) {
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			within(t, func(c *filo.Ctx) { c.Context() })
			var saved atomic.Int32
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					within(t, func(c *filo.Ctx) {
						ok, err := store.Save(c, "a", session.Record{Data: []byte("x"), Expires: time.Now().Add(time.Hour)})
						if err != nil {
							t.Error(err)
						} else if ok {
							saved.Add(1)
						}
					})
				})
			}
			all.Wait()
			if saved.Load() != 1 {
				t.Errorf("%d saves", saved.Load())
			}
		})
	}
}

// An expired row doesn't count as a session: Save replaces it, and Clean removes it.
func TestSQLSessionsExpire(t *testing.T) {
	store := stores(t)["SQLite"].(SQLSessions)
	within(t, func(c *filo.Ctx) {
		past := session.Record{Data: []byte("old"), Expires: time.Now().Add(-time.Hour)}
		for _, id := range []string{"a", "b"} {
			if saved, err := store.Save(c, id, past); !saved || err != nil {
				t.Fatal(saved, err)
			}
		}
		if got, err := store.Load(c, "a"); got.Version != 0 || err != nil {
			t.Fatalf("%+v, %v", got, err)
		}
		if saved, err := store.Save(c, "a", session.Record{Data: []byte("new"), Expires: time.Now().Add(time.Hour)}); !saved || err != nil {
			t.Fatal(saved, err)
		}
		if err := store.Clean(c.Context()); err != nil {
			t.Fatal(err)
		}
		var rows int
		if err := store.DB.QueryRow(`SELECT count(*) FROM sessions`).Scan(&rows); err != nil || rows != 1 {
			t.Fatal(rows, err)
		}
	})
}

// A browser keeps its session from request to request with each store.
func TestSessions(t *testing.T) {
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			r := router.New()
			r.Use(session.New(session.Options{Store: store, Insecure: true}))
			r.POST("/login", func(c *filo.Ctx) error {
				current, err := session.Get(c)
				if err != nil {
					return err
				}
				current.Renew()
				current.Set("user", "7")
				return c.NoContent()
			})
			r.GET("/me", func(c *filo.Ctx) error {
				current, err := session.Get(c)
				if err != nil {
					return err
				}
				return c.Text(200, current.Get("user"))
			})
			s := servertest.New(t, r.Serve)
			cookie := s.Do(t, "POST /login").Header.Get("Set-Cookie")
			if got := s.Do(t, "GET /me", "Cookie: "+cookie); got.Body != "7" {
				t.Errorf("%d %q", got.Status, got.Body)
			}
		})
	}
}

// within calls f in a handler.
func within(t *testing.T, f func(c *filo.Ctx)) {
	t.Helper()
	s := servertest.New(t, func(c *filo.Ctx) error {
		f(c)
		return c.NoContent()
	})
	if got := s.Do(t, "GET /"); got.Status != 204 {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}

// A user who has logged out stays logged out, with each store.
func TestSessionsEnd(t *testing.T) {
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			r := router.New()
			r.Use(session.New(session.Options{Store: store, Insecure: true}))
			r.POST("/{what}", func(c *filo.Ctx) error {
				current, err := session.Get(c)
				if err != nil {
					return err
				}
				if c.Param("what") == "logout" {
					current.Destroy()
				} else {
					current.Set("user", "7")
				}
				return c.NoContent()
			})
			r.GET("/me", func(c *filo.Ctx) error {
				current, err := session.Get(c)
				if err != nil {
					return err
				}
				return c.Text(200, current.Get("user"))
			})
			s := servertest.New(t, r.Serve)
			cookie := "Cookie: " + s.Do(t, "POST /login").Header.Get("Set-Cookie")
			if got := s.Do(t, "POST /logout", cookie); got.Status != 204 {
				t.Fatalf("%d %s", got.Status, got.Body)
			}
			if got := s.Do(t, "GET /me", cookie); got.Status != 200 || got.Body != "" {
				t.Errorf("%d %q", got.Status, got.Body)
			}
		})
	}
}
