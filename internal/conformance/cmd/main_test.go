package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/conformance"
	"github.com/filohttp/filo/internal/conformance/site"
)

// start serves on a free port, and sets c to run against that server.
func start(t *testing.T, c *config, serve func(ln net.Listener) error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	c.addr = ln.Addr().String()
	go serve(ln)
}

func runOn(t *testing.T, c *config) (broken int, text string) {
	t.Helper()
	var b strings.Builder
	broken, err := c.run(&b)
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return broken, b.String()
}

func summary(passed, broken, differ, skipped int) string {
	return fmt.Sprintf("\n%d passed, %d break the protocol, %d differ where that doesn't say MUST, %d skipped\n", passed, broken, differ, skipped)
}

// filo passes all cases.
func TestFilo(t *testing.T) {
	for _, c := range []*config{{}, {tls: true}, {http2: true}, {http2: true, tls: true}} {
		t.Run(fmt.Sprintf("HTTP/2 %t, TLS %t", c.http2, c.tls), func(t *testing.T) {
			t.Parallel()
			c.options = conformance.Options{Timeout: time.Minute}
			start(t, c, func(ln net.Listener) error { return c.serveListener(ln, "filo") })
			items, err := c.items()
			if err != nil {
				t.Fatal(err)
			}
			if _, text := runOn(t, c); !strings.HasSuffix(text, summary(len(items), 0, 0, 0)) {
				for line := range strings.Lines(text) {
					if !strings.HasPrefix(line, "passed") {
						t.Error(line)
					}
				}
			}
		})
	}
}

// The command reports the differences of net/http's server, each with the RFC's sentence, the wanted answer and the received one.
func TestNetHTTP(t *testing.T) {
	for _, test := range []struct {
		c       config
		breaks  bool
		reports []string
	}{
		{config{only: []string{"empty line"}}, true, []string{
			"breaks   empty line/one before: RFC 9112 2.2: A server SHOULD ", "no Date", `came "HTTP/1.1 400 Bad Request`,
		}},
		{config{only: []string{"empty line"}, options: conformance.Options{Undated: true}}, false, []string{
			"differs  empty line/one before: RFC 9112 2.2: A server SHOULD ", "status 400, want 200", `came "HTTP/1.1 400 Bad Request`,
		}},
		{config{http2: true, only: []string{"idle", "GOAWAY/in a request"}}, true, []string{
			"passed   idle/PRIORITY\n", "differs  GOAWAY/in a request: RFC ", "breaks   idle/DATA: RFC 9113 5.1: ", "GOAWAY has stream 5",
		}},
	} {
		t.Run(strings.Join(test.c.only, ","), func(t *testing.T) {
			t.Parallel()
			c := test.c
			c.options.Abrupt = true
			start(t, &c, func(ln net.Listener) error { return c.serveListener(ln, "net/http") })
			// A case that the server fails by its silence takes the whole time-out, and a busy machine may be silent for a moment too: a short time-out is tried first.
			var faults []string
			for _, timeout := range []time.Duration{2 * time.Second, 20 * time.Second, time.Minute} {
				c.options.Timeout, faults = timeout, nil
				var b strings.Builder
				broken, err := c.run(&b)
				text := b.String()
				if err != nil {
					faults = append(faults, err.Error())
				}
				if test.breaks != (broken > 0) {
					faults = append(faults, fmt.Sprintf("%d cases break the protocol", broken))
				}
				for _, want := range test.reports {
					if !strings.Contains(text, want) {
						faults = append(faults, fmt.Sprintf("no %q", want))
					}
				}
				if faults == nil {
					return
				}
				t.Logf("with a time-out of %s:\n%s", timeout, text)
			}
			t.Error(strings.Join(faults, "\n"))
		})
	}
}

// Cases are skipped if the server lacks a route that they need. Without GET /hello no case is run.
func TestLacking(t *testing.T) {
	without := func(routes ...string) func(ln net.Listener) error {
		return func(ln net.Listener) error {
			return http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for _, route := range routes {
					if r.URL.Path == route {
						io.WriteString(w, "something else")
						return
					}
				}
				site.ServeHTTP(w, r)
			}))
		}
	}
	c := &config{only: []string{"Expect", "origin-form/root", "origin-form/query"}, options: conformance.Options{Timeout: time.Minute, Abrupt: true}}
	start(t, c, without("/echo", "/"))
	_, text := runOn(t, c)
	for _, want := range []string{
		"the server lacks POST /echo: ", "the server lacks GET /: ", `body "something else", want "hello"`,
		"skipped  Expect/capital: the server lacks POST /echo\n", "skipped  origin-form/root: the server lacks GET /\n", "passed   origin-form/query\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	start(t, c, without("/hello"))
	if _, err := c.run(io.Discard); err == nil {
		t.Error("cases were run without GET /hello")
	}
}

func TestOnly(t *testing.T) {
	var b strings.Builder
	c := config{only: []string{"Host", "origin-form/root"}}
	if err := c.list(&b); err != nil || !strings.Contains(b.String(), "origin-form/root: RFC 9112 3.2.1: ") || strings.Contains(b.String(), "Expect/") {
		t.Errorf("%v\n%s", err, b.String())
	}
	c.only = []string{"Hostess"}
	if c.list(io.Discard) == nil {
		t.Error("there is no Hostess")
	}
}

func TestIsRequired(t *testing.T) {
	for _, test := range []struct {
		sentence string
		err      error
		want     bool
	}{
		{"A server MUST reject it.", io.EOF, true},
		{"A server MUST reject it or replace it; filo refuses.", io.EOF, false},
		{"A server MUST NOT send it. A client MAY reject it.", io.EOF, false},
		{"A server SHOULD reject it.", io.EOF, false},
		{"A server SHOULD reject it.", fmt.Errorf("whole: %w", conformance.ErrMalformed), true},
	} {
		if got := conformance.IsRequired(test.sentence, test.err); got != test.want {
			t.Errorf("%s (%v): %t", test.sentence, test.err, got)
		}
	}
}
