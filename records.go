package filo

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/filohttp/filo/internal/version"
)

// This file has two kinds of log records. Those about the server's life are "serving" for each listener, "draining" and "stopped", and
// "failed" with the error of Run. A server that serves no listener, but single connections or the requests of another server, logs none of
// these. The records of the other kind report mistakes of the program that no single answer reveals.

// logServing logs that a listener is served, with the values that an operator wants to compare with the configuration.
func (s *Server) logServing(address string, driver Driver, config *tls.Config) {
	l := s.limits()
	protocols := []string{"http/1.1"}
	switch {
	case config != nil:
		protocols = config.NextProtos
	case s.config.unencryptedHTTP2:
		protocols = append(protocols, "h2c")
	}
	known := []any{"address", address, "driver", driver.String()}
	if driver == DriverLoop {
		known = append(known, "leaders", s.config.leaders)
	}
	known = append(known, "tls", config != nil, "protocols", strings.Join(protocols, " "))
	if s.ProxyProtocol.enabled() {
		known = append(known, "proxy_protocol", true)
	}
	known = append(known, "concurrency", l.Concurrency, "queue", l.Queue, "max_conns", l.MaxConns)
	for _, each := range [...]struct {
		name            string
		value, standard time.Duration
	}{
		{"queue_timeout", l.QueueTimeout, DefaultQueueTimeout}, {"read_header_timeout", l.ReadHeaderTimeout, DefaultReadHeaderTimeout},
		{"read_timeout", l.ReadTimeout, DefaultReadTimeout}, {"write_timeout", l.WriteTimeout, DefaultWriteTimeout},
		{"idle_timeout", l.IdleTimeout, DefaultIdleTimeout}, {"grace_period", l.GracePeriod, DefaultGracePeriod},
	} {
		if each.value != each.standard {
			known = append(known, each.name, each.value.String())
		}
	}
	s.logger().Info("serving", append(known, "go", runtime.Version(), "filo", Version())...)
}

// logDraining logs that a shutdown has begun.
func (s *Server) logDraining() {
	if address, ok := s.life.Served(); ok {
		s.logger().Info("draining", "address", address, "connections", s.conns.open(), "tasks", s.tasks.Count())
	}
}

// logStopped logs, once, that the server has ended, and how many connections and tasks were cut off.
func (s *Server) logStopped() {
	end, ok := s.life.TakeEnd()
	if !ok {
		return
	}
	answered := s.answered()
	known := []any{"address", end.Address, "took", time.Since(end.Since).Round(time.Millisecond).String(), "connections_cut", end.ConnsCut, "tasks_cut", end.TasksCut,
		"requests_while_draining", answered - end.AnsweredBefore, "requests", answered}
	if end.RequestsCut != "" {
		known = append(known, "requests_cut", end.RequestsCut)
	}
	s.logger().Info("stopped", known...)
}

// failed logs the error, if there is one, with which Run or one of its variants returns, and returns it. The program may lose this error,
// or log it at too low a level: after slog.SetDefault, log.Fatal logs at level Info.
func (s *Server) failed(address string, err error) error {
	if err != nil {
		s.logger().Error("failed", "address", address, "error", err)
	}
	return err
}

// answered returns how many requests were answered, including refused connections that got an answer.
func (s *Server) answered() (n uint64) {
	var st Stats
	s.counts.refusalAnswers.addTo(&st.Requests)
	for i := range s.conns.answered {
		s.conns.answered[i].addTo(&st.Requests)
	}
	for _, count := range st.Requests {
		n += count
	}
	return n
}

// Version returns the version of filo in this program, such as "v0.1.0". It is "(devel)" if a directory replaces the module, and "unknown"
// if the build doesn't say, as in tests.
func Version() string { return version.Of() }

// warnings records which mistakes were logged, so that each is logged only once.
type warnings struct {
	plainCookie, replaced atomic.Bool
}

// warnPlainHTTP logs once that browsers drop the cookie, if they do.
func (r *Response) warnPlainHTTP(name string) {
	c := r.ctx
	if c == nil || c.exchange == nil || c.exchange.tlsState != nil || c.exchange.server.warned.plainCookie.Load() || !c.RemoteAddrPort().IsValid() {
		return // requests over a Unix socket come from a proxy
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

// warnReplaced logs once that a handler answers with a status below 400 after it has refused the request. Here a return is missing:
//
//	if !allowed {
//		c.Text(401, "log in first")
//	}
//	return c.JSON(200, secret)
//
// Only builds with the race detector call warnReplaced, before each answer: in production the answer may as well be a page that replaces an
// error on purpose. An error that RenderError has turned into the response may be replaced. With keptStatus the answer keeps the status,
// which the handler may have set for an error page. In this case only the loss of a body counts as a replaced answer.
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
