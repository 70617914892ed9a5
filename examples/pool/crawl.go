package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/filohttp/filo/pool"
	"golang.org/x/time/rate"
)

const (
	// maxPages bounds the links that are still to be followed: a task that submits tasks to its own pool mustn't wait for
	// room there, since all of them might, and so they get a queue that is long enough.
	maxPages = 1 << 20
	// maxPageBytes is how much of a page is read.
	maxPageBytes = 1 << 20
)

// crawl follows links, each page once.
type crawl struct {
	ctx     context.Context
	pool    *pool.Pool
	client  *http.Client
	limiter *rate.Limiter
	pending sync.WaitGroup

	mu       sync.Mutex
	seen     map[string]bool // the pages that are or were to be fetched
	fetched  int
	bytes    int64
	outcomes map[string]int // how often there was each, such as "404 Not Found"
}

func newCrawl(ctx context.Context, workers int, limiter *rate.Limiter) (*crawl, error) {
	p, err := pool.NewPool(workers, pool.WithQueueSize(maxPages), pool.WithNonblocking(true))
	if err != nil {
		return nil, err
	}
	return &crawl{
		ctx:      ctx,
		pool:     p,
		client:   &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: workers}},
		limiter:  limiter,
		seen:     make(map[string]bool),
		outcomes: make(map[string]int),
	}, nil
}

// crawl fetches the page and all that can be reached from it.
func (c *crawl) crawl(address string) {
	c.visit(address)
	c.pending.Wait()
}

// visit has a page fetched, unless that was done before.
func (c *crawl) visit(address string) {
	c.mu.Lock()
	known := c.seen[address]
	c.seen[address] = true
	c.mu.Unlock()
	if known {
		return
	}
	c.pending.Add(1)
	err := c.pool.Submit(func() {
		defer c.pending.Done()
		c.failed(c.fetch(address))
	})
	if err != nil {
		c.pending.Done()
		c.failed(err)
	}
}

// fetch gets a page and visits those that it links to.
func (c *crawl) fetch(address string) error {
	if err := c.limiter.Wait(c.ctx); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(c.ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxPageBytes))
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.fetched++
	c.bytes += int64(len(body))
	c.outcomes[response.Status]++
	c.mu.Unlock()
	for _, link := range links(request.URL, body) {
		c.visit(link)
	}
	return nil
}

var linkPattern = regexp.MustCompile(`<a href="([^"]+)"`)

// links returns the addresses on the same host that a page links to.
func links(base *url.URL, body []byte) (addresses []string) {
	for _, match := range linkPattern.FindAllSubmatch(body, -1) {
		if link, err := base.Parse(string(match[1])); err == nil && link.Host == base.Host {
			addresses = append(addresses, link.String())
		}
	}
	return addresses
}

// failed takes note of an error.
func (c *crawl) failed(err error) {
	if err == nil {
		return
	}
	reason := "other"
	switch {
	case errors.Is(err, context.Canceled):
		reason = "interrupted"
	case errors.Is(err, pool.ErrPoolOverload):
		reason = "too many pages"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes["failed: "+reason]++
}

// bar draws how far the crawl is, so many characters wide.
func (c *crawl) bar(width int) string {
	stats := c.pool.Stats()
	c.mu.Lock()
	defer c.mu.Unlock()
	filled := width * c.fetched / max(len(c.seen), 1)
	return fmt.Sprintf("[%s%s] %d of %d pages, %d under way ", strings.Repeat("#", filled), strings.Repeat(" ", width-filled),
		c.fetched, len(c.seen), stats.Busy)
}

// summary prints what came of it.
func (c *crawl) summary(out io.Writer, took time.Duration) {
	stats := c.pool.Stats()
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(out, "%d pages, %d bytes in %v: %.0f a second\n",
		c.fetched, c.bytes, took.Round(time.Millisecond), float64(c.fetched)/took.Seconds())
	for _, outcome := range slices.Sorted(maps.Keys(c.outcomes)) {
		fmt.Fprintf(out, "  %-16s %d\n", outcome, c.outcomes[outcome])
	}
	fmt.Fprintf(out, "the pool: %d tasks, %d workers started; half of the tasks waited less than %v, 99 in 100 less than %v\n",
		stats.Submitted, stats.Spawned, stats.Waits.Quantile(0.5), stats.Waits.Quantile(0.99))
}

// release ends the pool.
func (c *crawl) release() error {
	c.client.CloseIdleConnections()
	return c.pool.ReleaseTimeout(10 * time.Second)
}
