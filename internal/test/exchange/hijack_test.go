package exchange

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// answerEcho uses a hijacked connection for another protocol: it echoes all bytes until the end.
func answerEcho(conn net.Conn, buffered []byte) {
	defer conn.Close()
	conn.Write(buffered)
	io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn})
}

// Hijack returns all bytes that have arrived after the head: an unread body, and anything after it.
func TestHijackBuffered(t *testing.T) {
	for _, test := range []struct {
		name, request string
		before        func(c *filo.Ctx)
		want          string
	}{
		{"nothing", filotest.GetRequest, nil, ""},
		{"bytes of another protocol", filotest.GetRequest + "\x00\xffbinary", nil, "\x00\xffbinary"},
		{"a pipelined request", filotest.GetRequest + filotest.GetRequest, nil, filotest.GetRequest},
		{"a body that wasn't read", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbodyrest", nil, "bodyrest"},
		{"a body that was read", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbodyrest", func(c *filo.Ctx) { c.Body() }, "rest"},
		{"a body that was read in part", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbodyrest",
			func(c *filo.Ctx) { c.BodyReader().Read(make([]byte, 3)) }, "yrest"},
		{"a chunked body that wasn't read", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", nil, "4\r\nbody\r\n0\r\n\r\n"},
		{"read by the context's watch", filotest.GetRequest + "more", func(c *filo.Ctx) { c.Context().Done() }, "more"},
	} {
		t.Run(test.name, func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server {
				return &filo.Server{Handler: func(c *filo.Ctx) error {
					if test.before != nil {
						test.before(c)
					}
					conn, buffered, err := c.Hijack()
					if err != nil {
						return err
					}
					answerEcho(conn, buffered)
					return errors.New("dropped, like all that the handler answers now")
				}}
			}, func(t *testing.T, h *filotest.Host) {
				if got := h.Raw(t, test.request); got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
			})
		})
	}
}

// A hijacked connection is the accepted net.Conn without deadlines, and only the handler uses it.
func TestHijackGivesTheConnection(t *testing.T) {
	t.Parallel()
	const limit = time.Second // long enough for a request on a slow machine
	conns := make(chan net.Conn, 1)
	h := filotest.ServeSocket(t, &filo.Server{ReadTimeout: limit, WriteTimeout: limit, IdleTimeout: limit, ReadHeaderTimeout: limit,
		Handler: func(c *filo.Ctx) error {
			conn, buffered, err := c.Hijack()
			if err != nil || len(buffered) > 0 {
				t.Errorf("Hijack: %q, %v", buffered, err)
			}
			conns <- conn
			return nil // another goroutine uses it from here on
		}})
	c := h.Connect(t)
	c.Send(t, filotest.GetRequest)
	conn := filotest.Recv(t, conns, "the handler")
	defer conn.Close()
	if _, ok := conn.(*net.TCPConn); !ok {
		t.Errorf("got a %T, want the *net.TCPConn that was accepted", conn)
	}
	filotest.Await(t, "the server to forget the connection", func() bool {
		stats := h.Config.Stats()
		return stats.ConnsOpen == 0 && stats.WorkersRunning == 0
	})
	// The worker now serves other connections, and the server's time-outs don't apply to the hijacked one.
	for range 3 {
		other := h.Connect(t)
		other.Send(t, filotest.GetRequest)
		filotest.Recv(t, conns, "another handler").Close()
		time.Sleep(limit / 2) // in all, longer than the server's time-outs, which must not apply
	}
	for _, text := range []string{"one", "two"} {
		c.Send(t, text)
		got := make([]byte, len(text))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
			t.Errorf("got %q, %v, want %q", got, err, text)
		}
		if _, err := conn.Write(got); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c.In, got); err != nil || string(got) != text {
			t.Errorf("the client got %q, %v, want %q", got, err, text)
		}
	}
}

