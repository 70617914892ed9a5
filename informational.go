package filo

import (
	"errors"

	"github.com/filohttp/filo/internal/http1"
)

var errInformational = errors.New("filo: an informational answer has a status of 100 to 199, but not 101")

// Informational sends an interim answer (RFC 9110, section 15.2), such as 103 (Early Hints), with the current fields of
// Response.Header. The fields stay for the final answer. The status must be 100 to 199 except 101, for which there is Upgrade.
// Nothing is sent to an HTTP/1.0 client, which doesn't know interim answers.
func (c *Ctx) Informational(status int) error {
	c.check()
	switch {
	case status < 100 || status > 199 || status == 101:
		return errInformational
	case c.exchange.hijacked:
		return ErrHijacked
	case c.stream.sent:
		return ErrHeadSent
	case c.Request.minor == 0:
		return nil
	}
	if err := c.holdAnswer(); err != nil {
		return err
	}
	defer c.releaseAnswer()
	if status == 100 {
		c.Request.body.expect = false
	}
	return c.exchange.wire.inform(status, &c.Response.Header)
}

// inform implements wire.
func (c *conn) inform(status int, h *Header) error {
	c.out = http1.AppendInterim(c.out, status, &h.list)
	return c.flush()
}
