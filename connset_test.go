package filo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/sock"
	"github.com/filohttp/filo/internal/sweep"
)

// lifeBound is how long the tests wait for an event that must happen. A passing test never waits so long.
const lifeBound = 60 * time.Second

// The counts of a connSet equal those of a plain list, in whatever order connections are added and removed.
func TestConnSetCounts(t *testing.T) {
	server := new(Server)
	set := connSet{max: 12, perAddress: 3, answered: make([]sharedCounts, 1), clock: new(coarseClock)}
	var conns []*conn
	per := make(map[netip.Addr]int)
	seed := uint32(1)
	random := func(n int) int { // a fixed sequence
		seed = seed*1664525 + 1013904223
		return int(seed>>8) % n
	}
	for range 2000 {
		if len(conns) > 0 && random(2) == 0 {
			i := random(len(conns))
			set.remove(conns[i])
			per[census.Of(conns[i].netConn.RemoteAddr())]--
			conns = append(conns[:i], conns[i+1:]...)
		} else {
			addr := &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(random(6)))}
			c := newConn(server, &lifeConn{remote: addr})
			c.setState(stateHandler)
			var want *HTTPError
			if len(conns) == 12 {
				want = errTooManyConns
			} else if per[census.Of(addr)] == 3 {
				want = errConnsPerIP
			}
			if _, got := set.add(c); got != want {
				t.Fatalf("add with %d connections, %d of the address: %v, want %v", len(conns), per[census.Of(addr)], got, want)
			}
			if want == nil {
				conns = append(conns, c)
				per[census.Of(addr)]++
			}
		}
		listed := 0
		set.walk(func(*conn) { listed++ })
		if set.conns.Len() != len(conns) || listed != len(conns) {
			t.Fatalf("%d connections counted, %d listed, want %d", set.conns.Len(), listed, len(conns))
		}
	}
	for _, c := range conns {
		set.removeMember(c)
	}
	if n := set.addresses.Len(); n > 0 {
		t.Errorf("%d addresses without a connection are kept", n)
	}
	select {
	case <-set.whenEmpty():
	default:
		t.Error("the set isn't empty")
	}
}

// lifeSweptConn is a connection that calls a function when a sweep wakes its owner.
type lifeSweptConn struct {
	net.Conn
	woken func()
}

func (c *lifeSweptConn) SetReadDeadline(time.Time) error {
	c.woken()
	return nil
}

// While a sweep is under way, connections can come, go and wait: the call that wakes an owner, which may be the user's code, runs without
// the lock.
func TestSweepLetsOthersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		s.configure()
		s.conns.startSweep(s)
		defer s.conns.stopSweep()
		var conns []*conn
		var woken atomic.Int64
		for range 1000 {
			c := &conn{exchange: exchange{server: s}}
			c.netConn = &lifeSweptConn{woken: func() {
				first := woken.Add(1) == 1
				if !s.conns.mu.TryLock() {
					t.Fatal("the sweep holds the lock while it wakes an owner")
				}
				s.conns.mu.Unlock()
				if !first {
					return
				}
				s.conns.removeMember(conns[0]) // the sweep would have reached it last
				s.conns.add(&conn{exchange: exchange{server: s}})
				c.setWait(stateHead, s.clock.Exact().Add(2*time.Second)) // the sweep has passed it already
			}}
			s.conns.add(c)
			c.word.Store(1<<stateBits | int64(stateIdle))
			conns = append(conns, c)
		}
		s.conns.sweep()
		synctest.Wait()
		if n := woken.Load(); n != int64(len(conns)-1) {
			t.Errorf("%d of %d owners were woken", n, len(conns)-1)
		}
		time.Sleep(2*time.Second + sweep.Interval(s.config.shortestTimeout()))
		synctest.Wait()
		if woken.Load() != int64(len(conns)) {
			t.Error("a wait that began during the sweep wasn't ended in its time")
		}
	})
}

