package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/filohttp/filo"
)

// maxLines is how many lines of the log are kept.
const maxLines = 2000

// tail keeps the last lines of a log. Each Write is a line.
type tail struct {
	also io.Writer

	mu    sync.Mutex
	lines []string // a ring buffer; once it is full, next is the index of the oldest line
	next  int
}

func newTail(also io.Writer) *tail { return &tail{also: also} }

func (t *tail) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) < maxLines {
		t.lines = append(t.lines, string(line))
	} else {
		t.lines[t.next] = string(line)
		t.next = (t.next + 1) % maxLines
	}
	return t.also.Write(line)
}

// with returns the lines that contain a text, the oldest first.
func (t *tail) with(text string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []string
	for _, line := range slices.Concat(t.lines[t.next:], t.lines[:t.next]) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// serve answers with the lines, or with those of one trace if the query names one.
func (t *tail) serve(c *filo.Ctx) error {
	var b bytes.Buffer
	for _, line := range t.with(c.Query("trace")) {
		b.WriteString(line)
	}
	c.Response.Header.Set("Cache-Control", "no-store")
	c.Response.Header.Set("X-Content-Type-Options", "nosniff")
	return c.Bytes(200, "text/plain; charset=utf-8", b.Bytes())
}
