package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
)

const (
	// headTime is the server's ReadHeaderTimeout. Silent clients wait until it expires.
	headTime = 4 * time.Second
	// listenTime is how long listening is retried while the address is in use: between two servers, the system may assign the port to another
	// program's outgoing connection.
	listenTime = 5 * time.Second
)

// lives runs servers one after the other, all at the same addresses. Clients may use only the field phase and the addresses.
type lives struct {
	run *run
	// phase is odd while a server runs. It becomes odd when the server has started, and even before its shutdown begins. So a connection that
	// was opened in an odd phase must not fail while this phase lasts.
	phase      atomic.Int64
	address    string // listened at; once the first server listens, also the address to dial
	tlsAddress string // the same for TLS

	tls    *tls.Config
	server *filo.Server
	site   *site
	served chan error // the results of Serve and ServeTLS

	// These fields are about the servers that have ended: sums of their Stats, and the duration of the longest shutdown.
	handoffs, retakes, spawned uint64
	longest                    time.Duration
}

// number returns the number of the current server, or of the last one if none runs.
func (l *lives) number() int64 { return (l.phase.Load() + 1) / 2 }

func (l *lives) String() string {
	return fmt.Sprintf("server %d: handoffs %d, retakes %d, workers spawned %d; longest shutdown %v",
		l.number(), l.handoffs, l.retakes, l.spawned, l.longest.Round(time.Millisecond))
}

// begin starts a server.
func (l *lives) begin() error {
	r := l.run
	l.site = newSite(r)
	handler := filo.Handler(l.site.serve)
	if r.wrap != nil {
		handler = r.wrap(handler)
	}
	server := &filo.Server{
		Handler:               handler,
		ReadHeaderTimeout:     headTime,
		MaxIdleWorkerDuration: time.Second, // short, so that workers retire all the time
		TLSConfig:             l.tls,
		HTTP2:                 filo.HTTP2Options{Unencrypted: true},
		Logger:                slog.New(slog.NewTextHandler(watchfulLog{r}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if r.blocking {
		server.Driver = filo.DriverBlocking
	}
	if r.places > 0 {
		server.Concurrency, server.Queue, server.QueueTimeout = r.places, 10_000, r.patience
	}
	listener, err := l.listen(server, l.address)
	if err != nil {
		return fmt.Errorf("server %d can't listen: %w", l.number()+1, err)
	}
	tlsListener, err := l.listen(server, l.tlsAddress)
	if err != nil {
		listener.Close()
		return fmt.Errorf("server %d can't listen for TLS: %w", l.number()+1, err)
	}
	if l.number() == 0 { // no client runs yet, so the addresses may change
		l.address, l.tlsAddress = listener.Addr().String(), tlsListener.Addr().String()
	}
	served := make(chan error, 2)
	go func() { served <- server.Serve(listener) }()
	go func() { served <- server.ServeTLS(tlsListener, "", "") }()
	l.server, l.served = server, served
	l.phase.Add(1)
	return nil
}

// listen opens a listener: at random, with Server.Listen or net.Listen.
func (l *lives) listen(server *filo.Server, address string) (net.Listener, error) {
	listen := server.Listen
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
	r, number := l.run, l.number()
	l.phase.Add(1)
	ctx, cancel := context.WithTimeout(r.failed, r.patience*2/3) // a shutdown waits for headTime at most
	defer cancel()
	start := time.Now()
	if err := l.server.Shutdown(ctx); err != nil {
		if r.failed.Err() != nil {
			return context.Cause(r.failed)
		}
		stats := l.server.Stats()
		return hang(fmt.Errorf("server %d: Shutdown: %w; %d connections are idle, %d active, %d handlers are running", number, err,
			stats.ConnsIdle, stats.ConnsActive, l.site.running.Load()))
	}
	l.longest = max(l.longest, time.Since(start))
	for range 2 {
		if err := <-l.served; !errors.Is(err, filo.ErrServerClosed) {
			return fmt.Errorf("server %d: Serve after Shutdown: %w", number, err)
		}
	}
	left := inside.Leftover(l.server)
	for end := time.Now().Add(r.settling); left != "" && time.Now().Before(end); left = inside.Leftover(l.server) {
		time.Sleep(time.Millisecond) // the last worker might not have ended yet
	}
	if left != "" {
		return fmt.Errorf("server %d: after Shutdown these are counted:\n%s", number, left)
	}
	stats := l.server.Stats()
	l.handoffs += stats.Handoffs
	l.retakes += stats.Retakes
	l.spawned += stats.WorkersSpawned
	return nil
}

// watchfulLog makes the run fail when the server logs a warning or an error. There are two exceptions: the panics that clients request, and
// refusals, which are right for rude clients and make the other clients fail anyway. The server doesn't log other mistakes of clients, so any
// other record shows a fault of the server itself.
type watchfulLog struct{ run *run }

func (w watchfulLog) Write(record []byte) (int, error) {
	if !bytes.Contains(record, []byte(" msg=refused ")) && !bytes.Contains(record, fmt.Appendf(nil, "value=%q", panicValue)) {
		w.run.fail(fmt.Errorf("the server has logged: %s", record))
	}
	return len(record), nil
}
