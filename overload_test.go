package filo_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/servertest"
)

// wantRefusal sends a request and reads its refusal to the end: it is whole, says when to come back, and that the connection closes.
func (c *lifeClient) wantRefusal(status int) {
	c.t.Helper()
	if err := c.refusal(status); err != nil {
		c.t.Errorf("the refusal: %v", err)
	}
}

func (c *lifeClient) refusal(status int) error {
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") // it may be refused and gone by now
	// ReadResponse and ReadAll fail if the answer isn't as long as its Content-Length says.
	response, body, err := c.tryAnswer()
	if err != nil {
		return err
	}
	_, err = http.ParseTime(response.Header.Get("Date"))
	switch {
	case response.StatusCode != status:
		return fmt.Errorf("status %d, want %d", response.StatusCode, status)
	case !response.Close:
		return fmt.Errorf("no Connection: close")
	case response.Header.Get("Retry-After") == "":
		return fmt.Errorf("no Retry-After")
	case err != nil:
		return fmt.Errorf("Date: %w", err)
	case response.ContentLength != int64(len(body)) || !strings.HasPrefix(body, http.StatusText(status)):
		return fmt.Errorf("Content-Length %d, body %q", response.ContentLength, body)
	}
	if rest, err := io.ReadAll(c.reader); err != nil || len(rest) > 0 {
		return fmt.Errorf("at the end: %q, %v; want nothing", rest, err)
	}
	return nil
}

// "Concurrency: 100, 100 handlers held, 1,000 more connections: every one of them gets a whole 503 …, the 100 finish
// right, and afterwards the server serves as before; the same with clients that never read."
func TestOverload(t *testing.T) {
	const held, more = 100, 1000
	for name, test := range map[string]struct {
		send  string // what those that are refused send at once
		reads bool
	}{
		"requests":                {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},
		"silent clients":          {"", true},
		"clients that never read": {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", false},
		"clients that do nothing": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, gate := lifeGated(t, &filo.Server{Concurrency: held, Driver: filo.DriverBlocking})
			var clients []*lifeClient
			for range held {
				c := s.dial(t)
				gate.hold(t, c)
				clients = append(clients, c)
			}
			s.overload(t, more, test.send, test.reads)
			lifeAwait(t, "the others to be refused", func() bool { return s.Stats().ConnsRefused == more })
			// A client that reads gets its 503 whatever the others do.
			last := s.dial(t)
			last.wantRefusal(503)
			stats := s.Stats()
			if stats.ConnsAccepted != held+more+1 || stats.ConnsRefused != more+1 || stats.Requests[5] != more+1 || stats.ConnsOpen != held ||
				stats.Refusals != (filo.Refusals{Concurrency: more + 1}) {
				t.Errorf("under overload: %+v", stats)
			}
			gate.open()
			for _, c := range clients {
				c.want(200, "held", false)
				c.get("/")
				c.want(200, "quick", false)
				c.Close()
			}
			s.wantServedAgain(t, held)
		})
	}
}

// A refused client that sends a lot, and reads only then, gets its whole 503 all the same.
func TestOverloadBusyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, gate := servertest.NewListener(), newLifeGate()
		lifeServe(t, &filo.Server{Handler: gate.handle, Concurrency: 1}, listener)
		dial := func() *lifeClient {
			conn, err := listener.Dial()
			if err != nil {
				t.Fatal(err)
			}
			return newLifeClient(t, conn)
		}
		holder := dial()
		gate.hold(t, holder)
		var clients sync.WaitGroup
		for range 50 {
			clients.Go(func() {
				c := dial()
				c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n")
				for range 5 {
					time.Sleep(100 * time.Millisecond)
					c.send(strings.Repeat("x", 40_000))
				}
				c.wantRefusal(503)
			})
		}
		clients.Wait()
		gate.open()
		holder.want(200, "held", false)
	})
}

// overload makes n connections, and reads their refusals.
func (s *lifeServer) overload(t *testing.T, n int, send string, reads bool) {
	t.Helper()
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			for range n / 10 {
				conn, err := net.Dial("tcp", s.addr)
				if err != nil {
					t.Error(err)
					return
				}
				c := newLifeClient(t, conn)
				io.WriteString(c, send) // it may be refused and gone by now
				if !reads {
					continue // it stays open until the test's end
				}
				if err := c.refusal(503); err != nil {
					t.Errorf("a refusal: %v", err)
					return
				}
				c.Close()
			}
		})
	}
	group.Wait()
}

