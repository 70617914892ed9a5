package postgres

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/filohttp/filo/bench/internal/database"
)

// A started PostgreSQL has all rows, and leaves nothing behind: when it is stopped, and when the comparison is interrupted.
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
			pool := database.Open(s.ConnString)
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

// What keeps PostgreSQL from starting is told, and what was begun is removed.
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

func TestNewest(t *testing.T) {
	folders := []string{"/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/9.5/bin"}
	if got := newest(folders); got != folders[1] {
		t.Errorf("it is %s", got)
	}
}

func TestNoDatabase(t *testing.T) {
	if _, err := database.Open("").Product(t.Context(), "1"); err == nil {
		t.Error("a server without -database has rows")
	}
}
