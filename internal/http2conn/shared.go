package http2conn

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/budget"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/http1"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/pace"
)

// Shared holds what the HTTP/2 connections of a server have in common. It doesn't change once there is a connection.
type Shared struct {
	Limits
	Clock   *clock.Coarse
	Bodies  *budget.Bodies
	Answers *budget.Answers
	Counts  Counts

	Draining *atomic.Bool // the server is shutting down
	NoReuse  *atomic.Bool // connections end as soon as they have had a request
	// FirstRequest returns for how long a shutdown waits for the first request of a connection that has existed for the given time.
	FirstRequest func(waited time.Duration) time.Duration
	TellsActive  bool // Driver.Active is called

	Settings []byte         // the SETTINGS frame that is sent first on each connection
	Server   *http2.Literal // the Server field of answers; nil for none
}

// Limits are the limits of connections.
type Limits struct {
	Head                     http1.Limits
	MaxBody                  int64 // bytes of a request's body; negative: no limit
	MaxRequests              int   // requests of a connection; 0: no limit
	AwaitedBody              int   // in bytes: a body of up to this size is received completely before its handler runs
	MaxStreams               int
	StreamWindow, ConnWindow int32
	Glitches                 http2.GlitchLimits
	ExtendedConnect          bool
	Reading, Writing         pace.Limits   // how fast a client must send a body, and take an answer
	ReadHeader, Idle         time.Duration // timeouts
	PingInterval             time.Duration // 0: never
	Pause                    time.Duration // see clock.Waited
}

// Counts are the server's counts that connections add to.
type Counts struct {
	Settings, Head, Ping, Idle, Body, Write *atomic.Uint64 // counts of time-outs
	Overloads, RefusedBodies                *atomic.Uint64
}

// endsConns reports whether the server ends each connection that has received a request.
func (s *Shared) endsConns() bool { return s.Draining.Load() || s.NoReuse.Load() }

// waited returns how long the server has waited for a client, without pauses of the process: see clock.Waited.
func (s *Shared) waited(since, deadline, now clock.Time) time.Duration {
	return clock.Waited(since, deadline, now, s.Pause)
}

// Driver is what a connection needs of its driver and of the server. The connection calls these methods without its lock, unless a method's
// comment says otherwise. All but Send, WakeOwner and Flushed are called rarely.
type Driver interface {
	// Send sends b. It keeps the part that the socket doesn't accept at once: it retains b itself if kept is true, and otherwise a copy.
	Send(b []byte) (kept bool)
	// WakeOwner schedules a turn of the connection, unless it is in a turn.
	WakeOwner()
	// Flushed is called, with the connection's lock held, after IsFlushed has returned false. It says that the goroutine that moved the queue
	// has finished.
	Flushed()

	// Bodies returns the counter of bytes that the client has sent as request bodies and that handlers haven't read.
	Bodies() *atomic.Int64
	// Active is called with true when a request begins on an idle connection, and with false when the connection becomes idle, if
	// TellsActive is set.
	Active(active bool)
	// Failed is called with the reason for which the connection ends, StreamFailed with the reason for which a stream is reset.
	Failed(fault http2.Fault)
	StreamFailed(id uint32, fault http2.Fault)
	// BodyRefused is called on a new goroutine when there was no room for a body. Counts.RefusedBodies already includes it.
	BodyRefused()
	// Disconnect ends the connection at once: see outbox.Owner.
	Disconnect(err error)
	// LocalEnd and RemoteEnd return the addresses of the connection's ends.
	LocalEnd() net.Addr
	RemoteEnd() net.Addr
}
