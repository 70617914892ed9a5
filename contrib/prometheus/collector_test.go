package prometheus_test

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/prometheus"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/servertest"
)

func TestCollector(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{Handler: routes().Serve, Logger: quiet})
	registry := client.NewPedanticRegistry()
	registry.MustRegister(prometheus.Collector(s.Config))
	for _, request := range []string{"GET /users/7", "GET /users/8", "GET /nowhere", "GET /failing", "GET /slash"} {
		s.Do(t, request)
	}
	waiting := s.Dial(t)
	if _, err := io.WriteString(waiting, servertest.Request("GET /any", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := waiting.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var text string
	// The workers may not have closed the earlier connections yet, and may not be waiting for this connection's next request yet.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); runtime.Gosched() {
		if text = exposed(t, registry); strings.Contains(text, `filo_connections{state="idle"} 1.0`) &&
			strings.Contains(text, `filo_connections{state="active"} 0.0`) {
			break
		}
	}
	wantLines(t, "what the server has done", text,
		`filo_connections{state="idle"} 1.0`, `filo_connections{state="active"} 0.0`, `filo_connections{state="parked"} 0.0`,
		`filo_http2_connections 0.0`, `filo_http2_streams 0.0`, `filo_http3_connections 0.0`, `filo_http3_streams 0.0`,
		"filo_connections_accepted_total 6.0", "filo_connections_refused_total 0.0",
		`filo_requests_total{status="1xx"} 0.0`, `filo_requests_total{status="2xx"} 3.0`, `filo_requests_total{status="3xx"} 1.0`,
		`filo_requests_total{status="4xx"} 1.0`, `filo_requests_total{status="5xx"} 1.0`,
		"filo_requests_refused_total 0.0", "filo_tasks 0.0", "filo_handoffs_total 0.0", "filo_retakes_total 0.0",
		`filo_workers{state="leading"} 0.0`,
		`filo_class_handoffs_total{class="GET /users/{id}"} 0.0`, `filo_class_retakes_total{class="GET /users/{id}"} 0.0`,
		`filo_class_inline_total{class="GET /users/{id}"} 0.0`)
	for _, name := range []string{`filo_workers{state="running"} `, `filo_workers{state="ready"} `, "filo_workers_spawned_total ",
		"filo_workers_retired_total ", `filo_class_median_seconds{class="GET /users/{id}"} `, `filo_class_kind{class="GET /users/{id}",kind=`,
		`filo_class_kind{class="_SERVER",kind=`} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("no %s in\n%s", name, text)
		}
	}
	for class := range strings.SplitSeq(text, "\nfilo_class_kind{class=") {
		if class, ok := strings.CutSuffix(strings.SplitN(class, "\n", 2)[0], `,kind="unknown"} 1.0`); ok && strings.Contains(text, "filo_class_median_seconds{class="+class+"}") {
			t.Errorf("a median of %s, whose class isn't known", class)
		}
	}
	lint(t, registry)
}

// A collector may be registered for a server that doesn't serve yet, and labels distinguish several servers.
func TestCollectorOfIdleServers(t *testing.T) {
	registry := client.NewPedanticRegistry()
	for _, name := range []string{"public", "admin"} {
		client.WrapRegistererWith(client.Labels{"server": name}, registry).MustRegister(prometheus.Collector(&filo.Server{}))
	}
	if text := exposed(t, registry); strings.Contains(text, "_limit{") || strings.Contains(text, "filo_driver_info") {
		t.Errorf("limits before there are any:\n%s", text)
	}
	wantLines(t, "servers that don't serve", exposed(t, registry), `filo_connections_accepted_total{server="public"} 0.0`,
		`filo_connections_accepted_total{server="admin"} 0.0`)
}

