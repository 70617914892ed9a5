package filo

import (
	"errors"
	"sync/atomic"
)

// Refusals counts, since the start, what the server has refused because of a limit or a policy of its own. Refusals by handlers and
// middleware aren't here.
type Refusals struct {
	// MaxConns and MaxConnsPerIP count connections over these limits.
	MaxConns, MaxConnsPerIP uint64
	// Concurrency counts requests, and in the blocking driver connections, that were refused at once because Server.Concurrency was
	// reached and Server.Queue is 0 or isn't for them.
	Concurrency uint64
	// QueueFull counts requests for which Server.Queue had no room, QueueTimeout those that waited in it for QueueTimeout in vain.
	QueueFull, QueueTimeout uint64
	// BufferedBodies counts requests whose bodies had no room: see Server.MaxBufferedBodies.
	BufferedBodies uint64
	// UnsentAnswers counts requests that got a 503 because too many bytes of answers waited for their clients.
	UnsentAnswers uint64
	// Tasks counts tasks that Ctx.Go refused because the pool was full.
	Tasks uint64
	// ProxyProtocol counts connections whose peer isn't trusted, or that had no valid header: see ProxyProtocol.
	ProxyProtocol uint64
	// HTTP2Streams counts requests over HTTP2Options.MaxConcurrentStreams. HTTP2Calm counts connections that were ended because the client
	// wasted the server's time: by more glitches than HTTP2Options.MaxGlitches, or by heads far over their limit.
	HTTP2Streams, HTTP2Calm uint64
}

// refusalCounts has the counters of Refusals.
type refusalCounts struct {
	maxConns, maxConnsPerIP              atomic.Uint64
	concurrency, queueFull, queueTimeout atomic.Uint64
	bufferedBodies, unsentAnswers, tasks atomic.Uint64
	proxyProtocol                        atomic.Uint64
	http2Streams, http2Calm              atomic.Uint64
}

func (c *refusalCounts) load() Refusals {
	return Refusals{
		MaxConns: c.maxConns.Load(), MaxConnsPerIP: c.maxConnsPerIP.Load(),
		Concurrency: c.concurrency.Load(), QueueFull: c.queueFull.Load(), QueueTimeout: c.queueTimeout.Load(),
		BufferedBodies: c.bufferedBodies.Load(), UnsentAnswers: c.unsentAnswers.Load(), Tasks: c.tasks.Load(),
		ProxyProtocol: c.proxyProtocol.Load(), HTTP2Streams: c.http2Streams.Load(), HTTP2Calm: c.http2Calm.Load(),
	}
}

// countConn counts a refused connection. A connection that came when the server was about to end is refused by no policy.
func (c *refusalCounts) countConn(reason *HTTPError) {
	switch reason {
	case errTooManyConns:
		c.maxConns.Add(1)
	case errConnsPerIP:
		c.maxConnsPerIP.Add(1)
	case errNoPlace:
		c.concurrency.Add(1)
	}
}

// countFullBodies counts a request whose body had no room.
func (c *serverCounts) countFullBodies() {
	c.overloads.Add(1)
	c.refusals.bufferedBodies.Add(1)
}

// countBusy counts a request that has failed with err, if it failed because Concurrency was reached, and reports whether it did. Other
// errors that wrap ErrBusy are those of middleware.
func (c *serverCounts) countBusy(err error) bool {
	switch {
	case !errors.Is(err, ErrBusy):
		return false
	case errors.Is(err, errBusy):
		c.refusals.concurrency.Add(1)
	case errors.Is(err, errQueueFull):
		c.refusals.queueFull.Add(1)
	case errors.Is(err, errQueueTimeout):
		c.refusals.queueTimeout.Add(1)
	default:
		return false
	}
	c.overloads.Add(1)
	return true
}
