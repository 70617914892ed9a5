package loop

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// apartHandler answers with its request's form, its deadline, and whether it has a stream.
func apartHandler(c *filo.Ctx) error {
	switch c.Path() {
	case "/stream":
		w := c.Stream()
		c.SetDeadline(time.Now())
		io.WriteString(w, "streamed")
		return w.Flush()
	case "/plain":
		return c.Text(200, fmt.Sprint("plain ", c.Context().Err()))
	}
	form, err := c.Request.MultipartForm()
	if err != nil {
		return err
	}
	answer := strings.Join(form.Value["secret"], ",")
	if c.Path() == "/large" {
		answer += strings.Repeat(".", 255<<10)
	}
	return c.Text(200, answer)
}

// After its handler has returned, a request ends only when the client has sent the rest of the body and read the answer. Before that, the
// same worker may serve another request, which must not see any data of the first one.
func TestUnfinishedRequestsKeepApart(t *testing.T) {
	filotest.NeedLoops(t)
	form := func(value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"secret\"\r\n\r\n" + value + "\r\n--b--\r\n"
	}
	post := func(path, extra, body string, length int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\n%sContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s",
			path, extra, length, body)
	}
	first := form("first")
	for name, test := range map[string]struct {
		request string
		reads   string // the client reads the answer up to this text, and then stops; "": it reads nothing
	}{
		"the rest of a form isn't sent":   {post("/form", "", first, len(first)+20000), "first"},
		"an answer isn't taken":           {post("/large", "Connection: close\r\n", first, len(first)), ""},
		"the rest below a stream is open": {"POST /stream HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n", "streamed"},
	} {
		for class, mode := range map[string]func(filo.Handler) filo.Handler{"inline": filo.Inline, "offload": filo.Offload} {
			t.Run(name+", "+class, func(t *testing.T) {
				s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: mode(apartHandler)})
				for range 3 {
					unfinished := s.Dial(t)
					if test.reads == "" {
						if err := unfinished.Conn.(*net.TCPConn).SetReadBuffer(2048); err != nil {
							t.Fatal(err)
						}
					}
					unfinished.Send(test.request)
					if test.reads != "" {
						var received []byte
						for buffer := make([]byte, 4096); !strings.Contains(string(received), test.reads); {
							n, err := unfinished.Conn.Read(buffer)
							if err != nil {
								t.Fatal(err)
							}
							received = append(received, buffer[:n]...)
						}
					}
					filotest.Await(t, "the worker to have left the request", func() bool { return s.Stats().WorkersRunning == 0 })
					next := s.Dial(t)
					for range 2 {
						body := form("second")
						next.Send(post("/form", "", body, len(body)))
						next.Want(200, "second", false)
						next.Get("/plain")
						next.Want(200, "plain <nil>", false)
					}
				}
			})
		}
	}
}

// Clients that begin a TLS handshake and then stop occupy no worker, and don't block other clients.
func TestUnfinishedHellosHoldNothing(t *testing.T) {
	filotest.NeedLoops(t)
	s := filotest.ListenTLS(t, &filo.Server{
		Concurrency:       2,
		ReadHeaderTimeout: time.Hour,
		Handler:           filo.Offload(func(c *filo.Ctx) error { return c.Text(200, "fine") }),
	})
	for name, hello := range map[string]string{"a byte": "\x16", "a header": "\x16\x03\x01\x02\x00", "more": "\x16\x03\x01\x02\x00\x01\x00\x01"} {
		for range 20 {
			s.Dial(t).Send(hello)
		}
		filotest.Await(t, name+" to be waited for", func() bool { return s.Stats().WorkersRunning == 0 })
		c := s.DialTLS(t)
		c.Get("/")
		c.Served("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "fine")
	}
	// If a client ends its side within the handshake, or sends other bytes, the server sends an alert or ends the connection at once.
	for name, hello := range map[string]string{"an end": "\x16\x03", "another record": "\x17\x03\x01\x00\x01", "no TLS": "GET / HTTP/1.1\r\n"} {
		c := s.Dial(t)
		c.Send(hello)
		if name == "an end" {
			c.Conn.(*net.TCPConn).CloseWrite()
		}
		if _, err := io.Copy(io.Discard, c.Conn); err != nil && !filotest.IsReset(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The time-out of a handshake begins with the client's first byte.
func TestUnfinishedHelloTimesOut(t *testing.T) {
	filotest.NeedLoops(t)
	s := filotest.ListenTLS(t, &filo.Server{ReadHeaderTimeout: 100 * time.Millisecond, Handler: filo.Offload(func(c *filo.Ctx) error { return nil })})
	c := s.Dial(t)
	begun := time.Now()
	for _, piece := range []string{"\x16", "\x03", "\x01"} {
		io.WriteString(c, piece) // on a busy machine, the time-out may expire before the last piece
		time.Sleep(30 * time.Millisecond)
	}
	c.Conn.SetReadDeadline(time.Now().Add(filotest.Bound))
	if _, err := io.Copy(io.Discard, c.Conn); err != nil && !filotest.IsReset(err) {
		t.Error(err)
	}
	t.Logf("closed after %v", time.Since(begun))
}

// The write deadline of a parked connection ends its writes, whatever the connection's loop is doing.
func TestParkedWriteDeadlines(t *testing.T) {
	parked := make(chan *filo.ParkedConn, 1)
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() != "/park" {
			return c.Text(200, "fine")
		}
		p, err := c.Park("", func(p *filo.ParkedConn, why filo.Wake) error {
			_, err := p.Read(make([]byte, 100))
			return err
		})
		if err == nil {
			parked <- p
		}
		return err
	}})
	const writers = 50
	large := make([]byte, 16<<20)
	deadline := time.Now().Add(300 * time.Millisecond)
	ended := make(chan error, writers)
	for range writers {
		c := s.Dial(t)
		c.Get("/park")
		p := filotest.Recv(t, parked, "the connection to be parked")
		s.Go(func() {
			p.SetWriteDeadline(deadline)
			_, err := p.Write(large)
			ended <- err
		})
	}
	busy := s.Dial(t)
	for time.Now().Before(deadline) {
		busy.Get("/")
		busy.Want(200, "fine", false)
	}
	for range writers {
		if err, ok := filotest.Recv(t, ended, "a write to end").(net.Error); !ok || !err.Timeout() {
			t.Errorf("a write has ended with %v", err)
		}
	}
}

// However slowly a client reads, it gets all answers to its pipelined requests in order.
func TestUnreadAnswersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	padding := strings.Repeat(".", 7000)
	answer := func(c *filo.Ctx) error { return c.Text(200, padding+c.Path()) }
	for name, handler := range map[string]filo.Handler{
		"learned, slow": func(c *filo.Ctx) error {
			time.Sleep(50 * time.Microsecond)
			return answer(c)
		},
		"learned, quick": answer,
		"inline":         filo.Inline(answer),
		"offload":        filo.Offload(answer),
	} {
		t.Run(name, func(t *testing.T) {
			s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: handler})
			c := s.Dial(t)
			const requests = 2000
			s.Go(func() {
				for i := range requests {
					fmt.Fprintf(c.Conn, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i)
				}
			})
			// Wait until the client's and the server's buffers are full.
			for before := uint64(0); ; {
				time.Sleep(20 * time.Millisecond)
				now := s.Stats().Requests[2]
				if now == before && now > 0 {
					break
				}
				before = now
			}
			for i := range requests {
				c.Want(200, fmt.Sprintf("%s/%d", padding, i), false)
				if t.Failed() {
					return
				}
			}
		})
	}
}
