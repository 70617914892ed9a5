package parked

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// answerParked parks the connection, whose function echoes its input. "bye" ends the connection, and "panic" makes the function panic.
func answerParked(c *filo.Ctx) error {
	if c.Path() != "/park" {
		return c.Text(200, "fine")
	}
	_, err := c.Park("echo", parkedEcho)
	return err
}

func parkedEcho(p *filo.ParkedConn, why filo.Wake) error {
	switch why {
	case filo.WakeShutdown:
		_, err := io.WriteString(p, "shutdown\n")
		return err
	case filo.WakeDeadline:
		_, err := io.WriteString(p, "deadline\n")
		return err
	}
	buffer := make([]byte, 100)
	n, err := p.Read(buffer)
	if err != nil {
		return err
	}
	switch text := string(buffer[:n]); {
	case strings.Contains(text, "bye"):
		return errors.New("bye")
	case strings.Contains(text, "panic"):
		panic("parked")
	case strings.Contains(text, "Goexit"):
		runtime.Goexit()
	case strings.Contains(text, "wait"):
		p.SetWait(time.Now().Add(10 * time.Millisecond))
	}
	_, err = p.Write(buffer[:n])
	return err
}

const answerPark = "GET /park HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"

func answerParkedServer() *filo.Server {
	return &filo.Server{Handler: answerParked, Logger: filotest.Quiet}
}

// The function of a parked connection is called whenever bytes arrive. While the connection waits, it occupies no worker or place. The test
// ends connections in each possible way.
func TestPark(t *testing.T) {
	t.Parallel()
	const limit = time.Second // long enough for a request on a slow machine
	filotest.EachHost(t, func() *filo.Server {
		s := answerParkedServer()
		s.IdleTimeout, s.ReadTimeout = limit, limit
		return s
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		// Bytes that arrive together with the request aren't lost.
		c.Send(t, answerPark+"first\n")
		if m := c.Receive(t, "GET"); m.Status != 101 || m.Get("Upgrade") != "echo" {
			t.Fatalf("got %d", m.Status)
		}
		c.WantText(t, "first\n")
		for i := range 3 {
			time.Sleep(limit / 2) // in all, longer than the server's time-outs, which must not apply
			filotest.Await(t, "the connection to wait", func() bool {
				stats := h.Config.Stats()
				return stats.ConnsParked == 1 && stats.ConnsOpen == 1 && stats.WorkersRunning == 0
			})
			text := fmt.Sprint("line ", i, "\n")
			c.Send(t, text)
			c.WantText(t, text)
		}
		c.Send(t, strings.Repeat("x", 1000)) // more bytes than one call of the function reads
		c.WantText(t, strings.Repeat("x", 1000))
		c.Send(t, "wait\n")
		c.WantText(t, "wait\ndeadline\n")
		c.Send(t, "bye\n")
		c.WantEnd(t)
		filotest.Await(t, "the connection to go", func() bool { return h.Config.Stats().ConnsOpen == 0 })
	})
}

func TestParkEnds(t *testing.T) {
	for _, text := range []string{"panic\n", "Goexit\n", ""} {
		t.Run(text, func(t *testing.T) {
			filotest.EachHost(t, answerParkedServer, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				c.Send(t, answerPark)
				c.Receive(t, "GET")
				if text == "" {
					c.CloseWrite() // the function reads the end
				} else {
					c.Send(t, text)
				}
				c.WantEnd(t)
				filotest.Await(t, "the connection to go", func() bool {
					stats := h.Config.Stats()
					return stats.ConnsOpen == 0 && stats.WorkersRunning == 0
				})
				// Other connections are served as before.
				other := h.Connect(t)
				other.Send(t, filotest.GetRequest)
				other.Receive(t, "GET")
			})
		})
	}
}

// A shutdown wakes parked connections, which may send a last message.
func TestParkShutdown(t *testing.T) {
	filotest.EachHost(t, answerParkedServer, func(t *testing.T, h *filotest.Host) {
		var clients []*filotest.StrictClient
		for range 10 {
			c := h.Connect(t)
			c.Send(t, answerPark)
			c.Receive(t, "GET")
			clients = append(clients, c)
		}
		if err := h.Config.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		for _, c := range clients {
			c.WantText(t, "shutdown\n")
			c.WantEnd(t)
		}
	})
}

