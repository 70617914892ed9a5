package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/filohttp/filo/bench/internal/load"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/proc"
	"github.com/filohttp/filo/bench/internal/row"
)

// Runner runs cells.
type Runner struct {
	Site   *Site
	Warmup time.Duration
	// MaxLateness is how late the generator may be, at the 99th percentile, for a run at a constant rate to count.
	MaxLateness time.Duration
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

	// What the server uses in the measured time, and how long that is.
	usage     proc.Usage
	allocated peer.Allocated
	seconds   float64
	begun     time.Time
}

// Run starts the peer, measures the cell, and ends the peer. rate is that of a cell of kind Rate. A run with errors has no
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
	return one.record, err
}

// Options are those that a row's server is started with.
func (r *Runner) Options(of *row.Row) peer.Options {
	return peer.Options{Args: r.Site.args(of), Files: r.Site.Files}
}

// cpus are the processors of the server or of the generator: the last and the first one, if they are pinned.
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

// load loads the server as the row and the cell say.
func (r *run) load(ctx context.Context) (*load.Result, error) {
	j := &load.Job{
		Base: r.server.Base, Row: r.row, Rate: r.rate, Warmup: r.Warmup, Duration: time.Duration(r.cell.Seconds) * time.Second,
		MaxLateness: r.MaxLateness, CPUs: r.cpus(false), Window: r.window,
	}
	if r.row.Kind == row.Overload {
		j.Rate, j.Refusals = row.OverloadRate, true
	}
	if j.Rate > 0 || r.row.Message > 0 {
		return load.Open(ctx, j)
	}
	return load.Wrk(ctx, j)
}

// window is a job's Window.
func (r *run) window(begin bool) error {
	usage, err := proc.ReadUsage(r.server.Processes())
	if err != nil {
		return err
	}
	allocated, err := r.server.Allocated()
	if begin {
		r.usage, r.allocated, r.begun = usage, allocated, time.Now()
	} else {
		r.usage, r.allocated, r.seconds = usage.Minus(r.usage), allocated.Minus(r.allocated), time.Since(r.begun).Seconds()
	}
	return err
}

// perRequest takes over what the server has used in the window, for so many requests.
func (r *run) perRequest(requests float64) error {
	f := r.record.Figures
	f[CPU] = float64(r.usage.CPU) / float64(time.Microsecond) / requests
	f[Voluntary] = float64(r.usage.Voluntary) / requests
	f[Involuntary] = float64(r.usage.Involuntary) / requests
	if r.peer.IsGo() {
		f[Objects] = float64(r.allocated.Objects) / requests
		f[Bytes] = float64(r.allocated.Bytes) / requests
	}
	memory, err := proc.ReadMemory(r.server.Processes())
	f[PeakMemory] = float64(memory.Peak) / (1 << 20)
	return err
}

// loaded is a closed loop or, for cells and rows with a rate, an open one. Of an overload the throughput is that of good answers,
// and CPU time is divided by all.
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

// answers takes over how many there were, and their latencies.
func (r *run) answers(result *load.Result) {
	f, l := r.record.Figures, result.Latency
	f[Throughput] = result.Answers / result.Seconds
	if l.P50 > 0 {
		f[P50], f[P99], f[P999] = l.P50, l.P99, l.P999
	}
}

// mixed has blocking requests in the background, of which those in the measured time count for the CPU time alone.
func (r *run) mixed(ctx context.Context) error {
	asleep := *r.row
	asleep.Requests = []row.Request{{Target: "/mixed/sleep", Want: r.row.Requests[0].Want}}
	asleep.Connections = row.MixedConnections
	begun, ended := make(chan struct{}), make(chan error, 1)
	background := &load.Job{
		Base: r.server.Base, Row: &asleep, Rate: row.MixedRate, MaxLateness: time.Second,
		// It begins before the quick ones' warm-up, and goes on for longer.
		Duration: r.Warmup + time.Duration(r.cell.Seconds)*time.Second + time.Second/2,
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
