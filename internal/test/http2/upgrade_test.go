package http2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/nettest"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/h2test"
	"github.com/filohttp/filo/servertest"
)

// serveExtended starts a server with extended CONNECT, and returns a function that connects a client.
type serveExtended func(*filo.Server) (s *filotest.Server, dial func(settings ...http2.Setting) *h2test.Client)

// eachExtended runs a test with extended CONNECT over a socket, in memory and over TLS.
func eachExtended(t *testing.T, test func(t *testing.T, serve serveExtended)) {
	begin := func(t *testing.T, conn net.Conn, err error, settings []http2.Setting) *h2test.Client {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(filotest.Bound))
		c, err := h2test.New(conn, settings...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	with := func(config *filo.Server) *filo.Server {
		config.HTTP2.ExtendedConnect, config.HTTP2.Unencrypted = true, true
		return config
	}
	t.Run("socket", func(t *testing.T) {
		test(t, func(config *filo.Server) (*filotest.Server, func(...http2.Setting) *h2test.Client) {
			s := filotest.Serve(t, with(config))
			return s, func(settings ...http2.Setting) *h2test.Client {
				conn, err := net.Dial("tcp", s.Addr)
				return begin(t, conn, err, settings)
			}
		})
	})
	t.Run("memory", func(t *testing.T) {
		test(t, func(config *filo.Server) (*filotest.Server, func(...http2.Setting) *h2test.Client) {
			listener := servertest.NewListener()
			return filotest.Serve(t, with(config), listener), func(settings ...http2.Setting) *h2test.Client {
				conn, err := listener.Dial()
				return begin(t, conn, err, settings)
			}
		})
	})
	t.Run("TLS", func(t *testing.T) {
		test(t, func(config *filo.Server) (*filotest.Server, func(...http2.Setting) *h2test.Client) {
			s := filotest.ListenTLS(t, with(config))
			return s, func(settings ...http2.Setting) *h2test.Client {
				config := filotest.ClientTLS()
				config.NextProtos = []string{"h2"}
				conn, err := tls.Dial("tcp", s.Addr, config)
				return begin(t, conn, err, settings)
			}
		})
	})
}

// wantStatus waits for the answer's head, and checks the status.
func wantStatus(t *testing.T, s *h2test.Stream, want int) {
	t.Helper()
	if got, err := s.Status(); got != want || err != nil {
		t.Fatalf("stream %d: %d, %v; want %d", s.ID, got, err, want)
	}
}

// wantGet makes a request on another stream. The request must succeed, whatever happens to other streams.
func wantGet(t *testing.T, c *h2test.Client) {
	t.Helper()
	if status, body, err := c.Get("/"); status != 200 || body != "ok" || err != nil {
		t.Fatalf("a sibling: %d %q, %v", status, body, err)
	}
}

// upgradeEcho returns a handler that switches to the protocol, and echoes all bytes until the client ends its side.
func upgradeEcho(protocol string, ended chan<- error) filo.Handler {
	return func(c *filo.Ctx) error {
		c.Response.Header.Set("X-Path", c.Path())
		c.Response.Header.Set("Sec-WebSocket-Accept", "x")
		conn, buffered, err := c.Upgrade(protocol)
		if err != nil {
			select { // the client may be lost as soon as it has the head
			case ended <- err:
			default:
			}
			return err
		}
		if len(buffered) > 0 {
			return errors.New("bytes of another stream")
		}
		_, err = io.Copy(conn, conn)
		ended <- err
		return conn.Close()
	}
}

// RFC 8441, section 3: a client may send :protocol only if the server has offered it. A CONNECT without :protocol isn't affected.
func TestExtendedConnectOffer(t *testing.T) {
	for _, offered := range []bool{false, true} {
		listener := servertest.NewListener()
		config := &filo.Server{Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }}
		config.HTTP2 = filo.HTTP2Options{Unencrypted: true, ExtendedConnect: offered}
		filotest.Serve(t, config, listener)
		conn, err := listener.Dial()
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(filotest.Bound))
		c, err := h2test.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		value, sent := c.Setting(http2.SettingEnableConnectProtocol)
		if sent != offered || offered && value != 1 {
			t.Errorf("offered %t: SETTINGS_ENABLE_CONNECT_PROTOCOL %d, %t", offered, value, sent)
		}
		_, err = c.Connect("websocket", "/").Status()
		var reset *h2test.ResetError
		if !offered && (!errors.As(err, &reset) || reset.Code != http2.ErrCodeProtocol) {
			t.Errorf("not offered, and asked for: %v", err)
		}
		if offered && err != nil {
			t.Errorf("offered, and asked for: %v", err)
		}
		wantStatus(t, c.Open(true, ":method", "CONNECT", ":authority", "filo.test:80"), 200)
		wantGet(t, c)
	}
}

