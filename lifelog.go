package filo

import (
	"crypto/tls"
	"runtime"
	"strings"
	"time"

	"github.com/filohttp/filo/internal/version"
)

// This file has the records that the server logs about its own life: "serving" for each listener, "draining" and "stopped", and "failed" with
// the error of Run. A server that serves no listener, but single connections or the requests of another server, logs none of them.

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
// or its level: behind slog.SetDefault the records of log.Fatal are at level Info.
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

// Version returns the version of filo in this program, such as "v0.1.0": "(devel)" for a directory that replaces the module, and "unknown"
// if the build doesn't say, as in tests.
func Version() string { return version.Of() }