// BenchmarkSweep measures a sweep of idle connections. During the sweep another connection is added and removed again and again, and waits
// for the sweep each time. The additional figure is the longest such wait during a sweep, as a median of all sweeps.
func BenchmarkSweep(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 500_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := &Server{IdleTimeout: time.Hour, ReadHeaderTimeout: time.Hour, ReadTimeout: time.Hour, WriteTimeout: time.Hour}
			s.configure()
			s.conns.startSweep(s)
			defer s.conns.stopSweep()
			for range n {
				c := &conn{exchange: exchange{server: s}}
				s.conns.add(c)
				c.setWait(stateIdle, clock.Time(time.Hour))
			}
			lifeShuffle(&s.conns)
			var longest atomic.Int64
			stop := make(chan struct{})
			var others sync.WaitGroup
			others.Go(func() {
				for other := (&conn{exchange: exchange{server: s}}); ; runtime.Gosched() {
					select {
					case <-stop:
						return
					default:
					}
					start := time.Now()
					s.conns.add(other)
					s.conns.removeMember(other)
					longest.Store(max(longest.Load(), int64(time.Since(start))))
				}
			})
			var each []int64
			for b.Loop() {
				longest.Store(0)
				s.conns.sweep()
				each = append(each, longest.Load())
			}
			close(stop)
			others.Wait()
			slices.Sort(each)
			b.ReportMetric(float64(each[len(each)/2])/1000, "µs-wait")
		})
	}
}

// BenchmarkRequestsBesideSweeps is a sweep of 100,000 idle connections in memory, while requests are made on connections that come and go.
// The additional figure is how long the longest request during a sweep took, as a median of all sweeps. For comparison the same is measured
// for as long without a sweep.
func BenchmarkRequestsBesideSweeps(b *testing.B) {
	const idle = 100_000
	s := &Server{Handler: benchHello, IdleTimeout: time.Hour, ReadHeaderTimeout: time.Hour, ReadTimeout: time.Hour, WriteTimeout: time.Hour}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	go s.Serve(listener)
	for range idle {
		client, server := net.Pipe()
		defer client.Close()
		go s.ServeConn(server)
	}
	for s.Stats().ConnsIdle < idle {
		time.Sleep(10 * time.Millisecond)
	}
	lifeShuffle(&s.conns)
	for _, run := range []struct {
		name string
		f    func()
	}{{"sweep", s.conns.sweep}, {"none", func() { time.Sleep(25 * time.Millisecond) }}} {
		b.Run(run.name, func(b *testing.B) {
			var longest, made atomic.Int64
			stop := make(chan struct{})
			var client sync.WaitGroup
			client.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					start := time.Now()
					if err := lifeRequestAlone(listener.Addr().String()); err != nil {
						b.Error(err)
					}
					longest.Store(max(longest.Load(), int64(time.Since(start))))
					made.Add(1)
				}
			})
			var each []int64
			for b.Loop() {
				for seen := made.Load(); made.Load() < seen+20; time.Sleep(time.Millisecond) {
				}
				longest.Store(0)
				run.f()
				for seen := made.Load(); made.Load() == seen; runtime.Gosched() { // a request that the sweep held up may be going on
				}
				each = append(each, longest.Load())
			}
			close(stop)
			client.Wait()
			slices.Sort(each)
			b.ReportMetric(float64(each[len(each)/2])/1000, "µs-longest")
		})
	}
}

// lifeShuffle makes the connections lie in memory in random order, as after hours of work.
func lifeShuffle(set *connSet) {
	var conns []*conn
	set.walk(func(c *conn) { conns = append(conns, c) })
	rand.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
	for _, c := range conns {
		set.removeMember(c)
		set.add(c)
	}
}

// lifeRequestAlone makes a request on a connection of its own.
func lifeRequestAlone(address string) error {
	netConn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer netConn.Close()
	io.WriteString(netConn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if answer, err := io.ReadAll(netConn); err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("got %q, %w", answer, err)
	}
	return nil
}

// lifeConn is a connection whose methods a test can replace.
type lifeConn struct {
	net.Conn
	remote     net.Addr
	remoteAddr func() // called by RemoteAddr
	write      func() // called by Write
	readFrom   func(io.Reader) (int64, error)
}

