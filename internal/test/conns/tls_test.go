package conns

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// "Disabled leaves HTTP/1.1 as the only protocol": the server removes "h2" from NextProtos of a copy, and doesn't change the user's configuration.
func TestNoHTTP2OverTLS(t *testing.T) {
	config := &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}, NextProtos: []string{"h2", "http/1.1", "acme-tls/1"}}
	s := &filo.Server{TLSConfig: config, Handler: filotest.NewGate().Handle, HTTP2: filo.HTTP2Options{Disabled: true}}
	address := filotest.Listening(t, func(address string) error { return s.ListenAndServeTLS(address, "", "") })
	defer s.Close()
	client := filotest.ClientTLS()
	client.NextProtos = []string{"h2", "http/1.1"}
	conn, err := tls.Dial("tcp", address, client)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if protocol := conn.ConnectionState().NegotiatedProtocol; protocol != "http/1.1" || config.NextProtos[0] != "h2" {
		t.Errorf("negotiated %q, the configuration has %q", protocol, config.NextProtos)
	}
}

// A list of protocols that names none for HTTP, such as the list of an ACME client, is completed. GetConfigForClient may also return such a list.
func TestProtocolsCompleted(t *testing.T) {
	plain := &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}, NextProtos: []string{"acme-tls/1"}}
	chosen := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return plain, nil }}
	for _, config := range []*tls.Config{plain, chosen} {
		for _, disabled := range []bool{false, true} {
			s := &filo.Server{Handler: filotest.NewGate().Handle, TLSConfig: config, HTTP2: filo.HTTP2Options{Disabled: disabled}}
			address := filotest.Listening(t, func(address string) error { return s.ListenAndServeTLS(address, "", "") })
			web := "h2"
			if disabled {
				web = "http/1.1"
			}
			for want, offered := range map[string][]string{web: {"h2", "http/1.1"}, "acme-tls/1": {"acme-tls/1"}} {
				client := filotest.ClientTLS()
				client.NextProtos = offered
				conn, err := tls.Dial("tcp", address, client)
				if err != nil {
					t.Errorf("%q, HTTP/2 disabled %v: %v", offered, disabled, err)
					continue
				}
				if got := conn.ConnectionState().NegotiatedProtocol; got != want {
					t.Errorf("%q, HTTP/2 disabled %v: negotiated %q, want %q", offered, disabled, got, want)
				}
				conn.Close()
			}
			s.Close()
		}
	}
	if len(plain.NextProtos) != 1 {
		t.Errorf("the user's configuration was changed to %q", plain.NextProtos)
	}
}

// HTTP2.Disabled also removes "h2" from configurations that GetConfigForClient returns. A client that supports both protocols gets its answer
// over HTTP/1.1.
func TestNoHTTP2ByGetConfigForClient(t *testing.T) {
	for _, protocols := range [][]string{{"h2", "http/1.1"}, {"http/1.1", "h2", "acme-tls/1"}, {"h2"}, {"http/1.1"}} {
		chosen := &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}, NextProtos: slices.Clone(protocols)}
		s := &filo.Server{Handler: filotest.NewGate().Handle, HTTP2: filo.HTTP2Options{Disabled: true}, TLSConfig: &tls.Config{
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil },
		}}
		address := filotest.Listening(t, func(address string) error { return s.ListenAndServeTLS(address, "", "") })
		client := filotest.ClientTLS()
		client.NextProtos = []string{"h2", "http/1.1"}
		conn, err := tls.Dial("tcp", address, client)
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
			t.Errorf("%q: negotiated %q", protocols, got)
		}
		c := filotest.NewClient(t, conn)
		c.Get("/")
		if response, body, err := c.TryAnswer(); err != nil || response.StatusCode != 200 {
			t.Errorf("%q: got %q, %v", protocols, body, err)
		}
		if !slices.Equal(chosen.NextProtos, protocols) {
			t.Errorf("the user's configuration was changed to %q", chosen.NextProtos)
		}
		s.Close()
	}
}