// Shutdown "doesn't wait for hijacked connections", and Close doesn't end them.
func TestHijackAndShutdown(t *testing.T) {
	for name, stop := range map[string]func(s *filo.Server) error{
		"Shutdown": func(s *filo.Server) error {
			ctx, cancel := context.WithTimeout(context.Background(), filotest.Bound)
			defer cancel()
			return s.Shutdown(ctx)
		},
		"Close": (*filo.Server).Close,
	} {
		t.Run(name, func(t *testing.T) {
			filotest.EachHost(t, func() *filo.Server {
				return &filo.Server{Handler: func(c *filo.Ctx) error {
					conn, buffered, err := c.Hijack()
					go answerEcho(conn, buffered)
					return err
				}}
			}, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				c.Send(t, filotest.GetRequest+"x")
				if b, err := c.In.ReadByte(); err != nil || b != 'x' {
					t.Fatalf("got %q, %v", b, err)
				}
				if err := stop(h.Config); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				c.Send(t, "y")
				if b, err := c.In.ReadByte(); err != nil || b != 'y' {
					t.Errorf("after %s: got %q, %v, want the echo", name, b, err)
				}
				c.Close()
			})
		})
	}
}

// Over TLS, the handler gets the *tls.Conn, and the bytes that the server has already decrypted.
func TestHijackTLS(t *testing.T) {
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	defer certificates.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	filotest.ServeOn(t, &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
		if c.TLS() == nil || c.Request.URI().Scheme() != "https" {
			t.Errorf("TLS %v, scheme %s", c.TLS(), c.Request.URI().Scheme())
		}
		c.Context().Done() // the end of the watch must not break the TLS state
		conn, buffered, err := c.Hijack()
		if _, ok := conn.(*tls.Conn); !ok || err != nil {
			t.Errorf("got a %T, %v, want the *tls.Conn", conn, err)
			return err
		}
		answerEcho(conn, buffered)
		return nil
	}}, tls.NewListener(listener, &tls.Config{Certificates: certificates.TLS.Certificates}))
	client, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.SetDeadline(time.Now().Add(filotest.Bound))
	for _, text := range []string{"one", "two", "three"} {
		if text == "one" {
			io.WriteString(client, filotest.GetRequest)
		}
		io.WriteString(client, text)
		got := make([]byte, len(text))
		if _, err := io.ReadFull(client, got); err != nil || string(got) != text {
			t.Fatalf("got %q, %v, want %q", got, err, text)
		}
	}
	client.CloseWrite()
	if rest, err := io.ReadAll(client); err != nil || len(rest) > 0 {
		t.Errorf("at the end: %q, %v", rest, err)
	}
}

// Upgrade answers 101 (RFC 9110, section 15.2.2) with Upgrade, Connection and the handler's fields, byte by byte.
func TestUpgrade(t *testing.T) {
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Handler: func(c *filo.Ctx) error {
			c.Response.Header.Set("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
			c.Response.Header.Set("Content-Length", "5")
			c.Response.Header.Set("Transfer-Encoding", "chunked")
			c.Response.Header.Set("Connection", "close")
			conn, buffered, err := c.Upgrade("websocket")
			if err != nil {
				return err
			}
			answerEcho(conn, buffered)
			return nil
		}}
	}, func(t *testing.T, h *filotest.Host) {
		got := h.Raw(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\nframe")
		fields := strings.Split(strings.TrimSuffix(got, "\r\n\r\nframe"), "\r\n")
		want := []string{"HTTP/1.1 101 Switching Protocols", "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "Upgrade: websocket", "Connection: Upgrade"}
		if !strings.HasSuffix(got, "\r\n\r\nframe") {
			t.Errorf("got %q, want the echoed frame at the end", got)
		}
		for _, line := range want {
			if !strings.Contains("\r\n"+strings.Join(fields, "\r\n")+"\r\n", "\r\n"+line+"\r\n") {
				t.Errorf("got %q, want %q in it", fields, line)
			}
		}
		for _, not := range []string{"Content-Length", "Transfer-Encoding", "close"} {
			if strings.Contains(got, not) {
				t.Errorf("got %q, with %s (RFC 9110, section 8.6, and RFC 9112, section 6.1, forbid it in a 1xx)", fields, not)
			}
		}
	})
}

