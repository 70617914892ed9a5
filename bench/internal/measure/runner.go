package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/filohttp/filo/bench/internal/load"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/proc"
	"github.com/filohttp/filo/bench/internal/row"
)

// Runner runs the measurements of cells.
type Runner struct {
	Files    string // a folder with row.Files
	Database string // the connection string of package postgres
	Warmup   time.Duration
	// MaxLateness is how late the generator may be, at the 99th percentile, for a run at a constant rate to count.
	MaxLateness time.Duration
	// Patience is how much longer a run may take than its warm-up and its measured time together.
	Patience time.Duration
}

// run is one run of a cell.
type run struct {
	*Runner
	cell   Cell
	row    *row.Row
	peer   *peer.Peer
	rate   float64
	server *peer.Server
	record Record

	// The resources that the server uses in the measured time, and the length of that time.
	usage     proc.Usage
	allocated peer.Allocated
	stolen    time.Duration
	seconds   float64
	begun     time.Time
}

// Run starts the peer, measures the cell, and ends the peer. rate applies only to cells of kind Rate. If the run fails, the caller must not use the
// record.
func (r *Runner) Run(ctx context.Context, p *peer.Peer, of *row.Row, cell Cell, rate float64) (Record, error) {
	one := &run{Runner: r, cell: cell, row: of, peer: p, rate: rate, record: Record{Cell: cell, Figures: map[string]float64{}}}
	options := r.Options(of)
	options.Procs, options.CPUs = cell.Procs, one.cpus(true)
	if cell.Pinned && len(options.CPUs) == 0 {
		return Record{}, errors.New("there is only one processor, and none to pin the generator to")
	}
	var err error
	if one.server, err = p.Start(ctx, options); err != nil {
		return Record{}, err
	}
	defer one.server.Stop()
	ctx, cancel := context.WithTimeoutCause(ctx, r.Warmup+one.duration()+r.Patience, errPatience)
	defer cancel()
	switch {
	case cell.Kind == Syscalls:
		err = one.traced(ctx)
	case of.Kind == row.Idle:
		err = one.idle()
	case of.Kind == row.Mixed:
		err = one.mixed(ctx)
	default:
		err = one.loaded(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return one.record, err
}

var errPatience = errors.New("the run didn't end, and was ended")

// duration returns how long the cell is measured.
func (r *run) duration() time.Duration { return time.Duration(r.cell.Seconds) * time.Second }

// Options returns the options with which the server for a row is started.
func (r *Runner) Options(of *row.Row) peer.Options {
	o := peer.Options{Args: of.Args, HTTP2: of.Streams > 0, TLS: of.TLS, Files: r.Files}
	if of.Database {
		o.Args = append(slices.Clone(o.Args), "-database", r.Database)
	}
	return o
}

// MakeFiles writes row.Files to a folder.
func MakeFiles(folder string) error {
	for name, size := range row.Files {
		if err := os.WriteFile(filepath.Join(folder, name), row.Body(size), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// cpus returns the processors to which the server or the generator is bound. In a pinned cell, the server is bound to the last processor and the
// generator to the first. nil means all.
func (r *run) cpus(server bool) []int {
	all := proc.CPUs()
	switch {
	case !r.cell.Pinned || len(all) < 2:
		return nil
	case server:
		return all[len(all)-1:]
	}
	return all[:1]
}

// load runs the load that the row and the cell require.
func (r *run) load(ctx context.Context) (*load.Result, error) {
	j := &load.Job{
		Base: r.server.Base, Row: r.row, Rate: r.rate, Warmup: r.Warmup, Duration: r.duration(),
		MaxLateness: r.MaxLateness, CPUs: r.cpus(false), Window: r.window,
	}
	if r.row.Kind == row.Overload {
		j.Rate, j.Refusals = row.OverloadRate, true
	}
	if j.Rate > 0 || r.row.Message > 0 {
		return load.Open(ctx, j)
	}
	if r.row.Streams > 0 {
		return load.H2load(ctx, j)
	}
	return load.Wrk(ctx, j)
}

// window is the function Window of the jobs.
func (r *run) window(begin bool) error {
	usage, err := proc.ReadUsage(r.server.Processes())
	if err != nil {
		return err
	}
	allocated, err := r.server.Allocated()
	if err != nil {
		return err
	}
	stolen, err := proc.Stolen()
	if begin {
		r.usage, r.allocated, r.stolen, r.begun = usage, allocated, stolen, time.Now()
	} else {
		r.usage, r.stolen, r.seconds = usage.Minus(r.usage), stolen-r.stolen, time.Since(r.begun).Seconds()
		r.allocated = peer.Allocated{Objects: allocated.Objects - r.allocated.Objects, Bytes: allocated.Bytes - r.allocated.Bytes}
	}
	return err
}

// perRequest records the resources that the server has used in the window, divided by the number of requests.
func (r *run) perRequest(requests float64) error {
	f := r.record.Figures
	f[CPU] = float64(r.usage.CPU) / float64(time.Microsecond) / requests
	f[Voluntary] = float64(r.usage.Voluntary) / requests
	f[Involuntary] = float64(r.usage.Involuntary) / requests
	f[Stolen] = 100 * r.stolen.Seconds() / r.seconds
	if r.peer.IsGo() {
		f[Objects] = float64(r.allocated.Objects) / requests
		f[Bytes] = float64(r.allocated.Bytes) / requests
	}
	peak, _, err := proc.ReadMemory(r.server.Processes())
	f[PeakMemory] = float64(peak) / (1 << 20)
	return err
}

// loaded measures a closed loop or, for cells and rows with a rate, an open one. Under overload, throughput counts only answers with status 200, and
// CPU time is divided by the number of all answers.
func (r *run) loaded(ctx context.Context) error {
	result, err := r.load(ctx)
	if err != nil {
		return err
	}
	f := r.record.Figures
	r.answers(result)
	if r.rate > 0 {
		f[Offered], f[Lateness] = r.rate, result.Late
	}
	if r.row.Kind == row.Overload {
		if result.Refused == 0 {
			return errors.New("nothing was refused")
		}
		f[Refused] = result.Refused / result.Seconds
		f[RefusedP50], f[RefusedP99] = result.RefusedLatency.P50, result.RefusedLatency.P99
	}
	return r.perRequest(result.Answers + result.Refused)
}

// answers records the number of answers and their latencies.
func (r *run) answers(result *load.Result) {
	f, l := r.record.Figures, result.Latency
	f[Throughput] = result.Answers / result.Seconds
	if result.Size > 0 {
		f[AnswerSize] = result.Size
	}
	if l.P50 > 0 {
		f[P50], f[P99], f[P999] = l.P50, l.P99, l.P999
	}
}

// mixed measures quick requests while blocking requests run in the background. Blocking requests don't count for throughput and latencies. Figures per
// request, such as CPU time, are divided by the number of all requests in the measured time.
func (r *run) mixed(ctx context.Context) error {
	asleep := *r.row
	asleep.Requests = []row.Request{{Target: "/mixed/sleep", Want: r.row.Requests[0].Want}}
	asleep.Connections = row.MixedConnections
	begun, ended := make(chan struct{}), make(chan error, 1)
	background := &load.Job{
		Base: r.server.Base, Row: &asleep, Rate: row.MixedRate, MaxLateness: time.Second,
		// The load of blocking requests begins before the warm-up of the quick requests, and ends after their load.
		Duration: r.Warmup + r.duration() + time.Second/2,
		Window: func(begin bool) error {
			if begin {
				close(begun)
			}
			return nil
		},
	}
	go func() {
		_, err := load.Open(ctx, background)
		ended <- err
	}()
	select {
	case <-begun:
	case err := <-ended:
		return fmt.Errorf("in the background: %w", err)
	}
	result, err := r.load(ctx)
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	r.answers(result)
	return r.perRequest(result.Answers + row.MixedRate*r.seconds)
}

// settle is the pause between the last answer and reading the server's memory.
const settle = 300 * time.Millisecond

// idle opens many connections, one after the other, makes a request on each, and leaves it idle. It reads the server's memory before and after. At
// the end it makes requests on all connections at once. wrk and h2load don't support idle connections.
func (r *run) idle() error {
	_, address, _ := strings.Cut(r.server.Base, "://")
	request := r.row.Requests[0].Raw(address, false)
	before, err := r.settled()
	if err != nil {
		return err
	}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	want := &r.row.Requests[0].Want
	for range row.IdleConnections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return fmt.Errorf("idle connection %d: %w", len(conns)+1, err)
		}
		conns = append(conns, c)
		if _, err := c.Write(request); err != nil {
			return err
		}
		if err := load.ReadAnswer(c, want); err != nil {
			return err
		}
	}
	after, err := r.settled()
	if err != nil {
		return err
	}
	r.record.Figures[IdleMemory] = (after - before) / row.IdleConnections / row.KB
	return r.burst(conns, request, want)
}

// settled returns the server's memory, without memory-mapped files, after a pause of settle.
func (r *run) settled() (float64, error) {
	time.Sleep(settle)
	_, anonymous, err := proc.ReadMemory(r.server.Processes())
	return float64(anonymous), err
}

// burst sends a request on all connections at once, and measures the answers.
func (r *run) burst(conns []net.Conn, request []byte, want *row.Want) error {
	if err := r.window(true); err != nil {
		return err
	}
	begin := time.Now()
	for _, c := range conns {
		if _, err := c.Write(request); err != nil {
			return err
		}
	}
	for _, c := range conns {
		if err := load.ReadAnswer(c, want); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	if err := r.window(false); err != nil {
		return err
	}
	r.record.Figures[BurstTime] = float64(took) / float64(time.Millisecond)
	r.record.Figures[Throughput] = float64(len(conns)) / took.Seconds()
	return r.perRequest(float64(len(conns)))
}

// traced counts the server's system calls in a separate run, since tracing slows the server. The count includes the calls that open and close the
// row's connections.
func (r *run) traced(ctx context.Context) error {
	args := []string{"-f", "-c", "-U", "calls,name"}
	for _, pid := range r.server.Processes() {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	cmd := exec.CommandContext(ctx, "strace", args...)
	var summary strings.Builder
	cmd.Stderr = &summary
	if err := cmd.Start(); err != nil {
		return err
	}
	var result *load.Result
	err := waitTraced(r.server.Processes())
	if err == nil {
		runner := *r.Runner
		r.Runner, runner.Warmup = &runner, 0
		result, err = r.load(ctx)
	}
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait() // the signal ends it
	if err != nil {
		return fmt.Errorf("under strace: %w", err)
	}
	calls, err := parseStrace(summary.String())
	r.record.Figures[Calls] = calls / result.Answers
	return err
}

// waitTraced waits until all threads of the processes are traced, for five seconds at most.
func waitTraced(pids []int) error {
	untraced := func(file string) bool {
		status, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(status), "TracerPid:\t0\n")
	}
	for range 500 {
		var files []string
		for _, pid := range pids {
			threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
			files = append(files, threads...)
		}
		if !slices.ContainsFunc(files, untraced) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("it doesn't attach to the server")
}

// parseStrace returns the number of calls in the total line of strace's summary, whose columns are calls and name.
func parseStrace(summary string) (calls float64, err error) {
	before, _, _ := strings.Cut(summary, " total\n")
	if _, err := fmt.Sscan(before[strings.LastIndexByte(before, '\n')+1:], &calls); err != nil {
		return 0, fmt.Errorf("strace says only %q", summary)
	}
	return calls, nil
}
