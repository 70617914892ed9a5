// Command overload shows what filo does with more clients than it may serve. It starts a server with a
// small Concurrency and a slow handler, lets regular clients use most of it, sends a crowd on top, and
// prints who got what. It ends by itself.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"time"

	"github.com/filohttp/filo/examples/internal/program"
)

func main() { program.Main("overload", run) }

// config sizes the show.
type config struct {
	concurrency int           // the server's limit
	regulars    int           // clients that were there first, each on one kept connection
	crowd       int           // clients that come on top, each request on a connection of its own
	work        time.Duration // how long the handler takes
	storm       time.Duration // how long the crowd stays; the calm before takes half of it
}

func parseFlags(args []string) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("overload", flag.ContinueOnError)
	flags.IntVar(&cfg.concurrency, "concurrency", 20, "connections that the server serves at once, at least 4")
	flags.IntVar(&cfg.crowd, "crowd", 100, "clients that come on top")
	flags.DurationVar(&cfg.work, "work", 50*time.Millisecond, "how long the handler takes")
	flags.DurationVar(&cfg.storm, "storm", 2*time.Second, "how long the crowd stays")
	if err := program.Parse(flags, args); err != nil {
		return config{}, err
	}
	if cfg.concurrency < 4 || cfg.crowd < 1 || cfg.work <= 0 || cfg.storm <= 0 {
		return config{}, errors.New("-concurrency is at least 4, and -crowd, -work and -storm are positive")
	}
	// A quarter of the places stays free, so that some of the crowd are served as well.
	cfg.regulars = cfg.concurrency * 3 / 4
	return cfg, nil
}

// run plays the show and prints it. An error says what went otherwise than promised.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	cfg, err := parseFlags(args)
	if err != nil {
		return err
	}
	result, err := play(ctx, cfg)
	if err != nil {
		return err
	}
	result.print(stdout, cfg)
	return result.verdict()
}
