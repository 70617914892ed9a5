// Command leave serves one application twice, with filo and with net/http, and compares the answers. serve.go has the line that serves the
// application, once for each server. The application in app.go depends on neither server.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"

	"github.com/filohttp/filo/examples/internal/program"
)

func main() { program.Main("leave", run) }

// run sends both servers the same requests, and prints their answers. It returns an error if their answers differ.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("leave", flag.ContinueOnError)
	verbose := flags.Bool("v", false, "print each answer whole")
	addr := flags.String("serve", "", "don't compare: let net/http serve the application on this address, so that you can ask it yourself")
	if err := program.Parse(flags, args); err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) }
	if *addr != "" {
		l, err := net.Listen("tcp", *addr)
		if err != nil {
			return err
		}
		say("net/http serves the application on http://%s: GET /hello/you, for example. Ctrl-C ends it.", l.Addr())
		if err := byNetHTTP(ctx, l); ctx.Err() == nil {
			return err
		}
		return nil
	}
	filo, stop, err := program.Background(byFilo)
	if err != nil {
		return err
	}
	defer stop()
	netHTTP, stop, err := program.Background(byNetHTTP)
	if err != nil {
		return err
	}
	defer stop()

	say("%-40s %-10s %-10s %s", "request", "filo", "net/http", "same fields and body")
	unlike := 0
	for _, q := range questions {
		a, err := q.ask(ctx, filo)
		if err != nil {
			return fmt.Errorf("filo: %s: %w", q.name(), err)
		}
		b, err := q.ask(ctx, netHTTP)
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