// ListenAndServeTLS clones TLSConfig, and both file names may be empty if TLSConfig has certificates.
func TestListenAndServeTLS(t *testing.T) {
	certFile, keyFile := filotest.CertificateFiles(t)
	certificate := filotest.Certificate()
	for name, test := range map[string]struct {
		config            *tls.Config
		certFile, keyFile string
	}{
		"files":          {nil, certFile, keyFile},
		"certificates":   {&tls.Config{Certificates: []tls.Certificate{certificate}}, "", ""},
		"GetCertificate": {&tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }}, "", ""},
		"GetConfigForClient": {&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{Certificates: []tls.Certificate{certificate}}, nil
		}}, "", ""},
		"files beside a config": {&tls.Config{MinVersion: tls.VersionTLS13}, certFile, keyFile},
	} {
		t.Run(name, func(t *testing.T) {
			s := &filo.Server{TLSConfig: test.config, Logger: slog.New(slog.DiscardHandler), Handler: func(c *filo.Ctx) error {
				if c.TLS() == nil || !c.TLS().HandshakeComplete || c.TLS().ServerName != "filo.test" {
					return fmt.Errorf("TLS: %+v", c.TLS())
				}
				return c.Text(200, c.TLS().NegotiatedProtocol)
			}}
			served := make(chan error, 1)
			address := filotest.Listening(t, func(address string) error {
				err := s.ListenAndServeTLS(address, test.certFile, test.keyFile)
				served <- err
				return err
			})
			// This client speaks HTTP/2.
			transport := &http.Transport{TLSClientConfig: filotest.ClientTLS(), ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			response, err := (&http.Client{Transport: transport}).Get("https://" + address)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != 200 || response.ProtoMajor != 2 || string(body) != "h2" {
				t.Errorf("got %s %s %q, %v", response.Proto, response.Status, body, err)
			}
			if test.config != nil && len(test.config.NextProtos) > 0 {
				t.Error("the server changed the user's TLSConfig")
			}
			s.Close()
			if err := filotest.Recv(t, served, "ListenAndServeTLS to return"); err != filo.ErrServerClosed {
				t.Errorf("ListenAndServeTLS returned %v", err)
			}
		})
	}
}

// RFC 7301, section 3.2: a client that supports none of the server's protocols gets an alert.
func TestTLSNoCommonProtocol(t *testing.T) {
	filotest.EachTLS(t, func(t *testing.T, serve func(testing.TB, *filo.Server) *filotest.Server) {
		s := serve(t, &filo.Server{Handler: filotest.NewGate().Handle})
		config := filotest.ClientTLS()
		config.NextProtos = []string{"spdy/3"}
		if conn, err := tls.Dial("tcp", s.Addr, config); err == nil {
			conn.Close()
			t.Error("the handshake succeeded")
		}
		s.WantServesTLS(t)
	})
}

// If a client sends anything but TLS to a TLS port, the server ends the connection, and other connections aren't affected.
func TestTLSOtherInput(t *testing.T) {
	filotest.EachTLS(t, func(t *testing.T, serve func(testing.TB, *filo.Server) *filotest.Server) {
		for name, send := range map[string]string{
			"plain HTTP":     "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			"random bytes":   "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7\xf6\xf5",
			"half a record":  "\x16\x03\x01\x02\x00\x01",
			"nothing at all": "",
		} {
			t.Run(name, func(t *testing.T) {
				s := serve(t, &filo.Server{Handler: filotest.NewGate().Handle})
				c := s.Dial(t)
				c.Send(send)
				c.Conn.(*net.TCPConn).CloseWrite()
				// The server may send a TLS alert or an answer in plain text, but no 2xx.
				if rest, err := io.ReadAll(c.Reader); bytes.Contains(rest, []byte("HTTP/1.1 2")) || err != nil && !filotest.IsReset(err) {
					t.Errorf("got %q, %v", rest, err)
				}
				s.WantServesTLS(t)
			})
		}
	})
}