func TestUpgradeRefused(t *testing.T) {
	for _, test := range []struct {
		rule, request string
		want          int
	}{
		{"an Upgrade in an HTTP/1.0 request is ignored (RFC 9110, section 7.8)", "GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 426},
		{"a server must not switch to a protocol that the client didn't ask for (RFC 9110, section 7.8)", filotest.GetRequest, 426},
		{"a server must not switch to a protocol that the client didn't ask for (RFC 9110, section 7.8)",
			"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c, foo\r\n\r\n", 426},
		{"an Upgrade that Connection doesn't list isn't for this hop (RFC 9110, section 7.8)",
			"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", 426},
	} {
		m := answerRequest(t, func(c *filo.Ctx) error {
			_, _, err := c.Upgrade("websocket")
			return err
		}, test.request)
		if m.Status != test.want {
			t.Errorf("%s: got %d %q, want %d", test.rule, m.Status, m.Body, test.want)
			continue
		}
		// RFC 9110, section 15.5.22: "The server MUST send an Upgrade header field in a 426 response".
		option := slices.ContainsFunc(m.Fields, func(line string) bool {
			return strings.HasPrefix(line, "Connection: ") && strings.Contains(strings.ToLower(line), "upgrade")
		})
		if m.Get("Upgrade") != "websocket" || !option {
			t.Errorf("%s: a 426 with %q, want Upgrade and its connection option", test.rule, m.Fields)
		}
	}
	// The Upgrade field may list several protocols, in upper or lower case. The server chooses one of them.
	m := answerRequest(t, func(c *filo.Ctx) error {
		conn, _, err := c.Upgrade("websocket")
		if err == nil {
			conn.Close()
		}
		return err
	}, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: foo/2, WebSocket\r\n\r\n")
	if m.Status != 101 {
		t.Errorf("got %d, want 101", m.Status)
	}
}

// After a handler has taken the connection over, other methods return an error that says so, and have no effect.
func TestHijackTwice(t *testing.T) {
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
			conn, _, err := c.Hijack()
			if err != nil {
				return err
			}
			defer conn.Close()
			for name, call := range map[string]func() error{
				"Hijack":     func() error { _, _, err := c.Hijack(); return err },
				"Upgrade":    func() error { _, _, err := c.Upgrade("x"); return err },
				"EarlyHints": func() error { c.Response.Header.Set("Link", "x"); return c.EarlyHints() },
				"Write":      func() error { _, err := c.Stream().Write(make([]byte, 10000)); return err },
				"Flush":      func() error { c.Stream().WriteString("x"); return c.Stream().Flush() },
				"Body":       func() error { _, err := c.Body(); return err },
				"BodyReader": func() error { _, err := c.BodyReader().Read(make([]byte, 10)); return err },
				"Text":       func() error { return c.Text(200, strings.Repeat("not sent", 5000)) },
				"Bytes":      func() error { return c.Bytes(200, "a/b", []byte("not sent")) },
				"NoCopy":     func() error { return c.BytesNoCopy(200, "a/b", []byte("not sent")) },
				"JSON":       func() error { return c.JSON(200, "not sent") },
				"XML":        func() error { return c.XML(200, "not sent") },
				"HTML":       func() error { return c.HTML(200, "not sent") },
				"Redirect":   func() error { return c.Redirect(303, "/") },
				"NoContent":  func() error { return c.NoContent() },
				"File":       func() error { return c.File("hijack_test.go") },
				"Attachment": func() error { return c.Attachment("hijack_test.go", "") },
				"Reader":     func() error { return c.Reader(200, "a/b", strings.NewReader("not sent"), -1) },
			} {
				if err := call(); !errors.Is(err, filo.ErrHijacked) {
					t.Errorf("%s after Hijack: %v, want ErrHijacked", name, err)
				}
			}
			return nil
		}}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		// The client doesn't send the body, and the server must not wait for it.
		c.Send(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
		c.WantEnd(t)
	})
}

