package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/load"
	"github.com/filohttp/filo/bench/internal/openloop"
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
	case cell.Kind == Rate:
		err = one.atRate(ctx)
	case cell.Kind == CrossCheck:
		err = one.byWrk(ctx)
	case of.Kind == row.Idle:
		err = one.idle(ctx)
	default:
		err = one.closed(ctx)
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

func (r *run) duration() time.Duration { return time.Duration(r.cell.Seconds * float64(time.Second)) }

// spec is the load of the row.
func (r *run) spec() load.Spec {
	_, address, _ := strings.Cut(r.server.Base, "://")
	o := openloop.Options{
		Address: address, Requests: r.row.Requests, Connections: r.row.Connections, RequestsPerConnection: r.row.PerConnection,
		Pipeline: r.row.Pipeline, Warmup: r.Warmup, Duration: r.duration(), Rate: r.rate, MaxLateness: r.MaxLateness,
	}
	if r.row.Message > 0 {
		o.WebSocket = &openloop.WebSocket{Target: r.row.Requests[0].Target, Message: make([]byte, r.row.Message)}
		o.Requests = nil
	}
	return load.Spec{Options: o, Secure: r.row.TLS, CPUs: r.cpus(false)}
}

// meter reads what the server uses in the measured time.
type meter struct {
	server    *peer.Server
	usage     proc.Usage
	allocated peer.Allocated
}

// window is a load.Window.
func (m *meter) window(begin bool) error {
	usage, err := proc.ReadUsage(m.server.Processes())
	if err != nil {
		return err
	}
	allocated, err := m.server.Allocated()
	if begin {
		m.usage, m.allocated = usage, allocated
	} else {
		m.usage, m.allocated = usage.Minus(m.usage), allocated.Minus(m.allocated)
	}
	return err
}

// perRequest takes over what the meter has read, for so many requests.
func (r *run) perRequest(m *meter, requests float64) error {
	f := r.record.Figures
	f[CPU] = float64(m.usage.CPU) / float64(time.Microsecond) / requests
	f[Voluntary] = float64(m.usage.Voluntary) / requests
	f[Involuntary] = float64(m.usage.Involuntary) / requests
	if r.peer.IsGo() {
		f[Objects] = float64(m.allocated.Objects) / requests
		f[Bytes] = float64(m.allocated.Bytes) / requests
	}
	memory, err := proc.ReadMemory(r.server.Processes())
	f[PeakMemory] = float64(memory.Peak) / (1 << 20)
	return err
}

