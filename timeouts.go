package filo

import "sync/atomic"

// Timeouts counts, since the start, what has ended because it took too long.
type Timeouts struct {
	// Handshake counts TLS handshakes that took longer than ReadHeaderTimeout.
	Handshake uint64
	// Silent counts connections that sent nothing within ReadHeaderTimeout, as those that browsers open in advance.
	Silent uint64
	// Head counts request heads that took longer than ReadHeaderTimeout.
	Head uint64
	// Idle counts connections that waited for another request for IdleTimeout.
	Idle uint64
	// Body counts request bodies that came too slowly: see ReadTimeout, MinTransferRate and Ctx.SetReadDeadline.
	Body uint64
	// Write counts answers that their clients took too slowly: see WriteTimeout, MinTransferRate and Ctx.SetWriteDeadline. Messages to parked
	// connections count too.
	Write uint64
	// Handler counts handlers that took longer than Ctx.SetTimeout allows.
	Handler uint64
	// Queue counts requests that waited in Server.Queue for QueueTimeout. They are in Refusals.QueueTimeout, too.
	Queue uint64
	// Ping counts connections of HTTP/2 whose clients didn't answer a PING: see HTTP2Options.PingInterval.
	Ping uint64
	// Settings counts connections of HTTP/2 whose clients didn't acknowledge the server's SETTINGS.
	Settings uint64
}

// timeoutCounts has the counters of Timeouts, but for Queue.
type timeoutCounts struct {
	handshake, silent, head, idle, body, write, handler, ping, settings atomic.Uint64
}

func (c *timeoutCounts) load() Timeouts {
	return Timeouts{
		Handshake: c.handshake.Load(), Silent: c.silent.Load(), Head: c.head.Load(), Idle: c.idle.Load(), Body: c.body.Load(),
		Write: c.write.Load(), Handler: c.handler.Load(), Ping: c.ping.Load(), Settings: c.settings.Load(),
	}
}
