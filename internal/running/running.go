// Package running records which request each goroutine of a server handles, for other goroutines to read. The package stores connections, but doesn't
// use them.
package running

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// State says what happens with a request: see filo.RunningState.
type State uint8

// The states.
const (
	Handler State = iota
	Reading
	Answering
	Queued
)

// Set holds the records of all goroutines that handle requests of a server. C is the type of the server's connections.
type Set[C any] struct {
	mu    race.Mutex[race.OfRunning]
	first *Record[C] // of a doubly linked list; guarded by mu
}

// Record says which request a goroutine handles. Other goroutines read it. A nil Record ignores all calls.
type Record[C any] struct {
	on atomic.Bool // there is a request; set under mu

	mu     race.Mutex[race.OfLeaf]
	since  clock.Time     // guarded by mu
	class  *class.Class   // nil if it isn't known; guarded by mu
	conn   *C             // nil if another server has received the request; guarded by mu
	client netip.AddrPort // if conn is nil; guarded by mu
	state  State          // what the connection's own state doesn't show; guarded by mu

	next, previous *Record[C] // in the set's list; guarded by the set's mu
	member         bool       // the record is in the set; guarded by the set's mu
}

// Add adds the record of a goroutine that is about to handle requests. A nil Set does nothing.
func (s *Set[C]) Add(r *Record[C]) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.next = s.first; s.first != nil {
		s.first.previous = r
	}
	s.first, r.member = r, true
}

// Remove undoes Add. A second call does nothing.
func (s *Set[C]) Remove(r *Record[C]) {
	if s == nil {
		return
	}
	r.End()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.member {
		return
	}
	if r.previous == nil {
		s.first = r.next
	} else {
		r.previous.next = r.next
	}
	if r.next != nil {
		r.next.previous = r.previous
	}
	r.next, r.previous, r.member = nil, nil, false
}

// All returns the records of goroutines that handle a request.
func (s *Set[C]) All() []*Record[C] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Record[C]
	for r := s.first; r != nil; r = r.next {
		if r.on.Load() {
			all = append(all, r)
		}
	}
	return all
}

// Begin records a request, or updates the record if Begin was already called for this request. class is nil if it isn't known.
func (r *Record[C]) Begin(now clock.Time, class *class.Class, c *C, state State) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on.Load() {
		r.since, r.class = now, nil
		r.on.Store(true)
	}
	if class != nil {
		r.class = class
	}
	r.conn, r.state = c, state
}

// Is changes the state of a request that is recorded.
func (r *Record[C]) Is(state State) {
	if !r.IsOn() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = state
}

// End ends the record of a request.
func (r *Record[C]) End() {
	if !r.IsOn() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on.Store(false)
	r.class, r.conn, r.client = nil, nil, netip.AddrPort{}
}

// IsOn reports whether a request is recorded.
func (r *Record[C]) IsOn() bool { return r != nil && r.on.Load() }

// SetClient sets the client of a request that another server has received.
func (r *Record[C]) SetClient(client netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.client = client
}

// Request is the content of a record.
type Request[C any] struct {
	Name   string // of the class; "" if it isn't known
	State  State
	Conn   *C             // nil if another server has received the request
	Client netip.AddrPort // if Conn is nil
	Age    time.Duration
}

// Look returns the recorded request. It reports false if there is none, because the request has ended.
func (r *Record[C]) Look(now clock.Time) (request Request[C], ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on.Load() {
		return request, false
	}
	request = Request[C]{State: r.state, Conn: r.conn, Client: r.client, Age: max(0, now.Sub(r.since))}
	if r.class != nil {
		request.Name = r.class.Name
	}
	return request, true
}
