package postgres

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/filohttp/filo/bench/internal/database"
)

// A started PostgreSQL has all rows. Nothing is left of it after it is stopped, or after the comparison is interrupted.
func TestStart(t *testing.T) {
	for name, end := range map[string]func(interrupt context.CancelFunc, s *Server){
		"stopped":     func(_ context.CancelFunc, s *Server) { s.Stop() },
		"interrupted": func(interrupt context.CancelFunc, s *Server) { interrupt(); <-s.gone; s.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			s, err := Start(ctx)
			if errors.Is(err, ErrMissing) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop()
			if s.Version == "?" {
				t.Error("its version is unknown")
			}
			pool, err := database.Open(ctx, s.ConnString)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			for _, id := range []int{1, 4711, database.Rows} {
				got, err := pool.Product(ctx, strconv.Itoa(id))
				if want := database.Stored(id).JSON(); err != nil || string(got) != string(want) {
					t.Errorf("row %d is %q, %v, want %q", id, got, err, want)
				}
			}
			for _, id := range []string{"0", strconv.Itoa(database.Rows + 1), "", "x"} {
				if got, err := pool.Product(ctx, id); err == nil {
					t.Errorf("row %q is %q", id, got)
				}
			}
			end(interrupt, s)
			if _, err := os.Stat(s.folder); !os.IsNotExist(err) {
				t.Errorf("its folder: %v", err)
			}
			if got, err := pool.Product(t.Context(), "1"); err == nil {
				t.Errorf("it still answers: %q", got)
			}
		})
	}
}

// The error says why PostgreSQL doesn't start. No files or processes are left.
func TestStartFails(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	s, err := Start(ctx)
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err == nil {
		s.Stop()
		t.Fatal("it starts after the interruption")
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// If PostgreSQL isn't in PATH, find returns the folder of the highest version. If there is none, the error is ErrMissing.
func TestFind(t *testing.T) {
	t.Setenv("PATH", "")
	pattern := filepath.Join(t.TempDir(), "*", "bin")
	if got, err := find(pattern); !errors.Is(err, ErrMissing) {
		t.Errorf("of none it is %q, %v", got, err)
	}
	for _, version := range []string{"9.6", "15", "9.5"} {
		if err := os.MkdirAll(strings.Replace(pattern, "*", version, 1), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := find(pattern); err != nil || got != strings.Replace(pattern, "*", "15", 1) {
		t.Errorf("it is %s, %v", got, err)
	}
}

func TestNoDatabase(t *testing.T) {
	pool, err := database.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Product(t.Context(), "1"); err == nil {
		t.Error("a server without -database has rows")
	}
}