// wantServedAgain checks that n connections can be served at once.
func (s *lifeServer) wantServedAgain(t *testing.T, n int) {
	t.Helper()
	lifeAwait(t, "the connections to go, and then the workers to be ready", func() bool {
		stats := s.Stats()
		return stats.ConnsOpen == 0 && stats.WorkersRunning == 0
	})
	refused := s.Stats().ConnsRefused
	for range n {
		c := s.dial(t)
		c.get("/")
		c.want(200, "quick", false)
	}
	if stats := s.Stats(); stats.ConnsRefused != refused || stats.ConnsOpen != n {
		t.Errorf("after the overload: %+v", stats)
	}
}

// "written so that a client that doesn't read can't hold up accepting": not even where nothing is buffered.
func TestOverloadDeafClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deaf = 200
		listener := make(lifeListener)
		gate := newLifeGate()
		s := &filo.Server{Handler: gate.handle, Concurrency: 1, Logger: slog.New(slog.DiscardHandler)}
		served := make(chan error)
		go func() { served <- s.Serve(listener) }()
		holder := newLifeClient(t, listener.dial())
		gate.hold(t, holder)
		start := time.Now()
		var clients []net.Conn
		for range deaf {
			clients = append(clients, listener.dial())
		}
		newLifeClient(t, listener.dial()).wantRefusal(503)
		if took := time.Since(start); took > 0 {
			t.Errorf("the clients that don't read held the last one up for %v", took)
		}
		if refused := s.Stats().ConnsRefused; refused != deaf+1 {
			t.Errorf("%d were refused, want %d", refused, deaf+1)
		}
		time.Sleep(2 * time.Second)
		for _, client := range clients {
			if _, err := io.ReadAll(client); err != nil {
				t.Errorf("a client that read nothing for two seconds: %v, want EOF", err)
			}
		}
		gate.open()
		holder.want(200, "held", false)
		listener.Close()
		s.Close()
		<-served
	})
}

// lifeListener accepts what dial makes: connections in memory that buffer nothing.
type lifeListener chan net.Conn

func (l lifeListener) dial() (client net.Conn) {
	client, server := net.Pipe()
	l <- server
	return client
}

func (l lifeListener) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l lifeListener) Close() error {
	defer func() { recover() }() // closing a channel twice
	close(l)
	return nil
}

func (l lifeListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// Some places are kept for quick handlers when all others are taken, in both drivers. They are few, given back however a handler
// ends, and in the blocking driver no client that sends nothing has one for long.
func TestKeptPlaces(t *testing.T) {
	kept := 32
	if lifeBlocking() {
		kept = 256
	}
	gate := newLifeGate()
	enters := class.Class{Name: "may block"}
	quick := filo.Inline(func(c *filo.Ctx) error {
		switch c.Path() {
		case "/exit":
			runtime.Goexit()
		case "/panic":
			panic("no such record")
		case "/body":
			_, err := c.Body()
			return err
		case "/hijack":
			conn, _, err := c.Hijack()
			if err == nil {
				conn.Close()
			}
			return err
		}
		return c.Text(200, "quick")
	})
	for name, waits := range map[string]bool{"quick": false, "waits": true} {
		t.Run(name, func(t *testing.T) {
			s := lifeServe(t, &filo.Server{Concurrency: 1, ReadTimeout: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), Handler: func(c *filo.Ctx) error {
				if waits {
					time.Sleep(time.Millisecond) // what comes before Enter
				}
				if !strings.HasPrefix(c.Path(), "/hold") {
					return quick(c)
				}
				if err := inside.Enter(c, &enters); err != nil {
					return err
				}
				return gate.handle(c)
			}})
			first := s.dial(t)
			lifeAwait(t, "it to be known what the handler does", func() bool {
				first.get("/")
				response, _ := first.answer()
				// Whether the handler is quick isn't known yet, and a leader that has lost its loop has the one place for a moment.
				if response.StatusCode == 503 && s.Stats().Retakes > 0 {
					return false
				}
				if response.StatusCode != 200 {
					t.Fatalf("at first: %d", response.StatusCode)
				}
				return !waits || classOf(s.Server, "").Kind == "slow"
			})
			// A leader that has lost its loop on the way there has the one place until it is back.
			lifeAwait(t, "the place to be free", func() bool { return s.Stats().WorkersRunning == workersOf(1) })
			gate.hold(t, first)
			ask := func(path, more string) (status int) {
				c := s.dial(t)
				defer c.Close()
				c.send("POST " + path + " HTTP/1.1\r\nHost: a\r\n" + more + "\r\n")
				response, _, err := c.tryAnswer()
				if err != nil {
					return 0
				}
				return response.StatusCode
			}
			for range kept + 5 {
				for _, test := range []struct {
					path, more string
					status     int
				}{{"/", "", 200}, {"/exit", "", 500}, {"/panic", "", 500}, {"/hold", "", 503}, {"/hijack", "", 503}, {"/body", "Content-Length: 100000\r\n", 503}} {
					// A leader whose thread doesn't get a processor for long loses its loop, and counts until it has one again.
					if got := ask(test.path, test.more); got != test.status && (got == 0 && test.path != "/hijack" || s.Stats().Retakes == 0) {
						t.Fatalf("%s: %d, want %d", test.path, got, test.status)
					}
				}
			}
			if lifeBlocking() {
				var silent []*lifeClient
				for range kept + 8 {
					silent = append(silent, s.dial(t))
				}
				for _, c := range silent {
					c.wantEOF()
				}
				if got := ask("/", ""); got != 200 {
					t.Errorf("behind those who send nothing: %d", got)
				}
			}
			gate.open()
			first.want(200, "held", false)
			first.Close()
			lifeAwait(t, "the place to be free", func() bool { return ask("/hold", "") == 200 })
		})
		gate = newLifeGate()
	}
}