// The server answers a request without TLS in plain text, with the same message as net/http. The client can read the message, however much it
// sends.
func TestTLSPlainHTTP(t *testing.T) {
	const words = "Client sent an HTTP request to an HTTPS server."
	filotest.EachTLS(t, func(t *testing.T, serve func(testing.TB, *filo.Server) *filotest.Server) {
		s := serve(t, &filo.Server{Handler: filotest.NewGate().Handle})
		answered := s.Stats().Requests[4]
		for name, request := range map[string]string{
			"GET":              "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			"DELETE":           "DELETE /a HTTP/1.1\r\nHost: a\r\n\r\n",
			"no more of it":    "PUT /",
			"QUERY":            "QUERY /a HTTP/1.1\r\nHost: a\r\n\r\n",
			"TRACE":            "TRACE /a HTTP/1.1\r\nHost: a\r\n\r\n",
			"HEAD":             "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
			"POST with a body": "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 1_000_000),
		} {
			method, _, _ := strings.Cut(request, " ")
			c := s.Dial(t)
			c.Send(request)
			response, err := http.ReadResponse(c.Reader, &http.Request{Method: method})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			body, err := io.ReadAll(response.Body)
			if response.StatusCode != 400 || !response.Close || strings.Contains(string(body), words) == (method == "HEAD") || err != nil {
				t.Errorf("%s: got %d %v %q, %v", name, response.StatusCode, response.Header, body, err)
			}
			c.WantEOF()
			answered++
		}
		filotest.Await(t, "the answers to be counted", func() bool { return s.Stats().Requests[4] == answered })
		for _, other := range []string{"SSH-2.0-x\r\n", "GETTY", "POSTS /", "PRI * HTTP/2.0\r\n\r\n"} {
			c := s.Dial(t)
			c.Send(other)
			if rest, err := io.ReadAll(c.Reader); bytes.Contains(rest, []byte("HTTP/1.1")) || err != nil && !filotest.IsReset(err) {
				t.Errorf("%q: got %q, %v", other, rest, err)
			}
		}
		s.WantServesTLS(t)
	})
}

// An error about a certificate names the argument or field that contains the certificate.
func TestTLSCertificateErrors(t *testing.T) {
	certFile, keyFile := filotest.CertificateFiles(t)
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for _, test := range []struct {
		certFile, keyFile string
		want              string
		is                error
	}{
		{"", "", "neither certFile and keyFile are given, nor has Server.TLSConfig", nil},
		{certFile, "", "keyFile is \"\"", nil},
		{"", keyFile, "certFile is \"\"", nil},
		{missing, keyFile, "certFile can't be read: open " + missing, fs.ErrNotExist},
		{certFile, missing, "keyFile can't be read: open " + missing, fs.ErrNotExist},
		{keyFile, certFile, "certFile " + keyFile + " with keyFile " + certFile + ": tls: ", nil},
	} {
		listener := filotest.Listen(t, "tcp", "127.0.0.1:0")
		err := (&filo.Server{Handler: filotest.NewGate().Handle}).ServeTLS(listener, test.certFile, test.keyFile)
		if err == nil || !strings.HasPrefix(err.Error(), "filo: ") || !strings.Contains(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%q and %q: %v, want %q", test.certFile, test.keyFile, err, test.want)
		}
		if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener was left open: %v", err)
		}
	}
}

