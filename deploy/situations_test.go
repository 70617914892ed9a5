package deploy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/certs"
	"github.com/filohttp/filo/contrib/prometheus"
	redisfilo "github.com/filohttp/filo/contrib/redis"
	"github.com/filohttp/filo/health"
	"github.com/filohttp/filo/middleware/ratelimit"
	"github.com/filohttp/filo/router"
)

// The parts of a timeline, in scrapes: six minutes of ordinary load, twelve minutes of the situation, and twelve minutes after it. They aren't longer
// because promtool evaluates all alerts at each scrape. Only the time after a start is longer, since alerts look further back for starts.
const (
	calmBefore = 24
	situation  = 48
	calmAfter  = 48
	afterStart = 68
)

// patience is how long a test waits for anything.
const patience = time.Minute

// observed is a server with the metrics of app, and with routes that bring it into situations.
type observed struct {
	t       *testing.T
	server  *filo.Server
	probes  *health.Health
	address string
	inside  string // the address of the metrics
	held    chan struct{}
	client  *http.Client
}

// observe starts a server. further are collectors in addition to those of every program.
func observe(t *testing.T, server *filo.Server, further ...client.Collector) *observed {
	t.Helper()
	return observeRoutes(t, server, func(*router.Router) {}, further...)
}

// observeRoutes is observe for a server with further routes.
func observeRoutes(t *testing.T, server *filo.Server, routes func(*router.Router), further ...client.Collector) *observed {
	t.Helper()
	o := &observed{t: t, server: server, probes: health.New(), held: make(chan struct{}), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	registry := client.NewRegistry()
	registry.MustRegister(prometheus.Collector(server), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(further...)
	r := router.New()
	r.GET("/readyz", o.probes.Ready)
	r.Use(prometheus.Middleware(prometheus.Options{Registerer: registry}))
	r.GET("/", func(c *filo.Ctx) error { return c.Text(200, "quick") })
	r.GET("/hold", o.hold)
	r.GET("/stream", func(c *filo.Ctx) error {
		if _, err := c.Stream().WriteString("begun\n"); err != nil {
			return err
		}
		if err := c.Stream().Flush(); err != nil {
			return err
		}
		return o.hold(c)
	})
	r.POST("/upload", func(c *filo.Ctx) error {
		if _, err := c.Body(); err != nil {
			return err
		}
		return c.NoContent()
	})
	r.GET("/download", func(c *filo.Ctx) (err error) {
		for part := make([]byte, 64<<10); err == nil; { // writes until a write fails, because the client reads nothing and finally leaves
			_, err = c.Stream().Write(part)
		}
		return err
	})
	r.GET("/park", func(c *filo.Ctx) error {
		_, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return nil })
		return err
	})
	r.GET("/fail", func(c *filo.Ctx) error { return errors.New("the database is down") })
	r.GET("/busy", func(c *filo.Ctx) error { return c.Text(503, "no error") })
	r.GET("/panic", func(c *filo.Ctx) error { panic("a bug") })
	routes(r)
	server.Handler, server.Logger = r.Serve, slog.New(slog.DiscardHandler)
	o.address = serveAt(t, server, nil)
	metrics := router.New()
	metrics.GET("/metrics", prometheus.Handler(registry))
	o.inside = serveAt(t, &filo.Server{Handler: metrics.Serve, ForOperator: true, Logger: slog.New(slog.DiscardHandler)}, nil)
	return o
}

// serveAt serves the listener or, if it is nil, a new one on the loopback interface.
func serveAt(t *testing.T, server *filo.Server, listener net.Listener) string {
	t.Helper()
	if listener == nil {
		var err error
		if listener, err = server.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return listener.Addr().String()
}

func (o *observed) hold(c *filo.Ctx) error {
	select {
	case <-o.held:
	case <-c.Context().Done():
	}
	if c.Committed() {
		return nil
	}
	return c.NoContent()
}

func (o *observed) text() string {
	o.t.Helper()
	response, err := http.Get("http://" + o.inside + "/metrics")
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		o.t.Fatal(response.Status, err)
	}
	return string(text)
}

