package parked

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// parkedServer returns a server that parks each connection, with ParkStream for "/stream" and after a switch of protocols for "/switched", and
// sends it to parked. The connection's function discards the input. It aborts the connection when the client ends its side, and returns io.EOF when the client sends "end".
func parkedServer(parked chan<- *filo.ParkedConn) func() *filo.Server {
	return func() *filo.Server {
		return &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
			serve := func(p *filo.ParkedConn, why filo.Wake) error {
				if why != filo.WakeData {
					return nil
				}
				b := make([]byte, 100)
				n, err := p.Read(b)
				switch {
				case err != nil:
					return fmt.Errorf("broken off: %v", err)
				case string(b[:n]) == "end":
					return io.EOF
				}
				return nil
			}
			var p *filo.ParkedConn
			var err error
			switch c.Path() {
			case "/stream":
				c.Response.Header.Set("X-Field", "kept")
				p, err = c.ParkStream(serve)
			case "/switched":
				p, err = c.Park("frames", serve)
			default:
				p, err = c.Park("", serve)
			}
			if err == nil {
				parked <- p
			}
			return err
		}}
	}
}

func parkOne(t *testing.T, h *filotest.Host, parked <-chan *filo.ParkedConn, request string) (*filotest.StrictClient, *filo.ParkedConn) {
	t.Helper()
	c := h.Connect(t)
	c.Send(t, request)
	return c, filotest.Recv(t, parked, "the connection to be parked")
}

