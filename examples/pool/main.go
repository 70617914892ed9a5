// Command pool crawls a site with a pool of goroutines. It starts the site itself, a filo server on a free port whose pages
// link to each other, follows every link once, with a limit on how many pages are fetched at once and another one on how
// many a second, shows how far it is, and ends with a summary.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/filohttp/filo/examples/internal/program"
	"golang.org/x/time/rate"
)

func main() { program.Main("pool", run) }

type config struct {
	pages   int           // of the site
	work    time.Duration // how long the site takes for one
	workers int           // how many are fetched at once
	rate    float64       // how many are fetched a second; 0 is no limit
}

func parseFlags(args []string) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("pool", flag.ContinueOnError)
	flags.IntVar(&cfg.pages, "pages", 2000, "pages of the site")
	flags.DurationVar(&cfg.work, "work", 10*time.Millisecond, "how long the site takes for a page")
	flags.IntVar(&cfg.workers, "workers", 16, "pages that are fetched at once")
	flags.Float64Var(&cfg.rate, "rate", 0, "pages that are fetched a second, 0 for no limit")
	if err := program.Parse(flags, args); err != nil {
		return config{}, err
	}
	if cfg.pages < 1 || cfg.work < 0 || cfg.workers < 1 || cfg.rate < 0 {
		return config{}, errors.New("-pages and -workers are at least 1, -work and -rate not negative")
	}
	return cfg, nil
}

// run crawls the site and prints what came of it. It returns ctx's error if ctx was done before the end.
func run(ctx context.Context, args []string, out io.Writer) error {
	cfg, err := parseFlags(args)
	if err != nil {
		return err
	}
	address, stop, err := program.Background(newSite(cfg.pages, cfg.work).RunListener)
	if err != nil {
		return err
	}
	defer stop() // after a crawl that was broken off, pages may be cut
	limiter := rate.NewLimiter(rate.Inf, 1)
	if cfg.rate > 0 {
		limiter.SetLimit(rate.Limit(cfg.rate))
	}
	c, err := newCrawl(ctx, cfg.workers, limiter)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d pages at %s, %d at once\n", cfg.pages, address, cfg.workers)
	begun := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.crawl("http://" + address + "/page/0")
	}()
	watch(c, done, out)
	c.summary(out, time.Since(begun))
	return errors.Join(c.release(), ctx.Err())
}

// watch shows how far the crawl is until it is done: a bar that is drawn anew on a terminal, and nothing elsewhere.
func watch(c *crawl, done <-chan struct{}, out io.Writer) {
	file, ok := out.(*os.File)
	if ok {
		info, err := file.Stat()
		ok = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	if !ok {
		<-done
		return
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprintf(out, "\r%s", c.bar(40))
		case <-done:
			fmt.Fprintf(out, "\r%s\n", c.bar(40))
			return
		}
	}
}
