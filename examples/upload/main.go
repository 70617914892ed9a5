// Command upload stores request bodies of any size as files, in constant memory: the body goes from the
// connection to the disk through one small buffer. A file appears under its name only when it is whole.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/filohttp/filo"
)

// shutdownGrace is how long running uploads may take after the first signal before they are cut off.
const shutdownGrace = 30 * time.Second

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
		fmt.Fprintln(os.Stderr, "upload:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, lets running uploads finish, and returns nil if all did.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("upload", flag.ContinueOnError)
	addr := flags.String("addr", ":8080", "TCP `address` to listen on")
	dir := flags.String("dir", "uploads", "`directory` that the files go to; made if it isn't there")
	maxBytes := flags.Int64("max-bytes", -1, "largest upload in bytes; more get a 413 (-1: no limit)")
	fsync := flags.Bool("fsync", false, "answer only when the file is on the disk, not just in the kernel's cache")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	files, err := openStore(*dir, *maxBytes, *fsync)
	if err != nil {
		return err
	}
	defer files.close()
	ln, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	server := &filo.Server{Handler: files.handle}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	fmt.Fprintf(stdout, "listening on http://%s, files go to %s\n", ln.Addr(), *dir)

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
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