func (c *lifeConn) RemoteAddr() net.Addr {
	if c.remoteAddr != nil {
		c.remoteAddr()
	}
	if c.remote != nil {
		return c.remote
	}
	return c.Conn.RemoteAddr()
}

func (c *lifeConn) Write(p []byte) (int, error) {
	if c.write != nil {
		c.write()
	}
	return c.Conn.Write(p)
}

// lifeFileConn has a ReadFrom, like a socket that supports sendfile.
type lifeFileConn struct{ *lifeConn }

func (c lifeFileConn) ReadFrom(r io.Reader) (int64, error) { return c.readFrom(r) }

// lifePoll asks again and again whether a condition holds, until it does or a long time has passed.
func lifePoll(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(lifeBound); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// lifeLate is a connection that the server has accepted, and registers late.
type lifeLate struct {
	*lifeConn
	client   net.Conn
	underway chan struct{} // closed when the server has begun to handle the connection
	goOn     chan struct{} // the test closes it to let the server go on
}

func newLifeLate() *lifeLate {
	client, server := net.Pipe()
	client.SetDeadline(time.Now().Add(lifeBound))
	late := &lifeLate{client: client, underway: make(chan struct{}), goOn: make(chan struct{})}
	var once sync.Once
	late.lifeConn = &lifeConn{Conn: server, remoteAddr: func() {
		once.Do(func() {
			close(late.underway)
			<-late.goOn
		})
	}}
	return late
}

// lifeFirst is a listener whose first connection is one from the test.
type lifeFirst struct {
	net.Listener
	accepted chan net.Conn // receives the first connection
	first    net.Conn
}

func (l *lifeFirst) Accept() (net.Conn, error) {
	select {
	case l.accepted <- l.first:
		return l.first, nil
	default:
		return l.Listener.Accept()
	}
}

// lifeLateServer returns a server that calls RemoteAddr of a connection before it registers the connection.
func lifeLateServer(h Handler) *Server {
	return &Server{Handler: h, MaxConnsPerIP: 9, ReadHeaderTimeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)}
}

// A connection that was accepted before a shutdown, and is registered late, is still subject to the time-outs: a client that sends its
// request too slowly gets a 408.
func TestShutdownSweepsLateConnections(t *testing.T) {
	s, late := lifeLateServer(benchHello), newLifeLate()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	go s.Serve(&lifeFirst{listener, make(chan net.Conn, 1), late})
	<-late.underway
	result := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), lifeBound/2)
		defer cancel()
		result <- s.Shutdown(ctx)
	}()
	lifePoll(t, "the pool to be stopped", func() bool {
		pool := s.pool
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return pool.stopped
	})
	close(late.goOn)
	if _, err := io.WriteString(late.client, "GET / HT"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(late.client)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("the answer to half a head: %q, %v", answer, err)
	}
	if err := <-result; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// "Shutdown returns nil when all are done": no request is served after that, not even on a connection that ServeConn has already begun to
// serve.
func TestServeConnAfterShutdown(t *testing.T) {
	late := newLifeLate()
	s := lifeLateServer(func(c *Ctx) error {
		t.Error("a request was served after the shutdown")
		return c.NoContent()
	})
	served := make(chan error, 1)
	go func() { served <- s.ServeConn(late) }()
	<-late.underway
	ctx, cancel := context.WithTimeout(context.Background(), lifeBound)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	close(late.goOn)
	go io.WriteString(late.client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	io.Copy(io.Discard, late.client)
	if err := <-served; err != nil && err != ErrServerClosed {
		t.Errorf("ServeConn: %v", err)
	}
	if stats := s.Stats(); stats.Requests[2] > 0 || stats.ConnsOpen > 0 {
		t.Errorf("after the shutdown: %+v", stats)
	}
}

// lifePoke wakes all goroutines that wait for a connection of the server, again and again until stop is closed. Each wake-up is like one of
// a sweep that arrives after the end of the wait for which it was meant.
func lifePoke(s *Server, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(50 * time.Microsecond):
		}
		s.conns.walk(func(c *conn) {
			c.netConn.SetReadDeadline(clock.Past)
			c.netConn.SetWriteDeadline(clock.Past)
		})
	}
}

