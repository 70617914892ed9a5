package filo

import (
	"cmp"
	"log/slog"
	"sync/atomic"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/syntax"
)

// This file has the records about mistakes of the program that a server can see, though each single request is answered as told.

// warnings says which mistakes were logged: each of them once.
type warnings struct {
	plainCookie, replaced atomic.Bool
}

// warnPlainHTTP logs once that browsers drop the cookie, if they do.
func (r *Response) warnPlainHTTP(name string) {
	c := r.ctx
	if c == nil || c.exchange == nil || c.exchange.tlsState != nil || c.exchange.server.warned.plainCookie.Load() || !c.RemoteAddrPort().IsValid() {
		return // what comes by a Unix socket comes from a proxy
	}
	list := &c.Request.Header.list
	_, byProxy := c.ProxyHeader()
	if byProxy || syntax.SaysHTTPS(list.GetID(field.XForwardedProto)) || syntax.SaysHTTPS(list.GetID(field.Forwarded)) || syntax.IsThisMachine(c.Host()) {
		return
	}
	if s := c.exchange.server; !s.warned.plainCookie.Swap(true) {
		s.logger().Warn("browsers drop a Secure cookie that comes over plain HTTP under another name than localhost: use TLS, have the proxy "+
			"in front say X-Forwarded-Proto: https, or leave Secure out (of sessions by Options.Insecure) in development",
			"cookie", name, "host", syntax.Excerpt(c.Host(), syntax.MaxLoggedHost), "route", c.match.Route, "path", c.loggedPath())
	}
}

// keptStatus stands for the status that the response already has.
const keptStatus = 0

// warnReplaced logs once that a handler answers with a status below 400 after it has refused the request: in
//
//	if !allowed {
//		c.Text(401, "log in first")
//	}
//	return c.JSON(200, secret)
//
// a return is missing. Only builds with the race detector call it, before each answer: a page that replaces an error on purpose is as
// likely in production. An error that RenderError has turned into the response may be replaced. With keptStatus the answer keeps the
// status, which the handler may have set for the page of an error. Then only an answer with a body was replaced.
func (c *Ctx) warnReplaced(status int) {
	refused, s := c.Response.status, c.exchange.server
	replaced := refused >= 400 && status < 400
	if status == keptStatus {
		replaced = refused >= 400 && c.Response.size() > 0
	}
	if !replaced || c.rendered || c.stream.sent || s.warned.replaced.Swap(true) {
		return
	}
	s.logger().Warn("an answer was replaced: a return may be missing behind the first one (builds with -race log this)",
		"status", refused, "by", cmp.Or(status, refused), "method", c.loggedMethod(), "path", c.loggedPath(), "route", c.match.Route)
}

// warnBlocks logs that handlers of a class which the program has told to run inline keep their loops waiting.
func warnBlocks(logger *slog.Logger, k *class.Class) {
	logger.Warn("an Inline handler blocks, and all connections of its loop wait meanwhile: leave Inline out, or do what blocks elsewhere",
		"route", k.Name)
}
