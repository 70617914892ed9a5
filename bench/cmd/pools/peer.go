package main

import (
	"context"
	"math"

	"github.com/alitto/pond/v2"
	"github.com/bytedance/gopkg/util/gopool"
	filo "github.com/filohttp/filo/pool"
	"github.com/gammazero/workerpool"
	"github.com/panjf2000/ants/v2"
	"github.com/sourcegraph/conc/pool"
	"golang.org/x/sync/errgroup"
)

// baseline is the pool that the others are compared with.
const baseline = "ants"

// peer is a kind of pool. All have their own defaults but for what its start says.
type peer struct {
	name string

	// unbounded says that submitting never waits: what the pool can't run it queues.
	unbounded bool

	// start makes a pool that runs size tasks at once.
	start func(size int) (*running, error)
}

// running is a pool in use.
type running struct {
	submit func(func()) error
	stop   func() // called when all tasks have ended
}

var peers = []*peer{
	{name: "filo", start: startFilo},
	{name: "ants", start: startAnts},
	{name: "pond", start: startPond},
	{name: "gopool", unbounded: true, start: startGopool},
	{name: "conc", start: startConc},
	{name: "gammazero", unbounded: true, start: startGammazero},
	{name: "errgroup", start: startErrgroup},
	{name: "go", start: startGo},
}

func findPeer(name string) *peer {
	for _, p := range peers {
		if p.name == name {
			return p
		}
	}
	return nil
}

func peerNames() []string {
	names := make([]string, len(peers))
	for i, p := range peers {
		names[i] = p.name
	}
	return names
}

func startFilo(size int) (*running, error) {
	p, err := filo.NewPool(size)
	if err != nil {
		return nil, err
	}
	return &running{p.Submit, p.Release}, nil
}

func startAnts(size int) (*running, error) {
	p, err := ants.NewPool(size)
	if err != nil {
		return nil, err
	}
	return &running{p.Submit, p.Release}, nil
}

// startPond bounds pond's queue, which else takes any number: at most as many tasks wait in it as run.
func startPond(size int) (*running, error) {
	p := pond.NewPool(size, pond.WithQueueSize(size))
	return &running{p.Go, p.StopAndWait}, nil
}

// startGopool makes a pool that needs no stopping: its workers end when there is nothing to do.
func startGopool(size int) (*running, error) {
	size = min(size, math.MaxInt32)
	p := gopool.NewPool("bench", int32(size), gopool.NewConfig())
	return &running{withoutError(p.Go), func() {}}, nil
}

func startConc(size int) (*running, error) {
	p := pool.New().WithMaxGoroutines(size)
	return &running{withoutError(p.Go), p.Wait}, nil
}

func startGammazero(size int) (*running, error) {
	p := workerpool.New(size)
	return &running{withoutError(p.Submit), p.StopWait}, nil
}

// startErrgroup has a closure for each task, since its functions return an error.
func startErrgroup(size int) (*running, error) {
	group, _ := errgroup.WithContext(context.Background())
	group.SetLimit(size)
	submit := func(task func()) error {
		group.Go(func() error { task(); return nil })
		return nil
	}
	return &running{submit, func() { group.Wait() }}, nil
}

// startGo is what one writes without a pool: a goroutine for each task, behind a channel as semaphore.
func startGo(size int) (*running, error) {
	places := make(chan struct{}, size)
	submit := func(task func()) error {
		places <- struct{}{}
		go func() {
			task()
			<-places
		}()
		return nil
	}
	return &running{submit, func() {}}, nil
}

func withoutError(submit func(func())) func(func()) error {
	return func(task func()) error {
		submit(task)
		return nil
	}
}