// The handler of an Upgrade sees the same request as over HTTP/1.1.
func TestExtendedConnectRequest(t *testing.T) {
	listener := servertest.NewListener()
	config := &filo.Server{Handler: func(c *filo.Ctx) error {
		body, err := c.Body()
		r := &c.Request
		return filo.Error(400, fmt.Sprintf("%s %s %s %d %q %v %s %s %s %s", r.Method(), r.URI().Path(), r.Proto(), r.ContentLength(), body, err,
			c.Host(), r.Header.Get("Upgrade"), r.Header.Get("Connection"), r.Header.Get("Sec-WebSocket-Key")))
	}}
	config.HTTP2 = filo.HTTP2Options{Unencrypted: true, ExtendedConnect: true}
	filotest.Serve(t, config, listener)
	conn, err := listener.Dial()
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(filotest.Bound))
	c, err := h2test.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := c.Connect("websocket", "/chat?x", "sec-websocket-key", "mine")
	wantStatus(t, s, 400)
	want := `Bad Request: GET /chat HTTP/2.0 0 "" <nil> filo.test websocket Upgrade AAAAAAAAAAAAAAAAAAAAAA==` + "\n"
	if got, err := io.ReadAll(s); string(got) != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// Ctx.Upgrade returns the stream as a connection: each side respects the other side's windows, and can end its own direction at any time.