// A wait goes on after a wake-up that was meant for another wait: wake-ups at any time harm no connection, whatever it is doing.
func TestPokesAreHarmless(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{Logger: slog.New(slog.DiscardHandler), Handler: func(c *Ctx) error {
		switch c.Path() {
		case "/file":
			return c.File(file)
		case "/ref":
			return c.BytesNoCopy(200, "text/plain", content)
		case "/stream":
			w := c.Stream()
			for rest := content; len(rest) > 0; rest = rest[64<<10:] {
				if _, err := w.Write(rest[:64<<10]); err != nil {
					return err
				}
			}
			return w.Flush()
		case "/context":
			ctx := c.Context()
			for range 100 {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
			}
			return c.Bytes(200, "text/plain", content)
		}
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Bytes(200, "text/plain", body)
	}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	go s.Serve(listener)
	stop := make(chan struct{})
	var poker, clients sync.WaitGroup
	poker.Go(func() { lifePoke(s, stop) })
	for _, path := range []string{"/file", "/ref", "/stream", "/context", "/echo"} {
		clients.Go(func() {
			if err := lifePokedClient(listener.Addr().String(), path, content); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		})
	}
	clients.Wait()
	close(stop)
	poker.Wait()
}

// lifePokedClient makes requests on one connection, in pieces.
func lifePokedClient(addr, path string, content []byte) error {
	netConn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer netConn.Close()
	netConn.SetDeadline(time.Now().Add(lifeBound))
	reader := bufio.NewReader(netConn)
	for i := range 8 {
		head := "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"
		if path == "/echo" {
			head = "POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: " + strconv.Itoa(len(content)) + "\r\n\r\n"
		}
		pieces := []string{head[:10], head[10:]}
		if path == "/echo" {
			pieces = append(pieces, string(content[:1000]), string(content[1000:]))
		}
		for _, piece := range pieces {
			if _, err := io.WriteString(netConn, piece); err != nil {
				return fmt.Errorf("request %d: %w", i, err)
			}
			time.Sleep(200 * time.Microsecond) // gives the server time to wait and to be poked; the result doesn't depend on it
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return fmt.Errorf("answer %d: %w", i, err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != 200 || !bytes.Equal(body, content) {
			return fmt.Errorf("answer %d: status %d, %d bytes of %d, %w", i, response.StatusCode, len(body), len(content), err)
		}
	}
	return nil
}

// A wake-up that comes before its time while a file is being sent isn't the end of the file.
func TestPokeWhileSendingFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	client, server := net.Pipe()
	calls := 0
	stub := lifeFileConn{&lifeConn{Conn: server, readFrom: func(r io.Reader) (int64, error) {
		if calls++; calls == 2 {
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
		}
		return io.Copy(struct{ io.Writer }{server}, r)
	}}}
	s := &Server{Handler: func(c *Ctx) error { return c.File(file) }, Logger: slog.New(slog.DiscardHandler)}
	defer s.Close()
	served := make(chan error, 1)
	go func() { served <- s.ServeConn(stub) }()
	client.SetDeadline(time.Now().Add(lifeBound))
	go io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(response.Body); err != nil || !bytes.Equal(body, content) {
		t.Errorf("got %d bytes of %d, %v", len(body), len(content), err)
	}
	client.Close()
	<-served
}

// lifePoked is a connection whose first write lasts until the sweep ends it. The sweep's wake-up takes a while to arrive.
type lifePoked struct {
	net.Conn
	mu      sync.Mutex
	begun   chan struct{} // closed when the wake-up is under way
	poking  bool          // guarded by mu
	expired bool          // guarded by mu
	writes  int           // guarded by mu
	wrong   string        // guarded by mu
}

func (c *lifePoked) SetWriteDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !at.Equal(clock.Past) {
		c.expired = false
		return nil
	}
	if c.poking = true; c.writes == 1 {
		close(c.begun)
	}
	c.mu.Unlock()
	time.Sleep(5 * time.Millisecond) // the owner mustn't go on during this time
	c.mu.Lock()
	c.poking, c.expired = false, true
	return nil
}

func (c *lifePoked) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writes++
	first := c.writes == 1
	if c.poking || c.expired {
		c.wrong = fmt.Sprintf("write %d: wake-up under way %v, arrived %v", c.writes, c.poking, c.expired)
	}
	c.mu.Unlock()
	if first {
		<-c.begun
	}
	return c.Conn.Write(p)
}