// Requests over TLS work like others: connections are reused, large bodies arrive in both directions, and handlers may panic.
func TestTLSRequests(t *testing.T) {
	filotest.EachTLS(t, func(t *testing.T, serve func(testing.TB, *filo.Server) *filotest.Server) {
		large := bytes.Repeat([]byte("0123456789abcdef"), 128<<10) // 2 MB
		s := serve(t, &filo.Server{MaxBodyBytes: int64(len(large)), Handler: func(c *filo.Ctx) error {
			switch c.Path() {
			case "/panic":
				panic("on purpose")
			case "/stream":
				_, err := io.Copy(c.Stream(), c.BodyReader())
				return err
			}
			body, err := c.Body()
			if err != nil {
				return err
			}
			return c.Bytes(200, "application/octet-stream", body)
		}})
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(tls.VersionName(version), func(t *testing.T) {
				config := filotest.ClientTLS()
				config.MinVersion, config.MaxVersion = version, version
				transport := &http.Transport{TLSClientConfig: config}
				defer transport.CloseIdleConnections()
				client := &http.Client{Transport: transport, Timeout: filotest.Bound}
				before := s.Stats().ConnsAccepted
				for _, test := range []struct {
					path   string
					body   []byte
					status int
				}{
					{"/", nil, 200}, {"/", []byte("small"), 200}, {"/", large, 200}, {"/panic", nil, 500}, {"/stream", large, 200}, {"/", []byte("small"), 200},
				} {
					response, err := client.Post("https://"+s.Addr+test.path, "application/octet-stream", bytes.NewReader(test.body))
					if err != nil {
						t.Fatalf("%s with %d bytes: %v", test.path, len(test.body), err)
					}
					body, err := io.ReadAll(response.Body)
					response.Body.Close()
					if err != nil || response.StatusCode != test.status || test.status == 200 && !bytes.Equal(body, test.body) {
						t.Errorf("%s with %d bytes: %s, %d bytes, %v", test.path, len(test.body), response.Status, len(body), err)
					}
				}
				if conns := s.Stats().ConnsAccepted - before; conns != 1 {
					t.Errorf("it took %d connections", conns)
				}
			})
		}
	})
}

// Over TLS, Hijack returns the *tls.Conn.
func TestTLSHijack(t *testing.T) {
	s := filotest.ServeTLS(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		conn, buffered, err := c.Hijack()
		if err != nil {
			return err
		}
		if _, ok := conn.(*tls.Conn); !ok {
			t.Errorf("hijacked a %T", conn)
		}
		conn.Write(append(buffered, '!'))
		return conn.Close()
	}})
	c := s.DialTLS(t)
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\nfirst")
	if rest, err := io.ReadAll(c.Reader); string(rest) != "first!" || err != nil {
		t.Errorf("got %q, %v", rest, err)
	}
}

// During a shutdown, idle TLS connections end with a close_notify (RFC 8446, section 6.1), and running requests are completed.
func TestTLSShutdown(t *testing.T) {
	t.Parallel()
	gate := filotest.NewGate()
	s := filotest.ServeTLS(t, &filo.Server{Handler: gate.Handle})
	defer gate.Open()
	silent, idle, held, handshaking := s.DialTLS(t), s.DialTLS(t), s.DialTLS(t), s.Dial(t)
	idle.Get("/")
	idle.Want(200, "quick", false)
	begun := gate.Hold(t, held).ShuttingDown()
	filotest.Await(t, "the connections to be served", func() bool { return s.Stats().ConnsIdle == 3 })
	result := s.BeginShutdown(t, begun)
	silent.WantEOF() // an end without close_notify would be io.ErrUnexpectedEOF
	idle.WantEOF()
	handshaking.WantEnd()
	gate.Open()
	held.Want(200, "held", true)
	held.WantEOF()
	if err := filotest.Recv(t, result, "Shutdown to return"); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	s.WantNoGoroutine(t)
}

// Under overload, TLS clients also get a complete 503.
func TestTLSOverload(t *testing.T) {
	gate := filotest.NewGate()
	s := filotest.ServeTLS(t, &filo.Server{Handler: gate.Handle, Concurrency: 1})
	defer gate.Open()
	held := s.DialTLS(t)
	gate.Hold(t, held)
	for range 20 {
		s.DialTLS(t).WantRefusal(503)
	}
	gate.Open()
	held.Want(200, "held", false)
	held.Close()
	s.WantServesTLS(t)
}

