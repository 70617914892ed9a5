package http3filo_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/quic-go/quic-go"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// polite sends requests on a separate connection until stop is called, which returns how many were answered. Each request must be answered,
// whatever attackers do. There is one exception: a request that takes a large part of the server's time-outs, because the machine is busy,
// may fail, and is followed by another request.
func (s *server) polite(t testing.TB) (stop func() int) {
	client, quit, first, done := s.client(t), make(chan struct{}), make(chan struct{}), make(chan int)
	slow := cmp.Or(s.config.ReadTimeout, 2*filotest.Bound) / 2
	go func() {
		n, answered, last, begin := 0, time.Now(), time.Now(), time.Now()
		defer func() { done <- max(n-1, 0) }()
		for ; ; last, begin = begin, time.Now() {
			err := s.politely(client)
			switch {
			case err == nil:
				if n++; n == 1 {
					close(first)
				}
				answered = time.Now()
			case time.Since(last) < slow || time.Since(answered) > 3*filotest.Bound: // last is when the previous request began; a pause may end the connection
				t.Errorf("the polite client's request %d: %v", n, err)
				return
			}
			if n < 2 {
				continue
			}
			select {
			case <-quit:
				return
			default:
			}
		}
	}()
	select {
	case <-first: // the polite client is connected before the attack begins
	case <-done:
		t.FailNow()
	}
	return func() int {
		close(quit)
		return <-done
	}
}

// politely sends one request of the polite client.
func (s *server) politely(client *http.Client) error {
	r, err := s.try(client, "POST", "/echo", "polite")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || string(b) != "polite" {
		return fmt.Errorf("%s %q, %v", r.Status, b, err)
	}
	return nil
}

// halfHeads opens requests with incomplete heads, as many as the server allows.
func halfHeads(q *quic.Conn) {
	for range 24 {
		stream, err := q.OpenStreamSync(q.Context())
		if err != nil {
			return
		}
		stream.Write(head("GET", "/text")[:5])
	}
}

// entered receives a value when the handler of /wait runs.
var entered = make(chan struct{}, 1000)

// abused is the server under attack.
func abused() *filo.Server {
	return &filo.Server{
		Handler: func(c *filo.Ctx) error {
			if c.Path() == "/wait" {
				entered <- struct{}{}
				<-c.Context().Done()
				return c.Context().Err()
			}
			return answers(c)
		},
	}
}

// impatient gives the server short time-outs, for attacks that take time. ReadHeaderTimeout also limits handshakes.
func impatient(s *filo.Server) {
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = 4*time.Second, time.Second, time.Second, 4*time.Second
}

// code returns the HTTP/3 error code with which the server has ended a connection, or 0 if the connection ended in another way.
func code(err error) quic.ApplicationErrorCode {
	var e *quic.ApplicationError
	if errors.As(err, &e) && e.Remote {
		return e.ErrorCode
	}
	return 0
}

// awaitEnd waits until the server has ended a connection, with the wanted code.
func awaitEnd(t testing.TB, q *quic.Conn, want quic.ApplicationErrorCode) {
	t.Helper()
	filotest.Recv(t, q.Context().Done(), "the connection's end")
	if err := context.Cause(q.Context()); code(err) != want {
		t.Errorf("the connection ended by %v, want %#x", err, want)
	}
}