// A wake-up that is under way when its wait ends never ends a later wait, which would break a TLS connection.
func TestWaitEndsAfterItsPoke(t *testing.T) {
	client, server := net.Pipe()
	client.SetDeadline(time.Now().Add(lifeBound))
	poked := &lifePoked{Conn: server, begun: make(chan struct{})}
	s := &Server{Logger: slog.New(slog.DiscardHandler), WriteTimeout: time.Second, MinTransferRate: -1, Handler: func(c *Ctx) error {
		for _, text := range []string{"first ", "second ", "third"} {
			c.Stream().WriteString(text)
			if err := c.Stream().Flush(); err != nil {
				return err
			}
		}
		return nil
	}}
	defer s.Close()
	served := make(chan error, 1)
	go func() { served <- s.ServeConn(poked) }()
	go io.WriteString(client, "GET / HTTP/1.0\r\n\r\n")
	answer, err := io.ReadAll(client)
	if err != nil || !strings.HasSuffix(string(answer), "\r\n\r\nfirst second third") {
		t.Errorf("got %q, %v", answer, err)
	}
	<-served
	if poked.wrong != "" {
		t.Error(poked.wrong)
	}
}

// A panic in a user's ConnState or Logger ends the connection, and does no other harm.
func TestConnStatePanics(t *testing.T) {
	for _, state := range []ConnState{StateNew, StateActive, StateIdle, StateClosed} {
		t.Run(state.String(), func(t *testing.T) {
			var once sync.Once
			s := &Server{Handler: benchHello, Logger: slog.New(slog.DiscardHandler), ConnState: func(_ net.Conn, now ConnState) {
				if now == state {
					once.Do(func() { panic("ConnState") })
				}
			}}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			go s.Serve(listener)
			for i := range 2 {
				client, err := net.Dial("tcp", listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				client.SetDeadline(time.Now().Add(lifeBound))
				io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				answer, err := io.ReadAll(client)
				if i == 1 && (err != nil || strings.Count(string(answer), "HTTP/1.1 200") != 2) {
					t.Errorf("the next connection got %q, %v", answer, err)
				}
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("connection %d wasn't closed", i)
				}
			}
			lifePoll(t, "the connections to be forgotten", func() bool {
				stats := s.Stats()
				return stats.ConnsOpen == 0 && stats.WorkersRunning == 0
			})
		})
	}
}

// The default of MaxConns is the number of descriptors minus an eighth, or minus 32 if that is more.
func TestDefaultMaxConns(t *testing.T) {
	for descriptors, want := range map[uint64]int{0: 1, 20: 1, 32: 1, 33: 1, 200: 168, 1024: 896, 1 << 20: 1<<20 - 1<<17, 1<<64 - 1: 1<<31 - 1} {
		if got := defaultMaxConns(descriptors); got != want {
			t.Errorf("%d descriptors: %d, want %d", descriptors, got, want)
		}
	}
	byDefault := 0
	if n, ok := sock.MaxDescriptors(); ok {
		byDefault = defaultMaxConns(n)
	}
	for set, want := range map[int]int{-1: 0, 7: 7, 0: byDefault} {
		if got := (&Server{MaxConns: set}).maxConns(); got != want {
			t.Errorf("MaxConns %d: %d, want %d", set, got, want)
		}
	}
}

// quietConn is a connection that nobody uses.
type quietConn struct {
	net.Conn
	remote net.Addr
}

func (quietConn) SetReadDeadline(time.Time) error { return nil }

// loopDriver is a driver whose connections wait without a worker.
type loopDriver struct{ driver }

func (loopDriver) keepsWorker() bool { return false }

func (c quietConn) RemoteAddr() net.Addr { return c.remote }