// scrape waits until the metrics have a line for each of the patterns, and returns them.
func (o *observed) scrape(ready ...string) *scrape {
	o.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		text := o.text()
		if !slices.ContainsFunc(ready, func(pattern string) bool { return !regexp.MustCompile("(?m)^" + pattern + "$").MatchString(text) }) {
			return parseScrape(o.t, text, time.Now())
		}
		if time.Now().After(end) {
			o.t.Fatalf("the metrics never have %q:\n%s", ready, text)
		}
	}
}

// do requests a path and returns the status, or 0 if there is no answer.
func (o *observed) do(path string) int {
	response, err := o.client.Get("http://" + o.address + path)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// ask requests a path n times, one after the other, and expects a status.
func (o *observed) ask(n int, path string, status int) {
	o.t.Helper()
	for range n {
		if got := o.do(path); got != status {
			o.t.Fatalf("%s: %d, want %d", path, got, status)
		}
	}
}

// together sends n simultaneous requests for a path whose handler blocks. It returns a function that releases these requests and waits for their
// answers.
func (o *observed) together(n int, path string) (release func()) {
	answered := make(chan struct{}, n)
	for range n {
		go func() {
			o.do(path)
			answered <- struct{}{}
		}()
	}
	return func() {
		for left := n; left > 0; {
			select {
			case o.held <- struct{}{}:
			case <-answered:
				left--
			}
		}
	}
}

// idle waits until no handler runs, and returns a scrape.
func (o *observed) idle() *scrape {
	o.t.Helper()
	return o.scrape(`http_requests_in_flight 0`)
}

// calm puts ordinary load on the server, and returns the scrapes before and after it.
func (o *observed) calm() (from, to *scrape) {
	o.t.Helper()
	from = o.idle()
	o.ask(100, "/", 200)
	return from, o.idle()
}

// during returns a timeline: ordinary load, then the given number of steps of the situation that f creates, and ordinary load again. f returns the
// scrapes before and after the situation.
func (o *observed) during(steps int, f func() (from, to *scrape)) *timeline {
	o.t.Helper()
	l := newTimeline()
	o.ask(1, "/", 200) // so that the series exist
	from, to := o.calm()
	l.scraped(from, to, calmBefore)
	from, to = f()
	l.scraped(from, to, steps)
	from, to = o.calm()
	l.scraped(from, to, calmAfter)
	return l
}

// load is during for a situation in which f puts load on the server, and returns when the load has ended.
func (o *observed) load(steps int, f func()) *timeline {
	o.t.Helper()
	return o.during(steps, func() (from, to *scrape) {
		from = o.idle()
		f()
		return from, o.idle()
	})
}

// with returns a timeline in which n connections stay open during all steps. The steps begin when the metrics show these connections. At the end,
// with closes the connections, and calls gone.
func (o *observed) with(steps, n int, request, shown string, gone func()) *timeline {
	return o.during(steps, func() (from, to *scrape) {
		from = o.idle()
		var all []net.Conn
		for range n {
			all = append(all, o.raw(request))
		}
		to = o.scrape(shown)
		for _, conn := range all {
			conn.Close()
		}
		gone()
		return from, to
	})
}

// raw opens a connection, sends text, and returns the connection.
func (o *observed) raw(text string) net.Conn {
	o.t.Helper()
	return o.rawFrom("127.0.0.1", text)
}

// rawFrom is raw for a client with that address.
func (o *observed) rawFrom(address, text string) net.Conn {
	o.t.Helper()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 0))}
	conn, err := dialer.Dial("tcp", o.address)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		o.t.Fatal(err)
	}
	return conn
}

// rawEnd is raw, but waits until the server has closed the connection.
func (o *observed) rawEnd(text string) {
	o.t.Helper()
	conn := o.raw(text)
	io.Copy(io.Discard, conn)
	conn.Close()
}

// slowly is a duration that counts as slow for the alerts: FiloSlow fires above one second.
const slowly = 1100 * time.Millisecond

