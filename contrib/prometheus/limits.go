package prometheus

import (
	"runtime"
	"time"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo"
)

// Connections and requests that failed, timed out or were refused, and the limits that cause this.
var (
	acceptFailures  = describe("filo_accept_failures_total", "Times that accepting a connection failed for a while, mostly for lack of descriptors.")
	handshakeErrors = describe("filo_tls_handshake_errors_total", "TLS handshakes that failed. Those that took too long are time-outs.")
	timeouts        = describe("filo_timeouts_total",
		"What ended because it took too long: TLS handshakes, connections that stay silent, heads, and so on.", "kind")
	refusals = describe("filo_refusals_total",
		"Connections and requests that were refused, by the limit or the policy that refused them.", "policy")

	draining  = describe("filo_draining", "1 once the server shuts down, before that 0.")
	drainTime = describe("filo_drain_start_time_seconds",
		"When the server began to shut down, in seconds since 1970. Not there before.")
	keepAlivesOff = describe("filo_keep_alives_disabled", "1 while the server tells clients to leave, as before a shutdown, otherwise 0.")

	buildInfo  = describe("filo_build_info", "1. The versions of filo and Go that the program was built with.", "version", "goversion")
	driverInfo = describe("filo_driver_info", "1 for the driver in use: loop or blocking.", "driver")
	leaders    = describe("filo_leaders", "Leaders of loops, so many handlers may run where their requests are read.")

	concurrencyLimit = describe("filo_concurrency_limit", "How many requests may be handled at once: compare filo_workers, running.")
	queueLimit       = describe("filo_queue_limit", "How many requests may wait for a place: compare filo_requests_queued.")
	connectionsLimit = describe("filo_connections_limit", "How many connections may be open: compare filo_connections. Not there without a limit.")
	addressLimit     = describe("filo_connections_per_address_limit", "How many connections an address may have. Not there without a limit.")
	streamsLimit     = describe("filo_http2_streams_limit", "How many requests a connection of HTTP/2 may have open.")
	bodies           = describe("filo_request_bodies_bytes", "Bytes of request bodies that are in memory.")
	bodiesLimit      = describe("filo_request_bodies_limit_bytes",
		"How many bytes of request bodies may be in memory. Not there without a limit.")
	answers      = describe("filo_unsent_answers_bytes", "Bytes of answers that wait for their clients.")
	answersLimit = describe("filo_unsent_answers_limit_bytes",
		"How many bytes of answers may wait for their clients. Not there without a limit.")
	bodyLimit    = describe("filo_request_body_limit_bytes", "The largest body of a request. Not there without a limit.")
	timeoutLimit = describe("filo_timeout_seconds",
		"How long something may take, by the kinds of filo_timeouts_total. Not there without a limit.", "kind")
	gracePeriod = describe("filo_grace_period_seconds", "How long a shutdown may take. Not there without a limit.")
)

func collectLimits(out sink, stats *filo.Stats) {
	flag := func(desc *client.Desc, on bool) {
		if on {
			out.gauge(desc, 1)
		} else {
			out.gauge(desc, 0)
		}
	}
	limit := func(desc *client.Desc, value float64, labels ...string) {
		if value > 0 {
			out.gauge(desc, value, labels...)
		}
	}

	out.count(acceptFailures, stats.AcceptFailures)
	out.count(handshakeErrors, stats.HandshakeErrors)
	t, r, l := &stats.Timeouts, &stats.Refusals, &stats.Limits
	for _, each := range [...]struct {
		kind  string
		count uint64
		limit time.Duration // 0 if the server has no such limit, or if another element contains it
	}{
		{"handshake", t.Handshake, 0}, {"silent", t.Silent, 0}, {"head", t.Head, l.ReadHeaderTimeout}, {"idle", t.Idle, l.IdleTimeout},
		{"body", t.Body, l.ReadTimeout}, {"write", t.Write, l.WriteTimeout}, {"handler", t.Handler, 0}, {"queue", t.Queue, l.QueueTimeout},
		{"ping", t.Ping, 0}, {"settings", t.Settings, 0},
	} {
		out.count(timeouts, each.count, each.kind)
		limit(timeoutLimit, each.limit.Seconds(), each.kind)
	}
	for _, each := range [...]struct {
		policy string
		count  uint64
	}{
		{"max_conns", r.MaxConns}, {"max_conns_per_ip", r.MaxConnsPerIP}, {"concurrency", r.Concurrency}, {"queue_full", r.QueueFull},
		{"queue_timeout", r.QueueTimeout}, {"buffered_bodies", r.BufferedBodies}, {"unsent_answers", r.UnsentAnswers}, {"tasks", r.Tasks},
		{"proxy_protocol", r.ProxyProtocol}, {"http2_streams", r.HTTP2Streams}, {"http2_calm", r.HTTP2Calm},
	} {
		out.count(refusals, each.count, each.policy)
	}

	out.gauge(bodies, float64(stats.BodiesBuffered))
	out.gauge(answers, float64(stats.AnswersBuffered))
	flag(draining, stats.Draining)
	if stats.Draining {
		out.gauge(drainTime, float64(stats.DrainingSince.UnixMilli())/1000)
	}
	flag(keepAlivesOff, stats.KeepAlivesOff)
	out.gauge(buildInfo, 1, filo.Version(), runtime.Version())
	if l.Driver == "" {
		return // nothing is served
	}
	out.gauge(driverInfo, 1, l.Driver)
	out.gauge(leaders, float64(l.Leaders))
	out.gauge(queueLimit, float64(l.Queue))
	limit(concurrencyLimit, float64(l.Concurrency))
	limit(connectionsLimit, float64(l.MaxConns))
	limit(addressLimit, float64(l.MaxConnsPerIP))
	limit(streamsLimit, float64(l.MaxConcurrentStreams))
	limit(bodiesLimit, float64(l.MaxBufferedBodies))
	limit(answersLimit, float64(l.MaxBufferedAnswers))
	limit(bodyLimit, float64(l.MaxBodyBytes))
	limit(gracePeriod, l.GracePeriod.Seconds())
}