// idleServer returns a server at its limit of n connections. Each has been idle for a millisecond less than the one before. They come from
// the given addresses in turn, or have no address if none is given.
func idleServer(n int, from ...net.Addr) (*Server, []*conn) {
	s := &Server{MaxConns: n}
	s.configure()
	s.conns.clock = &s.clock
	var all []*conn
	for i := range n {
		var q quietConn
		if len(from) > 0 {
			q.remote = from[i%len(from)]
		}
		c := newConn(s, q)
		s.conns.add(c)
		c.remoteAddr() // its first request would have called this
		c.setState(stateIdle)
		c.word.Store(int64(clock.Time(int64(time.Hour)+int64(i)*int64(time.Millisecond)))&^stateMask | int64(stateIdle))
		all = append(all, c)
	}
	return s, all
}

// The connections that have been idle for the longest are closed first. Connections that have a request, and new ones, aren't closed.
func TestMakeRoomOrder(t *testing.T) {
	s, all := idleServer(600)
	now := s.clock.Exact()
	all[0].setState(stateHandler)
	all[1].setState(stateParked)
	config := &s.config
	for i, age := range map[int]time.Duration{2: newConnTime - time.Second, 3: newConnTime + time.Second} {
		all[i].setState(stateNew)
		all[i].driver = loopDriver{}
		all[i].word.Store(int64(now.Add(config.readHeaderTimeout-age))&^stateMask | int64(stateNew))
	}
	for i := 4; i < 30; i++ {
		if !s.conns.makeRoom() {
			t.Fatalf("no room after %d", i)
		}
		if i == 10 {
			all[12].setState(stateHandler) // the search has found it, and it has become busy since
		}
	}
	for i, c := range all {
		shed := i >= 3 && i < 30 && i != 12 // 0 and 1 aren't idle, 2 is too new, and 12 has become busy
		if got := c.state() == stateShed; got != shed {
			t.Errorf("connection %d is in state %d", i, c.state())
		}
	}
}

// Connections that send nothing, from however many addresses, displace no client that was served, even if that client's connections have
// been idle for longer. The silent connections are closed as soon as they are a second old; newer ones aren't touched.
func TestMakeRoomSilentFirst(t *testing.T) {
	var own []net.Addr
	for i := range 200 {
		own = append(own, &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(i))})
	}
	s, all := idleServer(len(own), own...)
	now, silent := s.clock.Exact(), 0
	for i, c := range all {
		switch {
		case i%10 == 0: // of a client that was served; idle for longer than any of the others
			c.word.Store(int64(now.Add(s.config.idleTimeout-20*time.Second))&^stateMask | int64(stateIdle))
			continue
		case i%10 == 1: // new
		default:
			silent++
		}
		age := time.Duration(i%10) * (newConnTime * 3 / 4)
		c.setState(stateNew)
		c.driver = loopDriver{}
		c.word.Store(int64(now.Add(s.config.readHeaderTimeout-age))&^stateMask | int64(stateNew))
	}
	for k, i := range shedOrder(t, s, all) {
		if served := i%10 == 0; served != (k >= silent) || i%10 == 1 {
			t.Fatalf("number %d to go is connection %d", k, i)
		}
	}
}

// shedOrder makes room as often as it can, and returns the connections in the order in which they were closed.
func shedOrder(t *testing.T, s *Server, all []*conn) (order []int) {
	t.Helper()
	left := make(map[int]bool)
	for i := range all {
		left[i] = true
	}
	for {
		s.conns.room.next = 0
		if !s.conns.makeRoom() {
			return order
		}
		for i := range left {
			if all[i].state() == stateShed {
				order = append(order, i)
				delete(left, i)
			}
		}
		if len(order)+len(left) != len(all) {
			t.Fatal("room was made without a connection that closes")
		}
	}
}