// situations lists situations of servers, and the alerts that fire in each. Alerts that a situation doesn't list must not fire in it.
var situations = map[string]struct {
	happens func(t *testing.T) *timeline
	alerts  []string
}{
	"ordinary load": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{})
		return o.load(situation, func() { o.ask(100, "/", 200) })
	}, nil},

	"a single request is refused":     {overloaded(1, 1), nil},
	"a burst of refusals":             {overloaded(1, 30), nil},
	"more load than there are places": {overloaded(situation, 30), []string{"FiloOverloaded"}},
	"the queue never empties":         {queued(situation), []string{"FiloQueueStands"}},
	"the queue fills now and then": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{Concurrency: 2, Queue: 10})
		l := newTimeline()
		o.ask(1, "/", 200)
		from, to := o.calm()
		l.scraped(from, to, calmBefore)
		standing := o.standing()
		for range situation / 2 {
			l.scraped(to, standing, 1)
			l.scraped(from, to, 1)
		}
		l.scraped(from, to, calmAfter)
		return l
	}, nil},

	"a single failure":   {asking(1, "/fail", 1), nil},
	"few failures":       {asking(situation, "/fail", 0), nil},
	"handlers fail":      {asking(situation, "/fail", 5), []string{"FiloErrors"}},
	"503 without errors": {asking(situation, "/busy", 5), []string{"FiloErrors"}},
	"handlers panic":     {asking(situation, "/panic", 5), []string{"FiloErrors", "FiloPanics"}},
	"a single panic":     {asking(1, "/panic", 1), []string{"FiloPanics"}},
	"it isn't ready, and hardly anybody asks": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{})
		o.probes.Add("database", func(context.Context) error { return errors.New("down") }, health.Check{})
		return o.load(situation, func() {
			o.ask(2, "/", 200)
			o.ask(10, "/readyz", 503)
		})
	}, nil},

	"handlers are slow": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{})
		return o.load(situation, func() {
			o.ask(50, "/", 200)
			release := o.together(5, "/hold")
			time.Sleep(slowly)
			release()
		})
	}, []string{"FiloSlow"}},
	"long streams": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{})
		return o.load(situation, func() {
			o.ask(50, "/", 200)
			release := o.together(20, "/stream")
			o.scrape(`http_requests_in_flight 20`)
			time.Sleep(slowly)
			release()
		})
	}, nil},
	"slow uploads": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{})
		return o.load(situation, func() {
			o.ask(50, "/", 200)
			const size = 100 << 10
			var uploads []net.Conn
			for range 10 {
				uploads = append(uploads, o.raw(fmt.Sprintf("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\nx", size)),
					o.raw("POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"))
			}
			o.scrape(`http_requests_in_flight 20`)
			time.Sleep(slowly)
			for i, upload := range uploads {
				io.WriteString(upload, []string{strings.Repeat("x", size-1), "0\r\n\r\n"}[i%2])
			}
			for _, upload := range uploads {
				if _, err := http.ReadResponse(bufio.NewReader(upload), nil); err != nil {
					t.Fatal(err)
				}
				upload.Close()
			}
		})
	}, nil},

	"a single bad PROXY header": {proxied(1, 1), nil},
	"strangers' PROXY headers":  {proxied(situation, 5), []string{"FiloRefusals"}},
	"an address with too many connections": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{MaxConnsPerIP: 5})
		return o.load(situation, func() {
			var held []net.Conn
			for range 4 { // the test's own client has the fifth connection
				conn := o.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				conn.Read(make([]byte, 1))
				held = append(held, conn)
			}
			for range 20 {
				o.rawEnd("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			}
			for _, conn := range held {
				conn.Close()
			}
			o.scrape(`filo_connections\{state="idle"\} 1`)
			o.ask(50, "/", 200)
		})
	}, nil},
	"nearly all connections are taken": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{MaxConns: 20})
		return o.during(situation, func() (from, to *scrape) {
			from = o.idle()
			var held []net.Conn
			for range 18 {
				conn := o.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				conn.Read(make([]byte, 1))
				held = append(held, conn)
			}
			to = o.scrape(`filo_connections\{state="idle"\} 19`)
			for _, conn := range held {
				conn.Close()
			}
			o.scrape(`filo_connections\{state="idle"\} 1`)
			return from, to
		})
	}, []string{"FiloConnectionsNearLimit"}},

	"one client has most connections": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{MaxConns: 100})
		return o.crowded(map[string]int{"127.0.0.2": 60, "127.0.0.3": 6, "127.0.0.4": 6}, nil)
	}, []string{"FiloClientHogs"}},
	"a proxy has the connections of all": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{MaxConns: 100})
		return o.crowded(map[string]int{"127.0.0.2": 80, "127.0.0.3": 2, "127.0.0.4": 2}, nil) // two other clients are probers
	}, nil},
	"one client takes most places": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{Concurrency: 20})
		return o.crowded(map[string]int{"127.0.0.2": 20, "127.0.0.3": 6, "127.0.0.4": 6}, func() {
			o.ask(50, "/", 200)
			release := o.together(20, "/hold")
			o.scrape(`http_requests_in_flight 20`)
			for range 30 {
				o.rawEnd("GET /hold HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			}
			release()
			o.client.CloseIdleConnections()
		})
	}, []string{"FiloClientHogs", "FiloOverloaded"}},

	"handlers wait for a lock": {held(situation, 20, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n", "handler"), []string{"FiloStuck"}},
	"a long report":            {held(situation, 1, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n", "handler"), nil},
	"a handler never ends":     {held(2*situation, 1, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n", "handler"), []string{"FiloStuck"}},
	"streams of hours":         {held(2*situation, 20, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n", "answering"), nil},
	"uploads of hours":         {held(2*situation, 20, "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nx", "reading"), nil},
	"downloads of hours":       {held(2*situation, 20, "GET /download HTTP/1.1\r\nHost: a\r\n\r\n", "answering"), nil},
	"parked connections": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{})
		return o.with(2*situation, 20, "GET /park HTTP/1.1\r\nHost: a\r\n\r\n", `filo_connections\{state="parked"\} 20`, func() {
			o.scrape(`filo_connections\{state="parked"\} 0`)
		})
	}, nil},
	"polls of two minutes": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{})
		l := newTimeline()
		o.ask(1, "/", 200)
		from, to := o.calm()
		l.scraped(from, to, calmBefore)
		release := o.together(20, "/hold")
		polling := o.scrape(`filo_requests_running\{route="GET /hold",state="handler"\} 20`)
		release()
		for range situation / 8 { // after eight scrapes (two minutes) these polls have ended, and new ones have begun
			l.scraped(from, polling, 8)
		}
		from, to = o.calm()
		l.scraped(from, to, calmAfter)
		return l
	}, nil},

	"accepting fails once":  {acceptFailing(1, 1), nil},
	"accepting often fails": {acceptFailing(situation, 3), []string{"FiloAcceptFails"}},

	"a drain of a few seconds": {draining(1), nil},
	"a drain that is killed":   {draining(drainScrapes), []string{"FiloDrainTooLong"}},

	"a restart": {vanishing(func(l *timeline, from, to *scrape) {
		l.failed(2)
		l.restarted()
		l.scraped(from, to, afterStart)
	}), nil},
	"two restarts": {vanishing(func(l *timeline, from, to *scrape) {
		for range 2 {
			l.failed(2)
			l.restarted()
			l.scraped(from, to, 20)
		}
		l.scraped(from, to, afterStart)
	}), nil},
	"the process is gone": {vanishing(func(l *timeline, from, to *scrape) {
		l.failed(situation)
		l.restarted()
		l.scraped(from, to, afterStart)
	}), []string{"FiloDown"}},
	"all targets have vanished": {vanishing(func(l *timeline, from, to *scrape) {
		l.gone(situation)
		l.restarted()
		l.scraped(from, to, afterStart)
	}), []string{"FiloDown"}},
	"one of two instances is taken away": {vanishing(func(l *timeline, from, to *scrape) {
		l.gone(situation + afterStart)
		l.other()
	}), nil},
	"it crashes soon after each start": {vanishing(func(l *timeline, from, to *scrape) {
		for range situation / 4 {
			l.failed(3)
			l.restarted()
			l.scraped(from, started(to, l.steps), 1)
		}
		l.restarted()
		l.scraped(from, to, afterStart)
	}), []string{"FiloDown", "FiloRestarts"}},
	"it crashes every few minutes": {vanishing(func(l *timeline, from, to *scrape) {
		for range situation / 12 {
			l.restarted()
			l.scraped(from, started(to, l.steps), 12)
		}
		l.restarted()
		l.scraped(from, to, afterStart)
	}), []string{"FiloRestarts"}},

	"a certificate for months":             {certified(60*24*time.Hour, false), nil},
	"a certificate for ten days":           {certified(10*24*time.Hour, false), []string{"FiloCertificateExpires"}},
	"a certificate for a day":              {certified(24*time.Hour, false), []string{"FiloCertificateAboutToExpire", "FiloCertificateExpires"}},
	"a new certificate that can't be used": {certified(60*24*time.Hour, true), []string{"FiloCertificateRefused"}},

	"goroutines leak": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{})
		return o.during(situation, func() (from, to *scrape) {
			from = o.idle()
			var leaked sync.WaitGroup
			end := make(chan struct{})
			for range 1500 {
				leaked.Go(func() { <-end })
			}
			to = o.idle()
			close(end)
			leaked.Wait()
			return from, to
		})
	}, []string{"FiloGoroutines"}},
	"many handlers wait": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{Concurrency: 2000})
		return o.with(situation, 1500, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n", `http_requests_in_flight 1500`, func() { o.idle() })
	}, []string{"FiloStuck"}},
	"many idle connections": {func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{Driver: filo.DriverBlocking})
		return o.with(situation, 1500, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", `filo_connections\{state="idle"\} 1501`, func() {
			o.scrape(`filo_connections\{state="idle"\} 1`)
		})
	}, nil},
	"Redis is gone": {storing(func(t *testing.T, r *exec.Cmd, admin *redis.Client) {
		r.Process.Kill()
		r.Wait()
	}), []string{"FiloRedisDown", "FiloRedisErrors"}},
	"Redis is full": {storing(func(t *testing.T, r *exec.Cmd, admin *redis.Client) {
		if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
	}), []string{"FiloRedisDown", "FiloRedisErrors"}},
	"Redis works": {storing(func(*testing.T, *exec.Cmd, *redis.Client) {}), nil},

	"the memory is nearly used up":   {remembering(128, 0, 0, 0.95, heap), []string{"FiloMemory"}},
	"half of the memory is used":     {remembering(128, 0, 0, 0.5, heap, resident), nil},
	"garbage fills the memory":       {remembering(128, 128, 0, 0.95, resident), nil}, // garbage may fill it
	"memory beside Go's is too much": {remembering(0, 0, 128, 1.3, resident), []string{"FiloMemory"}},
}