// If a client has negotiated HTTP/2, the server refuses the connection with SETTINGS and a GOAWAY that says that no stream was served.
func TestTLSRefusalHTTP2(t *testing.T) {
	for name, config := range map[string]*filo.Server{
		"MaxConns":      {MaxConns: 1},
		"MaxConnsPerIP": {MaxConnsPerIP: 1},
		"Concurrency":   {Concurrency: 1, Driver: filo.DriverBlocking},
	} {
		t.Run(name, func(t *testing.T) {
			gate := filotest.NewGate()
			config.Handler = gate.Handle
			s := filotest.ListenTLS(t, config)
			defer gate.Open()
			gate.Hold(t, s.DialTLS(t))
			for range 3 {
				secure := filotest.ClientTLS()
				secure.NextProtos = []string{"h2"}
				conn, err := tls.Dial("tcp", s.Addr, secure)
				if err != nil {
					t.Fatal(err)
				}
				c := filotest.NewClient(t, conn)
				c.Send(http2.ClientPreface)
				const want = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00"
				got, err := io.ReadAll(c.Reader)
				if err != nil || len(got) < len(want)+3 || string(got[:9])+string(got[12:26]) != want {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
}

// A failed handshake is the client's error, so the server logs it only with LogAllErrors.
func TestTLSHandshakeLog(t *testing.T) {
	for _, all := range []bool{false, true} {
		log := new(filotest.Log)
		s := filotest.ServeTLS(t, &filo.Server{Handler: filotest.NewGate().Handle, LogAllErrors: all, Logger: log.Logger()})
		c := s.Dial(t)
		c.Send("GET / HTTP/1.1\r\n\r\n")
		io.Copy(io.Discard, c.Reader)
		filotest.Await(t, "the connection to go", func() bool { return s.Stats().ConnsOpen == 0 })
		if got := len(log.Lines("handshake")) > 0; got != all {
			t.Errorf("LogAllErrors %v: logged %v", all, got)
		}
		// A load balancer that only checks whether the port is open causes no log record.
		s.Dial(t).Close()
		silent := s.Dial(t)
		silent.Reset()
		filotest.Await(t, "the connections to go", func() bool { return s.Stats().ConnsOpen == 0 && s.Stats().ConnsAccepted == 3 })
		if n := s.Stats().HandshakeErrors; n != 1 {
			t.Errorf("%d errors of handshakes, want 1", n)
		}
	}
}

// lifeBrokenWriter is a connection whose writes time out as soon as broken is set.
type lifeBrokenWriter struct {
	net.Conn
	broken atomic.Bool
	tries  atomic.Int64 // attempts to write after a time-out
}

func (c *lifeBrokenWriter) SetWriteDeadline(at time.Time) error {
	if c.broken.Load() {
		c.tries.Add(1)
	}
	return c.Conn.SetWriteDeadline(at)
}

func (c *lifeBrokenWriter) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}
	return c.Conn.Write(p)
}

// After a failed write, crypto/tls fails all later writes ("After a Write has timed out, the TLS state is corrupt"). So the server ends the
// connection at once, whichever write has failed.
func TestTLSWriteFailsForGood(t *testing.T) {
	client, server := net.Pipe()
	broken := &lifeBrokenWriter{Conn: server}
	s := filotest.New(&filo.Server{Handler: func(c *filo.Ctx) error {
		broken.broken.Store(true)
		return c.Text(200, "never arrives")
	}}, 0)
	defer s.Close()
	served := make(chan error, 1)
	s.Go(func() {
		served <- s.ServeConn(tls.Server(broken, &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}}))
	})
	conn := tls.Client(client, filotest.ClientTLS())
	conn.SetDeadline(time.Now().Add(filotest.Bound))
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, conn)
	filotest.Recv(t, served, "the connection to end")
	// Ending a connection has a separate deadline.
	if tries := broken.tries.Load(); tries > 5 {
		t.Errorf("the server tried %d times to go on", tries)
	}
	client.Close()
	if err := s.ShutdownInTime(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	s.WantNoGoroutine(t)
}

// deafAnswer is slightly larger than the connection's buffer for a client that doesn't read.
const deafAnswer = 66 << 10

// Over TLS, the end of a connection begins with an alert. If the client doesn't read, writing the alert must not block anybody for long: no
// worker, no Shutdown, no Close, and no other goroutine that closes the connection.
func TestGoodbyeToDeafClients(t *testing.T) {
	const get, post = "GET /full HTTP/1.1\r\nHost: a\r\n\r\n", "POST /full HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n"
	const atOnce = 5 * time.Millisecond // Shutdown may check before a worker has noticed the shutdown, and then checks again
	for name, test := range map[string]struct {
		request string
		until   filo.ConnState // ConnState's value after the answer has been written
		end     func(s *filo.Server, told net.Conn, parked *filo.ParkedConn)
		most    time.Duration
	}{
		"after the last answer": {"GET /full HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", filo.StateClosed, nil, time.Second},
		"lingering":             {post, filo.StateClosed, nil, time.Second},
		"Shutdown":              {get, filo.StateIdle, nil, 2 * time.Second},
		"Close":                 {get, filo.StateIdle, func(s *filo.Server, _ net.Conn, _ *filo.ParkedConn) { s.Close() }, atOnce},
		"Close, lingering":      {post, filo.StateClosed, func(s *filo.Server, _ net.Conn, _ *filo.ParkedConn) { s.Close() }, atOnce},
		"ConnState's Close":     {get, filo.StateIdle, func(_ *filo.Server, told net.Conn, _ *filo.ParkedConn) { told.Close() }, atOnce},
		"ParkedConn's Close": {"GET /park HTTP/1.1\r\nHost: a\r\n\r\n", filo.StateHijacked,
			func(_ *filo.Server, _ net.Conn, parked *filo.ParkedConn) { parked.Close() }, atOnce},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told net.Conn
				var parked *filo.ParkedConn
				written, full := make(chan bool, 1), strings.Repeat("x", deafAnswer)
				s := &filo.Server{Logger: slog.New(slog.DiscardHandler), Handler: func(c *filo.Ctx) (err error) {
					if c.Path() == "/full" {
						return c.Text(200, full)
					}
					parked, err = c.Park("", func(*filo.ParkedConn, filo.Wake) error { return nil })
					if err == nil {
						_, err = io.WriteString(parked, full)
					}
					written <- true
					return err
				}}
				s.ConnState = func(conn net.Conn, state filo.ConnState) {
					if told = conn; state == test.until && state != filo.StateHijacked {
						written <- true
					}
				}
				listener, served := servertest.NewListener(), make(chan error, 1)
				config := &tls.Config{Certificates: []tls.Certificate{filotest.Certificate()}}
				go func() { served <- s.Serve(tls.NewListener(listener, config)) }()
				conn, err := listener.Dial()
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := io.WriteString(tls.Client(conn, filotest.ClientTLS()), test.request); err != nil {
					t.Fatal(err)
				}
				// After the answer has been written, the connection's buffer has no room for an alert.
				for synctest.Wait(); len(written) == 0; synctest.Wait() {
					if _, err := io.ReadFull(conn, make([]byte, 8)); err != nil {
						t.Fatal(err)
					}
				}
				start := time.Now()
				if test.end != nil {
					test.end(s, told, parked)
				}
				if took := time.Since(start); took > 0 {
					t.Errorf("to end it took %v", took)
				}
				s.Shutdown(context.Background())
				if took := time.Since(start); took > test.most {
					t.Errorf("it was over after %v", took)
				}
				<-served
			})
		})
	}
}

