package shutdown

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// "While keep-alives are off, each answer says Connection: close … The server goes on accepting, and idle connections stay open until their
// next request". After keep-alives have been turned on again, clients reuse their connections.
func TestKeepAlivesOff(t *testing.T) {
	s, gate := filotest.ServeGated(t, new(filo.Server))
	idle, held := s.Dial(t), s.Dial(t)
	idle.Get("/")
	idle.Want(200, "quick", false)
	gate.Hold(t, held)
	s.SetKeepAlivesEnabled(false)
	s.SetKeepAlivesEnabled(false)
	fresh := s.Dial(t)
	for _, c := range []*filotest.Client{fresh, idle} {
		c.Get("/")
		c.Want(200, "quick", true)
		c.WantEOF()
	}
	pipelining := s.Dial(t) // of requests that arrive together, only the answer to the last one says close
	pipelining.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
	pipelining.Want(200, "quick", false)
	pipelining.Want(200, "quick", true)
	gate.Open()
	held.Want(200, "held", true)
	s.SetKeepAlivesEnabled(true)
	again := s.Dial(t)
	for range 2 {
		again.Get("/")
		again.Want(200, "quick", false)
	}
}

// "Connections of HTTP/2 take no new requests once they have had one (GOAWAY)." No request is lost, even if its handler is running.
func TestKeepAlivesOffHTTP2(t *testing.T) {
	filotest.EachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.HTTP2Client)) {
		begun, release := make(chan struct{}), make(chan struct{})
		s, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() == "/slow" {
				begun <- struct{}{}
				<-release
			}
			return c.Text(200, c.Path())
		}})
		c.Want("GET", "/", nil, 200, "/")
		c.Want("GET", "/", nil, 200, "/")
		accepted := s.Stats().ConnsAccepted
		s.SetKeepAlivesEnabled(false)
		filotest.Await(t, "the idle connection to end", func() bool { return s.Stats().ConnsOpen == 0 })
		var slow sync.WaitGroup
		slow.Go(func() { c.Want("GET", "/slow", nil, 200, "/slow") })
		filotest.Recv(t, begun, "the handler")
		for range 3 {
			c.Want("GET", "/", nil, 200, "/")
		}
		close(release)
		slow.Wait()
		if n := s.Stats().ConnsAccepted - accepted; n < 2 {
			t.Errorf("four requests came by %d connections", n)
		}
		filotest.Await(t, "the connections to end", func() bool { return s.Stats().ConnsOpen == 0 })
	})
}

// "Connections that have been idle for less than a second get a tenth of a second for this look, while the server still accepts new ones."
// Each answer says Connection: close. The server doesn't wait for connections that have been idle for longer, or that have received such an answer.
func TestShutdownAcceptsMeanwhile(t *testing.T) {
	get := servertest.Request("GET /", "")
	ask := func(t *testing.T, c net.Conn, closes bool) {
		t.Helper()
		if _, err := io.WriteString(c, get); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || response.StatusCode != 204 || response.Close != closes {
			t.Fatalf("got %+v, %v; want 204, and close: %v", response, err, closes)
		}
	}
	for name, idle := range map[string]time.Duration{"used": time.Millisecond, "given up": 300 * time.Millisecond, "long idle": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servertest.New(t, func(c *filo.Ctx) error { return c.NoContent() })
				before := s.Dial(t)
				ask(t, before, false)
				time.Sleep(idle)
				start := time.Now()
				ended := make(chan time.Duration, 1)
				go func() {
					if err := s.Config.Shutdown(context.Background()); err != nil {
						t.Error(err)
					}
					ended <- time.Since(start)
				}()
				synctest.Wait()
				if idle >= time.Second {
					if took := <-ended; took > 60*time.Millisecond {
						t.Errorf("the shutdown took %v", took)
					}
					return
				}
				time.Sleep(90 * time.Millisecond)
				ask(t, s.Dial(t), true)
				if name == "used" {
					ask(t, before, true)
				}
				if took := <-ended; took < 90*time.Millisecond || took > 200*time.Millisecond {
					t.Errorf("the shutdown took %v", took)
				}
				if _, err := s.Listener.Dial(); err == nil {
					t.Error("the listener is open after the shutdown")
				}
			})
		})
	}
}