// overloaded is a situation in which the server refuses n requests in each step, and answers 52.
func overloaded(steps, n int) func(*testing.T) *timeline {
	return func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{Concurrency: 2})
		return o.load(steps, func() {
			o.ask(50, "/", 200)
			release := o.together(2, "/hold")
			o.scrape(`http_requests_in_flight 2`)
			for range n { // to a route whose handler occupies a place, since requests to a quick route would be answered
				o.rawEnd("GET /hold HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			}
			release()
		})
	}
}

// standing returns a scrape made while three requests wait in the queue.
func (o *observed) standing() *scrape {
	o.t.Helper()
	release := o.together(5, "/hold")
	standing := o.scrape(`filo_requests_queued 3`)
	release()
	o.idle()
	return standing
}

func queued(steps int) func(*testing.T) *timeline {
	return func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{Concurrency: 2, Queue: 10})
		return o.during(steps, func() (from, to *scrape) { return o.idle(), o.standing() })
	}
}

// asking is a situation in which clients request a path n times in each step, and get 100 other requests answered.
func asking(steps int, path string, n int) func(*testing.T) *timeline {
	return func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{})
		return o.load(steps, func() {
			o.ask(100, "/", 200)
			for range n {
				o.do(path)
			}
		})
	}
}

// proxied is a situation in which n connections in each step lack the header of the PROXY protocol. The test's own client sends the header.
func proxied(steps, n int) func(*testing.T) *timeline {
	return func(t *testing.T) *timeline {
		server := &filo.Server{}
		server.ProxyProtocol.TrustedPeers = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		o := observe(t, server)
		o.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				_, err = io.WriteString(conn, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n")
			}
			return conn, err
		}}}
		return o.load(steps, func() {
			o.ask(50, "/", 200)
			for range n {
				o.rawEnd("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			}
		})
	}
}

