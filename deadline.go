package filo

import (
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// SetReadDeadline sets a deadline for reading the request body, in place of ReadTimeout and MinTransferRate. A read that waits
// at the deadline fails within a quarter of a second with an error that is os.ErrDeadlineExceeded. The zero time restores the
// server's limits. As with http.ResponseController, a deadline that has passed ends the connection.
func (c *Ctx) SetReadDeadline(t time.Time) error {
	c.check()
	if c.exchange.hijacked {
		return ErrHijacked
	}
	c.readUntil = c.exchange.server.clock.at(t)
	return c.exchange.wire.deadlineSet(t, false)
}

// SetWriteDeadline sets a deadline for sending with Stream, in place of WriteTimeout and MinTransferRate: see SetReadDeadline.
// The server's limits apply to whatever is left to send when the handler has returned.
func (c *Ctx) SetWriteDeadline(t time.Time) error {
	c.check()
	if c.exchange.hijacked {
		return ErrHijacked
	}
	c.writeUntil = c.exchange.server.clock.at(t)
	return c.exchange.wire.deadlineSet(t, true)
}

// deadlineSet implements wire. A wait looks at the deadlines of the Ctx.
func (c *conn) deadlineSet(time.Time, bool) error { return nil }

// writeDeadline returns until when a write of size bytes may wait for the client; 0 is for ever.
func (c *conn) writeDeadline(now clock.Time, size int) clock.Time {
	if until := c.worker.ctx.writeUntil; until != 0 {
		return until
	}
	return c.writePace.Deadline(now, c.server.config.writing, size)
}

// passed reports whether a deadline of the handler's has passed; 0 is none.
func (c *conn) passed(until clock.Time) bool { return until != 0 && c.server.clock.exact() >= until }
