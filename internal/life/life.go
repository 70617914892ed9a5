// Package life has the state of a server's life: its listeners, when it drains, and what its end is about. It serves nothing, and ends nothing but
// contexts and listeners.
package life

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// Life is the state of a server's life: it starts at most once, drains from the first Shutdown or Close on, and never goes back.
// Code that adds a listener, or starts something that a shutdown ends, holds Mu and checks Draining. BeginDraining holds Mu as well:
// it either keeps the listener from being added, or finds it.
type Life struct {
	Draining  atomic.Bool              // Shutdown or Close was called; set under Mu
	NoReuse   atomic.Bool              // SetKeepAlivesEnabled(false) was called, or a shutdown has begun: connections end when they can
	LetLeft   atomic.Bool              // idle connections have had time for a last request before draining began; set before draining
	restUntil clock.Atomic[clock.Time] // when connections stop waiting for bodies that nobody reads; set before draining

	// Set by Init, and immutable then.
	DrainBegun       chan struct{}   // closed when draining begins
	NotAccepting     chan struct{}   // closed when the server drains and no listener is left
	Base             context.Context // parent of the requests' contexts
	CancelBase       context.CancelCauseFunc
	Handshaking      context.Context // parent of the contexts of TLS handshakes; ends before base when the server shuts down
	CancelHandshakes context.CancelCauseFunc

	Mu             race.Mutex[race.OfLifecycle]
	Started        bool                   // the clock, the pool and the sweep run; guarded by Mu
	listened       bool                   // a listener was served, and the end isn't logged; guarded by Mu
	DrainingSince  time.Time              // guarded by Mu
	answeredBefore uint64                 // how many requests had been answered by then; guarded by Mu
	connsCut       int                    // how many connections Close has found; guarded by Mu
	tasksCut       int                    // the same of tasks; guarded by Mu
	requestsCut    string                 // which requests ran then, as a record has them; guarded by Mu
	addresses      []string               // of the listeners, each once, also when they are closed; guarded by Mu
	Listeners      map[*net.Listener]bool // one for each call of Serve; by address, since a listener need not be comparable; guarded by Mu
	onShutdown     []func()               // guarded by Mu
}

// Init makes the channels and contexts.
func (l *Life) Init() {
	l.Listeners = make(map[*net.Listener]bool)
	l.DrainBegun, l.NotAccepting = make(chan struct{}), make(chan struct{})
	l.Base, l.CancelBase = context.WithCancelCause(context.Background())
	l.Handshaking, l.CancelHandshakes = context.WithCancelCause(l.Base)
}

// OnShutdown has f run, on its own goroutine, when draining begins; if it has begun, f runs at once.
func (l *Life) OnShutdown(f func()) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.Draining.Load() {
		go f()
		return
	}
	l.onShutdown = append(l.onShutdown, f)
}

// EndsRest reports whether a draining server ends the connections that still discard the body of an answered request, or have further
// requests to be answered.
func (l *Life) EndsRest(now func() clock.Time) bool {
	return l.Draining.Load() && now() >= l.restUntil.Load()
}

// EndsConns reports whether a connection that has been answered ends, although its client could go on.
func (l *Life) EndsConns() bool { return l.Draining.Load() || l.NoReuse.Load() }

// BeginDraining makes the server drain, after that number of answered requests. It returns the open listeners, and whether this call was the
// first.
func (l *Life) BeginDraining(restUntil clock.Time, answered uint64) (listeners []*net.Listener, first bool) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if first = !l.Draining.Load(); first {
		l.restUntil.Store(restUntil)
		l.DrainingSince, l.answeredBefore = time.Now(), answered
		l.Draining.Store(true)
		close(l.DrainBegun)
		l.signalNotAcceptingLocked()
		for _, f := range l.onShutdown {
			go f()
		}
	}
	return slices.Collect(maps.Keys(l.Listeners)), first
}

// Accepts reports whether there are listeners, and draining hasn't begun.
func (l *Life) Accepts() bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return len(l.Listeners) > 0 && !l.Draining.Load()
}

// Track adds a listener that must be closed when draining begins. It reports false if draining has begun.
func (l *Life) Track(listener *net.Listener) bool {
	address := AddressOf(*listener)
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.Draining.Load() {
		return false
	}
	if len(l.Listeners) == 0 {
		l.addresses = nil
	}
	if !slices.Contains(l.addresses, address) {
		l.addresses = append(l.addresses, address)
	}
	l.Listeners[listener] = true
	l.listened = true
	return true
}

// Untrack closes a listener and removes it.
func (l *Life) Untrack(listener *net.Listener) {
	(*listener).Close()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	delete(l.Listeners, listener)
	l.signalNotAcceptingLocked()
}

// signalNotAcceptingLocked closes NotAccepting when it is time.
func (l *Life) signalNotAcceptingLocked() {
	l.Mu.AssertHeld()
	if l.Draining.Load() && len(l.Listeners) == 0 {
		close(l.NotAccepting)
	}
}

// AddressOf returns a listener's address as the records have it. A listener of the user's may have none.
func AddressOf(listener net.Listener) string { return fmt.Sprint(listener.Addr()) }

// Served reports whether a listener was ever served, and at which addresses.
func (l *Life) Served() (address string, ok bool) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return strings.Join(l.addresses, " "), l.listened
}

// End is what the record "stopped" says of the time from the beginning of the drain.
type End struct {
	Address            string    // of all listeners
	Since              time.Time // when the drain began
	AnsweredBefore     uint64    // how many requests had been answered by then
	ConnsCut, TasksCut int
	RequestsCut        string
}

// TakeEnd returns the record of the server's end. ok is true once, and only if a listener was served.
func (l *Life) TakeEnd() (end End, ok bool) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	ok = l.listened
	l.listened = false
	return End{strings.Join(l.addresses, " "), l.DrainingSince, l.answeredBefore, l.connsCut, l.tasksCut, l.requestsCut}, ok
}

// Cut records the connections, tasks and requests that Close is about to cut off. A second Close may find the same ones once more.
func (l *Life) Cut(conns, tasks int, requests string) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.connsCut, l.tasksCut = max(l.connsCut, conns), max(l.tasksCut, tasks)
	l.requestsCut = cmp.Or(l.requestsCut, requests)
}
