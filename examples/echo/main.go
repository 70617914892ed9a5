// Command echo has a greeting, an echo that streams, and a page that shows the running program and its counters. It shuts down gracefully on SIGINT
// and SIGTERM.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/examples/internal/selfsigned"
)

// shutdownGrace is how long running requests may take after the first signal before they are cut off.
const shutdownGrace = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

// config holds the values of the flags; the zero value of a limit leaves filo's default.
type config struct {
	addr              string
	concurrency       int
	maxIdleWorker     time.Duration
	driver            filo.Driver
	leaders           int
	h2c               bool
	certFile, keyFile string
	selfSigned        bool
}

func parseFlags(args []string) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("echo", flag.ContinueOnError)
	flags.StringVar(&cfg.addr, "addr", "127.0.0.1:8080", "TCP `address` to listen on; :8080 is all networks")
	flags.IntVar(&cfg.concurrency, "concurrency", 0, "handlers that run at once and may wait; more requests get a 503 (0: filo's default)")
	flags.DurationVar(&cfg.maxIdleWorker, "max-idle-worker", 0, "a worker idle for this long retires (0: filo's default)")
	blocking := flags.Bool("blocking", false, "serve with the blocking driver, where a connection has a worker while it lives")
	flags.IntVar(&cfg.leaders, "leaders", 0, "leaders of the loop driver (0: one for each processor)")
	flags.BoolVar(&cfg.h2c, "h2c", true, "speak HTTP/2 without TLS with clients that begin with it")
	flags.StringVar(&cfg.certFile, "tls-cert", "", "certificate `file` (PEM); with -tls-key the server speaks HTTPS")
	flags.StringVar(&cfg.keyFile, "tls-key", "", "private key `file` (PEM)")
	flags.BoolVar(&cfg.selfSigned, "self-signed", false, "speak HTTPS with a certificate that is made at the start")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if *blocking {
		cfg.driver = filo.DriverBlocking
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	if (cfg.certFile == "") != (cfg.keyFile == "") {
		return config{}, errors.New("-tls-cert and -tls-key go together")
	}
	if cfg.selfSigned && cfg.certFile != "" {
		return config{}, errors.New("-self-signed needs no -tls-cert and -tls-key")
	}
	return cfg, nil
}

// run serves until ctx ends and then shuts down: running requests finish, new ones are refused. It
// returns nil after a complete shutdown.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	cfg, err := parseFlags(args)
	if err != nil {
		return err
	}
	scheme := "http"
	if cfg.certFile != "" || cfg.selfSigned {
		scheme = "https"
	}
	server := &filo.Server{
		Handler:               newHandler(scheme),
		Concurrency:           cfg.concurrency,
		MaxIdleWorkerDuration: cfg.maxIdleWorker,
		Driver:                cfg.driver,
		Leaders:               cfg.leaders,
		GracePeriod:           shutdownGrace,
		HTTP2:                 filo.HTTP2Options{Unencrypted: cfg.h2c}, // over TLS, HTTP/2 is enabled by default
	}
	if cfg.selfSigned {
		certificate, err := selfsigned.Certificate()
		if err != nil {
			return err
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
	}
	ln, err := server.Listen(cfg.addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on %s://%s\n", scheme, ln.Addr())
	if scheme == "https" {
		return server.RunListenerTLS(ctx, ln, cfg.certFile, cfg.keyFile)
	}
	return server.RunListener(ctx, ln)
}
