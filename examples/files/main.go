// Command files is a small file store with a page: files are uploaded in pieces that may break off anywhere, and downloaded in
// ranges.
//
//	go run ./files                          # http://localhost:8080, with the files in ./stored
//	go run ./files -addr :9000 -dir /srv/files -max-bytes 1000000000
//	curl -OC - localhost:8080/files/big.iso # goes on where the download broke off
//
// Package static serves the page and the files. Uploads follow tus 1.0.0 (https://tus.io/protocols/resumable-upload), so that its
// clients work as well. It has no users and no passwords: whoever reaches the address can read, add and delete everything.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/filohttp/filo"
)

// shutdownGrace is how long running requests may take after the first signal before they are cut off. Uploads end at once: they
// go on when the server is back.
const shutdownGrace = 10 * time.Second

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		// Before the shutdown begins the default action is back, so that a second signal ends the process at once.
		signal.Stop(signals)
		cancel()
	}()

	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "files:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and returns nil after a complete shutdown.
func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("files", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "TCP `address` to listen on")
	dir := flags.String("dir", "stored", "`directory` with the files; made if it isn't there")
	var limits limits
	flags.Int64Var(&limits.fileBytes, "max-bytes", 10<<30, "largest file in `bytes`")
	flags.Int64Var(&limits.totalBytes, "max-total", 40<<30, "`bytes` of all files together, unfinished ones included")
	flags.DurationVar(&limits.expiry, "expire", 24*time.Hour, "how long an upload may lie unfinished")
	flags.DurationVar(&limits.stall, "stall", 30*time.Second, "how long an upload may send nothing before it is broken off")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	files, err := openStore(*dir, limits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.close()) }()
	site, err := newSite(files, *dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.close()) }()
	return serve(ctx, &filo.Server{Handler: site.handler}, *addr, stdout)
}

func serve(ctx context.Context, server *filo.Server, addr string, stdout io.Writer) error {
	ln, err := server.Listen(addr)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	fmt.Fprintf(stdout, "listening on http://%s\n", ln.Addr())

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	fmt.Fprintln(stdout, "shutting down; a second signal ends at once")
	limit, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(limit); err != nil {
		return errors.Join(fmt.Errorf("shutdown: %w", err), server.Close())
	}
	if err := <-served; !errors.Is(err, filo.ErrServerClosed) {
		return err
	}
	return nil
}
