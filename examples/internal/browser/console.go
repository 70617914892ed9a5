package browser

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// console collects the errors of a browser's pages.
type console struct {
	t testing.TB

	mu      sync.Mutex
	allowed []*regexp.Regexp
	errors  []string
	logs    []string
}

type consoleKey struct{}

func newConsole(t testing.TB) *console {
	c := &console{t: t}
	t.Cleanup(c.report)
	return c
}

func consoleOf(tab context.Context) *console {
	return tab.Value(consoleKey{}).(*console)
}

// Allow ignores errors in the pages of the tab's browser that match the regular expression, such as those that a test causes when it stops the
// server.
func Allow(tab context.Context, expression string) {
	c := consoleOf(tab)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowed = append(c.allowed, regexp.MustCompile(expression))
}

// listen is called with each event of a tab. It must neither block nor send commands to the browser.
func (c *console) listen(event any) {
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		c.add(describe(event.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.ConsoleAPICalledTypeError || event.Type == runtime.ConsoleAPICalledTypeAssert {
			c.add("console: " + join(event.Args))
		}
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError {
			c.add(fmt.Sprintf("%s: %s (%s)", event.Entry.Source, event.Entry.Text, event.Entry.URL))
		}
	}
}

// describe returns the text of an exception and the position at which it was thrown.
func describe(e *runtime.ExceptionDetails) string {
	text := e.Text
	if e.Exception != nil {
		text += " " + join([]*runtime.RemoteObject{e.Exception})
	}
	return fmt.Sprintf("%s (%s:%d)", text, e.URL, e.LineNumber+1)
}

// join returns the values in one line.
func join(values []*runtime.RemoteObject) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = cmp.Or(v.Description, string(v.Value))
	}
	return strings.Join(texts, " ")
}

func (c *console) add(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errors = append(c.errors, text)
}

// logf stores a line of chromedp's log, which is printed if the test fails.
func (c *console) logf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs = append(c.logs, fmt.Sprintf(format, args...))
}

// complete waits until all errors that have already occurred in a tab have been received. It runs a command, since the answer to a command
// arrives after all earlier events.
func (c *console) complete(tab context.Context) {
	if _, err := chromedp.Run(tab, chromedp.Evaluate[int]("0")); err != nil {
		c.add(fmt.Sprintf("the tab doesn't answer any more: %v", err))
	}
}

// report fails the test if a page had an error.
func (c *console) report() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range c.errors {
		if !slices.ContainsFunc(c.allowed, func(r *regexp.Regexp) bool { return r.MatchString(text) }) {
			c.t.Errorf("an error in the browser: %s", text)
		}
	}
	if c.t.Failed() {
		for _, text := range c.logs {
			c.t.Log(text)
		}
	}
}