const parkRequest = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// Messages that one goroutine queues and writes arrive in order. Messages of several goroutines arrive without being mixed.
func TestQueueKeepsOrder(t *testing.T) {
	const messages = 2000
	parked := make(chan *filo.ParkedConn, 1)
	filotest.EachHost(t, parkedServer(parked), func(t *testing.T, h *filotest.Host) {
		c, p := parkOne(t, h, parked, parkRequest)
		p.SetQueueLimit(64 << 20)
		padding := strings.Repeat(".", 3000)
		var group sync.WaitGroup
		for writer := range 4 {
			group.Go(func() {
				for i := range messages {
					line := fmt.Appendf(nil, "%d %d %s\n", writer, i, padding)
					var err error
					if i%10 == writer {
						_, err = p.Write(line)
					} else {
						err = p.Queue(filo.NewPreparedMessage(line))
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		var next [4]int
		for range 4 * messages {
			line, err := c.In.ReadString('\n')
			var writer, i int
			if _, scanErr := fmt.Sscanf(line, "%d %d", &writer, &i); err != nil || scanErr != nil || i != next[writer] {
				t.Fatalf("got %.20q, %v, want number %d", line, err, next[writer])
			}
			next[writer]++
		}
		group.Wait()
		filotest.Await(t, "nothing to wait", func() bool { return p.Queued() == 0 })
	})
}

// If a client doesn't read, Queue returns ErrQueueFull for messages beyond the limit. The client gets all other messages.
func TestQueueLimit(t *testing.T) {
	parked := make(chan *filo.ParkedConn, 1)
	filotest.EachHost(t, parkedServer(parked), func(t *testing.T, h *filotest.Host) {
		c, p := parkOne(t, h, parked, parkRequest)
		const limit = 100 << 10
		p.SetQueueLimit(limit)
		taken, refused, drained := 0, 0, 0
		for refused < 10 {
			line := fmt.Appendf(nil, "%08d%s\n", taken, strings.Repeat(".", 4000))
			switch err := p.Queue(filo.NewPreparedMessage(line)); {
			case errors.Is(err, filo.ErrQueueFull):
				// The system may have accepted the waiting messages just now. This happens a few times, until the system's buffers are full.
				if p.Queued() >= limit/2 {
					refused++
				} else if drained++; drained > taken {
					t.Fatalf("refused with %d bytes of %d waiting", p.Queued(), limit)
				}
			case err != nil:
				t.Fatal(err)
			default:
				taken++
			}
			if n := p.Queued(); n > limit {
				t.Fatalf("%d bytes wait", n)
			}
		}
		for i := range taken {
			line, err := c.In.ReadString('\n')
			if err != nil || !strings.HasPrefix(line, fmt.Sprintf("%08d", i)) {
				t.Fatalf("message %d: got %.20q, %v", i, line, err)
			}
		}
		// When the queue is empty again, one message may be larger than the limit.
		filotest.Await(t, "nothing to wait", func() bool { return p.Queued() == 0 })
		large := strings.Repeat("x", 3*limit) + "\n"
		if err := p.Queue(filo.NewPreparedMessage([]byte(large))); err != nil {
			t.Fatal(err)
		}
		c.WantText(t, large)
	})
}

// However a parked connection ends, the function of OnClose is called once, and nothing can be sent afterwards.
func TestParkedEndIsTold(t *testing.T) {
	parked := make(chan *filo.ParkedConn, 1)
	for _, test := range []struct {
		name string
		end  func(t *testing.T, h *filotest.Host, c *filotest.StrictClient, p *filo.ParkedConn)
	}{
		{"the client leaves", func(t *testing.T, h *filotest.Host, c *filotest.StrictClient, p *filo.ParkedConn) { c.Close() }},
		{"the client sends its end", func(t *testing.T, h *filotest.Host, c *filotest.StrictClient, p *filo.ParkedConn) { c.CloseWrite() }},
		{"the function ends it", func(t *testing.T, h *filotest.Host, c *filotest.StrictClient, p *filo.ParkedConn) { c.Send(t, "end") }},
		{"End", func(t *testing.T, h *filotest.Host, c *filotest.StrictClient, p *filo.ParkedConn) { p.End() }},
		{"Close", func(t *testing.T, h *filotest.Host, c *filotest.StrictClient, p *filo.ParkedConn) { p.Close() }},
		{"the server's Close", func(t *testing.T, h *filotest.Host, c *filotest.StrictClient, p *filo.ParkedConn) { h.Config.Close() }},
		{"a shutdown", func(t *testing.T, h *filotest.Host, c *filotest.StrictClient, p *filo.ParkedConn) {
			if err := h.Config.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			filotest.EachHost(t, parkedServer(parked), func(t *testing.T, h *filotest.Host) {
				c, p := parkOne(t, h, parked, parkRequest)
				var calls atomic.Int32
				p.OnClose(func() { calls.Add(1) })
				test.end(t, h, c, p)
				filotest.Await(t, "the end to be told", func() bool { return calls.Load() == 1 })
				if err := p.Queue(filo.NewPreparedMessage([]byte("x"))); err == nil {
					t.Error("a message was queued after the end")
				}
				if _, err := p.Write([]byte("x")); err == nil {
					t.Error("a write after the end succeeded")
				}
				late := make(chan struct{})
				p.OnClose(func() { close(late) })
				filotest.Recv(t, late, "a function that was set after the end")
				filotest.Await(t, "the connection to go", func() bool { return h.Config.Stats().ConnsOpen == 0 })
			})
		})
	}
}

// If a client doesn't read queued messages, the server ends the connection after WriteTimeout, as for a client that doesn't read an answer.
func TestQueueOfAClientThatDoesNotRead(t *testing.T) {
	for _, rate := range []int{0, -1} {
		parked := make(chan *filo.ParkedConn, 1)
		filotest.EachHost(t, func() *filo.Server {
			s := parkedServer(parked)()
			s.WriteTimeout, s.MinTransferRate = 50*time.Millisecond, rate
			return s
		}, func(t *testing.T, h *filotest.Host) {
			_, p := parkOne(t, h, parked, parkRequest)
			closed := make(chan struct{})
			p.OnClose(func() { close(closed) })
			m := filo.NewPreparedMessage(make([]byte, 16<<20))
			if err := p.Queue(m); err != nil {
				t.Fatal(err)
			}
			filotest.Recv(t, closed, "the connection to be closed")
			if err := p.Queue(m); err == nil {
				t.Error("a message was queued after the end")
			}
		})
	}
}

// ParkStream sends a head like Stream, and the bytes that are sent later are the body. If the function returns io.EOF, the body ends properly
// after everything that was queued. Another error aborts the body.
func TestParkStream(t *testing.T) {
	parked := make(chan *filo.ParkedConn, 1)
	filotest.EachHost(t, parkedServer(parked), func(t *testing.T, h *filotest.Host) {
		const get = "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n"
		c, p := parkOne(t, h, parked, get)
		write := func(text string) {
			t.Helper()
			if n, err := io.WriteString(p, text); n != len(text) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		p.SetQueueLimit(2 << 20)
		write("written ")
		write("")
		for _, text := range []string{"queued ", "", strings.Repeat("z", 1<<20)} {
			if err := p.Queue(filo.NewPreparedMessage([]byte(text))); err != nil {
				t.Error(err)
			}
		}
		c.Send(t, "end")
		m := c.Receive(t, "GET")
		if want := "written queued " + strings.Repeat("z", 1<<20); m.Status != 200 || m.Body != want {
			t.Errorf("got %d with %d bytes, %.40q", m.Status, len(m.Body), m.Body)
		}
		if m.Get("X-Field") != "kept" || m.Get("Transfer-Encoding") != "chunked" || m.Get("Connection") != "close" || m.Get("Date") == "" {
			t.Errorf("the fields are %q", m.Fields)
		}
		c.WantEnd(t)

		// For an HTTP/1.0 client, the body isn't chunked.
		c, p = parkOne(t, h, parked, "GET /stream HTTP/1.0\r\n\r\n")
		write("written ")
		if err := p.Queue(filo.NewPreparedMessage([]byte("queued"))); err != nil {
			t.Error(err)
		}
		c.Send(t, "end")
		if m := c.Receive(t, "GET"); m.Body != "written queued" || m.Get("Transfer-Encoding") != "" {
			t.Errorf("got %q with %q", m.Body, m.Fields)
		}
		c.WantEnd(t)

		// An aborted body must not look complete.
		c, p = parkOne(t, h, parked, get)
		write("half")
		c.CloseWrite()
		all, _ := io.ReadAll(c.In)
		if !strings.HasSuffix(string(all), "\r\n\r\n4\r\nhalf\r\n") {
			t.Errorf("got %q", all)
		}

		// A shutdown ends the body properly.
		c, p = parkOne(t, h, parked, get)
		write("until the end")
		if err := h.Config.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if m := c.Receive(t, "GET"); m.Body != "until the end" {
			t.Errorf("got %q", m.Body)
		}
	})
}

// A slow client gets everything that was queued before the end, without occupying a worker.
func TestParkStreamEndsSlowly(t *testing.T) {
	parked := make(chan *filo.ParkedConn, 1)
	filotest.EachHost(t, parkedServer(parked), func(t *testing.T, h *filotest.Host) {
		c, p := parkOne(t, h, parked, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
		body := strings.Repeat("y", 24<<20)
		if err := p.Queue(filo.NewPreparedMessage([]byte(body))); err != nil {
			t.Fatal(err)
		}
		c.Send(t, "end")
		filotest.Await(t, "the worker to be free", func() bool { return h.Config.Stats().WorkersRunning == 0 })
		if err := p.Queue(filo.NewPreparedMessage([]byte("late"))); !errors.Is(err, net.ErrClosed) {
			filotest.Await(t, "nothing to be taken any more", func() bool {
				return errors.Is(p.Queue(filo.NewPreparedMessage(nil)), net.ErrClosed)
			})
		}
		c.SetDeadline(time.Now().Add(filotest.Bound))
		if m := c.Receive(t, "GET"); !strings.HasPrefix(m.Body, body) {
			t.Errorf("got %d bytes", len(m.Body))
		}
		c.WantEnd(t)
		filotest.Await(t, "the connection to go", func() bool { return h.Config.Stats().ConnsOpen == 0 })
	})
}

// End also ends the body properly, at any time.
func TestParkedConnEnd(t *testing.T) {
	parked := make(chan *filo.ParkedConn, 1)
	filotest.EachHost(t, parkedServer(parked), func(t *testing.T, h *filotest.Host) {
		c, p := parkOne(t, h, parked, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
		body := strings.Repeat("y", 24<<20)
		if err := p.Queue(filo.NewPreparedMessage([]byte(body))); err != nil {
			t.Fatal(err)
		}
		p.End()
		p.End()
		if err := p.Queue(filo.NewPreparedMessage([]byte("late"))); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if m := c.Receive(t, "GET"); m.Body != body {
			t.Errorf("got %d bytes", len(m.Body))
		}
		c.WantEnd(t)
		filotest.Await(t, "the connection to go", func() bool { return h.Config.Stats().ConnsOpen == 0 })
	})
}

func TestParkStreamRefuses(t *testing.T) {
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
			if c.Path() == "/none" {
				c.Response.SetStatus(204)
			}
			if _, err := c.ParkStream(parkedEcho); !errors.Is(err, filo.ErrBodyNotAllowed) {
				t.Errorf("%s %s: %v", c.Method(), c.Path(), err)
			}
			return c.Text(200, "an answer all the same")
		}}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		c.Send(t, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\n\r\n")
		for _, method := range []string{"HEAD", "GET"} {
			if m := c.Receive(t, method); m.Status != 200 {
				t.Errorf("%s: %d", method, m.Status)
			}
		}
	})
}

// A write deadline ends the writes that wait when it expires, and fails later writes. It doesn't affect writes that have returned before.
func TestParkedWriteDeadline(t *testing.T) {
	parked := make(chan *filo.ParkedConn, 1)
	filotest.EachHost(t, parkedServer(parked), func(t *testing.T, h *filotest.Host) {
		_, p := parkOne(t, h, parked, parkRequest)
		if err := p.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			n, err := p.Write(make([]byte, 24<<20))
			if n == 24<<20 {
				t.Error("all was written")
			}
			ended <- err
		}()
		if err := p.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if err := filotest.Recv(t, ended, "the write to end"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if _, err := p.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}

// Over TLS, messages are also sent in order, and the queue's limit applies.
func TestQueueTLS(t *testing.T) {
	parked := make(chan *filo.ParkedConn, 1)
	s := filotest.ListenTLS(t, parkedServer(parked)())
	c := s.DialTLS(t)
	c.Get("/stream")
	p := filotest.Recv(t, parked, "the connection to be parked")
	taken := 0
	for {
		err := p.Queue(filo.NewPreparedMessage(fmt.Appendf(nil, "%08d%s\n", taken, strings.Repeat(".", 4000))))
		if errors.Is(err, filo.ErrQueueFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		taken++
	}
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(p, "last\n")
		written <- err
	}()
	// The body ends only later: the client must first read all messages, and then send "end", which makes the connection's function return io.EOF.
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(response.Body)
	for i := range taken {
		if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, fmt.Sprintf("%08d", i)) {
			t.Fatalf("message %d: got %.20q, %v", i, line, err)
		}
	}
	if line, err := lines.ReadString('\n'); err != nil || line != "last\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if err := filotest.Recv(t, written, "the write"); err != nil {
		t.Error(err)
	}
	c.Send("end")
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("the body ends with %q, %v", rest, err)
	}
}

func TestRegisterOnShutdown(t *testing.T) {
	filotest.EachHost(t, func() *filo.Server { return &filo.Server{Handler: answerParked, Logger: filotest.Quiet} }, func(t *testing.T, h *filotest.Host) {
		called := make(chan string, 3)
		h.Config.RegisterOnShutdown(func() { called <- "before" })
		for range 2 {
			if err := h.Config.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := filotest.Recv(t, called, "the function"); got != "before" {
			t.Error(got)
		}
		h.Config.RegisterOnShutdown(func() { called <- "after" })
		if got := filotest.Recv(t, called, "the function that came late"); got != "after" {
			t.Error(got)
		}
		if len(called) > 0 {
			t.Error("called more than once")
		}
	})
}