// Any goroutine may call Write and Close at any time: the bytes of each Write arrive without being mixed with others, even if the client
// doesn't read at once. Close ends running writes.
func TestParkWrites(t *testing.T) {
	const writers, lines = 8, 50
	parked := make(chan *filo.ParkedConn, 1)
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
			p, err := c.Park("echo", parkedEcho)
			parked <- p
			return err
		}}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		c.Send(t, answerPark)
		c.Receive(t, "GET")
		p := filotest.Recv(t, parked, "the handler")
		line := strings.Repeat("z", 9999) + "\n"
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				for range lines {
					if _, err := io.WriteString(p, line); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for range writers * lines {
			if got, err := c.In.ReadString('\n'); err != nil || got != line {
				t.Fatalf("got %d bytes, %v", len(got), err)
			}
		}
		group.Wait()
		// From here on, the client doesn't read.
		failed := make(chan error, 1)
		go func() {
			for {
				if _, err := io.WriteString(p, line); err != nil {
					failed <- err
					return
				}
			}
		}()
		time.Sleep(5 * time.Millisecond) // usually, Write is waiting by now
		p.Close()
		if err := filotest.Recv(t, failed, "the write to fail"); err == nil {
			t.Error("a write after Close succeeded")
		}
		filotest.Await(t, "the connection to go", func() bool { return h.Config.Stats().ConnsOpen == 0 })
		if _, err := p.Write([]byte("x")); err == nil {
			t.Error("a write after the end succeeded")
		}
	})
}

// Parked connections count against MaxConns, and not against Concurrency.
func TestParkLimits(t *testing.T) {
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Handler: answerParked, Logger: filotest.Quiet, Concurrency: 1, MaxConns: 3}
	}, func(t *testing.T, h *filotest.Host) {
		// A leader that has lost its loop occupies the only place until it has returned.
		ask := func(request string) (status int) {
			for c := h.Connect(t); status == 0 || status == 503 && h.Config.Stats().Retakes > 0; {
				c.Send(t, request)
				status = c.Receive(t, "GET").Status
			}
			return status
		}
		for range 3 {
			if status := ask(answerPark); status != 101 {
				t.Errorf("got %d", status)
			}
			filotest.Await(t, "the worker to be free", func() bool { return h.Config.Stats().WorkersRunning == 0 })
		}
		refused := h.Connect(t)
		refused.Send(t, answerPark)
		if m := refused.Receive(t, "GET"); m.Status != 503 {
			t.Errorf("over MaxConns: %d", m.Status)
		}
	})
}

// Park fails for a protocol that the client hasn't requested, and a parked connection has the addresses and errors of its socket.
func TestParkRefuses(t *testing.T) {
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
			if _, err := c.Park("other", parkedEcho); filotest.StatusOf(err) != 426 {
				t.Errorf("a protocol that the client didn't ask for: %v", err)
			}
			p, err := c.Park("", parkedEcho)
			if err != nil {
				return err
			}
			if _, err := c.Park("", parkedEcho); !errors.Is(err, filo.ErrHijacked) {
				t.Errorf("twice: %v", err)
			}
			if p.RemoteAddr().String() != c.RemoteAddr().String() || p.LocalAddr().String() != c.LocalAddr().String() {
				t.Errorf("%v to %v, want %v to %v", p.RemoteAddr(), p.LocalAddr(), c.RemoteAddr(), c.LocalAddr())
			}
			_, err = io.WriteString(p, "parked\n")
			return err
		}}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		c.Send(t, answerPark)
		c.WantText(t, "parked\n")
		c.Close()
		filotest.Await(t, "the connection to go", func() bool { return h.Config.Stats().ConnsOpen == 0 })
	})
}

