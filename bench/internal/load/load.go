// Package load runs the load generator as a process of its own, so that it can be bound to a processor and its garbage isn't
// that of who measures.
package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/openloop"
	"github.com/filohttp/filo/bench/internal/proc"
)

// Spec is what a generator does.
type Spec struct {
	Options openloop.Options // without TLS
	Secure  bool             // speaks TLS
	CPUs    []int            // the processors that it is bound to, none for all
}

// Window is called when the measured time begins, and when it ends.
type Window func(begin bool) error

// environment has the generator's process know what it is.
const environment = "FILO_BENCH_GENERATOR"

// The lines by which the generator says where it is. The result follows as one line of JSON.
const (
	beginLine = "begin"
	endLine   = "end"
)

// Main is to be called first by every program that calls Run: it is run once more as the generator, and then doesn't return.
func Main() {
	if os.Getenv(environment) == "" {
		return
	}
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func generate() error {
	var spec Spec
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		return err
	}
	if spec.Secure {
		spec.Options.TLS = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	}
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		watchRun(&spec.Options, func(line string) { fmt.Println(line) })
	}()
	result, err := openloop.Run(context.Background(), spec.Options)
	if err != nil {
		return err
	}
	ended := time.Now()
	<-announced
	if late := time.Since(ended); late > max(spec.Options.Duration/50, 10*time.Millisecond) {
		result.Invalid = append(result.Invalid, fmt.Sprintf("the measured time was announced %v too late", late))
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// Run loads a server as the spec says. Errors that the generator met are in the result.
func Run(ctx context.Context, spec Spec, window Window) (*openloop.Result, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), environment+"=1")
	var messages strings.Builder
	cmd.Stderr = &messages
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := proc.Start(cmd, spec.CPUs); err != nil {
		return nil, err
	}
	sent := send(stdin, &spec)
	result, err := follow(bufio.NewReader(stdout), window)
	if err != nil {
		cmd.Process.Kill()
	}
	if ended := cmd.Wait(); ended != nil && ctx.Err() == nil && messages.Len() > 0 {
		return nil, fmt.Errorf("load generator: %s", strings.TrimSpace(messages.String()))
	}
	return result, errors.Join(err, sent, ctx.Err())
}

// send writes the spec. Options.TLS, which can't be written, is nil.
func send(to io.WriteCloser, spec *Spec) error {
	line, err := json.Marshal(spec) //lint:ignore SA1026 see above
	if err != nil {
		return err
	}
	_, err = to.Write(line)
	return errors.Join(err, to.Close())
}

// follow reads what the generator says.
func follow(out *bufio.Reader, window Window) (*openloop.Result, error) {
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("load generator: no result: %w", err)
		}
		switch line = strings.TrimSpace(line); line {
		case beginLine, endLine:
			if window == nil {
				continue
			}
			if err := window(line == beginLine); err != nil {
				return nil, err
			}
		default:
			result := &openloop.Result{}
			if err := json.Unmarshal([]byte(line), result); err != nil {
				return nil, fmt.Errorf("load generator: its result: %w", err)
			}
			return result, nil
		}
	}
}

// Err says what is wrong with a run, nil if its figures count: errors, an answer that wasn't as wanted, or a rate that wasn't
// kept. The statuses in allowed are no errors; those outside the measured time aren't told apart, and are none then either.
func Err(r *openloop.Result, allowed ...int) error {
	failed := r.Failed()
	if len(allowed) > 0 {
		failed -= r.ErrorsOutside
	}
	for _, status := range allowed {
		failed -= min(failed, r.Statuses[status])
	}
	if failed > 0 {
		return fmt.Errorf("%d errors: %v, %d outside the measured time: %s", failed, r.Errors, r.ErrorsOutside, r.FirstError)
	}
	if r.Answers == 0 {
		return errors.New("there were no answers")
	}
	if len(r.Invalid) > 0 {
		return errors.New(strings.Join(r.Invalid, "; "))
	}
	return nil
}

// lead is how long after the connections have been opened a run begins.
const lead = 20 * time.Millisecond
