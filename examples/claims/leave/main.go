// Command leave serves one application twice, by filo and by net/http, and compares what their clients get. The line that serves it
// is in serve.go, once for each; the application in app.go knows of neither.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "leave:", err)
		os.Exit(1)
	}
}

// run asks both servers the same, and prints what they have answered. It returns an error if their answers differ.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("leave", flag.ContinueOnError)
	verbose := flags.Bool("v", false, "print each answer whole")
	addr := flags.String("serve", "", "don't compare: let net/http serve the application on this address, so that you can ask it yourself")
	switch err := flags.Parse(args); {
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	say := func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) }
	if *addr != "" {
		l, err := net.Listen("tcp", *addr)
		if err != nil {
			return err
		}
		say("net/http serves the application on http://%s: GET /hello/you, for example. Ctrl-C ends it.", l.Addr())
		if err := byNetHTTP(ctx, newServer(), l); ctx.Err() == nil {
			return err
		}
		return nil
	}
	filo, err := start(byFilo)
	if err != nil {
		return fmt.Errorf("filo: %w", err)
	}
	defer filo.stop()
	netHTTP, err := start(byNetHTTP)
	if err != nil {
		return fmt.Errorf("net/http: %w", err)
	}
	defer netHTTP.stop()

	say("%-40s %-10s %-10s %s", "request", "filo", "net/http", "same fields and body")
	unlike := 0
	for _, q := range questions {
		a, err := filo.ask(ctx, q)
		if err != nil {
			return fmt.Errorf("filo: %s: %w", q.name(), err)
		}
		b, err := netHTTP.ask(ctx, q)
		if err != nil {
			return fmt.Errorf("net/http: %s: %w", q.name(), err)
		}
		same := "yes"
		if differences := a.unlike(b); differences != "" {
			unlike++
			same = "no: " + differences
		}
		say("%-40s %-10d %-10d %s", q.name(), a.status, b.status, same)
		if *verbose {
			say("%s", a)
		}
	}
	say("")
	if unlike > 0 {
		say("FAIL: %d of %d answers differ.", unlike, len(questions))
		return fmt.Errorf("%d of %d answers differ", unlike, len(questions))
	}
	say("PASS: all %d answers have the same status, fields and body, but for the time in Date.", len(questions))
	return nil
}