// "MaxConns is how many connections may be open at once, hijacked ones aside; further ones get 503."
func TestMaxConns(t *testing.T) {
	s := lifeServe(t, &filo.Server{MaxConns: 2, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/hijack" {
			conn, _, err := c.Hijack()
			if err == nil {
				t.Cleanup(func() { conn.Close() })
				_, err = io.WriteString(conn, "yours")
			}
			return err
		}
		return c.Text(200, "quick")
	}})
	first, second := s.dial(t), s.dial(t)
	for _, c := range []*lifeClient{first, second} {
		c.get("/")
		c.want(200, "quick", false)
		c.send("G") // it isn't idle
	}
	lifeAwait(t, "both to begin a request", func() bool { return s.Stats().ConnsActive == 2 })
	s.dial(t).wantRefusal(503)
	first.Close()
	lifeAwait(t, "the first to go", func() bool { return s.Stats().ConnsOpen == 1 })
	hijacked := s.dial(t)
	hijacked.get("/hijack")
	if _, err := io.ReadFull(hijacked.reader, make([]byte, len("yours"))); err != nil {
		t.Fatal(err)
	}
	third := s.dial(t)
	third.get("/")
	third.want(200, "quick", false)
	third.send("G")
	lifeAwait(t, "the third to begin a request", func() bool { return s.Stats().ConnsActive == 2 })
	s.dial(t).wantRefusal(503)
	second.send("ET / HTTP/1.1\r\nHost: a\r\n\r\n")
	second.want(200, "quick", false)
	if stats := s.Stats(); stats.ConnsOpen != 2 || stats.ConnsRefused != 2 || stats.ConnsAccepted != 6 || stats.Requests[5] != 2 ||
		stats.Refusals != (filo.Refusals{MaxConns: 2}) || stats.Limits.MaxConns != 2 {
		t.Errorf("at the end: %+v", stats)
	}
}