// IdleGrace is "how long each stays open for one more request, whose answer says Connection: close." If no request arrives on a connection,
// it ends after that time.
func TestIdleGrace(t *testing.T) {
	t.Parallel()
	const grace = 3 * time.Second
	gate := filotest.NewGate()
	s := filotest.Serve(t, &filo.Server{Handler: gate.Handle, IdleGrace: grace})
	t.Cleanup(gate.Open)
	used, unused, fresh := s.Dial(t), s.Dial(t), s.Dial(t)
	for _, c := range []*filotest.Client{used, unused} {
		c.Get("/")
		c.Want(200, "quick", false)
	}
	filotest.Await(t, "the connections", func() bool { return s.Stats().ConnsOpen == 3 })
	held := s.Dial(t)
	begun := gate.Hold(t, held).ShuttingDown()
	start := time.Now()
	result := s.BeginShutdown(t, begun)
	time.Sleep(400 * time.Millisecond) // without IdleGrace the connections would have ended by now
	for _, c := range []*filotest.Client{used, fresh} {
		c.Get("/")
		if time.Since(start) > grace/2 {
			t.Skip("the machine is too busy")
		}
		c.Want(200, "quick", true)
	}
	gate.Open()
	held.Want(200, "held", true)
	unused.WantEOF()
	if took := time.Since(start); took < grace {
		t.Errorf("the idle connection ended after %v", took)
	}
	if err := filotest.Recv(t, result, "Shutdown to return"); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("Shutdown once more: %v", err)
	}
}

// An HTTP/2 connection that was opened just before the shutdown has one second for its first request, like an HTTP/1.1 connection. Then it ends.
func TestHTTP2ShutdownAwaitsNewConnections(t *testing.T) {
	t.Parallel()
	for name, asks := range map[string]bool{"asks": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			gate := filotest.NewGate()
			s := filotest.Serve(t, &filo.Server{Handler: gate.Handle, HTTP2: filo.HTTP2Options{Unencrypted: true}})
			t.Cleanup(gate.Open)
			begun := gate.Hold(t, s.Dial(t)).ShuttingDown()
			c := s.Dial(t)
			start := time.Now()
			c.Send(http2.ClientPreface)
			framer := http2.NewFramer(c, c)
			if err := framer.WriteSettings(); err != nil {
				t.Fatal(err)
			}
			frame := func() http2.Frame {
				f, err := framer.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				return f
			}
			for f, ok := frame().(*http2.SettingsFrame); !ok || !f.IsAck(); f, ok = frame().(*http2.SettingsFrame) {
			}
			result := s.BeginShutdown(t, begun)
			gate.Open()
			if asks {
				time.Sleep(300 * time.Millisecond) // the client may take so long
				var block bytes.Buffer
				encoder := hpack.NewEncoder(&block)
				for _, field := range [...][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "a"}} {
					encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
				}
				framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
				if time.Since(start) > promptly {
					t.Skip("the machine is too busy")
				}
			}
			answered, refused := false, false
			for f, err := framer.ReadFrame(); err == nil; f, err = framer.ReadFrame() {
				switch f := f.(type) {
				case *http2.HeadersFrame:
					answered = true
				case *http2.GoAwayFrame:
					refused = true
				case *http2.PingFrame:
					framer.WritePing(true, f.Data)
				}
			}
			if answered != asks || !refused {
				t.Errorf("answered: %v; told to leave: %v", answered, refused)
			}
			if err := filotest.Recv(t, result, "Shutdown to return"); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		})
	}
}