// A limit stops each attack, and a polite client gets all its answers during the attack.
func TestAbuse(t *testing.T) {
	bomb := frame(1, append([]byte{0, 0}, bytes.Repeat([]byte{0xd1, 0xff, 0x16}, 3000)...)) // thousands of fields from the static table
	for _, each := range []struct {
		name   string
		change func(*filo.Server)
		attack func(t *testing.T, s *server)
	}{
		{"requests that are reset", func(c *filo.Server) { c.HTTP2.MaxGlitches = 50 }, func(t *testing.T, s *server) {
			q := s.raw(t, nil)
			for q.Context().Err() == nil {
				stream, err := q.OpenStreamSync(q.Context())
				if err != nil {
					break
				}
				stream.Write(head("GET", "/wait"))
				select {
				case <-entered:
				case <-q.Context().Done():
				}
				stream.CancelRead(0x10c)
				stream.CancelWrite(0x10c)
			}
			awaitEnd(t, q, 0x107)
		}},
		{"resets before the head", func(c *filo.Server) { c.HTTP2.MaxGlitches = 50 }, func(t *testing.T, s *server) {
			q := s.raw(t, nil)
			for q.Context().Err() == nil {
				stream, err := q.OpenStreamSync(q.Context())
				if err != nil {
					break
				}
				stream.Write(head("GET", "/text")[:5])
				stream.CancelWrite(0x10c)
				stream.CancelRead(0x10c)
			}
			awaitEnd(t, q, 0x107)
		}},
		{"a bomb of QPACK", nil, func(t *testing.T, s *server) {
			q := s.raw(t, nil)
			for range 50 {
				stream := open(t, q, bomb)
				stream.Close()
				if b, err := io.ReadAll(stream); len(b) == 0 && err == nil {
					t.Error("the bomb got no answer, and no reset")
				}
			}
		}},
		{"a large head", nil, func(t *testing.T, s *server) {
			client := s.client(t)
			request, _ := http.NewRequest("GET", "https://"+s.Addr+"/text", nil)
			for _, size := range []int{20_000, 100_000} {
				request.Header.Set("X-Large", strings.Repeat("x", size))
				r, err := client.Do(request)
				if err != nil || r.StatusCode != 431 {
					t.Errorf("a field of %d bytes: %v, %v", size, r, err)
				}
			}
		}},
		{"heads that don't end", impatient, func(t *testing.T, s *server) {
			q := s.raw(t, &quic.Config{KeepAlivePeriod: 50 * time.Millisecond})
			halfHeads(q)
			awaitEnd(t, q, 0x100)
		}},
		{"heads that don't end behind a request", impatient, func(t *testing.T, s *server) {
			q := s.raw(t, &quic.Config{KeepAlivePeriod: 50 * time.Millisecond})
			stream := open(t, q, head("GET", "/text"))
			stream.Close()
			io.ReadAll(stream)
			halfHeads(q)
			awaitEnd(t, q, 0x100)
		}},
		{"heads that don't end beside a running request", impatient, func(t *testing.T, s *server) {
			q := s.raw(t, nil)
			open(t, q, head("GET", "/wait")).Close()
			filotest.Recv(t, entered, "the handler")
			for range 2 {
				var heads []*quic.Stream
				for range 16 {
					heads = append(heads, open(t, q, head("GET", "/text")[:5]))
				}
				for _, stream := range heads {
					var reset *quic.StreamError
					if _, err := stream.Read(make([]byte, 1)); !errors.As(err, &reset) || reset.ErrorCode != 0x10d {
						t.Fatalf("a head that didn't end: %v", err)
					}
				}
			}
			if n := s.config.Stats().RequestsCarried; n == 0 {
				t.Error("the request has ended")
			}
			q.CloseWithError(0x100, "")
		}},
		{"a silent connection", impatient, func(t *testing.T, s *server) {
			q := s.raw(t, &quic.Config{KeepAlivePeriod: 50 * time.Millisecond})
			awaitEnd(t, q, 0x100)
		}},
		{"slow bodies", impatient, func(t *testing.T, s *server) {
			q := s.raw(t, nil)
			for range 5 {
				stream := open(t, q, append(head("POST", "/echo", "content-length", "100"), frame(0, make([]byte, 100))[:8]...))
				b, err := io.ReadAll(stream)
				if err != nil || !bytes.Contains(b, []byte("too slowly")) {
					t.Errorf("%q, %v", b, err)
				}
			}
			if n := s.config.Stats().Timeouts.Body; n < 5 { // on a busy machine the polite client may be slow, too
				t.Errorf("%d slow bodies are counted", n)
			}
		}},
		{"a body byte by byte", impatient, func(t *testing.T, s *server) {
			q := s.raw(t, nil)
			stream := open(t, q, append(head("POST", "/echo"), frame(0, make([]byte, 10_000))[:5]...))
			answered := make(chan []byte, 1)
			go func() {
				b, _ := io.ReadAll(stream)
				answered <- b
			}()
			for {
				select {
				case b := <-answered:
					if !bytes.Contains(b, []byte("too slowly")) {
						t.Errorf("%q", b)
					}
					return
				case <-time.After(100 * time.Millisecond):
					stream.Write([]byte{'x'})
				}
			}
		}},
		{"shut windows", impatient, func(t *testing.T, s *server) {
			q := s.raw(t, &quic.Config{InitialStreamReceiveWindow: 100, MaxStreamReceiveWindow: 100})
			for range 20 {
				open(t, q, head("GET", "/large")).Close()
			}
			filotest.Await(t, "the handlers' end", func() bool { return s.config.Stats().RequestsCarried <= 1 && s.config.Stats().Requests[2] >= 20 })
			awaitEnd(t, q, 0x100) // the connection has no requests any more
		}},
		{"more requests than may be open", func(c *filo.Server) { c.HTTP2.MaxConcurrentStreams = 5 }, func(t *testing.T, s *server) {
			q := s.raw(t, nil)
			for range 5 {
				open(t, q, head("GET", "/wait"))
			}
			if _, err := q.OpenStream(); err == nil {
				t.Error("a sixth request is open")
			}
			q.CloseWithError(0x100, "")
		}},
		{"more connections than one address may have", func(c *filo.Server) { c.MaxConnsPerIP = 4 }, func(t *testing.T, s *server) {
			var conns []*quic.Conn
			for range 3 { // in addition to the polite client's connection
				q := s.raw(t, nil)
				open(t, q, head("GET", "/wait"))
				conns = append(conns, q)
			}
			if q, err := s.dial(t.Context(), nil); err == nil {
				q.CloseWithError(0, "")
				t.Error("a fifth connection of one address")
			}
			for _, q := range conns {
				q.CloseWithError(0x100, "")
			}
			filotest.Await(t, "a place", func() bool {
				q, err := s.dial(t.Context(), nil)
				if err == nil {
					q.CloseWithError(0x100, "")
				}
				return err == nil
			})
		}},
		{"connections over MaxConns", func(c *filo.Server) { c.MaxConns, c.IdleTimeout, c.ReadHeaderTimeout = 20, time.Hour, time.Hour }, func(t *testing.T, s *server) {
			var idle []*quic.Conn
			for range 60 {
				idle = append(idle, s.raw(t, nil)) // idle connections are closed to make room
			}
			filotest.Await(t, "the ends of connections", func() bool {
				open := 0
				for _, q := range idle {
					if q.Context().Err() == nil {
						open++
					}
				}
				return open <= 20+16
			})
		}},
		{"handshakes at once", nil, func(t *testing.T, s *server) {
			var wait sync.WaitGroup
			for range 100 {
				wait.Go(func() {
					if q, err := s.dial(t.Context(), nil); err == nil {
						q.CloseWithError(0x100, "")
					}
				})
			}
			wait.Wait()
		}},
	} {
		t.Run(each.name, func(t *testing.T) {
			config := abused()
			if each.change != nil {
				each.change(config)
			}
			s := serve(t, config, nil)
			stop := s.polite(t)
			each.attack(t, s)
			if n := stop(); n == 0 {
				t.Error("the polite client got nothing")
			}
			filotest.Await(t, "the requests' end", func() bool { return config.Stats().RequestsCarried == 0 })
		})
	}
}

