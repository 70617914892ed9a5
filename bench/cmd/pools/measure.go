package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// figures are the results of one run, or the medians of several.
type figures struct {
	Wall, CPU float64 // ns per task

	// The time from the call that submits a task to its start, in ns.
	WaitP50, WaitP99, WaitMax float64

	Fairness float64 // from 0 to 1; negative if it wasn't measured
	Bytes    float64 // allocated per task
	Memory   float64 // the process's peak, MB

	Tasks float64
}

// runLimit is how long a run may take, with all that is around it.
const runLimit = 2 * time.Minute

// startRun has a process of its own carry out an order.
func startRun(ctx context.Context, o order) (figures, error) {
	var f figures
	program, err := os.Executable()
	if err != nil {
		return f, err
	}
	in, err := json.Marshal(o)
	if err != nil {
		return f, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not done after %v", runLimit))
	defer cancel()
	var out, complaint bytes.Buffer
	process := exec.CommandContext(ctx, program, measureCommand)
	process.Stdin, process.Stdout, process.Stderr = bytes.NewReader(in), &out, &complaint
	if err := process.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		first, _, _ := strings.Cut(complaint.String(), "\n")
		return f, fmt.Errorf("the run failed: %w: %s", err, first)
	}
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		return f, fmt.Errorf("the run's answer %q: %w", out.String(), err)
	}
	return f, nil
}

// serveRun is the other side of startRun.
func serveRun(in io.Reader, out io.Writer) error {
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("%s wants an order as JSON: %w", measureCommand, err)
	}
	f, err := measure(o)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(f)
}

// measure carries out an order in this process.
func measure(o order) (figures, error) {
	p, k := findPeer(o.Pool), findKind(o.Kind)
	if p == nil || k == nil {
		return figures{}, fmt.Errorf("there is no pool %q or no kind of task %q", o.Pool, o.Kind)
	}
	pool, err := p.start(o.Capacity)
	if err != nil {
		return figures{}, err
	}
	newLoad := func() *load {
		return &load{task: k.task(o.Loops), submitters: o.Submitters, sampleEvery: o.SampleEvery}
	}
	l := newLoad()
	l.time, l.total = o.Time, o.Total
	if o.Total == 0 {
		perSecond, err := warmUp(newLoad, pool, p.unbounded, o.Warmup)
		if err != nil {
			return figures{}, fmt.Errorf("warm-up: %w", err)
		}
		if p.unbounded {
			// In the time a submitter that never waits would queue more than can ever be run.
			l.time, l.total = 0, max(o.Submitters, int(perSecond*o.Time.Seconds()))
		}
	}

	runtime.GC()
	got, err := l.drive(pool.submit)
	if err != nil {
		return figures{}, err
	}
	pool.stop()
	if got.tasks == 0 {
		return figures{}, errors.New("no task was done in the time")
	}
	peak, err := peakMemory()
	if err != nil {
		return figures{}, err
	}
	n := float64(got.tasks)
	return figures{
		Wall: float64(got.wall) / n, CPU: float64(got.cpu) / n,
		WaitP50: float64(l.waits.quantile(0.5)), WaitP99: float64(l.waits.quantile(0.99)), WaitMax: float64(l.waits.max()),
		Fairness: got.fairness,
		Bytes:    float64(got.allocated) / n,
		Memory:   float64(peak) / (1 << 20),
		Tasks:    n,
	}, nil
}

// warmUp lets the pool make its workers and returns how many tasks it does in a second. An unbounded pool is given ever
// larger numbers of tasks until they last as long as they should.
func warmUp(newLoad func() *load, pool *running, unbounded bool, length time.Duration) (perSecond float64, err error) {
	for total := 1; ; total *= 2 {
		l := newLoad()
		if unbounded {
			l.total = total * l.submitters
		} else {
			l.time = length
		}
		got, err := l.drive(pool.submit)
		if err != nil {
			return 0, err
		}
		if got.wall >= length {
			return float64(got.tasks) / got.wall.Seconds(), nil
		}
	}
}

// cpuTime is the CPU time that this process has used, in user and kernel mode.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // it fails for a wrong argument only
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// peakMemory is the most memory that this process has had resident, in bytes. The rusage has it too, but begins with
// that of the process by which this one was started.
func peakMemory() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "VmHWM:" && fields[2] == "kB" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("no VmHWM in /proc/self/status")
}