// The server closes a connection of the address with the most idle connections: the one that has been idle for the longest time. The result is
// as if the idle connections were counted again before each close. A search keeps only some of the connections, so the order must hold across
// searches.
func TestMakeRoomByAddress(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	one := func(n int, addr net.Addr) []net.Addr { return slices.Repeat([]net.Addr{addr}, n) }
	const n = 200
	var own []net.Addr
	for i := range n {
		own = append(own, tcp(fmt.Sprintf("198.51.100.%d", i)))
	}
	for name, from := range map[string][]net.Addr{
		"one address":            {tcp("192.0.2.1")},
		"addresses of their own": own,
		"one has most":           append(one(9, tcp("192.0.2.1")), tcp("192.0.2.2"), tcp("192.0.2.3")),
		"a /64 is one":           {tcp("2001:db8::1"), tcp("2001:db8::2"), tcp("2001:db8::3"), tcp("192.0.2.1"), tcp("2001:db8:0:1::1")},
		"IPv4 in IPv6":           {tcp("::ffff:192.0.2.1"), &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1).To4()}, tcp("192.0.2.2")},
		"without an IP address":  {nil, &net.UnixAddr{Net: "unix"}, tcp("192.0.2.1")},
	} {
		t.Run(name, func(t *testing.T) {
			s, all := idleServer(n, from...)
			left := make(map[netip.Addr][]int) // the oldest first
			for i := range all {
				address := census.Of(from[i%len(from)])
				left[address] = append(left[address], i)
			}
			for k, got := range shedOrder(t, s, all) {
				var most []int
				var whose netip.Addr
				for address, each := range left {
					if len(each) > len(most) || len(each) == len(most) && len(each) > 0 && each[0] < most[0] {
						most, whose = each, address
					}
				}
				if got != most[0] {
					t.Fatalf("connection %d closes as number %d, want %d", got, k, most[0])
				}
				left[whose] = most[1:]
			}
			for address, each := range left {
				if len(each) > 0 {
					t.Errorf("of %v %v are left", address, each)
				}
			}
		})
	}
}

// A client may keep using those of its connections that would be closed first. That neither closes other clients' connections nor causes
// endless searches: there is no new search until the client has used as many connections as a search keeps.
func TestMakeRoomWhileUsed(t *testing.T) {
	attacker, polite := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2)}
	s, all := idleServer(320, append(slices.Repeat([]net.Addr{attacker}, 9), polite)...)
	used, searches := 0, 0
	deadline := clock.Time(2 * time.Hour)
	for range 100 {
		for kept := s.conns.room.found; len(kept) > 1; { // all of them but the one that would be closed next
			kept[0].conn.word.Store(int64(deadline)&^stateMask | int64(stateIdle))
			deadline = deadline.Add(time.Millisecond)
			kept = kept[1:]
			used++
		}
		if len(s.conns.room.found) == 0 {
			searches++
		}
		if !s.conns.makeRoom() {
			t.Fatal("no room")
		}
	}
	if kept := s.conns.roomBatch(); searches > (used+100)/kept+1 {
		t.Errorf("%d searches for %d uses and 100 connections, of which each keeps %d", searches, used, kept)
	}
	for i, c := range all {
		if c.netConn.RemoteAddr() == net.Addr(polite) && c.state() != stateIdle {
			t.Errorf("connection %d, of the client that has few, is in state %d", i, c.state())
		}
	}
}

// While no connection is idle, not every new connection causes a search of all connections.
func TestMakeRoomRests(t *testing.T) {
	s, all := idleServer(300)
	for _, c := range all {
		c.setState(stateHandler)
	}
	if s.conns.makeRoom() {
		t.Error("a connection with a request was closed")
	}
	all[7].word.Store(int64(stateIdle))
	s.conns.room.next = s.clock.Exact().Add(time.Hour)
	if s.conns.makeRoom() {
		t.Error("the connections were visited again at once")
	}
	s.conns.room.next = 0
	if !s.conns.makeRoom() || all[7].state() != stateShed {
		t.Error("later, no room was made")
	}
}

// A connection is told to close while its owner, which was woken for something else, is about to wait once more: the owner doesn't wait.
func TestShedDuringWakeUp(t *testing.T) {
	s, all := idleServer(2)
	deadline := s.clock.Exact().Add(time.Hour)
	if !all[1].waitAgain(stateIdle, deadline) || all[1].state() != stateIdle || deadlineIn(all[1].word.Load()) != deadline&^stateMask {
		t.Error("one that wasn't told to close doesn't wait")
	}
	if !s.conns.makeRoom() || all[0].state() != stateShed {
		t.Fatal("no room")
	}
	if all[0].waitAgain(stateIdle, deadline) || all[0].state() != stateShed {
		t.Error("one that was told to close waits")
	}
}

