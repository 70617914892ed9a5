package filo

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/running"
)

// This file has Server.Running. Only requests that may take long are recorded: when their worker gives its loop away, when the monitor
// takes the loop from the worker, and at once where there is no loop. So a quick handler that runs directly in the loop needs no record.

// RunningRequest is a request that is being handled.
type RunningRequest struct {
	// Route is the pattern of the route, or the name of another class of handlers: see ClassStats.Name. It is "" before a router has found
	// the route, and where there is no router.
	Route string
	// State says what the request does.
	State RunningState
	// Client is the address of the client's end of the connection, or the client's address in a header of the PROXY protocol. Behind other
	// proxies it is the proxy's address. It is invalid if the connection isn't an IP connection. If the net.Conn is a type of the program's
	// own, Client is also invalid until the server has called the net.Conn's RemoteAddr, and again after the connection has ended.
	Client netip.AddrPort
	// Age is the time since the request's handler began, or since the request entered Server.Queue.
	Age time.Duration
}

// RunningState says what a running request does.
type RunningState uint8

const (
	// RunningHandler: the handler computes, or waits for something that isn't its client, such as a lock or a database.
	RunningHandler RunningState = RunningState(running.Handler)
	// RunningReading: the handler waits for more of the request's body.
	RunningReading RunningState = RunningState(running.Reading)
	// RunningAnswering: the handler streams its answer, or the client takes the answer slowly.
	RunningAnswering RunningState = RunningState(running.Answering)
	// RunningQueued: the request waits in Server.Queue.
	RunningQueued RunningState = RunningState(running.Queued)
)

// String returns the state's name: "handler", "reading", "answering" or "queued".
func (s RunningState) String() string {
	names := [...]string{"handler", "reading", "answering", "queued"}
	if int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// Running returns the requests that are being handled, the oldest first. A request that is handled directly in a loop is included only
// after a moment: about 1 ms while the server is busy, and 10 ms otherwise. A request whose handler has taken the connection over isn't
// included. In the loop driver, running functions of parked connections are included.
//
// Running visits every worker, so call it on demand or at long intervals.
func (s *Server) Running() []RunningRequest {
	records := s.running.All()
	now := s.clock.Exact()
	requests := make([]RunningRequest, 0, len(records))
	for _, r := range records {
		if request, ok := r.Look(now); ok {
			requests = append(requests, runningRequest(&request))
		}
	}
	slices.SortStableFunc(requests, func(a, b RunningRequest) int { return cmp.Compare(b.Age, a.Age) })
	return requests
}

// runningRequest returns a request in the form that Running returns.
func runningRequest(r *running.Request[conn]) RunningRequest {
	request := RunningRequest{Route: r.Name, State: RunningState(r.State), Client: r.Client, Age: r.Age}
	c := r.Conn
	if c == nil {
		return request
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
	return request
}

// maxDescribed is how many routes describeRunning names.
const maxDescribed = 8

// describeRunning lists for logs the routes of requests, how many requests each has, and how old its oldest is, such as "GET /report 2
// (21.2s), GET /slow 1 (20s)". The requests are sorted, the oldest first.
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

// recordEntered records that the current request has entered the class, unless the monitor will do so if the handler takes long. If the
// monitor has just taken the loop or the connection away, it has recorded the previous class, so recordEntered records the new one.
func (x *exchange) recordEntered(class *class.Class) {
	w := x.scratch
	if w.leads() && !w.worker.Overtaken() {
		return
	}
	if wire, ok := x.wire.(*http2Exchange); ok && w.worker != nil && !wire.apart {
		w.worker.BeginClass(class)
		if !wire.wasTaken() {
			return
		}
	}
	x.record(class, running.Handler)
}

// recordRunning records that a handler of the class handles the current request, on a worker for which no other request waits: one that
// leads no loop, and owns no HTTP/2 connection.
func (x *exchange) recordRunning(class *class.Class, state running.State) {
	if wire, ok := x.wire.(*http2Exchange); !ok || wire.apart {
		x.record(class, state)
	}
}

// record records the current request.
func (x *exchange) record(class *class.Class, state running.State) {
	w := x.scratch
	if w.running == nil {
		return
	}
	var c *conn
	switch wire := x.wire.(type) {
	case *conn:
		c = wire
	case *http2Exchange:
		c = wire.conn
	}
	if state == running.Handler {
		state = w.ctx.runningState()
	}
	first := !w.running.IsOn()
	w.running.Begin(x.server.clock.Now(), class, c, state)
	if first && c == nil {
		w.running.SetClient(x.wire.remote())
	}
}

// runningState returns running.Handler until the handler has begun to stream an answer, and running.Answering from then on.
func (c *Ctx) runningState() running.State {
	if c.stream.sent {
		return running.Answering
	}
	return running.Handler
}

// recordLeft records the request, if there is one, of a worker that has just left its loop.
func (w *scratch) recordLeft(class *class.Class) {
	if w.ctx != nil && w.ctx.exchange != nil {
		w.ctx.exchange.recordRunning(class, running.Handler)
	}
}