// failingListener fails once for each value in failures, as if there were no file descriptors left.
type failingListener struct {
	net.Listener
	failures, failed chan struct{}
}

func (l *failingListener) Accept() (net.Conn, error) {
	select {
	case <-l.failures:
		l.failed <- struct{}{}
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	default:
		return l.Listener.Accept()
	}
}

// acceptFailing is a situation in which Accept fails n times in each step.
func acceptFailing(steps, n int) func(*testing.T) *timeline {
	return func(t *testing.T) *timeline {
		server := &filo.Server{}
		o := observe(t, server)
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listener := &failingListener{inner, make(chan struct{}, n), make(chan struct{}, n)}
		serveAt(t, server, listener)
		return o.load(steps, func() {
			o.ask(50, "/", 200)
			for range n {
				listener.failures <- struct{}{}
			}
			conn, err := net.Dial("tcp", inner.Addr().String()) // the Accept that waits accepts this connection
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			for range n {
				<-listener.failed
			}
			o.scrape(fmt.Sprintf(`filo_accept_failures_total %d`, n))
		})
	}
}

// crowded returns a timeline in which each client has the given number of connections, while happens is called.
func (o *observed) crowded(clients map[string]int, happens func()) *timeline {
	o.t.Helper()
	return o.during(situation, func() (from, to *scrape) {
		from = o.idle()
		var all []net.Conn
		for address, n := range clients {
			for range n {
				conn := o.rawFrom(address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				conn.Read(make([]byte, 1))
				all = append(all, conn)
			}
		}
		if happens != nil {
			happens()
		}
		to = o.idle()
		for _, conn := range all {
			conn.Close()
		}
		o.scrape(`filo_client_connections_max [01]`)
		return from, to
	})
}

// held is a situation in which n requests are in a state during all steps.
func held(steps, n int, request, state string) func(*testing.T) *timeline {
	return func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{})
		shown := fmt.Sprintf(`filo_requests_running\{route="[A-Z]+ /[a-z]+",state=%q\} %d`, state, n)
		return o.with(steps, n, request, shown, func() { close(o.held) }) // otherwise a handler would continue for some seconds after its client has left
	}
}