// An answer that a handler sets after it has taken the connection over isn't sent, and the server logs this once. Other errors are logged
// only with LogAllErrors, because most are due to a client that has disconnected.
func TestAnswerAfterTakingOver(t *testing.T) {
	hijack := func(c *filo.Ctx) error {
		conn, _, err := c.Hijack()
		if err == nil {
			conn.Close()
		}
		return err
	}
	parkStream := func(c *filo.Ctx) error {
		p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
		if err == nil {
			p.End()
		}
		return err
	}
	text := func(c *filo.Ctx) error { return c.Text(200, "dropped") }
	fail := func(*filo.Ctx) error { return io.ErrUnexpectedEOF }
	for name, test := range map[string]struct {
		take, then filo.Handler
		all        bool
		want       string
	}{
		"Hijack":                   {hijack, text, false, "error=filo: the connection was taken over before, by Hijack, Upgrade or Park method=GET path=/"},
		"ParkStream":               {parkStream, text, false, "error=filo: the connection was taken over before, by Hijack, Upgrade or Park method=GET path=/"},
		"another error":            {hijack, fail, false, ""},
		"another error, all of it": {hijack, fail, true, "error=unexpected EOF method=GET path=/"},
	} {
		t.Run(name, func(t *testing.T) {
			log, ended := new(answerLog), make(chan bool, 1)
			filotest.EachHost(t, func() *filo.Server {
				log = new(answerLog)
				return &filo.Server{Logger: log.logger(), LogAllErrors: test.all, Handler: func(c *filo.Ctx) error {
					c.Request.SetBodyReader(tellingCloser{strings.NewReader(""), ended})
					if err := test.take(c); err != nil {
						return err
					}
					return test.then(c)
				}}
			}, func(t *testing.T, h *filotest.Host) {
				h.Raw(t, filotest.GetRequest)
				filotest.Recv(t, ended, "the request's end")
				got := strings.Join(log.all(), "\n")
				const message = "ERROR handler failed after it had taken the connection over "
				if test.want == "" && got != "" || test.want != "" && (!strings.HasPrefix(got, message+test.want) || strings.Contains(got, "\n")) {
					t.Errorf("logged %q, want %q", got, test.want)
				}
			})
		})
	}
}

// The reader of a body is closed "if it is an io.Closer", even if the body isn't sent.
func TestReaderIsClosedAfterTakingOver(t *testing.T) {
	closed := make(chan bool, 1)
	h := filotest.ServeMemory(t, &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
		conn, _, err := c.Hijack()
		if err != nil {
			return err
		}
		conn.Close()
		return c.Reader(200, "a/b", tellingCloser{strings.NewReader("x"), closed}, -1)
	}})
	h.Raw(t, filotest.GetRequest)
	filotest.Recv(t, closed, "the reader to be closed")
}

// tellingCloser is a reader that records when it is closed.
type tellingCloser struct {
	io.Reader
	closed chan<- bool
}

func (r tellingCloser) Close() error { r.closed <- true; return nil }

// "ErrHeadSent is returned by methods that would change an answer whose head has been sent."
func TestHijackAfterTheHead(t *testing.T) {
	m := answerRequest(t, func(c *filo.Ctx) error {
		w := c.Stream()
		w.Flush()
		for name, call := range map[string]func() error{
			"Hijack":     func() error { _, _, err := c.Hijack(); return err },
			"Upgrade":    func() error { _, _, err := c.Upgrade("x"); return err },
			"EarlyHints": c.EarlyHints,
		} {
			if err := call(); !errors.Is(err, filo.ErrHeadSent) {
				t.Errorf("%s after the head: %v, want ErrHeadSent", name, err)
			}
		}
		_, err := w.WriteString("whole")
		return err
	}, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	if m.Body != "whole" {
		t.Errorf("got %q", m.Body)
	}
}

// If an ErrorHandler is called after the handler has returned, it can't take the connection over. Its answer is sent, and the next request is
// served.
func TestErrorHandlerTakesNothingOver(t *testing.T) {
	takeOver := map[string]func(c *filo.Ctx) error{
		"Hijack":     func(c *filo.Ctx) error { _, _, err := c.Hijack(); return err },
		"Upgrade":    func(c *filo.Ctx) error { _, _, err := c.Upgrade("x"); return err },
		"Park":       func(c *filo.Ctx) error { _, err := c.Park("", nothingParked); return err },
		"ParkStream": func(c *filo.Ctx) error { _, err := c.ParkStream(nothingParked); return err },
	}
	newServer := func() *filo.Server {
		return &filo.Server{Logger: filotest.Quiet,
			Handler: func(c *filo.Ctx) error { return errors.New("no") },
			ErrorHandler: func(c *filo.Ctx, err error) {
				if err := takeOver[c.Path()[1:]](c); err == nil || c.Hijacked() {
					t.Errorf("%s by the ErrorHandler: %v", c.Path(), err)
				}
				c.Text(500, "answered")
			}}
	}
	filotest.EachHost(t, newServer, func(t *testing.T, h *filotest.Host) {
		client := h.Connect(t)
		for call := range takeOver {
			client.Send(t, "GET /"+call+" HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			if m := client.Receive(t, "GET"); m.Body != "answered" {
				t.Errorf("%s: got %q", call, m.Body)
			}
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		_, dial := filotest.ServeRawHTTP2(t, newServer(), true)
		client, id := dial(), uint32(1)
		for call := range takeOver {
			client.Request(id, "/"+call, true).Send()
			if got := client.Answer(id); !got.Ended || string(got.Body) != "answered" {
				t.Errorf("%s: got %v", call, got)
			}
			id += 2
		}
	})
}

func nothingParked(*filo.ParkedConn, filo.Wake) error { return nil }

// Hijack drops a stream that hasn't been sent yet, like any other response.
func TestHijackDropsTheResponse(t *testing.T) {
	h := filotest.ServeMemory(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		c.Text(200, "dropped")
		c.Stream().WriteString("dropped too")
		conn, _, err := c.Hijack()
		if err != nil {
			return err
		}
		io.WriteString(conn, "raw")
		return conn.Close()
	}})
	if got := h.Raw(t, filotest.GetRequest); got != "raw" {
		t.Errorf("got %q", got)
	}
}