// Each limit is exported together with the figure that it limits. Refusals and time-outs have few labels. promtool reports no error.
func TestCollectorLimits(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{
		Handler: routes().Serve, Logger: quiet, Driver: filo.DriverBlocking,
		Concurrency: 10, MaxConns: 1, ReadHeaderTimeout: 20 * time.Millisecond, IdleTimeout: -1,
	})
	registry := client.NewPedanticRegistry()
	registry.MustRegister(prometheus.Collector(s.Config))
	silent := s.Dial(t)
	if _, err := io.ReadAll(s.Dial(t)); err != nil { // exceeds MaxConns, unless the first connection has ended by now
		t.Fatal(err)
	}
	if _, err := io.ReadAll(silent); err != nil {
		t.Fatal(err)
	}
	stats := s.Config.Stats()
	for end := time.Now().Add(time.Minute); stats.ConnsOpen > 0 && time.Now().Before(end); stats = s.Config.Stats() {
		runtime.Gosched()
	}
	text := exposed(t, registry)
	wantLines(t, "limits, and what has reached them", text,
		"filo_concurrency_limit 10.0", "filo_connections_limit 1.0", "filo_queue_limit 0.0", "filo_leaders 0.0", "filo_http2_streams_limit 128.0",
		`filo_driver_info{driver="blocking"} 1.0`, `filo_timeout_seconds{kind="head"} 0.02`, `filo_timeout_seconds{kind="queue"} 0.1`,
		"filo_grace_period_seconds 20.0", "filo_request_bodies_bytes 0.0", "filo_request_bodies_limit_bytes 1.34217728e+08", "filo_unsent_answers_bytes 0.0", "filo_unsent_answers_limit_bytes 1.34217728e+08",
		"filo_request_body_limit_bytes 4.194304e+06",
		fmt.Sprintf(`filo_timeouts_total{kind="silent"} %d.0`, stats.Timeouts.Silent), `filo_timeouts_total{kind="idle"} 0.0`,
		fmt.Sprintf(`filo_refusals_total{policy="max_conns"} %d.0`, stats.Refusals.MaxConns), `filo_refusals_total{policy="queue_full"} 0.0`,
		"filo_accept_failures_total 0.0", "filo_tls_handshake_errors_total 0.0", "filo_draining 0.0", "filo_keep_alives_disabled 0.0",
		fmt.Sprintf(`filo_build_info{goversion=%q,version=%q} 1.0`, runtime.Version(), filo.Version()))
	if stats.Timeouts.Silent == 0 || stats.Timeouts.Silent+stats.Refusals.MaxConns != 2 {
		t.Errorf("%+v, %+v", stats.Timeouts, stats.Refusals)
	}
	for _, missing := range []string{"filo_connections_per_address_limit", `filo_timeout_seconds{kind="idle"}`, "filo_drain_start_time_seconds "} {
		if strings.Contains(text, "\n"+missing) {
			t.Errorf("%s is there, though it has no value", missing)
		}
	}
	s.Config.SetKeepAlivesEnabled(false)
	begun := time.Now()
	s.Config.Close()
	text = exposed(t, registry)
	wantLines(t, "a server that shuts down", text, "filo_draining 1.0", "filo_keep_alives_disabled 1.0")
	_, since, _ := strings.Cut(text, "\nfilo_drain_start_time_seconds ")
	since, _, _ = strings.Cut(since, "\n")
	if at, err := strconv.ParseFloat(since, 64); err != nil || at < float64(begun.Unix()) || at > float64(time.Now().Unix()+1) {
		t.Errorf("it began at %q, want %d", since, begun.Unix())
	}
	lint(t, registry)
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool; `make deps` installs it")
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(plain(t, registry))
	if said, err := check.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("promtool: %v %s", err, said)
	}
}

func TestCollectorWithoutServer(t *testing.T) {
	defer func() {
		if message, _ := recover().(string); !strings.HasPrefix(message, "prometheus: ") {
			t.Errorf("panics with %q", message)
		}
	}()
	prometheus.Collector(nil)
}

// Classes are created by the program. A program that creates one for each request must not create a series for each request.
func TestCollectorClasses(t *testing.T) {
	const more = 50
	var n int
	s := servertest.NewServer(t, &filo.Server{Logger: quiet, Handler: func(c *filo.Ctx) error {
		name := fmt.Sprintf("class %04d", n)
		if n%2 == 0 { // every second class shares its name with others
			name = "shared\xff"
		}
		n++
		if err := inside.Enter(c, &class.Class{Name: name}); err != nil {
			return err
		}
		return c.NoContent()
	}})
	registry := client.NewPedanticRegistry()
	registry.MustRegister(prometheus.Collector(s.Config))
	send := func(requests int) {
		c := s.Dial(t)
		go io.WriteString(c, strings.Repeat(servertest.Request("GET /", ""), requests-1)+servertest.Request("GET /", "", "Connection: close"))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatal(err)
		}
	}
	send(100)
	if classes := labelValues(exposed(t, registry), "class"); len(classes) != 52 || !classes["shared\uFFFD"] || !classes["_SERVER"] {
		t.Errorf("%d classes: %v", len(classes), classes)
	}
	send(2 * (prometheus.MaxClasses + more))
	for range 2 { // the second scrape must be like the first
		classes := labelValues(exposed(t, registry), "class")
		if len(classes) != prometheus.MaxClasses+2 || !classes["_OTHER"] || !classes["_SERVER"] || !classes["class 0099"] {
			t.Errorf("%d classes", len(classes))
		}
	}
}
