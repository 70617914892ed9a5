package filo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/logtest"
	"github.com/filohttp/filo/internal/race"
)

// The benchmarks serve connections in memory that cost next to nothing, so that they time the server. Each has a twin on net/http; the
// twins on fasthttp are in the bench module.

// benchConn is a connection in memory with its client, which sends the same bytes again and again.
type benchConn struct {
	input   []byte
	offset  int
	left    int // how many more times input will be sent
	written int
	closed  chan struct{}
}

func (c *benchConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.input[c.offset:])
	if c.offset += n; c.offset == len(c.input) {
		c.offset = 0
		c.left--
	}
	return n, nil
}

func (c *benchConn) Write(p []byte) (int, error) {
	c.written += len(p)
	return len(p), nil
}

func (c *benchConn) Close() error {
	select {
	case c.closed <- struct{}{}:
	default:
	}
	return nil
}

var benchAddr = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}

func (c *benchConn) LocalAddr() net.Addr              { return benchAddr }
func (c *benchConn) RemoteAddr() net.Addr             { return benchAddr }
func (c *benchConn) SetDeadline(time.Time) error      { return nil }
func (c *benchConn) SetReadDeadline(time.Time) error  { return nil }
func (c *benchConn) SetWriteDeadline(time.Time) error { return nil }

// benchListener accepts the connections that are sent to it.
type benchListener chan net.Conn

func (l benchListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l benchListener) Close() error   { return nil }
func (l benchListener) Addr() net.Addr { return benchAddr }

// benchWork is what a connection of a benchmark carries.
type benchWork struct {
	input    string // sent at once
	requests int    // in input
	perConn  int    // requests of a connection
	filo     Handler
	netHTTP  http.HandlerFunc
}

const benchGET = "GET /foobar?baz HTTP/1.1\r\nHost: www.example.com\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\r\n" +
	"Referer: https://www.example.com/some/page?with=query\r\nCookie: session=4f1d0e2c9a7b; theme=dark\r\n\r\n"

func benchHello(c *Ctx) error { return c.Text(200, "Hello, World!") }

func benchHelloNetHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", textPlain)
	io.WriteString(w, "Hello, World!")
}

func benchPlain(requests, perConn int) benchWork {
	return benchWork{strings.Repeat(benchGET, requests), requests, perConn, benchHello, benchHelloNetHTTP}
}

func benchManyHeaders() benchWork {
	var b strings.Builder
	b.WriteString("GET /foobar?baz HTTP/1.1\r\nHost: www.example.com\r\n")
	for i := range 28 {
		fmt.Fprintf(&b, "X-Trace-%d: 4f1d0e2c9a7b-%d\r\n", i, i)
	}
	return benchWork{b.String() + "\r\n", 1, 10_000,
		func(c *Ctx) error { return c.Bytes(200, textPlain, c.Request.Header.GetBytes("X-Trace-20")) },
		func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X-Trace-20")) }}
}

func benchPOST() benchWork {
	return benchWork{"POST /foobar?baz HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 1024\r\n\r\n" + strings.Repeat("x", 1024),
		1, 10_000,
		func(c *Ctx) error {
			body, err := c.Body()
			if err != nil {
				return err
			}
			return c.Bytes(200, textPlain, body)
		},
		func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }}
}

func benchHijack() benchWork {
	const answer = "hijacked"
	return benchWork{benchGET, 1, 1,
		func(c *Ctx) error {
			conn, _, err := c.Hijack()
			if err != nil {
				return err
			}
			io.WriteString(conn, answer)
			return conn.Close()
		},
		func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			io.WriteString(conn, answer)
			conn.Close()
		}}
}

// run serves b.N requests, on as many connections as this takes.
func (w benchWork) run(b *testing.B, serve func(*benchConn)) {
	b.ReportAllocs()
	for left := b.N; left > 0; {
		n := min(left, w.perConn)
		left -= n
		// A batch is sent whole, so the last connection may carry a little more.
		conn := &benchConn{input: []byte(w.input), left: (n + w.requests - 1) / w.requests, closed: make(chan struct{}, 1)}
		serve(conn)
		<-conn.closed
		if conn.written == 0 {
			b.Fatal("no answer")
		}
	}
}

func (w benchWork) compare(b *testing.B) {
	b.Run("filo", func(b *testing.B) {
		s := &Server{Handler: w.filo}
		defer s.Close()
		w.run(b, func(c *benchConn) { s.ServeConn(c) })
	})
	b.Run("nethttp", func(b *testing.B) {
		listener := make(benchListener)
		defer close(listener)
		go http.Serve(listener, w.netHTTP)
		w.run(b, func(c *benchConn) { listener <- c })
	})
}

func BenchmarkGET1PerConn(b *testing.B)     { benchPlain(1, 1).compare(b) }
func BenchmarkGET10PerConn(b *testing.B)    { benchPlain(1, 10).compare(b) }
func BenchmarkGET10000PerConn(b *testing.B) { benchPlain(1, 10_000).compare(b) }
func BenchmarkGETPipelined(b *testing.B)    { benchPlain(16, 9_600).compare(b) }
func BenchmarkPOST1KB(b *testing.B)         { benchPOST().compare(b) }
func BenchmarkManyHeaders(b *testing.B)     { benchManyHeaders().compare(b) }
func BenchmarkHijack(b *testing.B)          { benchHijack().compare(b) }

