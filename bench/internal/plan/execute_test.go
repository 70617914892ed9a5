package plan

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo/bench/internal/measure"
	"github.com/filohttp/filo/bench/internal/peer"
	"github.com/filohttp/filo/bench/internal/postgres"
	"github.com/filohttp/filo/bench/internal/row"
)

// programs is the folder in which the servers are built, once for all tests.
var programs string

func TestMain(m *testing.M) {
	os.Exit(inFolder(m.Run))
}

func inFolder(run func() int) int {
	var err error
	if programs, err = os.MkdirTemp("", "filo-plan"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(programs)
	return run()
}

var build = sync.OnceValues(func() (map[string]*peer.Peer, error) {
	peers := map[string]*peer.Peer{}
	b := &peer.Builder{Module: "../..", Out: programs}
	for _, name := range peer.Names() {
		p, err := b.Build(context.Background(), name)
		if err != nil && !errors.Is(err, peer.ErrMissing) {
			return nil, err
		}
		peers[name] = p
	}
	return peers, nil
})

// newExecutor returns an Executor with all peers that can be built on this machine.
func newExecutor(t *testing.T) *Executor {
	if testing.Short() {
		t.Skip("it builds all servers")
	}
	files := t.TempDir()
	if err := measure.MakeFiles(files); err != nil {
		t.Fatal(err)
	}
	store, err := measure.Open("", false)
	if err != nil {
		t.Fatal(err)
	}
	peers, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return &Executor{
		Runner: &measure.Runner{Files: files, Warmup: 20 * time.Millisecond, MaxLateness: time.Minute, Patience: time.Minute},
		Peers:  peers, Store: store, Log: t.Output(), checked: map[string]bool{},
	}
}

// Every server answers every request of its rows as filo does.
func TestAllAnswerAlike(t *testing.T) {
	e := newExecutor(t)
	db, err := postgres.Start(t.Context())
	if err == nil {
		defer db.Stop()
		e.Runner.Database = db.ConnString
	} else if !errors.Is(err, postgres.ErrMissing) {
		t.Fatal(err)
	}
	for _, r := range row.All() {
		if r.Database && db == nil {
			continue
		}
		g := Group{Cell: measure.Cell{Kind: measure.Peak, Row: r.ID}, Row: r, Peers: slices.Concat(r.Peers, r.More), Rounds: 1}
		if err := e.check(t.Context(), &g); err != nil {
			t.Error(err)
		}
	}
}

// A small run of each kind has the figures that the report shows. Runs that are already in the store aren't repeated.
func TestExecute(t *testing.T) {
	e := newExecutor(t)
	var groups []Group
	for _, id := range []string{"json", "websocket", "mixed", "overload", "tls-handshake"} {
		r, err := row.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		r.Connections = min(r.Connections, 8)
		if r.Kind == row.Overload {
			r.Connections = 64
		}
		cell := measure.Cell{Kind: measure.Peak, Row: id, Seconds: 1}
		groups = append(groups, Group{Cell: cell, Row: r, Peers: []string{"filo", "fasthttp"}, Rounds: 2})
	}
	// On a busy machine a generator may be late, or a server may not sustain a rate.
	err := e.Execute(t.Context(), groups)
	for try := 0; err != nil && try < 10; try++ {
		err = e.Execute(t.Context(), groups)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range groups {
		for _, name := range groups[i].Peers {
			p := e.Peers[name]
			cell := groups[i].Of(p)
			if n := len(e.Store.Records(cell)); n != 2 {
				t.Errorf("%s has %d records of %s", p.Name, n, groups[i].Name())
			}
			for _, figure := range []string{measure.Throughput, measure.CPU, measure.P99, measure.PeakMemory} {
				if s, ok := e.Store.Spread(cell, figure); !ok || s.Median <= 0 || s.Min > s.Max {
					t.Errorf("%s, %s: %s is %+v, %t", groups[i].Name(), p.Name, figure, s, ok)
				}
			}
		}
	}
	var again strings.Builder
	if e.Log = &again; e.Execute(t.Context(), groups) != nil || again.Len() > 0 {
		t.Errorf("what was measured is measured again: %s", again.String())
	}
}

// A run that takes too long is aborted, and its error says so.
func TestExecuteImpatient(t *testing.T) {
	e := newExecutor(t)
	e.Runner.Patience = -time.Second // the measured time is one second, so there is no time left
	for _, id := range []string{"json", "websocket"} {
		r, err := row.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		g := Group{Cell: measure.Cell{Kind: measure.Peak, Row: id, Seconds: 1}, Row: r, Peers: []string{"filo"}, Rounds: 1}
		if err := e.Execute(t.Context(), []Group{g}); err == nil || !strings.Contains(err.Error(), "didn't end") {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// A rate needs the peaks of all peers, and the error of an interrupted run says why it ended.
func TestExecuteFails(t *testing.T) {
	e := &Executor{Peers: map[string]*peer.Peer{"filo": {Name: "filo"}}, Store: &measure.Store{}, Log: t.Output()}
	r, err := row.Find("websocket")
	if err != nil {
		t.Fatal(err)
	}
	groups := []Group{{Cell: measure.Cell{Kind: measure.Rate, Row: r.ID, Percent: 50}, Row: r, Peers: []string{"filo"}, Rounds: 1}}
	if err := e.Execute(t.Context(), groups); err == nil || !strings.Contains(err.Error(), "no peak") {
		t.Errorf("without a peak: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if err := e.Execute(ctx, groups); !errors.Is(err, cause) {
		t.Errorf("interrupted: %v", err)
	}
}

// Rounds are measured one after the other, each with all rows. Rates are measured last. A run that is in the store isn't repeated, even if its record
// lacks figures.
func TestExecuteOrder(t *testing.T) {
	var log strings.Builder
	store, err := measure.Open("", false)
	if err != nil {
		t.Fatal(err)
	}
	filo := &peer.Peer{Name: "filo"}
	e := &Executor{Runner: &measure.Runner{}, Peers: map[string]*peer.Peer{"filo": filo}, Store: store, Log: &log}
	r, err := row.Find("websocket") // a row whose answers aren't compared before the measurement
	if err != nil {
		t.Fatal(err)
	}
	group := func(name string, kind measure.Kind, rounds int) Group {
		return Group{Cell: measure.Cell{Kind: kind, Row: name, Percent: 50}, Row: r, Peers: []string{"filo"}, Rounds: rounds}
	}
	groups := []Group{group("a", measure.Peak, 2), group("b", measure.Rate, 2), group("c", measure.Peak, 3)}
	if err := store.Add(measure.Record{Cell: groups[0].Of(filo), Round: 1}); err != nil {
		t.Fatal(err)
	}
	err = e.Execute(t.Context(), groups)
	var order []string
	for line := range strings.Lines(log.String()) {
		fields := strings.Fields(line)
		order = append(order, fields[0]+fields[2])
	}
	if want := strings.Fields("a1 a1 c1 c1 c2 c2 c3 c3"); !slices.Equal(order, want) { // each failing run is tried twice
		t.Errorf("order %v, want %v", order, want)
	}
	const last = "b at 50 %: there is no peak of all servers"
	if err == nil || !strings.HasSuffix(err.Error(), last) || strings.Count(err.Error(), last) > 1 {
		t.Errorf("error %v, want the rate's last, and once", err)
	}
}