func TestExtendedConnectUpgrade(t *testing.T) {
	eachExtended(t, func(t *testing.T, serve serveExtended) {
		ended := make(chan error, 10)
		_, dial := serve(&filo.Server{Handler: route(map[string]filo.Handler{
			"/":     func(c *filo.Ctx) error { return c.Text(200, "ok") },
			"/echo": upgradeEcho("echo", ended),
			"/keeps": func(c *filo.Ctx) error { // another goroutine uses the connection after the handler
				conn, _, err := c.Upgrade("echo")
				if err == nil {
					go func() {
						_, err := io.Copy(conn, conn)
						ended <- err
						conn.Close()
					}()
				}
				return err
			},
		})})
		for _, window := range []uint32{1000, 65535, 1 << 20} {
			c := dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
			for _, path := range []string{"/echo", "/keeps"} {
				s := c.Connect("echo", path)
				wantStatus(t, s, 200)
				if path == "/echo" && (s.Field("x-path") != "/echo" || s.Field("sec-websocket-accept") != "" || s.Field("upgrade") != "" || s.Field("content-length") != "") {
					t.Errorf("the fields %q, %q, %q and %q", s.Field("x-path"), s.Field("sec-websocket-accept"), s.Field("upgrade"), s.Field("content-length"))
				}
				large := randomBytes(300_000)
				go func() {
					s.Write(large)
					s.CloseWrite()
				}()
				first := make([]byte, 1000)
				if _, err := io.ReadFull(s, first); err != nil {
					t.Fatal(err)
				}
				wantGet(t, c)
				rest, err := io.ReadAll(s)
				if got := append(first, rest...); !bytes.Equal(got, large) || err != nil {
					t.Errorf("window %d, %s: %d bytes, %v", window, path, len(got), err)
				}
				if err := filotest.Recv(t, ended, "the end of the copy"); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// When a client resets its stream, or its connection ends, reads and writes fail.
func TestExtendedConnectLost(t *testing.T) {
	eachExtended(t, func(t *testing.T, serve serveExtended) {
		ended := make(chan error, 10)
		s, dial := serve(&filo.Server{Handler: route(map[string]filo.Handler{
			"/":     func(c *filo.Ctx) error { return c.Text(200, "ok") },
			"/echo": upgradeEcho("echo", ended),
			"/full": func(c *filo.Ctx) error { // two goroutines wait for the client's window
				conn, _, err := c.Upgrade("echo")
				if err != nil { // the client may be lost as soon as it has the head
					ended <- err
					ended <- err
					return err
				}
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() {
						_, err := conn.Write(make([]byte, 1<<20))
						ended <- err
					})
				}
				both.Wait()
				return conn.Close()
			},
		})})
		for _, path := range []string{"/echo", "/full"} {
			for _, lose := range []string{"reset", "end"} {
				c := dial()
				stream := c.Connect("echo", path)
				wantStatus(t, stream, 200)
				if lose == "reset" {
					stream.Reset(http2.ErrCodeCancel)
				} else {
					c.Close()
				}
				for range 1 + strings.Count(path, "full") {
					if err := filotest.Recv(t, ended, "the error"); err == nil {
						t.Errorf("%s, %s: no error", path, lose)
					}
				}
				if lose == "reset" {
					wantGet(t, c)
				}
				filotest.Await(t, "the stream to be gone", func() bool { return s.Stats().Streams == 0 })
			}
		}
	})
}

// If the handler doesn't switch protocols, the answer isn't a 2xx, because the client would take a 2xx for the switch. The stream of a
// malformed request is reset.
func TestExtendedConnectRefused(t *testing.T) {
	eachExtended(t, func(t *testing.T, serve serveExtended) {
		_, dial := serve(&filo.Server{Handler: route(map[string]filo.Handler{
			"/": func(c *filo.Ctx) error { return c.Text(200, "ok") },
			"/flush": func(c *filo.Ctx) error {
				c.Stream().WriteString("x")
				return c.Stream().Flush()
			},
			"/ignores": func(c *filo.Ctx) error {
				c.Stream().WriteString("x")
				c.Stream().Flush()
				return nil
			},
			"/reader": func(c *filo.Ctx) error {
				c.Response.SetBodyStream(strings.NewReader("x"), -1)
				return nil
			},
			"/events": func(c *filo.Ctx) error {
				_, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
				return err
			},
			"/hijack": func(c *filo.Ctx) error {
				_, _, err := c.Hijack()
				return err
			},
			"/park": func(c *filo.Ctx) error {
				_, err := c.Park("", func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
				return err
			},
			"/none":      func(c *filo.Ctx) error { return c.NoContent() },
			"/forbidden": func(c *filo.Ctx) error { return filo.Error(403, "not you") },
			"/redirect":  func(c *filo.Ctx) error { return c.Redirect(303, "/") },
			"/echo":      upgradeEcho("echo", make(chan error, 100)),
		})})
		c := dial()
		for path, want := range map[string]int{
			"/": 501, "/flush": 501, "/ignores": 501, "/reader": 501, "/events": 501, "/hijack": 501, "/park": 501, "/none": 501,
			"/forbidden": 403, "/redirect": 303, "/nowhere": 404, "/echo": 426,
		} {
			s := c.Connect("websocket", path)
			if got, err := s.Status(); got != want || err != nil {
				t.Errorf("%s: %d, %v; want %d", path, got, err, want)
			}
			s.Write([]byte("early"))
			wantGet(t, c)
		}
		method, protocol, scheme, path, authority := []string{":method", "CONNECT"}, []string{":protocol", "echo"}, []string{":scheme", "https"},
			[]string{":path", "/echo"}, []string{":authority", "filo.test"}
		of := func(fields ...[]string) (all []string) {
			for _, f := range fields {
				all = append(all, f...)
			}
			return all
		}
		for name, fields := range map[string][]string{
			"no :scheme":         of(method, protocol, path, authority),
			"no :path":           of(method, protocol, scheme, authority),
			"no :authority":      of(method, protocol, scheme, path),
			"no protocol":        of(method, []string{":protocol", ""}, scheme, path, authority),
			"two protocols":      of(method, protocol, protocol, scheme, path, authority),
			":protocol of GET":   of([]string{":method", "GET"}, protocol, scheme, path, authority),
			"content":            of(method, protocol, scheme, path, authority, []string{"content-length", "5"}),
			"Upgrade":            of(method, protocol, scheme, path, authority, []string{"upgrade", "echo"}),
			"Connection":         of(method, protocol, scheme, path, authority, []string{"connection", "upgrade"}),
			":protocol too late": of(method, scheme, path, authority, []string{"a", "b"}, protocol),
		} {
			_, err := c.Open(false, fields...).Status()
			var reset *h2test.ResetError
			if !errors.As(err, &reset) || reset.Code != http2.ErrCodeProtocol {
				t.Errorf("%s: %v", name, err)
			}
			wantGet(t, c)
		}
		// Two requests are of little use, but not malformed. One ends the client's side. The other has Content-Length: 0, and DATA follow it.
		s := c.Open(true, of(method, protocol, scheme, path, authority)...)
		wantStatus(t, s, 200)
		if b, err := io.ReadAll(s); len(b) > 0 || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		s.Close()
		s = c.Connect("echo", "/echo", "content-length", "0")
		wantStatus(t, s, 200)
		s.Send([]byte("a"), true)
		if b, err := io.ReadAll(s); string(b) != "a" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		wantGet(t, c)
	})
}

// If a client doesn't read from one stream, or the server doesn't read from a tunnel, only this stream's windows are used up.
func TestExtendedConnectSlow(t *testing.T) {
	eachExtended(t, func(t *testing.T, serve serveExtended) {
		conns, ended := make(chan net.Conn, 1), make(chan error, 10)
		_, dial := serve(&filo.Server{Handler: route(map[string]filo.Handler{
			"/":     func(c *filo.Ctx) error { return c.Text(200, "ok") },
			"/echo": upgradeEcho("echo", ended),
			"/held": func(c *filo.Ctx) error {
				conn, _, err := c.Upgrade("echo")
				if err == nil {
					conns <- conn
				}
				return err
			},
		})})
		c := dial()
		held := c.Connect("echo", "/held")
		wantStatus(t, held, 200)
		conn := filotest.Recv(t, conns, "the connection")
		defer conn.Close()
		other := c.Connect("echo", "/echo")
		wantStatus(t, other, 200)

		// Bytes that the server hasn't read use up the stream's window, but not the connection's.
		held.SetWriteDeadline(time.Now().Add(time.Second)) // long enough for the window
		sent, err := held.Write(make([]byte, 1<<20))
		if err == nil || sent != 65535 {
			t.Errorf("%d bytes were taken, %v", sent, err)
		}
		// If the client doesn't read, some bytes wait in the stream, and Write waits until its deadline.
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := conn.Write(make([]byte, 1<<20)); n < 65535 || n > 128<<10 || !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
			t.Errorf("%d bytes were written, %v", n, err)
		}
		large := randomBytes(500_000)
		go func() {
			other.Write(large)
			other.CloseWrite()
		}()
		if got, err := io.ReadAll(other); !bytes.Equal(got, large) || err != nil {
			t.Errorf("the sibling has echoed %d bytes, %v", len(got), err)
		}
		wantGet(t, c)
	})
}

// Small messages don't count as glitches, even if the client opens both windows after each one.
func TestExtendedConnectSmallMessages(t *testing.T) {
	eachExtended(t, func(t *testing.T, serve serveExtended) {
		config := &filo.Server{Handler: route(map[string]filo.Handler{
			"/upgrade": upgradeEcho("echo", make(chan error, 1)),
			"/park": func(c *filo.Ctx) error {
				_, err := c.Park("echo", func(p *filo.ParkedConn, _ filo.Wake) error {
					b := make([]byte, 5)
					n, err := p.Read(b)
					if n > 0 {
						_, err = p.Write(b[:n])
					}
					return err
				})
				return err
			},
		})}
		config.HTTP2.MaxGlitches = 10
		_, dial := serve(config)
		for _, path := range []string{"/upgrade", "/park"} {
			s := dial().Connect("echo", path)
			wantStatus(t, s, 200)
			message := make([]byte, 5)
			for i := range 300 {
				if _, err := s.Write([]byte("hello")); err != nil {
					t.Fatal(path, i, err)
				}
				if _, err := io.ReadFull(s, message); err != nil {
					t.Fatal(path, i, err)
				}
			}
		}
	})
}

// After Close, the server still sends the written bytes, as TCP does. The stream ends soon afterwards, even if the client doesn't end its side.
func TestExtendedConnectClose(t *testing.T) {
	t.Parallel()
	eachExtended(t, func(t *testing.T, serve serveExtended) {
		large, conns := randomBytes(65535+10_000), make(chan net.Conn, 1)
		s, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			conn, _, err := c.Upgrade("echo")
			if err != nil {
				return err
			}
			if c.Path() == "/silent" {
				conns <- conn
				return nil
			}
			if _, err := conn.Write(large); err != nil {
				return err
			}
			if err := conn.Close(); err != nil {
				return err
			}
			if _, err := conn.Write(large); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a write after Close: %v", err)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a read after Close: %v", err)
			}
			if err := conn.Close(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a second Close: %v", err)
			}
			return nil
		}})
		c := dial()
		stream := c.Connect("echo", "/")
		wantStatus(t, stream, 200)
		if got, err := io.ReadAll(stream); !bytes.Equal(got, large) || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		c2 := dial()
		wantStatus(t, c2.Connect("echo", "/silent"), 200)
		conn := filotest.Recv(t, conns, "the connection")
		if err := c2.Ping(); err != nil {
			t.Error(err)
		}
		conn.Close() // the client stays silent after this
		filotest.Await(t, "the streams to be gone", func() bool { return s.Stats().Streams == 0 })
		if err := c.Ping(); err != nil {
			t.Error(err)
		}
	})
}