// The answers that the benchmarks time are right: each request gets the answer that net/http gives, except for the fields that a server
// chooses.
func TestBenchmarksAnswerAlike(t *testing.T) {
	for name, work := range map[string]benchWork{
		"one": benchPlain(1, 1), "pipelined": benchPlain(16, 32), "post": benchPOST(), "headers": benchManyHeaders(),
	} {
		t.Run(name, func(t *testing.T) {
			s := &Server{Handler: work.filo}
			defer s.Close()
			client, server := net.Pipe()
			defer client.Close()
			go s.ServeConn(server)
			go io.WriteString(client, work.input)
			reader := bufio.NewReader(client)
			for i := range work.requests {
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Fatalf("answer %d: %v", i, err)
				}
				got, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatalf("answer %d: %v", i, err)
				}
				request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(work.input)))
				if err != nil {
					t.Fatal(err)
				}
				want := &benchRecorder{header: make(http.Header)}
				work.netHTTP(want, request)
				if response.StatusCode != 200 || !bytes.Equal(got, want.body.Bytes()) {
					t.Errorf("answer %d: %d %q, want 200 %q", i, response.StatusCode, got, want.body.Bytes())
				}
			}
		})
	}
}

type benchRecorder struct {
	header http.Header
	body   bytes.Buffer
}

func (r *benchRecorder) Header() http.Header         { return r.header }
func (r *benchRecorder) WriteHeader(int)             {}
func (r *benchRecorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// leftover names each count that isn't zero although nothing is open, including counts below zero.
func TestLeftover(t *testing.T) {
	s := &Server{Handler: func(*Ctx) error { return nil }}
	if left := s.leftover(); left != "" {
		t.Errorf("before the server is configured: %s", left)
	}
	s.configure()
	if left := s.leftover(); left != "" {
		t.Errorf("of a new server: %s", left)
	}
	s.pool.places.TakeBeyond()
	s.pool.spawned++
	s.answers.Wait(1)
	if left := s.leftover(); !strings.Contains(left, "ordinary places: 1\nworkers that haven't retired: 1\n") ||
		!strings.Contains(left, "handlers that wait for windows: 1\n") {
		t.Errorf("%q", left)
	}
}

// overdue reports a request that waits in the queue while a place is free, but no request that waits because no place is free.
func TestOverdueInQueue(t *testing.T) {
	s := &Server{Handler: func(*Ctx) error { return nil }, Concurrency: 1, Queue: 1, QueueTimeout: time.Hour}
	found := func() (all []string) {
		s.overdue(func(w hooks.OverdueWait) { all = append(all, w.What) })
		return all
	}
	if all := found(); len(all) > 0 {
		t.Errorf("before the server is configured: %q", all)
	}
	s.configure()
	places, left, ended := &s.pool.places, make(chan struct{}), make(chan struct{})
	places.JoinQueue()
	go func() {
		defer close(ended)
		places.AwaitPlace(func() bool { return false }, left, time.Time{})
		places.LeaveQueue()
	}()
	for places.Waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	if all := found(); len(all) != 1 || !strings.Contains(all[0], "a place is free") {
		t.Errorf("while a place is free: %q", all)
	}
	places.TakeBeyond()
	if all := found(); len(all) > 0 {
		t.Errorf("while all places are taken: %q", all)
	}
	close(left)
	<-ended
}

// The first refusal for a reason is logged, and then one in ten seconds, with the number of refusals since the last record. Each reason has
// its own records.
func TestRefusalRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, logger := logtest.New(t)
		s := &Server{Logger: logger}
		client := netip.MustParseAddrPort("192.0.2.7:1234")
		refuse := func(reason refusalReason, times int) {
			for range times {
				s.refused(reason, client)
			}
		}
		refuse(refusedQueueFull, 100)
		refuse(refusedConcurrency, 1)
		s.refused(refusedProxyProtocol, client, "error", errUntrustedPeer)
		time.Sleep(census.LogInterval - 1)
		refuse(refusedQueueFull, 1)
		time.Sleep(time.Nanosecond)
		refuse(refusedQueueFull, 1)
		lines := records.Lines("refused")
		if len(lines) != 4 {
			t.Fatalf("records: %q", lines)
		}
		for i, want := range []string{
			`"reason":"queue_full","client":"192.0.2.7","count":1`, `"reason":"concurrency","client":"192.0.2.7","count":1`,
			`"reason":"proxy_protocol","client":"192.0.2.7","count":1,"error":"the peer isn't among ProxyProtocol.TrustedPeers"`,
			`"reason":"queue_full","client":"192.0.2.7","count":101`,
		} {
			if !strings.Contains(lines[i], want) || !strings.Contains(lines[i], "WARN") {
				t.Errorf("record %d is %s, want %s", i, lines[i], want)
			}
		}
		if r := s.Stats().Refusals; r.QueueFull != 102 || r.Concurrency != 1 || r.ProxyProtocol != 1 {
			t.Errorf("Refusals is %+v", r)
		}
	})
}

