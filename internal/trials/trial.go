//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/soak/kit"
)

// options holds the values of the command line's flags.
type options struct {
	seed   uint64
	short  bool
	only   string
	output io.Writer
	begun  func() // if set, called when a trial's programs run
}

// trial is a fault, and the function that tries it.
type trial struct {
	fault string
	short bool // the flag -short includes it
	try   func(a *attempt) error
}

// errUnrun is wrapped by the error of a trial that this machine can't run.
var errUnrun = errors.New("not run")

// attempt is one run of a trial.
type attempt struct {
	options
	ctx context.Context
	// The result:
	outcome outcome
	log     map[string]int
	notes   []string // shown in the table
	failed  []error
}

func (a *attempt) fail(format string, values ...any) {
	a.failed = append(a.failed, fmt.Errorf(format, values...))
}

// begins must be called once the trial's programs run.
func (a *attempt) begins() {
	if a.begun != nil {
		a.begun()
	}
}

// add adds the results of clients.
func (a *attempt) add(o outcome) {
	for name, n := range o.Right {
		a.outcome.Right[name] += n
	}
	for kind, n := range o.Errors {
		a.outcome.Errors[kind] += n
	}
	a.outcome.Lost += o.Lost
	a.outcome.Wrong = append(a.outcome.Wrong, o.Wrong...)
}

// run tries the fault, and returns a row of the table.
func (t trial) run(ctx context.Context, o options) (row string, err error) {
	a := &attempt{options: o, ctx: ctx, log: map[string]int{}, outcome: outcome{Right: map[string]int{}, Errors: map[string]int{}}}
	err = t.try(a)
	for _, wrong := range a.outcome.Wrong {
		a.fail("%s", wrong)
	}
	left := "nothing"
	switch err = errors.Join(err, errors.Join(a.failed...)); {
	case errors.Is(err, errUnrun):
		left = err.Error()
	case err != nil:
		left = "FAILED, see below"
	}
	return fmt.Sprintf("| %s | %d | %s | %d | %s | %s | %s |\n", t.fault, a.outcome.right(), counted(a.outcome.Errors), a.outcome.Lost,
		counted(a.log), strings.Join(a.notes, ", "), left), err
}

// trials returns the trials to run.
func (o options) trials() []trial {
	return slices.DeleteFunc(slices.Concat(networkTrials(), callTrials(), hostTrials()), func(t trial) bool {
		return !strings.Contains(t.fault, o.only) || o.short && !t.short
	})
}

// run runs the trials, and fails if one of them does.
func run(ctx context.Context, o options) error {
	all := o.trials()
	if len(all) == 0 {
		return fmt.Errorf("there is no trial %q", o.only)
	}
	began := time.Now()
	fmt.Fprintf(o.output, "trials: with -seed %d\n\n| fault | right | errors | lost | the server's log | besides | left behind |\n|---|---|---|---|---|---|---|\n", o.seed)
	var failed []error
	tried := 0
	for _, t := range all {
		row, err := t.run(ctx, o)
		tried++
		fmt.Fprint(o.output, row)
		if err != nil && !errors.Is(err, errUnrun) {
			failed = append(failed, fmt.Errorf("%s: %w", t.fault, err))
		}
		if ctx.Err() != nil || len(failed) == mostFailed {
			break
		}
	}
	fmt.Fprintf(o.output, "\ntrials: %d of %d in %v\n", tried, len(all), time.Since(began).Round(time.Second))
	return errors.Join(append(failed, ctx.Err())...)
}

// mostFailed is the number of failed trials after which the remaining trials are skipped.
const mostFailed = 10

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

// counted lists the names with their counts, the most frequent first.
func counted(all map[string]int) string {
	var list []string
	for _, name := range slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(all[b]-all[a], strings.Compare(a, b)) }) {
		list = append(list, fmt.Sprintf("%s (%d)", strings.ReplaceAll(name, "|", "/"), all[name]))
	}
	return strings.Join(list, ", ")
}

// stage is a server with its clients.
type stage struct {
	*attempt
	server  *process
	clients *process // nil: this process
	link    *link    // nil: the loopback
	addresses
	start state // of the server, before clients have connected
	spare int   // the number of descriptors that the server may open later and keep
}

