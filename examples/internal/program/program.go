// Package program has code that the main functions of most example programs share. Command echo has this code in its own main function.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/filohttp/filo"
)

// Main calls run with the arguments of the command line, and exits with 1 if it fails. The first SIGINT or SIGTERM ends the context, a second one
// ends the process at once.
func Main(name string, run func(ctx context.Context, args []string, stdout io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Parse parses flags, and fails if there are other arguments.
func Parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	return nil
}

// Serve listens on addr, prints the server's URL, and serves until ctx ends. It returns nil after a complete shutdown.
func Serve(ctx context.Context, server *filo.Server, addr string, stdout io.Writer) error {
	ln, err := server.Listen(addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on http://%s\n", ln.Addr())
	return server.RunListener(ctx, ln)
}

// Background calls serve in a new goroutine, with a listener on a free port of the loopback interface, and returns the listener's address. stop ends
// serve's context, waits until serve has returned, and returns serve's error. It may be called several times.
func Background(serve func(context.Context, net.Listener) error) (address string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	return l.Addr().String(), stop, nil
}
