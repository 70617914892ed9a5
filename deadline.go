package filo

import "time"

// SetReadDeadline sets until when the request's body may be read, instead of ReadTimeout and MinTransferRate: reads that
// wait at that time fail with an error that is os.ErrDeadlineExceeded, within a quarter of a second. The zero time is the
// server's limits again. As http.ResponseController's it ends the connection when it has passed.
func (c *Ctx) SetReadDeadline(t time.Time) error {
	c.check()
	if c.conn.hijacked {
		return ErrHijacked
	}
	c.readUntil = c.conn.server.clock.at(t)
	if carried, ok := c.conn.looped.(*transportConn); ok {
		return carried.transport.SetReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline sets until when the handler may send, by Stream, instead of WriteTimeout and MinTransferRate: see
// SetReadDeadline. What is left to be sent when the handler has returned has the server's limits.
func (c *Ctx) SetWriteDeadline(t time.Time) error {
	c.check()
	if c.conn.hijacked {
		return ErrHijacked
	}
	c.writeUntil = c.conn.server.clock.at(t)
	if carried, ok := c.conn.looped.(*transportConn); ok {
		return carried.transport.SetWriteDeadline(t)
	}
	return nil
}

// writeDeadline returns until when a write of size bytes may wait for the client, on the coarse clock's scale; 0 is for ever.
func (c *conn) writeDeadline(now int64, size int) int64 {
	if until := c.worker.ctx.writeUntil; until != 0 {
		return until
	}
	config := &c.server.config
	return c.writePace.deadline(now, config.writeTimeout, config.minRate, size)
}

// passed reports whether a deadline of the handler's has passed; 0 is none.
func (c *conn) passed(until int64) bool { return until != 0 && c.server.clock.exact() >= until }
