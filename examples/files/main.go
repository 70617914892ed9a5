// Command files is a small file store with a page. Files are uploaded in pieces, so that an interrupted upload can continue, and downloaded in
// ranges.
//
//	go run ./files                          # http://localhost:8080, with the files in ./stored
//	go run ./files -addr :9000 -hosts files.example -dir /srv/files -max-bytes 1000000000
//	curl -T big.iso localhost:8080/files/   # a whole file in one request
//	curl -OC - localhost:8080/files/big.iso # goes on where the download broke off
//
// Package static serves the page and the files. Uploads follow tus 1.0.0 (https://tus.io/protocols/resumable-upload), so that its
// clients work as well. The program has no users and no passwords: everyone who can reach the address can read, add and delete all files.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/examples/internal/program"
)

// shutdownGrace is how long running requests may take after the first signal before they are cut off. Uploads are cut off at once, and continue when
// the server is back.
const shutdownGrace = 10 * time.Second

func main() { program.Main("files", run) }

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
	if err := program.Parse(flags, args); err != nil {
		return err
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
	return program.Serve(ctx, &filo.Server{Handler: site.handler, GracePeriod: shutdownGrace}, *addr, stdout)
}
