package main

import (
	"context"
	"errors"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/filohttp/filo"
)

func newStore(t *testing.T, path string) *store {
	t.Helper()
	s, err := openStore(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStoreIsWriteAheadLogged(t *testing.T) {
	s := newStore(t, filepath.Join(t.TempDir(), "todo.db"))
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "1", "busy_timeout": "2000"} {
		var got string
		if err := s.db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", pragma, got, err, want)
		}
	}
}

func TestStoreIsFull(t *testing.T) {
	s := newStore(t, filepath.Join(t.TempDir(), "todo.db"))
	_, err := s.db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < ?)
		INSERT INTO todos (title, created) SELECT 'x', 0 FROM n`, maxTodos-1)
	if err != nil {
		t.Fatal(err)
	}
	last, err := s.add(t.Context(), "the last")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.add(t.Context(), "one too many"); err != errFull {
		t.Errorf("got %v", err)
	}
	if err := s.remove(t.Context(), last.ID); err != nil {
		t.Error(err)
	}
	if _, err := s.add(t.Context(), "there is room again"); err != nil {
		t.Error(err)
	}
}

// While another process locks the file, a client that writes is told to try again later, and reads still succeed.
func TestStoreIsBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "todo.db")
	s, other := newStore(t, path), newStore(t, path)
	first, err := s.add(t.Context(), "before")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := other.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	var httpError *filo.HTTPError
	if _, err := s.add(t.Context(), "while it is locked"); !errors.As(err, &httpError) || httpError.Status != http.StatusServiceUnavailable {
		t.Errorf("got %v", err)
	}
	if got, err := s.get(t.Context(), first.ID); err != nil || got.Title != "before" {
		t.Errorf("reading while it is locked: %+v, %v", got, err)
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.add(t.Context(), "afterwards"); err != nil {
		t.Error(err)
	}
}

func TestStoreFailures(t *testing.T) {
	s := newStore(t, filepath.Join(t.TempDir(), "todo.db"))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.list(gone, nil, math.MaxInt64, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that is gone: %v", err)
	}
	// The schema refuses titles that the handlers refuse, too.
	for _, title := range []string{"", strings.Repeat("x", 201)} {
		if _, err := s.add(t.Context(), title); err == nil || !strings.Contains(err.Error(), "adding a todo: ") {
			t.Errorf("a title of %d bytes: %v", len(title), err)
		}
	}
	if _, err := s.db.Exec("DROP TABLE todos"); err != nil {
		t.Fatal(err)
	}
	var httpError *filo.HTTPError
	if _, err := s.get(t.Context(), 1); err == nil || errors.As(err, &httpError) {
		t.Errorf("without a table: %v", err)
	}
}
