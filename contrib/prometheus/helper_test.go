package prometheus_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/prometheus"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// exposed returns the metrics of a registry, as OpenMetrics.
func exposed(t testing.TB, registry client.Gatherer) string {
	t.Helper()
	format, err := expfmt.NewOpenMetricsFormat("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	return encoded(t, registry, format)
}

// plain returns the metrics of a registry, in the format that promtool reads.
func plain(t testing.TB, registry client.Gatherer) string {
	t.Helper()
	return encoded(t, registry, expfmt.NewFormat(expfmt.TypeTextPlain))
}

func encoded(t testing.TB, registry client.Gatherer, format expfmt.Format) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, format)
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// settled waits until no request is in flight, so that all requests have been measured, and returns the metrics of a registry.
func settled(t testing.TB, registry client.Gatherer) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); runtime.Gosched() {
		if strings.Contains(exposed(t, registry), "http_requests_in_flight 0.0\n") {
			return exposed(t, registry) // once more, since the figures of the first text may be from different moments
		}
	}
	t.Fatalf("requests stay in flight:\n%s", exposed(t, registry))
	return ""
}

// wantLines checks that each of the lines is in a text.
func wantLines(t testing.TB, sentence, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("%s: no line %s in\n%s", sentence, line, text)
		}
	}
}

// lint checks names, units and help texts by Prometheus's rules.
func lint(t testing.TB, registry client.Gatherer) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
}

// labelValues returns the values of a label in a text of metrics.
func labelValues(text, label string) map[string]bool {
	values := make(map[string]bool)
	for _, match := range regexp.MustCompile(`[{,]`+label+`="((?:[^"\\]|\\.)*)"`).FindAllStringSubmatch(text, -1) {
		values[match[1]] = true
	}
	return values
}

var quiet = slog.New(slog.DiscardHandler)

// routes returns a router with the routes that the tests request.
func routes(use ...filo.Middleware) *router.Router {
	r := router.New()
	r.Use(use...)
	r.GET("/users/{id}", func(c *filo.Ctx) error { return c.Text(200, "hello") })
	r.POST("/upload", func(c *filo.Ctx) error {
		if _, err := c.Body(); err != nil {
			return err
		}
		return c.NoContent()
	})
	r.GET("example.com/hosted", func(c *filo.Ctx) error { return c.NoContent() })
	r.GET("/slash/", func(c *filo.Ctx) error { return c.NoContent() })
	r.Any("/any", func(c *filo.Ctx) error { return c.NoContent() })
	r.GET("/missing", func(c *filo.Ctx) error { return filo.Error(404, "") })
	r.GET("/failing", func(c *filo.Ctx) error { return errors.New("no database") })
	r.GET("/panicking", func(c *filo.Ctx) error { panic("ouch") })
	r.GET("/aborting", func(c *filo.Ctx) error { return filo.ErrAbort })
	r.GET("/panicabort", func(c *filo.Ctx) error { panic(filo.ErrAbort) })
	r.GET("/breaking", func(c *filo.Ctx) error {
		c.Stream().WriteString("half")
		if err := c.Stream().Flush(); err != nil {
			return err
		}
		return errors.New("and no more")
	})
	r.GET("/halfpanic", func(c *filo.Ctx) error {
		c.Stream().WriteString("half")
		if err := c.Stream().Flush(); err != nil {
			return err
		}
		panic("and no more")
	})
	r.GET("/reader", func(c *filo.Ctx) error { return c.Reader(200, "text/plain", strings.NewReader("read"), 4) })
	r.GET("/leaving", func(c *filo.Ctx) error {
		ctx := c.Context()
		ctx.Done()
		c.Get(leaveKey{}).(func())()
		<-ctx.Done()
		return ctx.Err()
	})
	r.GET("/upgrade", func(c *filo.Ctx) error {
		conn, _, err := c.Upgrade("echo")
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return r
}

// serve starts a server whose middleware uses a separate registry.
func serve(t testing.TB, wrap func(filo.Middleware) filo.Handler, change ...func(*prometheus.Options)) (*servertest.Server, *client.Registry) {
	t.Helper()
	registry := client.NewRegistry()
	options := prometheus.Options{Registerer: registry}
	for _, f := range change {
		f(&options)
	}
	h := wrap(prometheus.Middleware(options))
	return servertest.NewServer(t, &filo.Server{Handler: h, Logger: quiet}), registry
}

func within(m filo.Middleware) filo.Handler { return routes(m).Serve }
func around(m filo.Middleware) filo.Handler { return m(routes().Serve) }

// ask sends a request and reads the whole answer, which may be empty.
func ask(t testing.TB, s *servertest.Server, request, body string, fields ...string) string {
	t.Helper()
	c := s.Dial(t)
	defer c.Close()
	if _, err := io.WriteString(c, servertest.Request(request, body, append(fields, "Connection: close")...)); err != nil {
		t.Fatal(err)
	}
	raw, _ := io.ReadAll(c) // ignores the error, since some requests must end with a reset
	return string(raw)
}

// leaveKey is the key of a function that makes a request's client leave.
type leaveKey struct{}

// leaving sends a request whose handler makes the client leave, and waits until the handler has ended.
func leaving(t *testing.T, s *servertest.Server, ended <-chan struct{}, clients chan<- *servertest.Conn) {
	t.Helper()
	c := s.Dial(t)
	clients <- c
	if _, err := io.WriteString(c, servertest.Request("GET /leaving", "")); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// watched is middleware that gives a handler a function to make its client leave, and reports when the handler has ended.
func watched(clients <-chan *servertest.Conn, ended chan<- struct{}) filo.Middleware {
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.Set(leaveKey{}, func() { (<-clients).Reset() })
			err := next(c)
			ended <- struct{}{}
			return err
		}
	}
}
