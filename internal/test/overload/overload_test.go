package overload

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/servertest"
)

// 100 handlers occupy all places, and 1,000 more connections arrive. Each of these gets a complete 503, the 100 requests are answered, and
// afterwards the server serves as before. The same holds if the refused clients never read.
func TestOverload(t *testing.T) {
	const held, more = 100, 1000
	for name, test := range map[string]struct {
		send  string // sent by the refused clients as soon as they have connected
		reads bool
	}{
		"requests":                {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},
		"silent clients":          {"", true},
		"clients that never read": {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", false},
		"clients that do nothing": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, gate := filotest.ServeGated(t, &filo.Server{Concurrency: held, Driver: filo.DriverBlocking})
			var clients []*filotest.Client
			for range held {
				c := s.Dial(t)
				gate.Hold(t, c)
				clients = append(clients, c)
			}
			overload(s, t, more, test.send, test.reads)
			filotest.Await(t, "the others to be refused", func() bool { return s.Stats().ConnsRefused == more })
			// A client that reads gets its 503, whatever the other clients do.
			last := s.Dial(t)
			last.WantRefusal(503)
			stats := s.Stats()
			if stats.ConnsAccepted != held+more+1 || stats.ConnsRefused != more+1 || stats.Requests[5] != more+1 || stats.ConnsOpen != held ||
				stats.Refusals != (filo.Refusals{Concurrency: more + 1}) {
				t.Errorf("under overload: %+v", stats)
			}
			gate.Open()
			for _, c := range clients {
				c.Want(200, "held", false)
				c.Get("/")
				c.Want(200, "quick", false)
				c.Close()
			}
			wantServedAgain(s, t, held)
		})
	}
}

// A refused client gets the complete 503 even if it sends many bytes before it reads.
func TestOverloadBusyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, gate := servertest.NewListener(), filotest.NewGate()
		filotest.Serve(t, &filo.Server{Handler: gate.Handle, Concurrency: 1}, listener)
		dial := func() *filotest.Client {
			conn, err := listener.Dial()
			if err != nil {
				t.Fatal(err)
			}
			return filotest.NewClient(t, conn)
		}
		holder := dial()
		gate.Hold(t, holder)
		var clients sync.WaitGroup
		for range 50 {
			clients.Go(func() {
				c := dial()
				c.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n")
				for range 5 {
					time.Sleep(100 * time.Millisecond)
					c.Send(strings.Repeat("x", 40_000))
				}
				c.WantRefusal(503)
			})
		}
		clients.Wait()
		gate.Open()
		holder.Want(200, "held", false)
	})
}

// overload opens n connections, and reads their refusals if reads is true.
func overload(s *filotest.Server, t *testing.T, n int, send string, reads bool) {
	t.Helper()
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			for range n / 10 {
				conn, err := net.Dial("tcp", s.Addr)
				if err != nil {
					t.Error(err)
					return
				}
				c := filotest.NewClient(t, conn)
				io.WriteString(c, send) // the server may have refused and closed the connection
				if !reads {
					continue // the connection stays open until the end of the test
				}
				if err := c.Refusal(503); err != nil {
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
func wantServedAgain(s *filotest.Server, t *testing.T, n int) {
	t.Helper()
	filotest.Await(t, "the connections to go, and then the workers to be ready", func() bool {
		stats := s.Stats()
		return stats.ConnsOpen == 0 && stats.WorkersRunning == 0
	})
	refused := s.Stats().ConnsRefused
	for range n {
		c := s.Dial(t)
		c.Get("/")
		c.Want(200, "quick", false)
	}
	if stats := s.Stats(); stats.ConnsRefused != refused || stats.ConnsOpen != n {
		t.Errorf("after the overload: %+v", stats)
	}
}

// A client that doesn't read its refusal can't block accepting, not even if the connection has no buffer.
func TestOverloadDeafClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deaf = 200
		listener := make(lifeListener)
		gate := filotest.NewGate()
		s := &filo.Server{Handler: gate.Handle, Concurrency: 1, Logger: slog.New(slog.DiscardHandler)}
		served := make(chan error)
		go func() { served <- s.Serve(listener) }()
		holder := filotest.NewClient(t, listener.dial())
		gate.Hold(t, holder)
		start := time.Now()
		var clients []net.Conn
		for range deaf {
			clients = append(clients, listener.dial())
		}
		filotest.NewClient(t, listener.dial()).WantRefusal(503)
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
		gate.Open()
		holder.Want(200, "held", false)
		listener.Close()
		s.Close()
		<-served
	})
}

