// Command upload stores request bodies of any size as files, in constant memory: the body goes from the
// connection to the disk through one small buffer. A file appears under its name only when it is whole.
//
// It has no users and no passwords: whoever reaches the address can store files, so it listens on this machine only unless -addr says
// otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/examples/internal/program"
	"github.com/filohttp/filo/middleware"
)

// shutdownGrace is how long running uploads may take after the first signal before they are cut off.
const shutdownGrace = 30 * time.Second

func main() { program.Main("upload", run) }

// run serves until ctx ends, lets running uploads finish, and returns nil if all did.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("upload", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "TCP `address` to listen on")
	hosts := flags.String("hosts", "localhost,127.0.0.1,[::1]", "`hosts` that it is asked for by, without ports, separated by commas")
	dir := flags.String("dir", "uploads", "`directory` that the files go to; made if it isn't there")
	maxBytes := flags.Int64("max-bytes", 10<<30, "largest upload in bytes; more get a 413 (-1: no limit)")
	fsync := flags.Bool("fsync", false, "answer only when the file is on the disk, not just in the kernel's cache")
	if err := program.Parse(flags, args); err != nil {
		return err
	}
	files, err := openStore(*dir, *maxBytes, *fsync)
	if err != nil {
		return err
	}
	defer files.close()
	// Pages of other sites mustn't store files with who visits them, nor read what is there: not across origins (CSRF), and not
	// under a name of theirs that leads here (HostCheck).
	checkHost := middleware.HostCheck(middleware.HostCheckOptions{Hosts: strings.Split(*hosts, ",")})
	checkOrigin := middleware.CSRF()
	server := &filo.Server{Handler: checkHost(checkOrigin(files.handle)), GracePeriod: shutdownGrace}
	ln, err := server.Listen(*addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on http://%s, files go to %s\n", ln.Addr(), *dir)
	return server.RunListener(ctx, ln)
}
