// Command files is a small file store with a page: files are uploaded in pieces that may break off anywhere, and downloaded in
// ranges.
//
//	go run ./files                          # http://localhost:8080, with the files in ./stored
//	go run ./files -addr :9000 -hosts files.example -dir /srv/files -max-bytes 1000000000
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
	"strings"
	"syscall"
	"time"

	"github.com/filohttp/filo"
)

// shutdownGrace is how long running requests may take after the first signal before they are cut off. Uploads end at once: they
// go on when the server is back.
const shutdownGrace = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
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
	hosts := flags.String("hosts", "localhost,127.0.0.1,[::1]", "`hosts` that it is asked for by, without ports, separated by commas")
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
	site, err := newSite(files, *dir, strings.Split(*hosts, ","))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.close()) }()
	return serve(ctx, &filo.Server{Handler: site.handler, GracePeriod: shutdownGrace}, *addr, stdout)
}

func serve(ctx context.Context, server *filo.Server, addr string, stdout io.Writer) error {
	ln, err := server.Listen(addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on http://%s\n", ln.Addr())
	return server.RunListener(ctx, ln)
}
