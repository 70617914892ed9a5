package filo

import (
	"strings"
	"testing"
)

// leftover names what is counted although nothing is open, also if a count is too low.
func TestLeftover(t *testing.T) {
	s := &Server{Handler: func(*Ctx) error { return nil }}
	if left := s.leftover(); left != "" {
		t.Errorf("before the server is configured: %s", left)
	}
	s.configure()
	if left := s.leftover(); left != "" {
		t.Errorf("of a new server: %s", left)
	}
	s.pool.places.TakeBeyond()
	s.pool.spawned++
	s.answers.Wait(1)
	if left := s.leftover(); !strings.Contains(left, "ordinary places: 1\nworkers that haven't retired: 1\n") ||
		!strings.Contains(left, "handlers that wait for windows: 1\n") {
		t.Errorf("%q", left)
	}
}