// When an address has half of the connections that it may have, a new client must validate the address by a Retry.
func TestRetry(t *testing.T) {
	s := serve(t, &filo.Server{Handler: answers, MaxConnsPerIP: 4}, nil)
	for i, want := range []bool{false, false, true, true} {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		seen := &retries{PacketConn: packets}
		transport := &quic.Transport{Conn: seen}
		t.Cleanup(func() {
			transport.Close()
			packets.Close()
		})
		config := filotest.ClientTLS()
		config.NextProtos = []string{"h3"}
		address, err := net.ResolveUDPAddr("udp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		q, err := transport.Dial(t.Context(), address, config, patient(nil))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { q.CloseWithError(0x100, "") })
		if got := seen.n.Load() > 0; got != want {
			t.Errorf("connection %d had a Retry: %t", i, got)
		}
	}
}

// retries counts the received Retry packets of QUIC version 1 (RFC 9000, section 17.2.5).
type retries struct {
	net.PacketConn
	n atomic.Int32
}

// ReadFrom implements net.PacketConn.
func (r *retries) ReadFrom(p []byte) (n int, addr net.Addr, err error) {
	if n, addr, err = r.PacketConn.ReadFrom(p); n > 0 && p[0]&0xf0 == 0xf0 {
		r.n.Add(1)
	}
	return n, addr, err
}

// After MaxRequestsPerConn requests, a connection gets GOAWAY. No request is lost.
func TestMaxRequestsPerConn(t *testing.T) {
	s := serve(t, &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, c.RemoteAddr().String()) }, MaxRequestsPerConn: 3}, nil)
	q := s.raw(t, nil)
	for range 3 {
		stream := open(t, q, head("GET", "/"))
		stream.Close()
		if b, err := io.ReadAll(stream); err != nil || len(b) == 0 {
			t.Fatalf("%q, %v", b, err)
		}
	}
	awaitEnd(t, q, 0x100)
	client := s.client(t)
	for i := range 10 {
		if r, body := s.ask(t, client, "GET", fmt.Sprint("/", i), ""); r.StatusCode != 200 {
			t.Errorf("%s %s", r.Status, body)
		}
	}
}