// Each call of a class that isn't quick is timed, including the first one. In a quick class, one of class.TimedCalls calls is timed. Whether
// or not a call is timed, the handler runs, and its error is returned.
func TestClassTimes(t *testing.T) {
	failure := errors.New("failure")
	calls, slow := 0, true
	s := &Server{Handler: func(c *Ctx) error {
		calls++
		if slow {
			time.Sleep(time.Millisecond) // so that the estimate shows whether the call was timed
		}
		return failure
	}}
	c := &exchange{server: s, scratch: &scratch{}}
	run := func() {
		if err := c.call(&Ctx{}); err != failure {
			t.Fatalf("the call returned %v", err)
		}
	}
	run()
	if s.classes.handler.Median.Load() < int64(time.Millisecond) {
		t.Errorf("after the first call the estimate is %v", time.Duration(s.classes.handler.Median.Load()))
	}
	slow = false
	quickAfter := 1
	for ; !s.classes.handler.IsQuick() && quickAfter < 1000; quickAfter++ {
		run()
	}
	// The estimate has to move by dozens of steps: if only one call in TimedCalls were timed, that would take thousands of calls.
	if quickAfter > 3*class.TimedCalls {
		t.Errorf("the class became quick after %d calls, so not each of them was timed", quickAfter)
	}
	timed := 0
	for range 10 * class.TimedCalls {
		s.classes.handler.Median.Store(5000)
		if run(); s.classes.handler.Median.Load() != 5000 {
			timed++
		}
	}
	if timed != 10 {
		t.Errorf("%d of %d calls of a quick class were timed", timed, 10*class.TimedCalls)
	}
	if want := quickAfter + 10*class.TimedCalls; calls != want {
		t.Errorf("%d calls, want %d", calls, want)
	}
}

// The server's part of a task that is accepted allocates nothing.
func TestTaskAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	s := &Server{Handler: func(*Ctx) error { return nil }}
	defer s.Close()
	s.configure()
	ran := make(chan struct{})
	task := func(context.Context) { ran <- struct{}{} }
	allocations := func(start func(context.Context, func(context.Context)) error) float64 {
		return testing.AllocsPerRun(500, func() {
			if err := start(context.Background(), task); err != nil {
				t.Fatal(err)
			}
			<-ran
		})
	}
	if server, tasks := allocations(s.startTask), allocations(s.tasks.Start); server > tasks {
		t.Errorf("a task takes %v allocations, and %v without the server", server, tasks)
	}
}

// The types of which a server has very many values fit a size class of Go's allocator. Objects over 512 bytes begin with 8 bytes that
// belong to the runtime.
func TestSizes(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) < 8 || race.Enabled {
		t.Skip("pointers have 4 bytes, or a mutex more than elsewhere")
	}
	for name, size := range map[string]struct{ got, class uintptr }{
		"a parked connection or stream": {unsafe.Sizeof(ParkedConn{}), 320},
		"a connection":                  {unsafe.Sizeof(conn{}), 256},
	} {
		if size.got > size.class {
			t.Errorf("%s takes %d bytes, and the size class has %d", name, size.got, size.class)
		}
	}
}

// wakeCounter counts the wake-ups of a connection: read deadlines in the past.
type wakeCounter struct {
	net.Conn
	wakes *atomic.Int32
}

func (c wakeCounter) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(time.Now().Add(-time.Minute)) {
		c.wakes.Add(1)
	}
	return c.Conn.SetReadDeadline(t)
}

type wakeCounterListener struct {
	net.Listener
	wakes *atomic.Int32
}

func (l wakeCounterListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return wakeCounter{c, l.wakes}, nil
}

// A connection of the blocking driver is woken once because the server shuts down. Its last wait isn't woken, since that wait has short
// deadlines of its own.
func TestLastReadIsNotWoken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wakes := new(atomic.Int32)
	s := &Server{Driver: DriverBlocking, IdleGrace: 500 * time.Millisecond, Handler: func(ctx *Ctx) error { return ctx.NoContent() }}
	served := make(chan error, 1)
	go func() { served <- s.Serve(wakeCounterListener{ln, wakes}) }()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, response.Body)
	ctx, cancel := context.WithTimeout(t.Context(), lifeBound)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	<-served
	if n := wakes.Load(); n > 2 {
		t.Errorf("the connection was woken %d times", n)
	}
}

// In builds with the race detector, a function whose caller must hold a lock panics if the lock isn't held.
func TestCalledWithoutTheLock(t *testing.T) {
	if !race.Enabled {
		t.Skip("only the race detector has the check")
	}
	calls := map[string]func(){
		"connSet":        func() { new(connSet).maybeEmptyLocked() },
		"handlerTimeout": func() { new(handlerTimeout).isOverLocked() },
		"workerPool":     func() { new(workerPool).countSpawnLocked() },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it goes on without the lock")
				}
			}()
			call()
		})
	}
}