// newStage starts a server. If p isn't nil, it also starts a process for the clients, and a link between the two.
func (a *attempt) newStage(o orders, p *path, environment ...string) (s *stage, err error) {
	s = &stage{attempt: a}
	o.Seed, o.Address = a.seed, loopback
	if o.Listen {
		s.spare = 2 // the server reserves a descriptor for each listener, so that it can still accept a connection when descriptors run out
	}
	if p != nil {
		o.Address, o.Path = serverAddress, *p
	}
	if s.server, err = start(a.ctx, o, environment...); err != nil {
		return nil, err
	}
	if p != nil {
		if s.clients, err = start(a.ctx, orders{Clients: true, Address: clientAddress, Path: *p}); err != nil {
			s.close()
			return nil, err
		}
		s.link = newLink(*p, a.seed, s.server.device, s.clients.device)
	}
	a.begins()
	return s, nil
}

// close ends what newStage has started.
func (s *stage) close() {
	for _, p := range []*process{s.clients, s.server} {
		if p != nil {
			p.stop()
		}
	}
	if s.link != nil {
		s.link.close()
	}
}

// serve makes the server serve.
func (s *stage) serve() error {
	var answer struct {
		addresses
		state
	}
	if err := s.server.ask("serve", &answer); err != nil {
		return err
	}
	if answer.Err != "" {
		return errors.New(answer.Err)
	}
	s.addresses = answer.addresses
	return s.server.ask("report", &s.start)
}

// load lets clients work, and returns their results.
func (s *stage) load(l load, begun func()) (result outcome, err error) {
	l.addresses, l.Seed = s.addresses, s.seed
	l.Clients, l.Large, l.Patience = cmp.Or(l.Clients, 2), cmp.Or(l.Large, 200<<10), cmp.Or(l.Patience, 20*time.Second)
	if s.clients == nil {
		return l.run(begun), nil
	}
	text, err := json.Marshal(l)
	if err != nil {
		return result, err
	}
	return result, s.clients.ask(string(text), &result)
}

// settleTime is how long a server may take to release the resources of clients that have left.
const settleTime = 30 * time.Second

// awaitRest waits until the server has no more resources than before clients connected.
func (s *stage) awaitRest() error {
	for end := time.Now().Add(settleTime); ; time.Sleep(50 * time.Millisecond) {
		var now state
		if err := s.server.ask("report", &now); err != nil {
			return err
		}
		before, after := s.start.Footprint, now.Footprint
		if now.Conns == 0 && now.Handlers == 0 && after.Goroutines <= before.Goroutines && len(after.Descriptors) <= len(before.Descriptors)+s.spare &&
			after.Memory <= before.Memory+kit.KeptBuffers+kit.MemorySlack {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("left behind: %d connections, %d handlers, %s; there were %s\n%s", now.Conns, now.Handlers, after, before,
				strings.Join(after.Descriptors, "\n"))
		}
	}
}

// finish checks that the server has released all resources of the clients, shuts the server down and reads its log.
func (s *stage) finish() error {
	restErr := s.awaitRest()
	var end state
	if err := s.server.ask("end", &end); err != nil {
		return errors.Join(restErr, err)
	}
	for said, n := range end.Log {
		s.log[said] += n
		if strings.Contains(said, "panic") {
			s.fail("the server has logged: %s", said)
		}
	}
	if end.Err != "" {
		restErr = errors.Join(restErr, fmt.Errorf("shutting down: %s", end.Err))
	}
	return restErr
}

// perfect adds the results of clients. The attempt fails unless all requests got correct answers.
func (a *attempt) perfect(o outcome, when string) {
	a.add(o)
	a.answered(o, when)
	if len(o.Errors) > 0 {
		a.fail("%s: unexpected errors: %s", when, counted(o.Errors))
	}
}

// answered makes the attempt fail unless each protocol had correct answers, and each request got an answer or an error.
func (a *attempt) answered(o outcome, when string) {
	for _, protocol := range protocols {
		if o.Right[protocol.name] == 0 {
			a.fail("%s: nobody has got an answer by %s", when, protocol.name)
		}
	}
	if o.Lost > 0 {
		a.fail("%s: %d requests have got neither an answer nor an end", when, o.Lost)
	}
}