// Ctx.Park parks the stream: its function is called when bytes arrive, and the stream ends like a parked connection.
func TestExtendedConnectPark(t *testing.T) {
	eachExtended(t, func(t *testing.T, serve serveExtended) {
		parked, ended := make(chan *filo.ParkedConn, 1), make(chan error, 10)
		s, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() == "/" {
				return c.Text(200, "ok")
			}
			p, err := c.Park("echo", func(p *filo.ParkedConn, why filo.Wake) error {
				if why == filo.WakeShutdown {
					p.Write([]byte("bye"))
					return nil
				}
				b := make([]byte, 1000)
				n, err := p.Read(b)
				if n == 0 {
					return err
				}
				if string(b[:n]) == "end" {
					return io.EOF
				}
				_, err = p.Write(b[:n])
				return err
			})
			if err != nil {
				return err
			}
			p.OnClose(func() { ended <- nil })
			parked <- p
			return nil
		}})
		for _, end := range []string{"function", "client", "reset", "connection", "Close", "shutdown"} {
			c := dial()
			stream := c.Connect("echo", "/parked")
			wantStatus(t, stream, 200)
			p := filotest.Recv(t, parked, "the parked stream")
			for range 3 {
				large := randomBytes(100_000)
				go stream.Write(large)
				got := make([]byte, len(large))
				if _, err := io.ReadFull(stream, got); err != nil || !bytes.Equal(got, large) {
					t.Fatalf("%s: %v", end, err)
				}
				p.Queue(filo.NewPreparedMessage([]byte("queued")))
				if _, err := io.ReadFull(stream, got[:6]); err != nil || string(got[:6]) != "queued" {
					t.Fatalf("%s: %q, %v", end, got[:6], err)
				}
			}
			wantGet(t, c)
			left, want := "", error(nil)
			switch end {
			case "function":
				stream.Write([]byte("end"))
			case "client":
				stream.CloseWrite()
			case "reset":
				stream.Reset(http2.ErrCodeCancel)
				want = net.ErrClosed
			case "connection":
				c.Close()
			case "Close":
				p.Close()
			case "shutdown":
				left = "bye"
				go s.Shutdown(context.Background())
			}
			got, err := io.ReadAll(stream)
			if end == "connection" {
				err = nil // io.EOF over TLS, which sends a close_notify
			}
			if string(got) != left || !errors.Is(err, want) {
				t.Errorf("%s: %q, %v; want %v", end, got, err, want)
			}
			stream.Close()
			filotest.Recv(t, ended, "OnClose")
			if end != "connection" && end != "shutdown" {
				wantGet(t, c)
			}
			filotest.Await(t, "the stream to be gone", func() bool { return s.Stats().Streams == 0 })
		}
	})
}

