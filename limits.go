package filo

import "time"

// Limits are the limits that a server applies, with the defaults filled in. 0 is no limit, but for Queue, where it means that nothing waits.
// As long as nothing is served, all are 0.
type Limits struct {
	// Driver is "loop" if loops serve a listener, and otherwise "blocking".
	Driver string
	// Loops is the number of leaders, 0 in the blocking driver. The other limits are the fields of Server, and of HTTP2Options, that have
	// their names.
	Loops                                        int
	Concurrency, Queue                           int
	MaxConns, MaxConnsPerIP, MaxRequestsPerConn  int
	MaxConcurrentStreams                         int // of a connection of HTTP/2
	MaxBodyBytes, MaxBufferedBodies              int64
	QueueTimeout, ReadHeaderTimeout, IdleTimeout time.Duration
	ReadTimeout, WriteTimeout, GracePeriod       time.Duration
}

// limits returns the limits of a server that is configured.
func (s *Server) limits() Limits {
	c := &s.config
	l := Limits{
		Driver: DriverBlocking.String(), Concurrency: c.concurrency, Queue: max(s.Queue, 0), QueueTimeout: s.pool.queue.maxWait,
		MaxConns: max(s.conns.max, 0), MaxConnsPerIP: max(s.MaxConnsPerIP, 0), MaxRequestsPerConn: max(c.maxRequests, 0),
		MaxConcurrentStreams: c.http2.maxStreams, MaxBodyBytes: max(c.maxBody, 0), MaxBufferedBodies: max(s.bodies.limit, 0),
		ReadHeaderTimeout: max(c.readHeaderTimeout, 0), IdleTimeout: max(c.idleTimeout, 0),
		ReadTimeout: max(c.reading.Grace, 0), WriteTimeout: max(c.writing.Grace, 0),
		GracePeriod: max(withDefault(s.GracePeriod, DefaultGracePeriod), 0),
	}
	if s.loops.Load() != nil {
		l.Driver, l.Loops = DriverLoop.String(), c.leaders
	}
	return l
}
