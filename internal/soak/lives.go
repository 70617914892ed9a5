package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
)

const (
	// headTime is the server's ReadHeaderTimeout: silent clients wait for it.
	headTime = 4 * time.Second
	// shutdownTime is how long a shutdown may take. The longest thing it waits for is headTime.
	shutdownTime = 20 * time.Second
	// listenTime is how long a taken address is tried again: the system may have lent its port to somebody's outgoing
	// connection meanwhile.
	listenTime = 5 * time.Second
)

// lives are the servers that come one after the other, all at the same address.
type lives struct {
	run *run
	// phase is odd while a server is there, and changes before anything is done about it: a connection that was opened in
	// an odd phase which still lasts has no excuse to fail.
	phase atomic.Int64

	address string // of the first one, and so of all; set before there are clients

	mu      sync.Mutex
	server  *filo.Server  // guarded by mu
	site    *site         // guarded by mu
	served  chan error    // what Serve returns
	past    activity      // of servers that are gone; guarded by mu
	count   int           // guarded by mu
	longest time.Duration // of the shutdowns; guarded by mu
}

// activity is the part of a server's Stats that a run adds up.
type activity struct{ handoffs, retakes, steals, workers uint64 }

func (a activity) plus(st filo.Stats) activity {
	return activity{a.handoffs + st.Handoffs, a.retakes + st.Retakes, a.steals + st.Steals, a.workers + st.WorkersSpawned}
}

// begin starts a server.
func (l *lives) begin() error {
	r := l.run
	site := newSite(r)
	handler := filo.Handler(site.serve)
	if r.wrap != nil {
		handler = r.wrap(handler)
	}
	server := &filo.Server{
		Handler:               handler,
		ReadHeaderTimeout:     headTime,
		MaxIdleWorkerDuration: time.Second, // short, so that workers retire all the time
		Logger:                slog.New(&watchfulLog{run: r}),
	}
	if r.blocking {
		server.Driver = filo.DriverBlocking
	}
	listener, err := l.listen(server)
	if err != nil {
		return fmt.Errorf("server %d can't listen: %w", l.count+1, err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.address == "" {
		l.address = listener.Addr().String()
	}
	l.server, l.site, l.served = server, site, served
	l.count++
	l.phase.Add(1)
	return nil
}

// listen opens a socket as the server does it, or a plain one.
func (l *lives) listen(server *filo.Server) (net.Listener, error) {
	address, listen := l.address, server.Listen
	if address == "" {
		address = "127.0.0.1:0"
	}
	if l.run.random.IntN(2) == 0 {
		listen = func(address string) (net.Listener, error) { return net.Listen("tcp", address) }
	}
	for end := time.Now().Add(listenTime); ; time.Sleep(20 * time.Millisecond) {
		listener, err := listen(address)
		if err == nil || time.Now().After(end) {
			return listener, err
		}
	}
}

// end shuts the server down, gracefully.
func (l *lives) end() error {
	l.phase.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	start := time.Now()
	if err := l.server.Shutdown(ctx); err != nil {
		st := l.server.Stats()
		return l.run.hang(fmt.Errorf("server %d: Shutdown: %w; %d connections are idle, %d active, %s", l.count, err,
			st.ConnsIdle, st.ConnsActive, l.site))
	}
	took := time.Since(start)
	if err := <-l.served; !errors.Is(err, filo.ErrServerClosed) {
		return fmt.Errorf("server %d: Serve after Shutdown: %w", l.count, err)
	}
	st := l.server.Stats()
	if st.ConnsOpen != 0 {
		return fmt.Errorf("server %d: %d connections are counted as open after Shutdown", l.count, st.ConnsOpen)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.past = l.past.plus(st)
	l.longest = max(l.longest, took)
	l.server, l.site, l.served = nil, nil, nil
	return nil
}

// abort ends the server after a failure.
func (l *lives) abort() {
	if l.server != nil {
		l.server.Close()
	}
}

// number returns the number of the latest server.
func (l *lives) number() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// activity returns how many servers there have been, what they have done, and how long the longest shutdown took.
func (l *lives) activity() (servers int, total activity, longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if total = l.past; l.server != nil {
		total = total.plus(l.server.Stats())
	}
	return l.count, total, l.longest
}

// watchfulLog makes the run fail when the server logs anything but the panics that were asked for: what clients do wrong
// isn't logged, so it must be the server's own trouble.
type watchfulLog struct{ run *run }

func (w *watchfulLog) Enabled(context.Context, slog.Level) bool { return true }
func (w *watchfulLog) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w *watchfulLog) WithGroup(string) slog.Handler            { return w }

func (w *watchfulLog) Handle(_ context.Context, record slog.Record) error {
	ours, text := false, record.Message
	record.Attrs(func(a slog.Attr) bool {
		ours = ours || a.Key == "value" && a.Value.String() == panicValue
		text += " " + a.String()
		return true
	})
	if !ours {
		w.run.fail(fmt.Errorf("the server has logged: %s", text))
	}
	return nil
}