// lifeListener accepts the in-memory connections that dial creates, which have no buffer.
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
	defer func() { recover() }() // the channel may be closed already
	close(l)
	return nil
}

func (l lifeListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// Both drivers reserve a small number of places for quick handlers. When a handler ends in any way, its place becomes free. In the blocking
// driver, a client that sends nothing soon loses its place.
func TestKeptPlaces(t *testing.T) {
	kept := 32
	if filotest.Blocking() {
		kept = 256
	}
	gate := filotest.NewGate()
	enters, large := class.Class{Name: "may block"}, make([]byte, 8<<20)
	quick := filo.Inline(func(c *filo.Ctx) error {
		switch c.Path() {
		case "/exit":
			runtime.Goexit()
		case "/panic":
			panic("no such record")
		case "/body":
			_, err := c.Body()
			return err
		case "/large":
			return c.BytesNoCopy(200, "text/plain", large)
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
			s := filotest.Serve(t, &filo.Server{Concurrency: 1, ReadTimeout: 100 * time.Millisecond, WriteTimeout: time.Hour, Logger: slog.New(slog.DiscardHandler), Handler: func(c *filo.Ctx) error {
				if waits {
					time.Sleep(time.Millisecond) // simulates work before Enter
				}
				if !strings.HasPrefix(c.Path(), "/hold") {
					return quick(c)
				}
				if err := inside.Enter(c, &enters); err != nil {
					return err
				}
				return gate.Handle(c)
			}})
			first := s.Dial(t)
			filotest.Await(t, "it to be known what the handler does", func() bool {
				first.Get("/")
				response, _ := first.Answer()
				// The server hasn't measured yet that the handler is quick, and a leader that has lost its loop may occupy the only place for
				// a moment.
				if response.StatusCode == 503 && s.Stats().Retakes > 0 {
					return false
				}
				if response.StatusCode != 200 {
					t.Fatalf("at first: %d", response.StatusCode)
				}
				return !waits || filotest.ClassOf(s.Server, "").Kind == "slow"
			})
			// A leader that has lost its loop before occupies the only place until it has returned.
			filotest.Await(t, "the place to be free", func() bool { return s.Stats().WorkersRunning == filotest.WorkersOf(1) })
			gate.Hold(t, first)
			ask := func(path, more string) (status int) {
				c := s.Dial(t)
				defer c.Close()
				c.Send("POST " + path + " HTTP/1.1\r\nHost: a\r\n" + more + "\r\n")
				response, _, err := c.TryAnswer()
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
					// A leader whose thread gets no processor for a long time loses its loop, and occupies a place until it has a loop again.
					if got := ask(test.path, test.more); got != test.status && (got == 0 && test.path != "/hijack" || s.Stats().Retakes == 0) {
						t.Fatalf("%s: %d, want %d", test.path, got, test.status)
					}
				}
			}
			if filotest.Blocking() {
				var silent []*filotest.Client
				for range kept + 8 {
					silent = append(silent, s.Dial(t))
				}
				for _, c := range silent {
					c.WantEOF()
				}
				if got := ask("/", ""); got != 200 {
					t.Errorf("behind those who send nothing: %d", got)
				}
				var deaf []*filotest.Client
				for range kept + 8 {
					c := s.Dial(t)
					c.Get("/large") // and doesn't read
					deaf = append(deaf, c)
				}
				filotest.Await(t, "an answer behind those who read nothing", func() bool { return ask("/", "") == 200 })
				for _, c := range deaf {
					c.Close()
				}
			}
			gate.Open()
			first.Want(200, "held", false)
			first.Close()
			filotest.Await(t, "the place to be free", func() bool { return ask("/hold", "") == 200 })
		})
		gate = filotest.NewGate()
	}
}