// latency takes over the latencies.
func (r *run) latency(d *openloop.Distribution) {
	if d == nil {
		return
	}
	r.record.Figures[P50] = milliseconds(d.P50)
	r.record.Figures[P99] = milliseconds(d.P99)
	r.record.Figures[P999] = milliseconds(d.P999)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// closed is a closed loop, and for rows that are more than that what they are.
func (r *run) closed(ctx context.Context) error {
	switch r.row.Kind {
	case row.Mixed:
		return r.mixed(ctx)
	case row.Overload:
		return r.overload(ctx)
	}
	m := &meter{server: r.server}
	result, err := load.Run(ctx, r.spec(), m.window)
	if err == nil {
		err = load.Err(result)
	}
	if err != nil {
		return err
	}
	r.record.Figures[Throughput] = float64(result.Answers) / result.Duration.Seconds()
	r.latency(result.Latency)
	return r.perRequest(m, float64(result.Answers))
}

// atRate is an open loop.
func (r *run) atRate(ctx context.Context) error {
	m := &meter{server: r.server}
	result, err := load.Run(ctx, r.spec(), m.window)
	if err == nil {
		err = load.Err(result)
	}
	if err != nil {
		return err
	}
	r.record.Figures[Offered] = result.Offered
	r.record.Figures[Throughput] = result.Achieved
	if result.Late != nil {
		r.record.Figures[Lateness] = milliseconds(result.Late.P99)
	}
	r.latency(result.Latency)
	if err := r.curve(result.Latency); err != nil {
		return err
	}
	return r.perRequest(m, float64(result.Answers))
}

// byWrk is a closed loop that wrk makes. It can't say when its measured time begins, so that CPU time is that of a whole run,
// after a warm-up of its own.
func (r *run) byWrk(ctx context.Context) error {
	url := r.server.Base + r.row.Requests[0].Target
	if _, err := load.RunWrk(ctx, url, r.row.Connections, time.Second); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	m := &meter{server: r.server}
	if err := m.window(true); err != nil {
		return err
	}
	d := max(time.Second, r.duration().Truncate(time.Second))
	result, err := load.RunWrk(ctx, url, r.row.Connections, d)
	if err != nil {
		return err
	}
	if err := m.window(false); err != nil {
		return err
	}
	r.record.Figures[Throughput] = result.PerSecond
	r.record.Figures[P99] = milliseconds(result.P99)
	return r.perRequest(m, float64(result.Requests))
}

// curve takes over the latencies at percentiles up to 99.99, in even steps of the logarithm of what is left to 100.
func (r *run) curve(d *openloop.Distribution) error {
	h, err := d.Decode()
	if err != nil {
		return err
	}
	for step := range 41 {
		percentile := 100 * (1 - math.Pow(10, -float64(step)/10))
		r.record.Curve = append(r.record.Curve, [2]float64{percentile, milliseconds(time.Duration(h.ValueAtQuantile(percentile)))})
	}
	return nil
}

// mixed has blocking requests in the background, of which those in the measured time count for the CPU time alone.
func (r *run) mixed(ctx context.Context) error {
	spec := r.spec()
	background := spec
	background.Options.Requests = []openloop.Request{{Target: "/mixed/sleep", Want: r.row.Requests[0].Want}}
	background.Options.Rate, background.Options.Connections = row.MixedRate, row.MixedConnections
	background.Options.Warmup = 0
	// It begins with the quick ones' warm-up or before, and goes on for longer.
	background.Options.Duration = r.Warmup + r.duration() + time.Second/2
	background.Options.MaxLateness = time.Second
	ended := make(chan error, 1)
	begun := make(chan struct{}, 1)
	go func() {
		result, err := load.Run(ctx, background, func(begin bool) error {
			if begin {
				begun <- struct{}{}
			}
			return nil
		})
		if err == nil {
			err = load.Err(result)
		}
		ended <- err
	}()
	select {
	case <-begun:
	case err := <-ended:
		return fmt.Errorf("in the background: %w", err)
	}
	m := &meter{server: r.server}
	result, err := load.Run(ctx, spec, m.window)
	if err == nil {
		err = load.Err(result)
	}
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	r.record.Figures[Throughput] = float64(result.Answers) / result.Duration.Seconds()
	r.latency(result.Latency)
	return r.perRequest(m, float64(result.Answers)+row.MixedRate*result.Duration.Seconds())
}

// overload sends twice what the server may serve. Throughput is that of good answers, and CPU time is divided by all.
func (r *run) overload(ctx context.Context) error {
	spec := r.spec()
	spec.Options.Rate = row.OverloadRate
	m := &meter{server: r.server}
	result, err := load.Run(ctx, spec, m.window)
	if err == nil {
		err = load.Err(result, 503)
	}
	if err != nil {
		return err
	}
	f := r.record.Figures
	f[Throughput] = float64(result.Answers) / result.Duration.Seconds()
	f[Offered] = result.Offered
	r.latency(result.Latency)
	if result.Others == nil {
		return errors.New("nothing was refused")
	}
	f[Refused] = float64(result.Others.Count) / result.Duration.Seconds()
	f[RefusedP50], f[RefusedP99] = milliseconds(result.Others.P50), milliseconds(result.Others.P99)
	return r.perRequest(m, float64(result.Answers)+float64(result.Others.Count))
}