// The loop's leader calls a function that the server has measured as quick. If a call then waits in Read or Write, panics, or ends its
// goroutine, the loop continues with another leader.
func TestParkedQuick(t *testing.T) {
	filotest.NeedLoops(t)
	texts := []string{"read", "write", "panic", "goexit"}
	called := make(chan string, 1)
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
		if c.Path() != "/park" {
			return c.Text(200, "fine")
		}
		_, err := c.Park("", func(p *filo.ParkedConn, why filo.Wake) error {
			b := make([]byte, 64)
			n, err := p.Read(b)
			if err != nil {
				return err
			}
			text := string(b[:n])
			if slices.Contains(texts, text) {
				called <- text
			}
			switch {
			case text == "read":
				if _, err = p.Read(b); err == nil {
					_, err = p.Write([]byte("."))
				}
			case text == "write":
				_, err = p.Write(make([]byte, 32<<20))
			case text == "panic":
				panic("parked")
			case text == "goexit":
				runtime.Goexit()
			case strings.HasSuffix(text, "?"):
				_, err = p.Write([]byte("."))
			}
			return err
		})
		return err
	}})
	class := func() filo.ClassStats {
		for _, class := range s.Stats().Classes {
			if class.Name == "(parked)" {
				return class
			}
		}
		return filo.ClassStats{}
	}
	train := func() {
		t.Helper()
		c := s.Dial(t)
		c.Get("/park")
		// A call that only reads is quick even on a slow machine and under the race detector, so most messages don't request an answer.
		calls := func(n int) {
			for i := range n {
				if i%10 > 0 {
					c.Send("x")
					continue
				}
				c.Send("?")
				if b, err := c.Reader.ReadByte(); err != nil || b != '.' {
					t.Fatalf("got %q, %v", b, err)
				}
			}
		}
		// On a busy machine, the server may measure even a quick function as slow for a while.
		filotest.Await(t, "the function to count as quick", func() bool {
			calls(200)
			return class().Kind == "quick"
		})
		before := class()
		filotest.Await(t, "calls where the loop runs", func() bool {
			calls(500)
			return class().Inline > before.Inline
		})
		c.Close()
	}
	for _, text := range texts {
		t.Run(text, func(t *testing.T) {
			train()
			c := s.Dial(t)
			c.Get("/park")
			awaitParked(t, s.Server)
			c.Send(text)
			filotest.Recv(t, called, "the call") // the call must read only this text
			for range 20 {
				other := s.Dial(t)
				other.Get("/")
				other.Want(200, "fine", false)
				other.Close()
			}
			switch text {
			case "read":
				c.Send("x")
				if b, err := c.Reader.ReadByte(); err != nil || b != '.' {
					t.Errorf("got %q, %v", b, err)
				}
			case "write":
				if _, err := io.CopyN(io.Discard, c.Reader, 32<<20); err != nil {
					t.Error(err)
				}
			default:
				c.WantEnd()
				return
			}
			c.Send("?")
			if b, err := c.Reader.ReadByte(); err != nil || b != '.' {
				t.Errorf("got %q, %v", b, err)
			}
		})
	}
}

// awaitParked waits until the server's only connection is parked and waits for its client. Until then, the worker that has run the handler
// calls the connection's function, and this worker leads no loop. If it is delayed just as it releases the connection, it may even make the
// next call.
func awaitParked(t *testing.T, s *filo.Server) {
	t.Helper()
	filotest.Await(t, "the connection to be parked", func() bool {
		stats := s.Stats()
		return stats.ConnsParked == 1 && stats.ConnsOpen == 1 && stats.WorkersRunning == 0
	})
}

// If the loop's leader calls the function and Write must wait, Write itself gives the loop to another worker, so the monitor needn't take it
// away, and no class counts a retake. The loop's other connections are served while Write waits.
func TestParkedWriteLeavesTheLoop(t *testing.T) {
	filotest.NeedLoops(t)
	const size = 8 << 20
	// Creating the buffer and filling the socket must both take less time than the monitor allows a leader.
	large := make([]byte, size)
	var calls atomic.Int64
	before, written := make(chan uint64, 1), make(chan error, 1)
	server := &filo.Server{Leaders: 1, SocketOptions: filo.SocketOptions{WriteBuffer: 4 << 10}}
	handoffs := func() uint64 { return filotest.ClassOf(server, "(parked)").Handoffs }
	server.Handler = func(c *filo.Ctx) error {
		if c.Path() != "/park" {
			return c.Text(200, "fine")
		}
		_, err := c.Park("", func(p *filo.ParkedConn, why filo.Wake) error {
			var b [1]byte
			_, err := p.Read(b[:])
			calls.Add(1)
			if err == nil && b[0] == 'w' {
				before <- handoffs() // the handoffs so far, so that later ones are due to Write
				_, err = p.Write(large)
				written <- err
			}
			return err
		})
		return err
	}
	s := filotest.Serve(t, server)
	// On a busy machine, the server may measure even a quick function as slow, and a leader may lose its loop because its thread gets no processor.
	filotest.Await(t, "a Write that gives its loop away", func() bool {
		c := s.Dial(t)
		defer c.Close()
		c.Get("/park")
		awaitParked(t, server)
		const training = 20
		called := calls.Load()
		c.Send(strings.Repeat("x", training))
		filotest.Await(t, "the calls", func() bool { return calls.Load() == called+training })
		awaitParked(t, server)
		if filotest.ClassOf(server, "(parked)").Kind != "quick" {
			return false
		}
		c.Send("w")
		had := filotest.Recv(t, before, "the call that writes")
		other := s.Dial(t)
		defer other.Close()
		other.Get("/")
		other.Want(200, "fine", false)
		select {
		case err := <-written:
			t.Fatalf("the Write didn't wait for its client: %v", err)
		default:
		}
		if _, err := io.CopyN(io.Discard, c.Reader, size); err != nil {
			t.Fatal(err)
		}
		if err := filotest.Recv(t, written, "the Write to end"); err != nil {
			t.Fatal(err)
		}
		return handoffs() > had
	})
}

