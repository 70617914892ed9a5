package main

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo"
)

// newSite returns a server with pages that link to each other. Page n links to the pages 2n+1 and 2n+2, so that all can be reached
// from page 0, back to the page before it, and some to a page that isn't there.
func newSite(pages int, work time.Duration) *filo.Server {
	return &filo.Server{
		GracePeriod: time.Second,
		Logger:      slog.New(slog.DiscardHandler),
		Handler: func(c *filo.Ctx) error {
			number, ok := strings.CutPrefix(c.Path(), "/page/")
			n, err := strconv.Atoi(number)
			if !ok || err != nil || n < 0 || n >= pages {
				return filo.Error(404, "there is no such page")
			}
			time.Sleep(work) // as a database would take
			return c.Bytes(200, "text/html; charset=utf-8", []byte(page(n, pages)))
		},
	}
}

func page(n, pages int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!doctype html><title>Page %d</title>\n", n)
	for _, link := range []int{2*n + 1, 2*n + 2, n - 1} {
		if 0 <= link && link < pages {
			fmt.Fprintf(&b, "<a href=\"/page/%d\">page %d</a>\n", link, link)
		}
	}
	if n%100 == 99 {
		fmt.Fprintf(&b, "<a href=\"/page/%d\">a page to come</a>\n", pages+n)
	}
	return b.String()
}
