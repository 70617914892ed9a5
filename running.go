package filo

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// This file has Server.Running. What it needs is recorded by each worker, and only of requests that may take long: a request is recorded when
// its worker gives its loop away, when the monitor takes the loop from the worker, and at once where there is no loop. A quick handler that
// runs where its request was read costs nothing: no request takes longer than a tick of the monitor without being recorded.

// RunningRequest is a request that is being handled.
type RunningRequest struct {
	// Route is the pattern of the route, or the name of another class of handlers: see ClassStats.Name. It is "" before a router has found
	// the route, and where there is no router.
	Route string
	// State says what the request does.
	State RunningState
	// Client is the address of the client's end of the connection, or the one that a header of the PROXY protocol tells. Behind other proxies it
	// is the proxy's address. It is invalid if the connection isn't an IP connection, or if its type is the program's own and it has ended, or
	// its address isn't asked for yet.
	Client netip.AddrPort
	// Age is for how long the request has been handled. It begins with its handler, or in Server.Queue.
	Age time.Duration
}

// RunningState says what a running request does.
type RunningState uint8

const (
	// RunningHandler: the handler computes, or waits for something that isn't its client, such as a lock or a database.
	RunningHandler RunningState = iota
	// RunningReading: the handler waits for more of the request's body.
	RunningReading
	// RunningAnswering: the handler streams its answer, or the client takes the answer slowly.
	RunningAnswering
	// RunningQueued: the request waits in Server.Queue.
	RunningQueued
)

// String returns the state's name: "handler", "reading", "answering" or "queued".
func (s RunningState) String() string {
	names := [...]string{"handler", "reading", "answering", "queued"}
	if int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// Running returns the requests that are being handled, the oldest first. Not among them are those that have run for less than a moment, of
// about 1 ms while the server is busy and 10 ms otherwise, where their requests were read. A request whose handler has taken the connection
// over isn't the server's any more. Functions of parked connections are among them in the loop driver.
//
// Running looks at each worker, so call it when somebody asks, or now and then.
func (s *Server) Running() []RunningRequest {
	records := s.running.all()
	now := s.clock.Exact()
	requests := make([]RunningRequest, 0, len(records))
	for _, r := range records {
		if request, ok := r.look(now); ok {
			requests = append(requests, request)
		}
	}
	slices.SortStableFunc(requests, func(a, b RunningRequest) int { return cmp.Compare(b.Age, a.Age) })
	return requests
}

// maxDescribed is how many routes describeRunning names.
const maxDescribed = 8

// describeRunning names, for logs, the routes of requests, which are sorted, how many of each run, and how old the oldest is: "GET /report 2
// (21.2s), GET /slow 1 (20s)".
func describeRunning(requests []RunningRequest) string {
	var routes []string
	count, oldest := make(map[string]int), make(map[string]time.Duration)
	for _, each := range requests {
		route := cmp.Or(each.Route, "no route")
		if count[route]++; count[route] == 1 {
			routes = append(routes, route)
			oldest[route] = each.Age
		}
	}
	var b strings.Builder
	for i, route := range routes {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == maxDescribed {
			fmt.Fprintf(&b, "and %d more", len(routes)-i)
			break
		}
		fmt.Fprintf(&b, "%s %d (%v)", route, count[route], oldest[route].Round(100*time.Millisecond))
	}
	return b.String()
}

// runningSet holds the records of all goroutines that handle requests of a server.
type runningSet struct {
	mu    race.Mutex[race.OfRunning]
	first *runningRecord // of a doubly linked list; guarded by mu
}

// runningRecord says which request a goroutine handles, for others. The nil record records nothing.
type runningRecord struct {
	on atomic.Bool // there is a request; set under mu

	mu     race.Mutex[race.OfLeaf]
	since  clock.Time     // guarded by mu
	class  *class.Class   // nil if it isn't known; guarded by mu
	conn   *conn          // nil if another server has received the request; guarded by mu
	client netip.AddrPort // if conn is nil; guarded by mu
	state  RunningState   // what the connection's own state doesn't say; guarded by mu

	next, previous *runningRecord // in the set; guarded by its mu
	member         bool           // it is in the set; guarded by its mu
}

// add adds the record of a goroutine that is about to handle requests. The nil set has none.
func (s *runningSet) add(r *runningRecord) {
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

// remove undoes add, and does nothing a second time.
func (s *runningSet) remove(r *runningRecord) {
	if s == nil {
		return
	}
	r.end()
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

// all returns the records of goroutines that handle a request.
func (s *runningSet) all() []*runningRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*runningRecord
	for r := s.first; r != nil; r = r.next {
		if r.on.Load() {
			all = append(all, r)
		}
	}
	return all
}

// look returns the request. It reports false if there is none any more.
func (r *runningRecord) look(now clock.Time) (request RunningRequest, ok bool) {
	r.mu.Lock()
	if ok = r.on.Load(); !ok {
		r.mu.Unlock()
		return request, false
	}
	request = RunningRequest{State: r.state, Client: r.client, Age: max(0, now.Sub(r.since))}
	if r.class != nil {
		request.Route = r.class.Name
	}
	c := r.conn
	r.mu.Unlock()
	if c == nil {
		return request, true
	}
	request.Client = c.knownRemote()
	if request.State == RunningHandler && c.http2.Load() == nil {
		switch c.state() {
		case stateBody:
			request.State = RunningReading
		case stateWrite, stateRest:
			request.State = RunningAnswering
		}
	}
	return request, true
}

// begin records a request, or what has become known of one: a class that is nil isn't known.
func (r *runningRecord) begin(now clock.Time, class *class.Class, c *conn, state RunningState) {
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

// is changes the state of a request that is recorded.
func (r *runningRecord) is(state RunningState) {
	if !r.isOn() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = state
}

// end ends the record of a request.
func (r *runningRecord) end() {
	if !r.isOn() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on.Store(false)
	r.class, r.conn, r.client = nil, nil, netip.AddrPort{}
}

func (r *runningRecord) isOn() bool { return r != nil && r.on.Load() }

// recordRunning records that the current request is handled, by a handler of the class, where nobody waits for it: the worker leads no loop, and
// owns no connection of HTTP/2.
func (x *exchange) recordRunning(class *class.Class, state RunningState) {
	w := x.scratch
	if w.running == nil {
		return
	}
	var c *conn
	switch wire := x.wire.(type) {
	case *conn:
		c = wire
	case *http2Exchange:
		if !wire.apart {
			if w.worker != nil {
				w.worker.BeginClass(class) // the monitor records it if it takes long
			}
			return
		}
		c = wire.conn
	}
	if state == RunningHandler {
		state = w.ctx.runningState()
	}
	first := !w.running.isOn()
	w.running.begin(x.server.clock.Now(), class, c, state)
	if first && c == nil {
		w.running.setClient(x.wire.remote())
	}
}

// runningState is RunningHandler until the handler has begun to stream an answer.
func (c *Ctx) runningState() RunningState {
	if c.stream.sent {
		return RunningAnswering
	}
	return RunningHandler
}

// setClient says who the client of a request is that another server has received.
func (r *runningRecord) setClient(client netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.client = client
}

// recordLeft records the worker's request, if there is one, whose worker has just left its loop.
func (w *scratch) recordLeft(class *class.Class) {
	if w.ctx != nil && w.ctx.exchange != nil {
		w.ctx.exchange.recordRunning(class, RunningHandler)
	}
}
