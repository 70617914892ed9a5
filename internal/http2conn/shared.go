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

// Shared is what a server's connections have in common. It doesn't change once there is a connection.
type Shared struct {
	Limits
	Clock   *clock.Coarse
	Bodies  *budget.Bodies
	Answers *budget.Answers
	Counts  Counts

	Draining *atomic.Bool // the server is shutting down
	NoReuse  *atomic.Bool // connections end once they have had a request
	// FirstRequest returns for how long a shutdown waits for the first request of a connection that is as old as waited.
	FirstRequest func(waited time.Duration) time.Duration
	TellsActive  bool // Driver.Active is called

	Settings []byte         // the SETTINGS that a connection begins with
	Server   *http2.Literal // the Server field of answers; nil for none
}

// Limits are the limits of connections.
type Limits struct {
	Head                     http1.Limits
	MaxBody                  int64 // of a request; negative: no limit
	MaxRequests              int   // of a connection; 0: no limit
	AwaitedBody              int   // the largest body that is received as a whole before its handler runs
	MaxStreams               int
	StreamWindow, ConnWindow int32
	Glitches                 http2.GlitchLimits
	ExtendedConnect          bool
	Reading, Writing         pace.Limits   // of a body, and of an answer
	ReadHeader, Idle         time.Duration // timeouts
	PingInterval             time.Duration // 0: never
	Pause                    time.Duration // see clock.Waited
}

// Counts are the server's counts that connections add to.
type Counts struct {
	Settings, Head, Ping, Idle, Body, Write *atomic.Uint64 // of timeouts
	Overloads, RefusedBodies                *atomic.Uint64
}

// endsConns reports whether the server ends each connection that has had a request.
func (s *Shared) endsConns() bool { return s.Draining.Load() || s.NoReuse.Load() }

// waited returns how long the server has waited for a client.
func (s *Shared) waited(since, deadline, now clock.Time) time.Duration {
	return clock.Waited(since, deadline, now, s.Pause)
}

// Driver is what a connection needs of its driver and of the server. Unless said otherwise the connection calls it without its lock. All but
// Send, WakeOwner and Flushed are called rarely.
type Driver interface {
	// Send sends b. It keeps the part that the client doesn't take at once: b itself if kept is true, and otherwise a copy.
	Send(b []byte) (kept bool)
	// WakeOwner gives the connection a turn, unless it has one now.
	WakeOwner()
	// Flushed is called, with the connection's lock held, after IsFlushed has returned false: the goroutine that moved the queue has
	// finished.
	Flushed()

	// Bodies returns the count of the bytes of the client's bodies that wait for handlers.
	Bodies() *atomic.Int64
	// Active is told when the connection gets a request (true), and when it waits for the next one (false), if TellsActive is set.
	Active(active bool)
	// Failed is told why the connection ends, StreamFailed why a stream is reset.
	Failed(fault http2.Fault)
	StreamFailed(id uint32, fault http2.Fault)
	// BodyRefused is called on a goroutine of its own when there was no room for a body. Counts has counted that.
	BodyRefused()
	// Disconnect ends the connection at once: see outbox.Owner.
	Disconnect(err error)
	// LocalEnd and RemoteEnd return the addresses of the connection's ends.
	LocalEnd() net.Addr
	RemoteEnd() net.Addr
}
