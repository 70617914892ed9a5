// Command model streams a model's answers to browsers, as server-sent events, and to MCP clients. Unless you configure a model, it uses a built-in
// one that repeats its prompt.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on a second signal ends the process at once
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "model:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("model", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "`address` to listen on")
	model := flags.String("model", "", "`URL` of the model")
	grace := flags.Duration("grace", time.Minute, "how long answers may take to end after a SIGTERM")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *model == "" {
		echo := httptest.NewServer(adaptor.ToHTTP(parrot(100 * time.Millisecond)))
		defer echo.Close()
		*model = echo.URL
	}
	server := newServer(&Model{URL: *model}, options{})
	server.GracePeriod = *grace
	listener, err := server.Listen(*addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on http://%s\n", listener.Addr())
	return server.RunListener(ctx, listener)
}

// options holds durations that tests shorten.
type options struct {
	patience time.Duration // how long the model continues while no client reads its answer; 0: 5 seconds
	keep     time.Duration // how long a complete answer can be read; 0: a minute
	hold     time.Duration // how long an MCP call holds its connection before the client must reconnect for the rest; 0: 30 seconds
}

func newServer(model *Model, o options) *filo.Server {
	r := router.New()
	r.Use(middleware.AccessLog(), middleware.Recover(), middleware.CSRF())
	a := newAnswers(model, cmp.Or(o.patience, 5*time.Second), cmp.Or(o.keep, time.Minute))
	r.GET("/{$}", page)
	r.POST("/answers", a.ask)
	r.GET("/answers/{id}", a.read)
	r.Any("/mcp", newMCP(model, cmp.Or(o.hold, 30*time.Second)))
	return &filo.Server{Handler: r.Serve}
}
