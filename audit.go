package filo

import (
	"fmt"
	"strings"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/hooks"
)

// Tests use this file, through package inside, to ask a server about itself: which counts aren't 0 although nothing is open, and which
// waits go on although their event has happened. Nothing else calls it.

// leftover describes the counts that must be 0 while no connection and no request is open, and aren't; "" if all are. A wrong count isn't
// noticed for a long time: one below 0 lets in more requests than Server.Concurrency, and one above 0 fewer.
func (s *Server) leftover() string {
	var all strings.Builder
	check := func(name string, n int64) {
		if n != 0 {
			fmt.Fprintf(&all, "%s: %d\n", name, n)
		}
	}
	if s.pool == nil {
		return ""
	}
	s.pool.audit(check)
	check("places of handshakes", int64(s.handshakes.Used()))
	waiting, polled := s.loops.Load().Waiting()
	check("goroutines that wait for clients", waiting)
	check("second descriptors", polled)
	check("bytes of bodies", s.bodies.Used())
	check("bytes of answers", s.answers.Used())
	check("handlers that wait for windows", s.answers.Waiting())
	check("silent bodies", int64(s.bodies.Silents(clock.Last, 0)))
	s.conns.mu.Lock()
	check("connections", int64(s.conns.conns.Len()))
	check("parked streams", int64(s.conns.streams))
	check("carried requests", int64(s.conns.carried))
	check("addresses of clients", int64(s.conns.addresses.Len()+len(s.conns.strangers)))
	s.conns.mu.Unlock()
	return all.String()
}

// audit passes the counts to check that are 0 while no worker serves.
func (wp *workerPool) audit(check func(name string, n int64)) {
	for k, name := range map[admit.Kind]string{admit.Ordinary: "ordinary", admit.Quick: "quick", admit.QuickConn: "quick connections'",
		admit.Always: "reserve's", admit.Closing: "closing"} {
		check(name+" places", int64(wp.places.Taken(k)))
	}
	check("requests in the queue", int64(wp.places.Joined()))
	check("requests that wait in the queue", int64(wp.places.Waiting()))
	wp.mu.Lock()
	defer wp.mu.Unlock()
	check("workers that haven't retired", int64(wp.spawned-wp.retired)-int64(len(wp.ready)+wp.leading))
}

// overdueSocket is a socket in a loop: see loop.Socket.
type overdueSocket interface {
	Overdue() (what string, progress [2]uint64)
	Looks() int64
}

// overdue calls found for each wait that should be over, or is about to be: a connection waits for input or room that is already there, or
// a request waits in the queue although a place is free. It checks only connections in loops.
func (s *Server) overdue(found func(hooks.OverdueWait)) {
	var pool *workerPool
	s.life.Hold(func() { pool = s.pool })
	if pool == nil {
		return // not configured yet
	}
	if since := pool.places.Oldest(); since != 0 && !pool.places.IsFull() {
		found(hooks.OverdueWait{Of: pool, What: "a request in the queue: a place is free", Progress: [2]uint64{uint64(since)}})
	}
	s.conns.walk(func(c *conn) {
		socket, ok := c.driver.(overdueSocket)
		if !ok {
			return
		}
		if what, progress := socket.Overdue(); what != "" {
			found(hooks.OverdueWait{Of: c, What: fmt.Sprintf("the connection of %s in state %d: %s", c.netConn.RemoteAddr(), c.state(), what),
				Progress: progress, Looks: socket.Looks()})
		}
	})
}