// Clients that begin no TLS handshake don't keep the places for quick handlers.
func TestPlacesOfSilentHandshakes(t *testing.T) {
	const silent = 264
	gate := filotest.NewGate()
	enters := class.Class{Name: "may block"}
	s := filotest.ListenTLS(t, &filo.Server{Driver: filo.DriverBlocking, Concurrency: 1, ReadHeaderTimeout: time.Hour, Handler: func(c *filo.Ctx) error {
		if c.Path() != "/hold" {
			return filo.Inline(func(c *filo.Ctx) error { return c.Text(200, "quick") })(c)
		}
		if err := inside.Enter(c, &enters); err != nil {
			return err
		}
		return gate.Handle(c)
	}})
	c := s.DialTLS(t)
	for range 100 {
		c.Get("/")
		c.Want(200, "quick", false)
	}
	gate.Hold(t, c)
	for range silent {
		s.Dial(t)
	}
	filotest.Await(t, "an answer behind those who send nothing", func() bool {
		conn, err := tls.Dial("tcp", s.Addr, filotest.ClientTLS())
		if err != nil {
			return false
		}
		defer conn.Close()
		probe := filotest.NewClient(t, conn)
		probe.Get("/")
		response, _, err := probe.TryAnswer()
		return err == nil && response.StatusCode == 200
	})
	gate.Open()
	c.Want(200, "held", false)
}

// "MaxConns limits how many connections may be open at once, hijacked ones excluded. … If no connection is idle, the new one gets 503."
func TestMaxConns(t *testing.T) {
	s := filotest.Serve(t, &filo.Server{MaxConns: 2, Handler: func(c *filo.Ctx) error {
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
	first, second := s.Dial(t), s.Dial(t)
	for _, c := range []*filotest.Client{first, second} {
		c.Get("/")
		c.Want(200, "quick", false)
		c.Send("G") // begin a request, so that the connection isn't idle
	}
	filotest.Await(t, "both to begin a request", func() bool { return s.Stats().ConnsActive == 2 })
	s.Dial(t).WantRefusal(503)
	first.Close()
	filotest.Await(t, "the first to go", func() bool { return s.Stats().ConnsOpen == 1 })
	hijacked := s.Dial(t)
	hijacked.Get("/hijack")
	if _, err := io.ReadFull(hijacked.Reader, make([]byte, len("yours"))); err != nil {
		t.Fatal(err)
	}
	third := s.Dial(t)
	third.Get("/")
	third.Want(200, "quick", false)
	third.Send("G")
	filotest.Await(t, "the third to begin a request", func() bool { return s.Stats().ConnsActive == 2 })
	s.Dial(t).WantRefusal(503)
	second.Send("ET / HTTP/1.1\r\nHost: a\r\n\r\n")
	second.Want(200, "quick", false)
	if stats := s.Stats(); stats.ConnsOpen != 2 || stats.ConnsRefused != 2 || stats.ConnsAccepted != 6 || stats.Requests[5] != 2 ||
		stats.Refusals != (filo.Refusals{MaxConns: 2}) || stats.Limits.MaxConns != 2 {
		t.Errorf("at the end: %+v", stats)
	}
}

// "MaxConnsPerIP limits how many connections one client address may have open; further connections get 429. An IPv6 /64 counts as one
// address".
func TestMaxConnsPerIP(t *testing.T) {
	s := servertest.NewServer(t, &filo.Server{MaxConnsPerIP: 2, Handler: func(c *filo.Ctx) error { return c.Text(200, "quick") }})
	dial := func(addr net.Addr) *filotest.Client {
		t.Helper()
		conn, err := s.Listener.DialFrom(addr)
		if err != nil {
			t.Fatal(err)
		}
		return filotest.NewClient(t, conn)
	}
	for _, test := range []struct {
		name    string
		full    []string // two addresses that use up a client's share
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
			c.Get("/")
			c.Want(200, "quick", false)
		}
		for _, address := range test.refused {
			if err := dial(&net.TCPAddr{IP: net.ParseIP(address), Port: 1000}).Refusal(429); err != nil {
				t.Errorf("%s: one more from %s: %v", test.name, address, err)
			}
		}
	}
	// The limit doesn't apply to clients without an IP address.
	for range 5 {
		c := dial(&net.UnixAddr{Name: "@", Net: "unix"})
		c.Get("/")
		c.Want(200, "quick", false)
	}
	if stats := s.Config.Stats(); stats.ConnsRefused != 8 || stats.Requests[4] != 8 || stats.ConnsOpen != 17 ||
		stats.Refusals != (filo.Refusals{MaxConnsPerIP: 8}) {
		t.Errorf("at the end: %+v", stats)
	}
}

// A connection stops counting for its address when it ends, and when it is hijacked.
func TestMaxConnsPerIPLoopback(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			listener, err := net.Listen("tcp", address)
			if err != nil {
				t.Skip("no such loopback address here:", err)
			}
			s := filotest.Serve(t, &filo.Server{MaxConnsPerIP: 1, Handler: func(c *filo.Ctx) error {
				if c.Path() == "/hijack" {
					conn, _, err := c.Hijack()
					t.Cleanup(func() { conn.Close() })
					return err
				}
				return c.Text(200, "quick")
			}}, listener)
			for _, path := range []string{"/", "/hijack", "/"} {
				filotest.Await(t, "the share to be free", func() bool { return s.Stats().ConnsOpen == 0 })
				c := s.Dial(t)
				c.Get("/")
				c.Want(200, "quick", false)
				s.Dial(t).WantRefusal(429)
				if c.Get(path); path == "/" {
					c.Want(200, "quick", false)
					c.Close()
				}
			}
		})
	}
}

