// Package running records which requests the goroutines of a server handle, so that other goroutines can ask. A connection is only a value
// to it.
package running

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// State says what a request does: see filo.RunningState.
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

// Record says which request a goroutine handles, for others. The nil record records nothing.
type Record[C any] struct {
	on atomic.Bool // there is a request; set under mu

	mu     race.Mutex[race.OfLeaf]
	since  clock.Time     // guarded by mu
	class  *class.Class   // nil if it isn't known; guarded by mu
	conn   *C             // nil if another server has received the request; guarded by mu
	client netip.AddrPort // if conn is nil; guarded by mu
	state  State          // what the connection's own state doesn't say; guarded by mu

	next, previous *Record[C] // in the set; guarded by its mu
	member         bool       // it is in the set; guarded by its mu
}

// Add adds the record of a goroutine that is about to handle requests. A nil set ignores the record.
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

// Remove undoes Add, and does nothing a second time.
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

// Begin records a request, or updates the record of a request that was recorded before. class is nil if it isn't known.
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

// Look returns the request. It reports false if the request has ended.
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
