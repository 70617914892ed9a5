package filo

import (
	"slices"
	"strings"

	"github.com/filohttp/filo/internal/classes"
)

// ConnState is what a connection is doing.
type ConnState int

// The states that Server.ConnState is told of. A connection is new first; it is active from the first byte of a
// request until its answer is written, idle between requests, and closed or hijacked at the end.
const (
	StateNew ConnState = iota
	StateActive
	StateIdle
	StateHijacked
	StateClosed
)

// String returns the state's name.
func (s ConnState) String() string {
	names := [...]string{"new", "active", "idle", "hijacked", "closed"}
	if s < 0 || int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// Stats is what a server has done and is doing.
type Stats struct {
	// ConnsOpen is how many connections are being served: ConnsIdle wait for a request (new ones too), ConnsActive
	// have one, and ConnsParked were taken over by Ctx.Park and wait.
	ConnsOpen, ConnsIdle, ConnsActive, ConnsParked int
	// ConnsAccepted and ConnsRefused count since the start; refused ones are accepted ones that got a 503 or 429 for an
	// answer, or none.
	ConnsAccepted, ConnsRefused uint64
	// Requests counts the answers by status class: Requests[2] is 200 to 299. Those of refused connections are counted too.
	Requests [6]uint64
	// WorkersRunning is how many workers serve a connection, WorkersReady how many wait for one, and WorkersLeading how many
	// lead a loop.
	WorkersRunning, WorkersReady, WorkersLeading int
	// WorkersSpawned and WorkersRetired count since the start.
	WorkersSpawned, WorkersRetired uint64
	// RequestsRefused is how many requests the loop driver has answered with 503 since Concurrency was reached.
	RequestsRefused uint64
	// TasksRunning is how many tasks of Ctx.Go there are, those included that wait for one of the pool's workers.
	TasksRunning int
	// Handoffs is how many times a worker has given its loop to another one because a handler might block, Retakes how
	// many times a loop was taken from a worker whose handler took too long, and Steals how many times the leader of an idle
	// loop has served connections of one that didn't keep up.
	Handoffs, Retakes, Steals uint64
	// LoopsHosted is how many loops are left to another one's leader at the moment, since there is too little to do for
	// theirs, or no processor.
	LoopsHosted int
	// Classes are the handler classes that were entered, and that of the server's handler first.
	Classes []ClassStats
}

// Stats returns the server's counters. It looks at every connection, so ask for it now and then, not for each request.
// Connections that change their state meanwhile may be counted as they were or as they are.
func (s *Server) Stats() Stats {
	st := Stats{ConnsAccepted: s.accepted.Load(), ConnsRefused: s.refused.Load()}
	s.loopStats(&st)
	st.RequestsRefused = s.overloads.Load()
	st.TasksRunning = s.tasks.count()
	st.Classes = append(st.Classes, classStats(&s.class))
	s.mu.Lock()
	for _, pool := range s.pools {
		pool.stats(&st)
	}
	if len(s.pools) > 0 {
		st.WorkersRunning = max(0, int(s.pools[0].places.taken.Load())-st.WorkersReady)
	}
	answered := s.conns.answered
	s.mu.Unlock()
	s.classes.Each(func(k *classes.Class) { st.Classes = append(st.Classes, classStats(k)) })
	slices.SortStableFunc(st.Classes[1:], func(a, b ClassStats) int { return strings.Compare(a.Name, b.Name) })
	for class := range s.refusals {
		st.Requests[class] += s.refusals[class].Load()
	}
	for i := range answered {
		answered[i].addTo(&st.Requests)
	}
	s.conns.walk(func(c *conn) {
		st.ConnsOpen++
		switch state := c.state(); {
		case state.idle():
			st.ConnsIdle++
		case state == stateParked:
			st.ConnsParked++
		}
	})
	st.ConnsActive = st.ConnsOpen - st.ConnsIdle - st.ConnsParked
	return st
}

// changed tells the user's ConnState, if there is one.
func (s *Server) changed(c *conn, state ConnState) {
	if s.ConnState != nil {
		s.ConnState((*observedConn)(c), state)
	}
}

// connHijacked takes a connection that a handler took over out of the books.
func (s *Server) connHijacked(c *conn) {
	s.conns.remove(c)
	s.conns.awaitWakeUp() // which must not hit whoever took it
	if worker := c.worker.worker; worker != nil {
		worker.pool.forget(worker)
	}
	s.changed(c, StateHijacked)
}