// A handler's own deadlines apply. A slow client that keeps reading gets its whole answer.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	const writeTimeout = 4 * time.Second
	s := serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		if c.Path() == "/deadline" {
			c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			_, err := c.Body()
			return err
		}
		return answers(c)
	}, WriteTimeout: writeTimeout, MinTransferRate: 1000}, nil)
	q := s.raw(t, &quic.Config{InitialStreamReceiveWindow: 16 << 10, MaxStreamReceiveWindow: 16 << 10})
	stream := open(t, q, head("POST", "/deadline", "content-length", "10"))
	if b, err := io.ReadAll(stream); err != nil || !bytes.Contains(b, []byte("too slowly")) {
		t.Errorf("%q, %v", b, err)
	}
	stream = open(t, q, head("GET", "/large"))
	stream.Close()
	total, begin := 0, time.Now()
	for b := make([]byte, 50_000); ; time.Sleep(writeTimeout / 16) { // a slow client, not a wait for something
		n, err := io.ReadFull(stream, b)
		total += n
		if err != nil {
			if err != io.ErrUnexpectedEOF && err != io.EOF {
				t.Errorf("after %d bytes: %v", total, err)
			}
			break
		}
	}
	if total < 1_000_000 || time.Since(begin) < writeTimeout {
		t.Errorf("%d bytes in %v", total, time.Since(begin))
	}
}