// draining is a situation in which a server with a handler that doesn't end shuts down. The parameter is the number of scrapes during the shutdown.
// After them the process is gone, and a new process starts.
func draining(scrapes int) func(*testing.T) *timeline {
	return func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{GracePeriod: time.Duration(graceSeconds(t)) * time.Second})
		l := newTimeline()
		o.ask(1, "/", 200)
		from, to := o.calm()
		l.scraped(from, to, calmBefore)
		release := o.together(1, "/hold")
		before := o.scrape(`http_requests_in_flight 1`)
		ended := make(chan error, 1)
		go func() { ended <- o.server.Shutdown(context.Background()) }()
		l.scraped(before, o.scrape(`filo_draining 1`, `filo_drain_start_time_seconds \S+`), scrapes)
		release()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		l.failed(2)
		l.restarted()
		l.scraped(from, to, afterStart)
		return l
	}
}

// drainScrapes is the minimum number of scrapes of a draining program before systemd kills it.
const drainScrapes = 2

// The shipped files give FiloDrainTooLong enough time to fire: at the last scrape before the kill, a drain is old enough for the alert.
func TestDrainAlertCanFire(t *testing.T) {
	var killed int32
	fmt.Sscan(string(regexp.MustCompile(`TimeoutStopSec=(\d+)`).FindSubmatch(read(t, "systemd/app.service"))[1]), &killed)
	manifest := manifestGrace(t)
	for name, seconds := range map[string]int32{"systemd": killed, "Kubernetes": manifest} {
		// The server's drain begins after the program has waited for balancers. The time of a scrape within its interval is arbitrary.
		lasts := seconds - drainSeconds(t)
		if scrapes := lasts / scrapeSeconds; scrapes < drainScrapes {
			t.Errorf("%s kills a program %d s after its drain has begun: %d scrapes", name, lasts, scrapes)
		}
		if threshold := 0.6 * float64(graceSeconds(t)); threshold > float64(lasts-scrapeSeconds) {
			t.Errorf("%s: a drain of %v s may end without a scrape before its %d s", name, threshold, lasts)
		}
	}
	if !strings.Contains(string(read(t, "prometheus/alerts.yml")), "> 0.6 * max_over_time(filo_grace_period_seconds") {
		t.Error("FiloDrainTooLong has another threshold")
	}
	if text := string(read(t, "prometheus/prometheus.yml")); !strings.Contains(text, fmt.Sprintf("scrape_interval: %ds\n  evaluation_interval: %ds\n", scrapeSeconds, scrapeSeconds)) {
		t.Error("prometheus.yml has other intervals")
	}
}

