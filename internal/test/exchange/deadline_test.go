package exchange

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// "A read that waits at the deadline fails within a quarter of a second with an error that is os.ErrDeadlineExceeded. The
// zero time restores the server's limits."
func TestSetReadDeadline(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Millisecond} {
		filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
			begun, read := make(chan struct{}), make(chan error, 1)
			_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
				if err := c.SetReadDeadline(time.Now().Add(ahead)); err != nil {
					return err
				}
				if c.Path() == "/again" {
					time.Sleep(2 * time.Millisecond)
					c.SetReadDeadline(time.Time{})
					close(begun)
				}
				_, err := io.Copy(io.Discard, c.BodyReader())
				read <- err
				return err
			}})
			client.Send("POST /again HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
			filotest.Recv(t, begun, "the handler to begin")
			client.Send(string(make([]byte, 100000)))
			client.Want(200, "", false)
			if err := <-read; err != nil {
				t.Errorf("without a deadline any more: %v", err)
			}
			client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
			client.Want(408, "Request Timeout: the request body arrived too slowly\n", true)
			if err := filotest.Recv(t, read, "the read to end"); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%v: %v", ahead, err)
			}
		})
	}
}

// A deadline in the year 9999 must not overflow, and so expire at once.
func TestFarDeadlines(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		far, wakes := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), make(chan filo.Wake, 100)
		_, client := serve(&filo.Server{ReadTimeout: 40 * time.Millisecond, Handler: func(c *filo.Ctx) error {
			if err := errors.Join(c.SetReadDeadline(far), c.SetWriteDeadline(far)); err != nil {
				return err
			}
			if c.Path() == "/park" {
				p, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error {
					wakes <- why
					if why == filo.WakeData {
						return io.EOF
					}
					p.SetWait(far)
					return nil
				})
				if err == nil {
					p.SetWait(far)
				}
				return err
			}
			body, err := c.Body()
			return errors.Join(err, c.Text(200, fmt.Sprint(len(body))))
		}})
		client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
		client.Send(string(make([]byte, 100000)))
		client.Want(200, "100000", false)
		client.Get("/park")
		time.Sleep(100 * time.Millisecond) // enough for several sweeps, which run every 10 ms
		client.Send("x")
		client.Want(200, "", true)
		if why := filotest.Recv(t, wakes, "the function to be called"); why != filo.WakeData {
			t.Errorf("the first call was for %v", why)
		}
	})
}

// If a client doesn't read, the write deadline ends the wait of a handler that streams.
func TestSetWriteDeadline(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Millisecond} {
		filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
			wrote := make(chan error, 1)
			_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
				if err := c.SetWriteDeadline(time.Now().Add(ahead)); err != nil {
					return err
				}
				piece := make([]byte, 64<<10)
				for {
					if _, err := c.Stream().Write(piece); err != nil {
						wrote <- err
						return err
					}
				}
			}})
			client.Get("/")
			if err := filotest.Recv(t, wrote, "the write to end"); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%v: %v", ahead, err)
			}
		})
	}
}

// "The server's limits apply to whatever is left to send when the handler has returned."
func TestWriteDeadlineOfTheHandlerAlone(t *testing.T) {
	for _, size := range []int{10, 20_000, 300_000} {
		filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
			_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
				c.SetWriteDeadline(time.Unix(1, 0))
				return c.Text(200, strings.Repeat("x", size))
			}})
			client.Get("/")
			client.Want(200, strings.Repeat("x", size), false)
		})
	}
}

// A deadline in the distant past counts as expired.
func TestWriteDeadlineLongPast(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, copy := range map[string]func(io.Writer, *os.File) (int64, error){
		"CopyN": func(w io.Writer, file *os.File) (int64, error) { return io.CopyN(w, file, 16<<20) },
		"Copy":  func(w io.Writer, file *os.File) (int64, error) { return io.Copy(w, file) },
	} {
		t.Run(name, func(t *testing.T) {
			copied := make(chan error, 1)
			s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
				c.Response.Header.Set("Content-Length", fmt.Sprint(16<<20))
				if err := c.Stream().Flush(); err != nil {
					return err
				}
				c.SetWriteDeadline(time.Unix(1, 0))
				content, err := os.Open(file)
				if err != nil {
					return err
				}
				defer content.Close()
				_, err = copy(c.Stream(), content)
				copied <- err
				return err
			}})
			s.Dial(t).Get("/")
			if err := filotest.Recv(t, copied, "the copy to end"); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the copy ended by %v", err)
			}
		})
	}
}