// "MaxRequestsPerConn limits how many requests a connection may carry before the server closes it".
func TestMaxRequestsPerConn(t *testing.T) {
	s, _ := filotest.ServeGated(t, &filo.Server{MaxRequestsPerConn: 3})
	one, pipelined := s.Dial(t), s.Dial(t)
	pipelined.Send(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 5))
	for i := range 3 {
		one.Get("/")
		one.Want(200, "quick", i == 2)
		pipelined.Want(200, "quick", i == 2)
	}
	one.WantEOF()
	pipelined.WantEOF()
}

// A worker that has ended its connection stops counting at once. So even when all places are occupied, a client that has noticed the close of
// its connection and connects again is never refused.
func TestNoRefusalWhenAPlaceIsFree(t *testing.T) {
	const clients = 4
	s, _ := filotest.ServeGated(t, &filo.Server{Concurrency: clients, MaxIdleWorkerDuration: time.Millisecond})
	var group sync.WaitGroup
	var answered atomic.Int64
	for range clients {
		group.Go(func() {
			for range 250 {
				conn, err := net.Dial("tcp", s.Addr)
				if err != nil {
					t.Error(err)
					return
				}
				conn.SetDeadline(time.Now().Add(filotest.Bound))
				io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				answer, err := io.ReadAll(conn)
				conn.Close()
				if strings.HasPrefix(string(answer), "HTTP/1.1 503 ") && s.Stats().Retakes > 0 {
					continue // a leader that has lost its loop occupies a place until it has returned
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

// A worker whose answer was sent has no place any more while ConnState runs, whatever its answer's size and its connection's future are.
func TestAnsweredPlaceIsFree(t *testing.T) {
	filotest.NeedLoops(t)
	for _, size := range []int{10, 200 << 10, 300 << 10, 2 << 20} {
		for state, fields := range map[filo.ConnState]string{filo.StateIdle: "", filo.StateClosed: "Connection: close\r\n"} {
			t.Run(fmt.Sprint(size, " ", state), func(t *testing.T) {
				body := make([]byte, size)
				var waits atomic.Bool
				reached, goOn := make(chan struct{}), make(chan struct{})
				s := filotest.Serve(t, &filo.Server{Concurrency: 1, Handler: filo.Offload(func(c *filo.Ctx) error {
					return c.BytesNoCopy(200, "text/plain", body)
				}), ConnState: func(_ net.Conn, to filo.ConnState) {
					if to == state && waits.CompareAndSwap(true, false) {
						close(reached)
						<-goOn
					}
				}})
				waits.Store(true)
				defer close(goOn)
				first := s.Dial(t)
				first.Send("GET / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n")
				go io.Copy(io.Discard, first.Conn)
				filotest.Recv(t, reached, "the end of the answer")
				// A leader that has lost its loop may occupy the place for a moment.
				filotest.Await(t, "an answer behind one that was sent", func() bool {
					other := s.Dial(t)
					defer other.Close()
					other.Get("/")
					response, _ := other.Answer()
					return response.StatusCode == 200
				})
			})
		}
	}
}