// "MaxConnsPerIP is how many connections one client address may have open; further ones get 429. An IPv6 client has a
// whole /64 to choose addresses from, so that counts as one."
func TestMaxConnsPerIP(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{MaxConnsPerIP: 2, Handler: func(c *filo.Ctx) error { return c.Text(200, "quick") }})
	dial := func(addr net.Addr) *lifeClient {
		t.Helper()
		conn, err := s.Listener.DialFrom(addr)
		if err != nil {
			t.Fatal(err)
		}
		return newLifeClient(t, conn)
	}
	for _, test := range []struct {
		name    string
		full    []string // two addresses that fill a client's share
		refused []string // addresses that belong to the same client
	}{
		{"IPv4", []string{"192.0.2.1", "192.0.2.1"}, []string{"192.0.2.1", "::ffff:192.0.2.1"}},
		{"IPv4, its neighbour", []string{"192.0.2.2", "192.0.2.2"}, []string{"192.0.2.2"}},
		{"IPv4 mapped to IPv6", []string{"::ffff:192.0.2.3", "192.0.2.3"}, []string{"::ffff:192.0.2.3", "192.0.2.3"}},
		{"IPv6, one address", []string{"2001:db8::1", "2001:db8::1"}, []string{"2001:db8::1"}},
		{"IPv6, a /64", []string{"2001:db8:0:1::1", "2001:db8:0:1:ffff::"}, []string{"2001:db8:0:1:8000::9"}},
		{"IPv6, the next /64", []string{"2001:db8:0:2::1", "2001:db8:0:2::2"}, []string{"2001:db8:0:2::3"}},
	} {
		for _, address := range test.full {
			c := dial(&net.TCPAddr{IP: net.ParseIP(address), Port: 1000})
			c.get("/")
			c.want(200, "quick", false)
		}
		for _, address := range test.refused {
			if err := dial(&net.TCPAddr{IP: net.ParseIP(address), Port: 1000}).refusal(429); err != nil {
				t.Errorf("%s: one more from %s: %v", test.name, address, err)
			}
		}
	}
	// Clients without an IP address aren't counted.
	for range 5 {
		c := dial(&net.UnixAddr{Name: "@", Net: "unix"})
		c.get("/")
		c.want(200, "quick", false)
	}
	if stats := s.Config.Stats(); stats.ConnsRefused != 8 || stats.Requests[4] != 8 || stats.ConnsOpen != 17 ||
		stats.Refusals != (filo.Refusals{MaxConnsPerIP: 8}) {
		t.Errorf("at the end: %+v", stats)
	}
}

// The share of an address is free again when its connections go, and when they are hijacked.
func TestMaxConnsPerIPLoopback(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			listener, err := net.Listen("tcp", address)
			if err != nil {
				t.Skip("no such loopback address here:", err)
			}
			s := lifeServe(t, &filo.Server{MaxConnsPerIP: 1, Handler: func(c *filo.Ctx) error {
				if c.Path() == "/hijack" {
					conn, _, err := c.Hijack()
					t.Cleanup(func() { conn.Close() })
					return err
				}
				return c.Text(200, "quick")
			}}, listener)
			for _, path := range []string{"/", "/hijack", "/"} {
				lifeAwait(t, "the share to be free", func() bool { return s.Stats().ConnsOpen == 0 })
				c := s.dial(t)
				c.get("/")
				c.want(200, "quick", false)
				s.dial(t).wantRefusal(429)
				if c.get(path); path == "/" {
					c.want(200, "quick", false)
					c.Close()
				}
			}
		})
	}
}

// "MaxRequestsPerConn is how many requests a connection may carry before it is closed."
func TestMaxRequestsPerConn(t *testing.T) {
	s, _ := lifeGated(t, &filo.Server{MaxRequestsPerConn: 3})
	one, pipelined := s.dial(t), s.dial(t)
	pipelined.send(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 5))
	for i := range 3 {
		one.get("/")
		one.want(200, "quick", i == 2)
		pipelined.want(200, "quick", i == 2)
	}
	one.wantEOF()
	pipelined.wantEOF()
}

// "A retired worker stops counting at once": at the cap, clients that come back when they have seen the close are
// never refused.
func TestNoRefusalWhenAPlaceIsFree(t *testing.T) {
	const clients = 4
	s, _ := lifeGated(t, &filo.Server{Concurrency: clients, MaxIdleWorkerDuration: time.Millisecond})
	var group sync.WaitGroup
	var answered atomic.Int64
	for range clients {
		group.Go(func() {
			for range 250 {
				conn, err := net.Dial("tcp", s.addr)
				if err != nil {
					t.Error(err)
					return
				}
				conn.SetDeadline(time.Now().Add(lifeBound))
				io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				answer, err := io.ReadAll(conn)
				conn.Close()
				if strings.HasPrefix(string(answer), "HTTP/1.1 503 ") && s.Stats().Retakes > 0 {
					continue // a leader that has lost its loop has a place until it is back
				}
				if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
					t.Errorf("got %q, %v", answer, err)
					return
				}
				answered.Add(1)
			}
		})
	}
	group.Wait()
	if stats := s.Stats(); stats.ConnsRefused != 0 || stats.Requests[2] != uint64(answered.Load()) {
		t.Errorf("%d answers, and %+v", answered.Load(), stats)
	}
}
