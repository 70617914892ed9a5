// Command openloop loads an HTTP/1.1 server at a constant rate, or as fast as it can, and prints how long answers took.
//
//	openloop -rate 20000 -connections 64 http://127.0.0.1:8080/hello
//	openloop http://127.0.0.1:8080/hello                               # a closed loop: the largest throughput
//	openloop -rate 50 -method POST -body-size 20000000 http://127.0.0.1:8080/upload
//	openloop -rate 1000 -requests mix.json -json result.json https://127.0.0.1:8443
//	openloop -rate 5000 -message hello ws://127.0.0.1:8080/echo
//
// Latency is counted from the time at which a request was to be sent, not from when it was. Each answer is compared with a
// reference: the answer to the same request sent once before. The exit status is 1 if there was an error, or the figures
// are no good because the generator was late or the rate couldn't be kept.
//
// A file for -requests holds a list of requests, which are sent in proportion to their weights. Those of one name get a line
// of the table together:
//
//	[{"name": "quick", "weight": 9, "target": "/quick"},
//	 {"name": "slow", "target": "/slow", "method": "POST", "header": ["Content-Type: text/plain"], "body": "x", "status": 201}]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/filohttp/filo/bench/internal/openloop"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "openloop:", err)
		os.Exit(1)
	}
}

// errInvalid says that there is a result, which tells why it is no good.
var errInvalid = errors.New("the figures are no good")

// run does what the arguments say.
func run(ctx context.Context, args []string, out, messages io.Writer) error {
	s, err := parseFlags(args, messages)
	if err != nil {
		return err
	}
	if s.check != checkStatus && s.options.WebSocket == nil {
		if err := s.learn(ctx); err != nil {
			return err
		}
	}
	result, err := openloop.Run(ctx, s.options)
	if err != nil {
		return err
	}
	if s.json != "-" {
		if err := result.WriteTable(out); err != nil {
			return err
		}
	}
	if s.json != "" {
		if err := writeJSON(s.json, result, out); err != nil {
			return err
		}
	}
	switch {
	case result.Failed() > 0:
		return fmt.Errorf("%d errors", result.Failed())
	case len(result.Invalid) > 0:
		return errInvalid
	}
	return nil
}

// learn asks for the reference answers.
func (s *settings) learn(ctx context.Context) error {
	for i := range s.options.Requests {
		r := &s.options.Requests[i]
		answer, err := openloop.Reference(ctx, s.options, *r)
		if err != nil {
			return err
		}
		want := r.Want.Status
		if want == 0 {
			want = 200
		}
		if answer.Status != want {
			return fmt.Errorf("the answer to %s %s has status %d, not %d; -status says which is wanted",
				r.Method, r.Target, answer.Status, want)
		}
		if s.check == checkBody {
			r.Want.Body = answer.Body
		} else {
			r.Want.Length = int64(len(answer.Body))
		}
	}
	return nil
}

// writeJSON writes the result to a file, or to out if its name is "-".
func writeJSON(name string, result *openloop.Result, out io.Writer) error {
	b, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if name == "-" {
		_, err = out.Write(b)
		return err
	}
	return os.WriteFile(name, b, 0o644)
}
