package filo

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/apart"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/http2"
	"github.com/filohttp/filo/internal/http2conn"
	"github.com/filohttp/filo/internal/running"
	"github.com/filohttp/filo/internal/sock"
)

// http2Scratch is what a worker keeps for HTTP/2.
type http2Scratch struct {
	http2conn.Turn
	exchange http2Exchange // the exchange of the request whose handler the worker runs
	_        apart.Lines
}

// HTTP2Options configure HTTP/2. Over TLS the server uses HTTP/2 with clients that offer it (ALPN "h2"). The zero value suits servers on
// the open internet.
type HTTP2Options struct {
	// Disabled leaves HTTP/1.1 as the only protocol.
	Disabled bool

	// Unencrypted also accepts HTTP/2 without TLS from clients that begin with it (prior knowledge), such as proxies and gRPC clients, on the
	// same port as HTTP/1.1. Default off.
	Unencrypted bool

	// ExtendedConnect accepts requests that make a tunnel of their stream, as browsers do for WebSockets (RFC 8441). Ctx.Upgrade and
	// Ctx.Park serve them as they serve an Upgrade of HTTP/1.1. Default off: browsers that see the offer open all their WebSockets in
	// this way, and handlers that need Ctx.Hijack would refuse them. docs/internals/HTTP2.md has the details.
	ExtendedConnect bool

	// MaxConcurrentStreams is how many requests a client may have open on one connection. Further requests are refused in a way that lets the
	// client retry them. Default 128; it can't be unlimited.
	MaxConcurrentStreams int

	// MaxStreamWindow and MaxConnWindow limit how many bytes of request bodies a client may send that handlers haven't read yet: on one
	// stream, and on all streams of a connection. The window of each stream begins at 64 KB, and grows up to the limit while the handler reads
	// the body as fast as it arrives. All windows of a connection together grow by at most MaxConnWindow. In each round trip a client can send
	// at most one window. A body that nobody reads doesn't block the other bodies of its connection, so a connection's unread bodies take up
	// to MaxConcurrentStreams times 64 KB, 8 MB by default. Default 4 MB each; at least 64 KB. See Server.MaxBufferedBodies, too.
	MaxStreamWindow, MaxConnWindow int

	// PingInterval is how long a connection may be silent before the server sends a PING. If nothing arrives within 15 seconds, the connection
	// ends, and so do the contexts of its requests. Default 0, never: SocketOptions.KeepAlive finds clients that have vanished, unless there
	// is a proxy in between.
	PingInterval time.Duration

	// MaxGlitches is how many frames that serve no purpose, or cause errors, a client may send in a burst. A reset of the client's own
	// request is such a frame, but each answer that the server has sent completely allows one reset. Each second allows 33 more such
	// frames. Beyond that the connection ends with ENHANCE_YOUR_CALM. Default 1,000, which is enough for a proxy with many users; negative:
	// no limit.
	MaxGlitches int
}

// defaultMaxStreams is the default of MaxConcurrentStreams.
const defaultMaxStreams = 128

// newHTTP2Shared returns HTTP2Options with the defaults applied, and everything else that the connections share.
func (s *Server) newHTTP2Shared(c *serverConfig) *http2conn.Shared {
	o, timeouts := &s.HTTP2, &s.counts.timeouts
	shared := &http2conn.Shared{
		Limits: http2conn.Limits{
			Head: c.head, MaxBody: c.maxBody, MaxRequests: c.maxRequests, AwaitedBody: maxAwaitedBody,
			MaxStreams:   positive(o.MaxConcurrentStreams, defaultMaxStreams),
			StreamWindow: http2Window(o.MaxStreamWindow), ConnWindow: http2Window(o.MaxConnWindow),
			Glitches: http2.DefaultGlitches, ExtendedConnect: o.ExtendedConnect, Reading: c.reading, Writing: c.writing,
			ReadHeader: c.readHeaderTimeout, Idle: c.idleTimeout, PingInterval: max(o.PingInterval, 0), Pause: c.pause,
		},
		Clock: &s.clock.Coarse, Bodies: &s.bodies, Answers: &s.answers,
		Counts: http2conn.Counts{
			Settings: &timeouts.settings, Head: &timeouts.head, Ping: &timeouts.ping, Idle: &timeouts.idle, Body: &timeouts.body,
			Write: &timeouts.write, Overloads: &s.counts.overloads, RefusedBodies: &s.counts.refusals[refusedBufferedBodies],
		},
		Draining: &s.life.Draining, NoReuse: &s.life.NoReuse, TellsActive: s.ConnState != nil,
		FirstRequest: func(waited time.Duration) time.Duration { return s.lastReadTime(stateNew, waited) },
	}
	if o.MaxGlitches != 0 {
		shared.Glitches.Burst = o.MaxGlitches
	}
	settings := http2.Settings{MaxStreams: uint32(shared.MaxStreams), MaxHeaderList: uint32(c.head.Bytes), ExtendedConnect: o.ExtendedConnect}
	shared.Settings = settings.Append(nil)
	if len(c.serverLine) > 0 {
		name := http2.NewLiteral("server", string(c.serverLine[len("Server: "):len(c.serverLine)-len("\r\n")]))
		shared.Server = &name
	}
	return shared
}

