package prometheus_test

import (
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	client "github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/prometheus"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/servertest"
)

func TestHandler(t *testing.T) {
	registry := client.NewRegistry()
	sold := client.NewCounter(client.CounterOpts{Name: "sold_total", Help: "What was sold."})
	sold.(client.ExemplarAdder).AddWithExemplar(3, client.Labels{"trace_id": "x"})
	registry.MustRegister(sold, client.NewGauge(client.GaugeOpts{Name: "left", Help: "What is left."}))
	s := servertest.New(t, prometheus.Handler(registry, prometheus.HandlerOptions{Allow: everybody}))
	for _, test := range []struct {
		sentence, request string
		fields            []string
		contentType       string
		encoding          string
		want, unwanted    string // in the body, decoded
	}{
		{"a client that says nothing gets text", "GET /metrics", nil, "text/plain; version=0.0.4", "", "\nsold_total 3\n", "# EOF"},
		{"OpenMetrics if the client prefers that, with exemplars", "GET /metrics",
			[]string{"Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"},
			"application/openmetrics-text; version=1.0.0", "", `sold_total 3.0 # {trace_id="x"} 3.0 `, "\x00"},
		{"protocol buffers if it prefers those", "GET /metrics",
			[]string{"Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"},
			"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited", "", "sold_total", "# HELP"},
		{"gzip", "GET /metrics", []string{"Accept-Encoding: gzip"}, "text/plain", "gzip", "\nsold_total 3\n", "\x00"},
		{"zstd", "GET /metrics", []string{"Accept-Encoding: zstd"}, "text/plain", "zstd", "\nsold_total 3\n", "\x00"},
		{"some metrics alone", "GET /metrics?name[]=left", nil, "text/plain", "", "\nleft 0\n", "sold"},
		{"HEAD", "HEAD /metrics", nil, "text/plain", "", "", "sold"},
		{"a broken Accept is none", "GET /metrics", []string{"Accept: ;;,\xff/q=q"}, "text/plain", "", "\nsold_total 3\n", "# EOF"},
	} {
		answer := s.Do(t, test.request, test.fields...)
		body := decoded(t, answer)
		if answer.Status != 200 || !strings.HasPrefix(answer.Header.Get("Content-Type"), test.contentType) ||
			answer.Header.Get("Content-Encoding") != test.encoding {
			t.Errorf("%s: %d %v", test.sentence, answer.Status, answer.Header)
		}
		if !strings.Contains(body, test.want) || strings.Contains(body, test.unwanted) {
			t.Errorf("%s: %q", test.sentence, body)
		}
	}
}

func decoded(t *testing.T, answer servertest.Answer) string {
	t.Helper()
	var r io.Reader = strings.NewReader(answer.Body)
	var err error
	switch answer.Header.Get("Content-Encoding") {
	case "gzip":
		r, err = gzip.NewReader(r)
	case "zstd":
		var decoder *zstd.Decoder
		if decoder, err = zstd.NewReader(r); err == nil {
			defer decoder.Close()
			r = decoder
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// If a gatherer fails, the log gets the reason, and the client doesn't.
func TestHandlerErrors(t *testing.T) {
	for _, test := range []struct {
		sentence string
		gather   func() ([]*dto.MetricFamily, error)
		logged   string
	}{
		{"an error", func() ([]*dto.MetricFamily, error) { return nil, errors.New("secret reason") }, "handler failed"},
		{"a panic is one, and no error of the gatherer's", func() ([]*dto.MetricFamily, error) { panic("secret reason") }, "panic in handler"},
		{"so is one of the runtime", func() ([]*dto.MetricFamily, error) {
			var none []*dto.MetricFamily
			return none[len("secret reason"):], nil
		}, "panic in handler"},
	} {
		var log mwtest.Log
		s := servertest.NewServer(t, &filo.Server{
			Handler: prometheus.Handler(client.GathererFunc(test.gather), prometheus.HandlerOptions{Allow: everybody}), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		answer := s.Do(t, "GET /metrics")
		if answer.Status != 500 || strings.Contains(answer.Body, "secret") {
			t.Errorf("%s: %d %q", test.sentence, answer.Status, answer.Body)
		}
		if !strings.Contains(log.String(), test.logged) {
			t.Errorf("%s: logged %s", test.sentence, log.String())
		}
	}
}

// Only clients that the options admit get the metrics, as with package debug. By default these are clients on the same machine, of a server
// declared as its operator's.
func TestHandlerGuard(t *testing.T) {
	local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:1"))
	away := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))
	const token = "0123456789abcdef"
	for _, test := range []struct {
		sentence string
		options  prometheus.HandlerOptions
		client   net.Addr
		host     string
		fields   []string
		status   int
		others   bool // the server isn't the operator's
	}{
		{"this machine", prometheus.HandlerOptions{}, local, "localhost", nil, 200, false},
		{"this machine, by a server for others, too", prometheus.HandlerOptions{}, local, "localhost", nil, 404, true},
		{"another one", prometheus.HandlerOptions{}, away, "localhost", nil, 404, false},
		{"a name that somebody has given this address", prometheus.HandlerOptions{}, local, "evil.test", nil, 404, false},
		{"by way of a proxy", prometheus.HandlerOptions{}, local, "localhost", []string{"X-Forwarded-For: 127.0.0.1"}, 404, false},
		{"a name of the machine", prometheus.HandlerOptions{Hosts: []string{"devbox"}}, local, "devbox:8080", nil, 200, false},
		{"without the token", prometheus.HandlerOptions{Token: token}, local, "localhost", nil, 401, true},
		{"with the token", prometheus.HandlerOptions{Token: token}, away, "a.example", []string{"Authorization: Bearer " + token}, 200, true},
		{"not allowed", prometheus.HandlerOptions{Allow: func(*filo.Ctx) bool { return false }}, local, "localhost", nil, 404, false},
	} {
		s := servertest.NewServer(t, &filo.Server{Handler: prometheus.Handler(client.NewRegistry(), test.options), ForOperator: !test.others})
		answer := s.DoFrom(t, test.client, "GET http://"+test.host+"/metrics", test.fields...)
		if answer.Status != test.status {
			t.Errorf("%s: %d, want %d", test.sentence, answer.Status, test.status)
		}
		if test.status == 200 && answer.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: may be kept: %v", test.sentence, answer.Header)
		}
	}
}

func TestHandlerPanics(t *testing.T) {
	for want, construct := range map[string]func(){
		"prometheus: ":               func() { prometheus.Handler(nil) },
		"prometheus: Handler takes":  func() { prometheus.Handler(client.NewRegistry(), make([]prometheus.HandlerOptions, 2)...) },
		"prometheus: Middleware tak": func() { prometheus.Middleware(make([]prometheus.Options, 2)...) },
		"middleware: Guard: Token: ": func() { prometheus.Handler(client.NewRegistry(), prometheus.HandlerOptions{Token: "short"}) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if message, _ := recover().(string); !strings.HasPrefix(message, want) {
					t.Errorf("panics with %q", message)
				}
			}()
			construct()
		})
	}
}