// However a handler ends after Hijack, the server doesn't touch the connection.
func TestHijackAndTheHandlersEnd(t *testing.T) {
	for name, end := range map[string]func() error{
		"nil":    func() error { return nil },
		"error":  func() error { return errors.New("no") },
		"abort":  func() error { return filo.ErrAbort },
		"panic":  func() error { panic("no") },
		"Goexit": func() error { answerGoexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conns := make(chan net.Conn, 1)
				var states []filo.ConnState
				s := servertest.NewServer(t, &filo.Server{Logger: filotest.Quiet,
					ConnState: func(_ net.Conn, state filo.ConnState) { states = append(states, state) },
					Handler: func(c *filo.Ctx) error {
						conn, _, err := c.Hijack()
						if err != nil {
							return err
						}
						conns <- conn
						return end()
					}})
				c := answerClientOf(s.Dial(t))
				c.Send(t, filotest.GetRequest)
				conn := <-conns
				synctest.Wait()
				time.Sleep(5 * time.Minute) // longer than every time-out of the server
				answerEchoOnce(t, conn, c)
				if last := states[len(states)-1]; last != filo.StateHijacked {
					t.Errorf("states %v, want hijacked at last", states)
				}
				conn.Close()
			})
		})
	}
}

func answerEchoOnce(t *testing.T, conn net.Conn, c *filotest.StrictClient) {
	t.Helper()
	c.Send(t, "ping")
	got := make([]byte, 4)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "ping" {
		t.Errorf("the handler's side got %q, %v", got, err)
	}
	io.WriteString(conn, "pong")
	if _, err := io.ReadFull(c.In, got); err != nil || string(got) != "pong" {
		t.Errorf("the client got %q, %v", got, err)
	}
}

// Early hints precede the final answer. The test compares all bytes.
func TestEarlyHints(t *testing.T) {
	handler := func(c *filo.Ctx) error {
		h := &c.Response.Header
		h.Set("Link", "</style.css>; rel=preload")
		h.Add("Link", "</script.js>; rel=preload")
		h.Set("Content-Type", "text/x")
		h.Set("Content-Length", "99")
		h.Set("Connection", "close")
		if err := c.EarlyHints(); err != nil {
			return err
		}
		h.Del("Connection")
		h.Set("X-Later", "1")
		if err := c.EarlyHints(); err != nil {
			return err
		}
		return c.Bytes(200, "text/y", []byte("final"))
	}
	const final = "HTTP/1.1 200 OK\nLink: </style.css>; rel=preload\nLink: </script.js>; rel=preload\nContent-Type: text/y\nX-Later: 1\n" +
		"Server: filo\nDate: D\nContent-Length: 5\n"
	const links = "Link: </style.css>; rel=preload\nLink: </script.js>; rel=preload\n"
	for _, test := range []struct{ rule, request, want string }{
		{"103 with the fields that Response.Header has now; they stay for the final answer (RFC 8297)", filotest.GetRequest,
			"HTTP/1.1 103 Early Hints\n" + links + "\nHTTP/1.1 103 Early Hints\n" + links + "X-Later: 1\n\n" + final + "\nfinal"},
		{"a server must not send a 1xx to an HTTP/1.0 client (RFC 9110, section 15.2)", "GET / HTTP/1.0\r\n\r\n", final + "Connection: close\n\nfinal"},
	} {
		filotest.EachHost(t, func() *filo.Server { return &filo.Server{Handler: handler, Logger: filotest.Quiet} }, func(t *testing.T, h *filotest.Host) {
			if got, want := answerUndated(t, h.Raw(t, test.request)), answerWire(test.want); got != want {
				t.Errorf("%s:\n got %q\nwant %q", test.rule, got, want)
			}
		})
	}
}