// http2Window returns the limit of a window for the value n of an option.
func http2Window(n int) int32 {
	switch {
	case n <= 0:
		return http2.MaxReceiveWindow
	case n < http2.DefaultWindow:
		return http2.DefaultWindow
	}
	return int32(min(n, 1<<30))
}

// maxUnsentHTTP2 limits how many bytes of a connection's output the system accepts beyond those that it can send at once. An urgent answer
// waits behind these bytes. Without the limit it would wait behind megabytes of a large answer.
const maxUnsentHTTP2 = 128 << 10

// newHTTP2 switches the connection to HTTP/2. Bytes that have already arrived are parsed in its first turn.
func (c *conn) newHTTP2(driver http2conn.Driver) *http2conn.Conn {
	sock.LimitUnsent(c.netConn, maxUnsentHTTP2)
	return http2conn.New(c.server.config.http2, driver, c.tlsState, c.in.Unread())
}

// http2WaitStates has the waitState for each kind of wait in http2conn.
var http2WaitStates = [...]waitState{
	http2conn.WaitsNew: stateNew, http2conn.WaitsIdle: stateIdle, http2conn.WaitsStreams: stateStreams, http2conn.WaitsLeaving: stateLeaving,
}

// requestCount returns how many requests have begun. Any goroutine may call it.
func (c *conn) requestCount() int32 {
	if h := c.http2.Load(); h != nil {
		return h.Requests()
	}
	return c.requests.Load()
}

// http2Runner is the interface by which a worker that runs a handler calls the connection's driver.
type http2Runner interface {
	// watch makes sure that the connection is taken from w if the handler that w now runs inline takes long. It is called once the monitor can
	// find w.
	watch(w *scratch)
	// giveAway gives the connection to another worker in place of w, which runs a handler and leads no loop any more.
	giveAway(w *scratch)
	// noticeLoss gives w the place that was counted when the monitor took the connection from it, or its loop.
	noticeLoss(w *scratch)
	// clientLeft reports whether the client is known to send nothing more. Bytes that it sent earlier may still be unread.
	clientLeft() bool
}

// beginHTTP2 begins a turn of the connection with the worker's buffers.
func (w *scratch) beginHTTP2(h *http2conn.Conn) *http2conn.Turn {
	if w.http2 == nil {
		w.http2 = new(http2Scratch)
		w.http2.In, w.http2.Lender = &w.in, w
	}
	if w.ctx == nil {
		w.ctx = new(Ctx)
	}
	h.BeginTurn(&w.http2.Turn)
	return &w.http2.Turn
}

// giveHTTP2Away gives the connection to another worker in place of w, which runs the handler.
func (c *conn) giveHTTP2Away(w *scratch) {
	c.http2.Load().GiveAway(&w.http2.Turn)
	w.running.Begin(c.server.clock.Now(), w.timer.Class(), c, running.Handler)
}

// takeHTTP2Away takes the connection from a worker that runs a handler inline, and returns the worker, or nil if there is none.
func (c *conn) takeHTTP2Away() *scratch {
	t := c.http2.Load().TakeAway(func(t *http2conn.Turn) {
		w, handled := t.Lender.(*scratch), (*class.Class)(nil)
		if w.worker != nil {
			handled = w.worker.Running()
			if c.driver.keepsWorker() { // in a loop the place is counted when the seat is taken
				c.server.pool.places.TakeBeyond()
			}
		}
		w.running.Begin(c.server.clock.Exact(), handled, c, running.Handler)
	})
	if t == nil {
		return nil
	}
	return t.Lender.(*scratch)
}

// The methods below are the part of http2conn.Driver that both drivers share.

// Bodies implements http2conn.Driver.
func (c *conn) Bodies() *atomic.Int64 { return c.server.conns.bodiesOf(c) }

// Active implements http2conn.Driver.
func (c *conn) Active(active bool) {
	if active {
		c.server.changed(c, StateActive)
	} else {
		c.server.changed(c, StateIdle)
	}
}

// Failed implements http2conn.Driver.
func (c *conn) Failed(fault http2.Fault) {
	if fault.Code() == http2.EnhanceYourCalm {
		c.server.refused(refusedHTTP2Calm, c.remote())
	}
	if c.server.LogAllErrors {
		c.server.logger().Warn("HTTP/2 connection refused", "error", fault.String(), "code", fault.Code().String(),
			"remote", fmt.Sprint(c.remoteAddr()))
	}
}

// StreamFailed implements http2conn.Driver.
func (c *conn) StreamFailed(id uint32, fault http2.Fault) {
	if fault == http2.FaultRefused {
		c.server.refused(refusedHTTP2Streams, c.remote())
	}
	if c.server.LogAllErrors {
		c.server.logger().Warn("HTTP/2 stream reset", "error", fault.String(), "code", fault.Code().String(), "stream", id,
			"remote", fmt.Sprint(c.remoteAddr()))
	}
}

// BodyRefused implements http2conn.Driver.
func (c *conn) BodyRefused() { c.server.tellRefused(refusedBufferedBodies, c.remote) }

// Disconnect implements http2conn.Driver.
func (c *conn) Disconnect(err error) {
	c.server.counts.slowWriter(err)
	(*observedConn)(c).Close()
}

// LocalEnd implements http2conn.Driver.
func (c *conn) LocalEnd() net.Addr { return c.localAddr() }

// RemoteEnd implements http2conn.Driver.
func (c *conn) RemoteEnd() net.Addr { return c.remoteAddr() }