// Shutdown waits for streams that handlers have taken over. When its context is done, it ends the remaining ones.
func TestExtendedConnectShutdown(t *testing.T) {
	eachExtended(t, func(t *testing.T, serve serveExtended) {
		conns := make(chan net.Conn, 1)
		s, dial := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			conn, _, err := c.Upgrade("echo")
			if err == nil {
				conns <- conn
			}
			return err
		}})
		c := dial()
		stream := c.Connect("echo", "/")
		wantStatus(t, stream, 200)
		conn := filotest.Recv(t, conns, "the connection")
		over := make(chan error, 1)
		go func() { over <- s.Shutdown(context.Background()) }()
		if !c.AwaitGoAway() {
			t.Error("no GOAWAY")
		}
		conn.Write([]byte("still here"))
		if _, err := io.ReadFull(stream, make([]byte, 10)); err != nil {
			t.Error(err)
		}
		select {
		case err := <-over:
			t.Errorf("Shutdown didn't wait: %v", err)
		default:
		}
		conn.Close()
		stream.Close()
		c.Close()
		if err := filotest.Recv(t, over, "Shutdown"); err != nil {
			t.Error(err)
		}
	})
}

// The connection of Ctx.Upgrade is a net.Conn in every respect that package nettest tests.
func TestExtendedConnectNetConn(t *testing.T) {
	listener := servertest.NewListener()
	conns := make(chan net.Conn, 1)
	config := &filo.Server{Handler: func(c *filo.Ctx) error {
		conn, _, err := c.Upgrade("echo")
		if err == nil {
			conns <- conn
		}
		return err
	}}
	config.HTTP2 = filo.HTTP2Options{Unencrypted: true, ExtendedConnect: true}
	filotest.Serve(t, config, listener)
	dialed, err := listener.Dial()
	if err != nil {
		t.Fatal(err)
	}
	c, err := h2test.New(dialed)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		stream := c.Connect("echo", "/")
		if _, err := stream.Status(); err != nil {
			return nil, nil, nil, err
		}
		conn := <-conns
		return conn, stream, func() {
			conn.Close()
			stream.Close()
		}, nil
	})
}