// Early hints are sent at once, while the handler still runs.
func TestEarlyHintsAreSentAtOnce(t *testing.T) {
	next := make(chan bool)
	filotest.EachHost(t, func() *filo.Server {
		return &filo.Server{Handler: func(c *filo.Ctx) error {
			c.Response.Header.Set("Link", "x")
			err := c.EarlyHints()
			<-next
			return err
		}}
	}, func(t *testing.T, h *filotest.Host) {
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest)
		if m := c.Receive(t, "GET"); m.Status != 103 || m.Get("Link") != "x" {
			t.Errorf("got %d %q", m.Status, m.Fields)
		}
		next <- true
		if m := c.Receive(t, "GET"); m.Status != 200 || m.Get("Link") != "x" {
			t.Errorf("got %d %q", m.Status, m.Fields)
		}
	})
}

// If no worker is free to take over the loop from the handler's goroutine, Upgrade fails, and must not have sent a 101.
func TestUpgradeWithoutAPlace(t *testing.T) {
	filotest.NeedLoops(t)
	gate := filotest.NewGate()
	hold := filo.Offload(gate.Handle)
	upgrade := filo.Inline(func(c *filo.Ctx) error {
		if c.Path() == "/park" {
			_, err := c.Park("websocket", func(*filo.ParkedConn, filo.Wake) error { return nil })
			return err
		}
		conn, _, err := c.Upgrade("websocket")
		if err == nil {
			conn.Close()
		}
		return err
	})
	s := filotest.Serve(t, &filo.Server{Concurrency: 1, Leaders: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/hold" {
			return hold(c)
		}
		return upgrade(c)
	}})
	t.Cleanup(gate.Open)
	gate.HoldPlace(t, s, s.Dial(t))
	for _, path := range []string{"/park", "/upgrade"} {
		filotest.Await(t, path+" by a leader that keeps its loop", func() bool {
			retakes := s.Stats().Retakes
			client := s.Dial(t)
			defer client.Close()
			client.Send("GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			response, body := client.Answer()
			// A leader that has lost its loop because it ran for too long occupies a place beyond the limit, and may answer with 101.
			if response.StatusCode == 101 && s.Stats().Retakes > retakes {
				return false
			}
			if response.StatusCode != 503 {
				t.Errorf("%s: %d %q, want a 503 alone", path, response.StatusCode, body)
			}
			return true
		})
	}
}

// Unread bytes of a request's body never become bytes of the protocol to which Upgrade or Park switches.
func TestSwitchWithBody(t *testing.T) {
	s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		if c.Query("read") != "" {
			if _, err := c.Body(); err != nil {
				return err
			}
		}
		if c.Path() == "/park" {
			_, err := c.Park("echo", func(p *filo.ParkedConn, _ filo.Wake) error {
				b := make([]byte, 16)
				n, err := p.Read(b)
				p.Write(b[:n])
				return err
			})
			return err
		}
		conn, buffered, err := c.Upgrade("echo")
		if err != nil {
			return err
		}
		defer conn.Close()
		b := make([]byte, 16)
		n := copy(b, buffered)
		if n == 0 {
			n, err = conn.Read(b)
		}
		conn.Write(b[:n])
		return err
	}})
	for _, path := range []string{"/", "/park"} {
		for _, body := range []string{"Content-Length: 2\r\n\r\nhi", "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"} {
			for query, status := range map[string]int{"": 400, "?read=1": 101} {
				c := s.Dial(t)
				c.Send("POST " + path + query + " HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n" + body)
				response, err := http.ReadResponse(c.Reader, nil)
				if err != nil || response.StatusCode != status {
					t.Fatalf("%s%s: %v %v", path, query, response, err)
				}
				if status == 101 {
					c.Send("new")
					got := make([]byte, 3)
					if _, err := io.ReadFull(c.Reader, got); err != nil || string(got) != "new" {
						t.Errorf("%s: got %q, %v", path, got, err)
					}
				}
			}
		}
	}
}