// When all servers and clients have ended, no goroutine is left.
func TestNothingIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("served", func(t *testing.T) {
		s := serve(t, &filo.Server{Handler: answers}, nil)
		for range 5 {
			s.ask(t, s.client(t), "GET", "/text", "")
		}
	})
	filotest.Await(t, "the goroutines' end", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// A connection uses memory for only a few incomplete heads, and only for the bytes that have arrived. Its further requests wait.
func TestHalfHeads(t *testing.T) {
	s := serve(t, &filo.Server{Handler: answers, MaxHeaderBytes: 8 << 20}, nil)
	q := s.raw(t, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var heads []*quic.Stream
	for range 16 {
		heads = append(heads, open(t, q, []byte{1, 0x80, 0x80, 0, 0})) // announces 8 MB
	}
	filotest.Await(t, "the heads", func() bool { return s.config.Stats().StreamsHTTP3 == 16 })
	stream := open(t, q, asks("GET", "/text"))
	stream.Close()
	stream.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := stream.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a request behind 16 others without a head: %v", err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
		t.Errorf("16 heads of a few bytes took %d bytes of memory", n)
	}
	heads[0].CancelWrite(0x10c)
	stream.SetReadDeadline(time.Now().Add(filotest.Bound))
	if got := outcome(t, stream); got != hello {
		t.Error(got)
	}
}

// A handler that continues after its client has cancelled the request counts against MaxConcurrentStreams.
func TestHandlersThatGoOn(t *testing.T) {
	begun, stuck, quit := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		if c.Path() != "/stuck" {
			return answers(c)
		}
		begun <- struct{}{}
		c.Body()
		for w := c.Stream(); ; {
			w.WriteString("x")
			if w.Flush() != nil {
				break
			}
		}
		stuck <- struct{}{}
		<-quit
		return nil
	}, HTTP2: filo.HTTP2Options{MaxConcurrentStreams: 3}}, nil)
	defer close(quit)
	q := s.raw(t, nil)
	for range 2 {
		stream := open(t, q, asks("POST", "/stuck"))
		filotest.Recv(t, begun, "the handler")
		stream.CancelWrite(0x10c)
		stream.CancelRead(0x10c)
		filotest.Recv(t, stuck, "the end of reading and writing")
	}
	for range 5 { // during these requests, permission for further streams would arrive
		stream := open(t, q, asks("GET", "/text"))
		stream.Close()
		if got := outcome(t, stream); got != hello {
			t.Fatal(got)
		}
	}
	open(t, q, nil)
	if _, err := q.OpenStream(); err == nil {
		t.Error("a fourth request may be open beside two handlers that go on")
	}
}

// The memory of a connection that ends during a request is freed, whatever IdleTimeout is.
func TestEndedConnIsFreed(t *testing.T) {
	state := make(chan weak.Pointer[tls.ConnectionState], 1)
	s := serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		state <- weak.Make(c.TLS())
		<-c.Context().Done()
		return nil
	}, IdleTimeout: -1}, nil)
	q := s.raw(t, nil)
	open(t, q, asks("GET", "/")).Close()
	conn := filotest.Recv(t, state, "the handler")
	q.CloseWithError(0x100, "")
	filotest.Await(t, "the memory's end", func() bool {
		runtime.GC()
		return conn.Value() == nil
	})
}

// One-way streams of unknown kinds are glitches, and so are those that end before their kind.
func TestManyOneWayStreams(t *testing.T) {
	for name, attack := range map[string]func(*quic.SendStream){
		"unknown kinds": func(one *quic.SendStream) { one.Write([]byte{0x21}); one.Close() },
		"no kinds":      func(one *quic.SendStream) { one.Close() },
		"a part of a kind": func(one *quic.SendStream) {
			one.Write([]byte{0x40})
			one.Close()
		},
		"resets": func(one *quic.SendStream) { one.CancelWrite(0x100) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, &filo.Server{Handler: answers, HTTP2: filo.HTTP2Options{MaxGlitches: 50}}, nil)
			q := s.raw(t, nil)
			for range 10_000 {
				one, err := q.OpenUniStreamSync(q.Context())
				if err != nil {
					awaitEnd(t, q, 0x107)
					return
				}
				attack(one)
			}
			t.Error("the connection survives 10,000 streams")
		})
	}
}
