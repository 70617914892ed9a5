package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCrawl(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-pages", "300", "-work", "0s", "-workers", "8"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	// Each hundredth page links to one that isn't there.
	for _, want := range []string{"303 pages, ", "200 OK           300", "404 Not Found    3", "the pool: 303 tasks, "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, &out)
		}
	}
}

func TestRate(t *testing.T) {
	var out bytes.Buffer
	begun := time.Now()
	if err := run(t.Context(), []string{"-pages", "21", "-work", "0s", "-rate", "100"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if took := time.Since(begun); took < 190*time.Millisecond {
		t.Errorf("21 pages at 100 a second took %v", took)
	}
}

// An interrupt ends the crawl, with a summary of what there is.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	err := run(ctx, []string{"-pages", "100000", "-work", "1ms", "-workers", "2"}, &out)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(out.String(), "the pool: ") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-pages", "0"}, {"-workers", "0"}, {"-work", "-1s"}, {"-rate", "-1"}, {"more"}} {
		if err := run(t.Context(), args, new(bytes.Buffer)); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}