// vanishing is a situation whose timeline begins with ordinary load, and is continued by f.
func vanishing(f func(l *timeline, from, to *scrape)) func(*testing.T) *timeline {
	return func(t *testing.T) *timeline {
		o := observe(t, &filo.Server{})
		l := newTimeline()
		o.ask(1, "/", 200)
		from, to := o.calm()
		l.scraped(from, to, calmBefore)
		f(l, from, to)
		return l
	}
}

// started returns a copy of a scrape in which the process started later.
func started(s *scrape, seconds int) *scrape {
	later := *s
	later.values = make(map[string]float64)
	for series, value := range s.values {
		if series == "process_start_time_seconds{}" {
			value += float64(seconds)
		}
		later.values[series] = value
	}
	return &later
}

// certified is a situation in which a server has a certificate that is valid for the given time. With spoiled, the certificate's file is replaced
// with an unusable one.
func certified(valid time.Duration, spoiled bool) func(*testing.T) *timeline {
	return func(t *testing.T) *timeline {
		pair := issue(t, valid)
		store, err := certs.New(certs.Options{Pairs: []certs.Pair{pair}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		o := observe(t, &filo.Server{}, prometheus.Certificates(store))
		fresh := issue(t, valid)
		l := newTimeline()
		from, to := o.calm()
		if spoiled {
			l.scraped(from, to, calmBefore)
			if err := os.Rename(fresh.Cert, pair.Cert); err != nil { // the new certificate, but not its key
				t.Fatal(err)
			}
			if store.Reload() == nil {
				t.Fatal("the certificate was taken")
			}
			from, to = o.calm()
		}
		l.scraped(from, to, calmBefore+situation)
		return l
	}
}

// issue writes a certificate and its key.
func issue(t *testing.T, valid time.Duration) certs.Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"example.com"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	pair := certs.Pair{Cert: filepath.Join(dir, "example.pem"), Key: filepath.Join(dir, "example.key")}
	for name, block := range map[string]*pem.Block{pair.Cert: {Type: "CERTIFICATE", Bytes: cert}, pair.Key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pair
}

// storing is a situation in which a server stores its rate limits in a redis-server, and the function happens causes trouble for that redis-server.
func storing(happens func(t *testing.T, server *exec.Cmd, admin *redis.Client)) func(*testing.T) *timeline {
	return func(t *testing.T) *timeline {
		dir, err := os.MkdirTemp("", "redis") // the path of a socket must be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		socket := filepath.Join(dir, "s")
		start := func() *exec.Cmd {
			command := exec.Command(tool(t, "redis-server"), "--port", "0", "--unixsocket", socket, "--save", "")
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				command.Process.Kill()
				command.Wait()
			})
			return command
		}
		command := start()
		logging.Disable() // go-redis logs a lot about a Redis that is gone
		admin := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, ContextTimeoutEnabled: true})
		t.Cleanup(func() { admin.Close() })
		for end := time.Now().Add(patience); admin.Ping(t.Context()).Err() != nil; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("redis-server doesn't answer")
			}
		}
		shared := redisfilo.New(admin, redisfilo.Options{Logger: slog.New(slog.DiscardHandler)})
		limit := ratelimit.New(1000, time.Minute, ratelimit.Options{Store: shared.RateLimits("requests", redisfilo.Open)})
		o := observeRoutes(t, &filo.Server{}, func(r *router.Router) {
			r.GET("/limited", func(c *filo.Ctx) error { return c.NoContent() }, limit)
		}, prometheus.Figures(shared))
		ask := func() (from, to *scrape) {
			from = o.idle()
			o.ask(20, "/limited", 204)
			shared.Check(t.Context())
			return from, o.idle()
		}
		l := newTimeline()
		ask()
		from, to := ask()
		l.scraped(from, to, calmBefore)
		happens(t, command, admin)
		ask()
		from, to = ask()
		l.scraped(from, to, situation)
		return l
	}
}

