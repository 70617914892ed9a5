package filo

import "time"

// SocketOptions are options of the TCP sockets that Listen, ListenAndServe, Run and their TLS variants open. They don't apply
// to a listener that the program opens itself. The zero value suits most servers. Options that the system doesn't support are
// ignored.
type SocketOptions struct {
	// Backlog is how many connections the system holds before they are accepted; it drops further ones, whose clients try again
	// after a second. Default the system's maximum (net.core.somaxconn), which is right unless waiting in line is worse than
	// failing. Linux.
	Backlog int

	// ReusePort lets other processes listen on the same address, and the system spreads connections over them, for example for
	// a restart without a gap. Off by default, so that a second instance fails (EADDRINUSE) instead of silently taking half of
	// the connections. Linux.
	ReusePort bool

	// DeferAccept is how long the system holds back a connection that hasn't sent a byte, in whole seconds. It saves a wake-up
	// per connection, and hides silent connections from MaxConns and ConnState. Default 0, which disables it. Linux.
	DeferAccept time.Duration

	// FastOpen is how many connections may be pending after sending data with their first packet (RFC 7413). Such data may
	// arrive twice, so set it only if every request may be repeated. Default 0, none. Linux.
	FastOpen int

	// KeepAlive is how long a connection is silent before the system probes the other end, and the interval of further probes.
	// It detects vanished clients where IdleTimeout doesn't apply, as in a hijacked connection. Default 15 s; negative: never.
	KeepAlive time.Duration

	// ReadBuffer and WriteBuffer are the sizes of the system's buffers per connection, in bytes. Default 0, which lets the
	// system adapt them to the connection; a fixed size is for machines with very many connections.
	ReadBuffer, WriteBuffer int
}