// If a client never stops sending to a parked connection, the loop still serves other connections.
func TestParkedFlood(t *testing.T) {
	filotest.NeedLoops(t)
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() != "/park" {
			return c.Text(200, "fine")
		}
		_, err := c.Park("", func(p *filo.ParkedConn, why filo.Wake) error {
			b := make([]byte, 16)
			_, err := p.Read(b)
			return err
		})
		return err
	}})
	flood := s.Dial(t)
	flood.Get("/park")
	stop := make(chan struct{})
	s.Go(func() {
		b := make([]byte, 64<<10)
		for {
			select {
			case <-stop:
				flood.Close()
				return
			default:
				flood.Conn.Write(b)
			}
		}
	})
	for range 200 {
		c := s.Dial(t)
		c.Get("/")
		c.Want(200, "fine", false)
		c.Close()
	}
	close(stop)
}

// The program's read deadline applies to all current and later Reads until another deadline is set. It doesn't wake the function while the
// connection waits, and it is independent of the server's own deadlines.
func TestParkedReadDeadline(t *testing.T) {
	type call struct {
		why  filo.Wake
		text string
		err  error
	}
	parked, calls, set := make(chan *filo.ParkedConn, 1), make(chan call, 10), make(chan time.Time, 10)
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Handler: func(c *filo.Ctx) error {
			p, err := c.Park("", func(p *filo.ParkedConn, why filo.Wake) error {
				var text [100]byte
				n, err := 0, error(nil)
				if why == filo.WakeData {
					if n, err = p.Read(text[:]); err == nil && string(text[:n]) == "again" {
						n, err = p.Read(text[:])
					}
				}
				calls <- call{why, string(text[:n]), err}
				if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					return err
				}
				if until := <-set; !until.IsZero() {
					p.SetWait(until)
				}
				return nil
			})
			parked <- p
			return err
		}}
	}, func(t *testing.T, h *filotest.Host) {
		c, p := parkOne(t, h, parked, parkRequest)
		want := func(want call) {
			t.Helper()
			got := filotest.Recv(t, calls, "a call")
			if got.why != want.why || got.text != want.text || !errors.Is(got.err, want.err) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		past := time.Now().Add(-time.Second)
		p.SetReadDeadline(past)
		c.Send(t, "again")
		want(call{err: os.ErrDeadlineExceeded})
		set <- time.Now() // the deadline of SetWait wakes the connection
		want(call{why: filo.WakeDeadline})
		set <- time.Time{}
		c.Send(t, "again")
		want(call{err: os.ErrDeadlineExceeded})
		set <- time.Time{}
		// A deadline that is set while a Read waits also applies to this Read.
		p.SetReadDeadline(time.Time{})
		c.Send(t, "again")
		select {
		case got := <-calls:
			t.Errorf("got %+v without a deadline", got)
		case <-time.After(20 * time.Millisecond):
		}
		p.SetReadDeadline(past)
		want(call{err: os.ErrDeadlineExceeded})
		set <- time.Time{}
		p.SetReadDeadline(time.Time{})
		c.Send(t, "again")
		c.Send(t, "text")
		got := filotest.Recv(t, calls, "a call")
		if got.text != "text" && got.text != "againtext" || got.err != nil {
			t.Errorf("got %+v", got)
		}
		set <- time.Time{}
		p.End()
		c.WantEnd(t)
	})
}

// Middleware gets the status 101 if the connection has switched to another protocol.
func TestStatusAfterUpgrade(t *testing.T) {
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
			err := answerParked(c)
			if want := map[string]int{"/park": 101, "/": 200}[c.Path()]; c.Status() != want {
				t.Errorf("%s: %d, want %d", c.Path(), c.Status(), want)
			}
			return err
		}}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest+answerPark)
		c.Receive(t, "GET")
		c.Receive(t, "GET")
	})
}
