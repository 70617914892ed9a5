package main

import (
	"strings"
	"testing"
)

// Each server has its row, and those with a limit have refused something.
func TestCompare(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-before", "0s", "-storm", "1s", "-after", "1s"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, name := range []string{"filo, Concurrency and Queue", "filo, AdaptiveLimit", "filo, ConcurrencyLimit", "filo without a limit", "net/http", "fasthttp"} {
		_, row, found := strings.Cut(out.String(), "| "+name+" |")
		cells := strings.Split(row, "|")
		if !found || len(cells) < 8 {
			t.Fatalf("%s has no row:\n%s", name, &out)
		}
		if limited, refuses := strings.HasPrefix(name, "filo, "), strings.TrimSpace(cells[2]) != "0"; refuses != limited {
			t.Errorf("%s refuses %s\n%s", name, cells[2], &out)
		}
	}
}

func TestFlags(t *testing.T) {
	if err := run(t.Context(), []string{"-storm", "1ms"}, nil); err == nil {
		t.Error("a storm of a millisecond is accepted")
	}
}