// BenchmarkMakeRoom is the cost of a new connection at the limit while 9,000 are idle, from one address or from many.
func BenchmarkMakeRoom(b *testing.B) {
	var many []net.Addr
	for i := range 9000 {
		many = append(many, &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i))})
	}
	for _, from := range [][]net.Addr{many[:1], many[:100], many} {
		b.Run(fmt.Sprint(len(from)), func(b *testing.B) { benchmarkMakeRoom(b, from) })
	}
}

func benchmarkMakeRoom(b *testing.B, from []net.Addr) {
	s, all := idleServer(9000, from...)
	free := func(c *conn) { // as its owner does
		s.conns.remove(c)
		c.setState(stateIdle)
	}
	next := 0
	for b.Loop() {
		s.conns.room.next = 0
		c := newConn(s, quietConn{remote: from[next%len(from)]})
		if _, refused := s.conns.add(c); refused != nil {
			b.Fatal("refused")
		}
		c.word.Store(int64(clock.Time(2*int64(time.Hour)+int64(next)*16))&^stateMask | int64(stateIdle))
		all = append(all, c)
		if all[next].state() == stateShed {
			free(all[next])
		}
		next++
	}
}

// lateReadConn is a connection in which the read of an "a" returns only after a deadline in the past was set, as if the reading
// goroutine had waited for a processor.
type lateReadConn struct {
	net.Conn
	past chan struct{}
}

func (c *lateReadConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 1 && p[0] == 'a' {
		<-c.past
	}
	return n, err
}

func (c *lateReadConn) SetReadDeadline(t time.Time) error {
	err := c.Conn.SetReadDeadline(t)
	if !t.IsZero() && t.Before(time.Now()) {
		select {
		case c.past <- struct{}{}:
		default:
		}
	}
	return err
}

// In the blocking driver, the wake-up of a parked connection doesn't end a read of the connection's function, even if data has ended the wait
// before.
func TestWakeUpEndsNoReadOfAParkedConn(t *testing.T) {
	for _, draining := range []bool{true, false} {
		t.Run(fmt.Sprint("draining ", draining), func(t *testing.T) {
			read, parked := make(chan error), make(chan struct{})
			s := &Server{Logger: slog.New(slog.DiscardHandler), Handler: func(c *Ctx) error {
				p, err := c.Park("test", func(p *ParkedConn, why Wake) error {
					if why != WakeData {
						return io.EOF
					}
					b := make([]byte, 1)
					_, err := p.Read(b)
					read <- err
					_, err = p.Read(b)
					read <- err
					return io.EOF
				})
				if err == nil && !draining {
					p.SetWait(time.Now().Add(100 * time.Millisecond))
				}
				close(parked)
				return err
			}}
			client, conn := net.Pipe()
			served := make(chan error, 1)
			go func() { served <- s.ServeConn(&lateReadConn{conn, make(chan struct{})}) }()
			go io.Copy(io.Discard, client)
			io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
			<-parked
			client.Write([]byte("a"))
			ended := make(chan error, 1)
			if draining {
				go func() { ended <- s.Shutdown(t.Context()) }()
			} else {
				ended <- nil
			}
			if err := <-read; err != nil {
				t.Errorf("the first read: %v", err)
			}
			go client.Write([]byte("b"))
			if err := <-read; err != nil {
				t.Errorf("the second read: %v", err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			s.Close()
			<-served
		})
	}
}

// A connection of ServeConn is closed even if its handler ends the goroutine.
func TestServeConnClosesAfterGoexit(t *testing.T) {
	s := &Server{Logger: slog.New(slog.DiscardHandler), Handler: func(*Ctx) error { runtime.Goexit(); return nil }}
	defer s.Close()
	client, conn := net.Pipe()
	go s.ServeConn(conn)
	go io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	client.SetReadDeadline(time.Now().Add(time.Minute))
	if b, err := io.ReadAll(client); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 500 ") {
		t.Errorf("%q, %v", b, err)
	}
}
