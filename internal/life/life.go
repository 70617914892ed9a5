// Package life has the state of a server's life cycle: its listeners, whether it drains, and the contents of the log record of its end. It handles no
// connections: it closes listeners and cancels contexts, and nothing else.
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

// Life is the state of a server's life cycle. The server starts at most once, drains from the first Shutdown or Close on, and never serves again.
// Code that adds a listener, or starts something that a shutdown ends, holds mu and checks Draining: see Hold. BeginDraining also holds mu. So either
// that code sees Draining, or the shutdown finds the listener.
type Life struct {
	Draining  atomic.Bool              // Shutdown or Close was called; set under mu
	NoReuse   atomic.Bool              // SetKeepAlivesEnabled(false) was called, or a shutdown has begun: connections end after their next answer
	LetLeft   atomic.Bool              // idle connections have had time for a last request before draining began; set before draining
	restUntil clock.Atomic[clock.Time] // when connections stop discarding bodies that no handler reads; set before draining

	// Set by Init, and immutable then.
	DrainBegun       chan struct{}   // closed when draining begins
	NotAccepting     chan struct{}   // closed when the server drains and no listener is left
	Base             context.Context // parent of the requests' contexts
	CancelBase       context.CancelCauseFunc
	Handshaking      context.Context // parent of the contexts of TLS handshakes; ends before Base when the server shuts down
	CancelHandshakes context.CancelCauseFunc

	mu             race.Mutex[race.OfLifecycle]
	started        bool                   // the clock, the pool and the sweep run; guarded by mu
	listened       bool                   // a listener was served, and the end isn't logged yet; guarded by mu
	drainingSince  time.Time              // guarded by mu
	answeredBefore uint64                 // how many requests had been answered when draining began; guarded by mu
	connsCut       int                    // how many connections Close has cut off; guarded by mu
	tasksCut       int                    // how many tasks Close has cut off; guarded by mu
	requestsCut    string                 // which requests ran when Close was called, as text for the log record; guarded by mu
	addresses      []string               // of all listeners so far, open or closed, without duplicates; guarded by mu
	listeners      map[*net.Listener]bool // one for each call to Serve; the keys are pointers, since a listener need not be comparable; guarded by mu
	onShutdown     []func()               // guarded by mu
}

// Init creates the channels and contexts.
func (l *Life) Init() {
	l.listeners = make(map[*net.Listener]bool)
	l.DrainBegun, l.NotAccepting = make(chan struct{}), make(chan struct{})
	l.Base, l.CancelBase = context.WithCancelCause(context.Background())
	l.Handshaking, l.CancelHandshakes = context.WithCancelCause(l.Base)
}

// Hold calls f while draining can't begin, and while no other call to Hold or Start runs.
func (l *Life) Hold(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// Start calls start, unless an earlier call has done so. If draining has begun, it doesn't call start, and reports false.
func (l *Life) Start(start func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Draining.Load() {
		return false
	}
	if !l.started {
		l.started = true
		start()
	}
	return true
}

// OnShutdown registers f to run on its own goroutine when draining begins. If draining has already begun, f runs at once.
func (l *Life) OnShutdown(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Draining.Load() {
		go f()
		return
	}
	l.onShutdown = append(l.onShutdown, f)
}

// EndsRest reports whether the server drains, and the time is over in which connections may still discard the body of an answered request or answer
// further requests.
func (l *Life) EndsRest(now func() clock.Time) bool {
	return l.Draining.Load() && now() >= l.restUntil.Load()
}

// EndsConns reports whether the server ends a connection after its next answer.
func (l *Life) EndsConns() bool { return l.Draining.Load() || l.NoReuse.Load() }

// BeginDraining sets Draining. answered is the number of requests answered so far. It returns the open listeners, and whether this call was the
// first.
func (l *Life) BeginDraining(restUntil clock.Time, answered uint64) (listeners []*net.Listener, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = !l.Draining.Load(); first {
		l.restUntil.Store(restUntil)
		l.drainingSince, l.answeredBefore = time.Now(), answered
		l.Draining.Store(true)
		close(l.DrainBegun)
		l.signalNotAcceptingLocked()
		for _, f := range l.onShutdown {
			go f()
		}
	}
	return slices.Collect(maps.Keys(l.listeners)), first
}

// DrainingSince returns when draining began, or the zero time if it hasn't begun.
func (l *Life) DrainingSince() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drainingSince
}

// Accepts reports whether there are listeners, and draining hasn't begun.
func (l *Life) Accepts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.listeners) > 0 && !l.Draining.Load()
}

// Track adds a listener that must be closed when draining begins. It reports false if draining has begun.
func (l *Life) Track(listener *net.Listener) bool {
	address := AddressOf(*listener)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Draining.Load() {
		return false
	}
	if len(l.listeners) == 0 {
		l.addresses = nil
	}
	if !slices.Contains(l.addresses, address) {
		l.addresses = append(l.addresses, address)
	}
	l.listeners[listener] = true
	l.listened = true
	return true
}

// Untrack closes a listener and removes it.
func (l *Life) Untrack(listener *net.Listener) {
	(*listener).Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.listeners, listener)
	l.signalNotAcceptingLocked()
}

// signalNotAcceptingLocked closes NotAccepting if the server drains and no listener is left.
func (l *Life) signalNotAcceptingLocked() {
	l.mu.AssertHeld()
	if l.Draining.Load() && len(l.listeners) == 0 {
		close(l.NotAccepting)
	}
}

// AddressOf returns a listener's address as text for log records. It also works if the Addr method of a program's own listener returns nil.
func AddressOf(listener net.Listener) string { return fmt.Sprint(listener.Addr()) }

// Served reports whether a listener was ever served, and at which addresses.
func (l *Life) Served() (address string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.addresses, " "), l.listened
}

// End holds what the log record "stopped" says about the time since the drain began.
type End struct {
	Address            string    // of all listeners
	Since              time.Time // when the drain began
	AnsweredBefore     uint64    // how many requests had been answered when the drain began
	ConnsCut, TasksCut int
	RequestsCut        string
}

// TakeEnd returns the contents of the log record of the server's end. ok is true in the first call after a listener was served, so that the end is
// logged once.
func (l *Life) TakeEnd() (end End, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok = l.listened
	l.listened = false
	return End{strings.Join(l.addresses, " "), l.drainingSince, l.answeredBefore, l.connsCut, l.tasksCut, l.requestsCut}, ok
}

// Cut records the connections, tasks and requests that Close is about to cut off. A second Close may find the same connections and tasks again, so
// Cut keeps the larger counts instead of adding them up.
func (l *Life) Cut(conns, tasks int, requests string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connsCut, l.tasksCut = max(l.connsCut, conns), max(l.tasksCut, tasks)
	l.requestsCut = cmp.Or(l.requestsCut, requests)
}
