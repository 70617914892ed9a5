package filo

import (
	"log/slog"
	"runtime/debug"

	"github.com/filohttp/filo/internal/linger"
)

// endConn ends a connection that is no longer served, unless it has ended before. If lingers is set, its client may still be sending, and
// gets the time to read the last answer.
func (c *conn) endConn(lingers bool) {
	c.endConnBy(func() {
		if lingers && c.server.lingerer.TakeOver(c.netConn, nil) {
			return
		}
		c.driver.endWaits()
		linger.Close(c.netConn) // TLS says goodbye
	})
}

// endConnBy is endConn with another way to close the socket. The socket is closed last: a client that sees the end and connects again finds
// the connection's place free, and ConnState knows of the end. No panic in ConnState or in the connection's Close does further harm.
func (c *conn) endConnBy(closeSocket func()) {
	s := c.server
	if waitState(c.word.Swap(int64(stateClosed))&stateMask) == stateClosed {
		return
	}
	defer survive(s.logger(), "panic in a connection's Close", func() { // deferred, since ConnState may end the goroutine
		if c.closing == closingReset {
			linger.ResetOnClose(c.netConn)
		}
		closeSocket()
	})
	s.conns.remove(c)
	if c.parked == nil || !c.parked.carried { // ConnState has never heard of a carried one
		survive(s.logger(), "panic in ConnState", func() { s.changed(c, StateClosed) })
	}
}

// survive calls f, and logs its panic.
func survive(logger *slog.Logger, message string, f func()) {
	defer func() {
		if value := recover(); value != nil {
			logPanic(logger, message, value, debug.Stack())
		}
	}()
	f()
}