// The series for the memory of Go's heap and of the whole process. Under the race detector, the process uses several times its normal memory.
const heap, resident = "go_memstats_heap_alloc_bytes{}", "process_resident_memory_bytes{}"

// remembering is a situation in which the process has the given MiB of live memory, of garbage, and of memory outside of Go's. GOMEMLIMIT is set so
// that the largest of the series is the given part of the limit.
func remembering(live, garbage, outside int, part float64, series ...string) func(*testing.T) *timeline {
	return func(t *testing.T) *timeline {
		debug.FreeOSMemory()
		needed := touched(make([]byte, live<<20))
		touched(make([]byte, garbage<<20))
		runtime.GC()
		if outside > 0 {
			memory, err := syscall.Mmap(-1, 0, outside<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
			if err != nil {
				t.Fatal(err)
			}
			touched(memory)
			defer syscall.Munmap(memory)
		}
		defer runtime.KeepAlive(needed)
		o := observe(t, &filo.Server{})
		return o.during(situation, func() (from, to *scrape) {
			from = o.idle()
			largest := 0.0
			for _, each := range series {
				largest = max(largest, from.values[each])
			}
			before := debug.SetMemoryLimit(int64(largest / part))
			defer debug.SetMemoryLimit(before)
			return from, o.idle()
		})
	}
}

// touched writes to each page of memory, which makes the memory resident.
func touched(memory []byte) []byte {
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	return memory
}

// Each alert fires in its situation, with the metrics of a real server. It fires neither in other situations, nor before its situation begins, nor
// after it has ended.
func TestSituations(t *testing.T) {
	tool(t, "promtool")
	fires := make(map[string]int)
	together := new(judgement)
	for name, s := range situations {
		for _, alert := range s.alerts {
			fires[alert]++
		}
		t.Run(name, func(t *testing.T) {
			l := s.happens(t)
			judge, job := together, name
			if l.absent {
				judge, job = new(judgement), alertedJob
				defer judge.check(t, false)
			}
			conditions := []promtoolCondition{firing(job, 60, l.steps-1, s.alerts...)}
			switch {
			case strings.HasPrefix(name, "a certificate"): // this situation lasts for the whole timeline
			case strings.HasPrefix(name, "Redis"), strings.HasPrefix(name, "a new certificate"): // these situations don't end
				conditions = append(conditions, firing(job, 10, calmBefore-1))
			default:
				conditions = append(conditions, firing(job, 10, calmBefore-1), firing(job, 1, l.steps-1))
			}
			judge.add(l, job, conditions...)
		})
	}
	together.check(t, true)
	for _, alert := range alertNames(t) {
		if others := len(situations) - fires[alert]; fires[alert] == 0 || others < 5 {
			t.Errorf("%s fires in %d situations, and stays silent in %d", alert, fires[alert], others)
		}
	}
}

// alertNames returns the names of the alerts in alerts.yml.
func alertNames(t *testing.T) (names []string) {
	t.Helper()
	for _, match := range regexp.MustCompile(`- alert: (\w+)`).FindAllSubmatch(read(t, "prometheus/alerts.yml"), -1) {
		names = append(names, string(match[1]))
	}
	return names
}