// If the server aborts an answer, the connection ends with a reset, even over TLS, because a careless client would take an orderly end for
// the end of the answer.
func TestBrokenOffOverTLS(t *testing.T) {
	filotest.EachTLS(t, func(t *testing.T, serve func(testing.TB, *filo.Server) *filotest.Server) {
		s := serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
			c.Stream().WriteString("a part")
			if err := c.Stream().Flush(); err != nil {
				return err
			}
			return filo.ErrAbort
		}})
		for range 20 {
			c := s.DialTLS(t)
			c.Send("GET / HTTP/1.0\r\n\r\n")
			if answer, err := io.ReadAll(c); !filotest.IsReset(err) {
				t.Errorf("after %d bytes: %v", len(answer), err)
			}
			c.Close()
		}
	})
}

// If a host demands another client certificate than the connection has shown, a request for this host gets a 421, over HTTP/1.1 and HTTP/2,
// whatever server name the handshake had. A host that demands no other certificate is served.
func TestMisdirected(t *testing.T) {
	certificate := filotest.Certificate()
	pool, other := x509.NewCertPool(), x509.NewCertPool()
	pool.AddCert(certificate.Leaf)
	demands := map[string]*tls.Config{
		"admin.test":   {ClientAuth: tls.RequireAnyClientCert, ClientCAs: pool},
		"copied.test":  {ClientAuth: tls.RequireAnyClientCert, ClientCAs: pool.Clone()},
		"others.test":  {ClientAuth: tls.RequireAnyClientCert, ClientCAs: other},
		"checked.test": {VerifyConnection: func(tls.ConnectionState) error { return nil }},
		"same.test":    {MinVersion: tls.VersionTLS13, ClientCAs: pool},
	}
	for _, config := range demands {
		config.Certificates = []tls.Certificate{certificate}
	}
	s := &filo.Server{Logger: slog.New(slog.DiscardHandler), Handler: func(c *filo.Ctx) error { return c.Text(200, c.Request.Host()) },
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			switch name := hello.ServerName; {
			case hello.Conn.RemoteAddr() == nil || hello.SupportsCertificate(&certificate) != nil && name == "filo.test":
				return nil, errors.New("a client that nobody can serve")
			case name == "unknown.test":
				return nil, errors.New("unknown")
			case name == "panic.test":
				panic("a mistake of the program's")
			default:
				return demands[name], nil
			}
		}}}
	address := filotest.Listening(t, func(address string) error { return s.ListenAndServeTLS(address, "", "") })
	defer s.Close()
	for _, test := range []struct {
		name, host string // the handshake's name, the request's host
		status     int
	}{
		{"filo.test", "filo.test", 200},
		{"filo.test", "FILO.test.:443", 200},
		{"filo.test", "www.test", 200},
		{"filo.test", "same.test", 200},
		{"filo.test", "127.0.0.1:443", 200},
		{"filo.test", "[::1]:443", 200},
		{"", "www.test", 200},
		{"", "127.0.0.1", 200},
		{"filo.test", "admin.test", 421},
		{"filo.test", "Admin.Test.:443", 421},
		{"", "admin.test", 421},
		{"filo.test", "checked.test", 421},
		{"filo.test", "unknown.test", 421},
		{"filo.test", "panic.test", 500},
		{"admin.test", "admin.test", 200},
		{"admin.test", "admin.test.", 200},
		{"admin.test", "copied.test", 200},
		{"admin.test", "others.test", 421},
		{"admin.test", "filo.test", 421},
	} {
		config := &tls.Config{InsecureSkipVerify: true, ServerName: test.name, Certificates: []tls.Certificate{certificate}}
		for _, protocol := range []string{"http/1.1", "h2"} {
			config.NextProtos = []string{protocol}
			conn, err := tls.Dial("tcp", address, config)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(filotest.Bound))
			client := &http.Transport{
				ForceAttemptHTTP2: protocol == "h2",
				DialTLSContext:    func(context.Context, string, string) (net.Conn, error) { return conn, nil },
			}
			request, _ := http.NewRequest("GET", "https://"+address, nil)
			request.Host = test.host
			response, err := client.RoundTrip(request)
			if err != nil {
				t.Fatalf("%q for %q by %s: %v", test.name, test.host, protocol, err)
			}
			response.Body.Close()
			conn.Close()
			if response.StatusCode != test.status {
				t.Errorf("%q for %q by %s: %d, want %d", test.name, test.host, protocol, response.StatusCode, test.status)
			}
		}
	}
	// A target in absolute form overrides Host.
	conn, err := tls.Dial("tcp", address, filotest.ClientTLS())
	if err != nil {
		t.Fatal(err)
	}
	c := filotest.NewClient(t, conn)
	c.Send("GET https://admin.test/ HTTP/1.1\r\nHost: filo.test\r\n\r\n")
	c.Want(421, "Misdirected Request: the connection was opened for another host\n", false)
}