// A request's deadlines don't apply to the next request, nor to a connection that a handler has taken over.
func TestDeadlinesEndWithTheirRequest(t *testing.T) {
	filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
		_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() == "/hijack" {
				conn, _, err := c.Hijack()
				if err != nil {
					return err
				}
				if !errors.Is(c.SetReadDeadline(time.Now()), filo.ErrHijacked) || !errors.Is(c.SetWriteDeadline(time.Now()), filo.ErrHijacked) {
					t.Error("deadlines of a connection that was hijacked")
				}
				return conn.Close()
			}
			if c.Path() == "/first" {
				c.SetReadDeadline(time.Now())
				c.SetWriteDeadline(time.Now().Add(time.Hour))
				return c.Text(200, "first")
			}
			body, err := c.Body()
			return errors.Join(err, c.Bytes(200, "a/b", body))
		}})
		client.Get("/first")
		client.Want(200, "first", false)
		client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n")
		client.Send(string(make([]byte, 20000)))
		client.Want(200, string(make([]byte, 20000)), false)
		client.Get("/hijack")
		client.WantEnd()
	})
}

// When a write has failed, a part of its bytes may have reached the client. Later bytes would continue them, so nothing follows: the client sees the
// end of the connection, and never takes the second answer for the first.
func TestNothingFollowsAFailedWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "two")
	if err := os.WriteFile(file, []byte(strings.Repeat("two", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(conn io.WriteCloser, err error) error {
		if err == nil {
			io.WriteString(conn, "two")
			conn.Close()
		}
		return err
	}
	for name, answer := range map[string]func(c *filo.Ctx) error{
		"whole": func(c *filo.Ctx) error { return c.Text(200, "two") },
		"stream": func(c *filo.Ctx) error {
			c.Stream().WriteString("two")
			return c.Stream().Flush()
		},
		"file": func(c *filo.Ctx) error {
			content, err := os.Open(file)
			if err != nil {
				return err
			}
			c.Response.SetBodyStream(content, 30_000)
			return nil
		},
		"interim answer": func(c *filo.Ctx) error { return c.EarlyHints() },
		"time-out": func(c *filo.Ctx) error {
			c.SetTimeout(time.Millisecond, nil)
			<-c.Context().Done()
			return c.Context().Err()
		},
		"hijack": func(c *filo.Ctx) error {
			conn, _, err := c.Hijack()
			return write(conn, err)
		},
		"upgrade": func(c *filo.Ctx) error {
			conn, _, err := c.Upgrade("two")
			return write(conn, err)
		},
		"park": func(c *filo.Ctx) error {
			p, err := c.Park("", func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
			return write(p, err)
		},
		"parked stream": func(c *filo.Ctx) error {
			p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return io.EOF })
			return write(p, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			filotest.EachTransport(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, *filotest.Client)) {
				_, client := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
					if c.Path() == "/one" {
						return c.Text(200, "one")
					}
					c.SetWriteDeadline(time.Unix(1, 0))
					if err := c.EarlyHints(); !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the write ended by %v", err)
					}
					c.SetWriteDeadline(time.Time{})
					return answer(c)
				}})
				client.Send("GET /one HTTP/1.1\r\nHost: a\r\n\r\nGET /two HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: two\r\n\r\n")
				got, err := io.ReadAll(client.Reader)
				if err != nil && !filotest.IsReset(err) {
					t.Error(err)
				}
				if answers := string(got); answers != "" && (strings.Count(answers, "HTTP/1.1") != 1 || !strings.HasSuffix(answers, "\r\n\r\none")) {
					t.Errorf("got %.200q", answers)
				}
			})
		})
	}
}
