package filo_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
)

// parkAll parks each request's stream, and passes it on. The function ends when the client does, and says goodbye in a shutdown.
func parkAll(parked chan<- *filo.ParkedConn, ended chan<- error) filo.Handler {
	return func(c *filo.Ctx) error {
		p, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error {
			if why == filo.WakeShutdown {
				p.Queue(filo.NewPreparedMessage([]byte("bye\n")))
				return nil
			}
			_, err := p.Read(make([]byte, 100))
			return err
		})
		if err != nil {
			return err
		}
		p.OnClose(func() { ended <- nil })
		parked <- p
		return nil
	}
}

// What is written and queued on a parked stream arrives, in order, and siblings go on.
func TestHTTP2Parked(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*lifeServer, *http2Client)) {
		parked, ended := make(chan *filo.ParkedConn, 1), make(chan error, 10)
		park := parkAll(parked, ended)
		s, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			if c.Path() == "/" {
				return c.Text(200, "ok")
			}
			c.Response.Header.Set("Content-Type", "text/event-stream")
			return park(c)
		}})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		response, err := c.do(ctx, "GET", "/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		p := lifeRecv(t, parked, "the parked stream")
		lines := bufio.NewReader(response.Body)
		for _, line := range []string{"one\n", "two\n", strings.Repeat("x", 200_000) + "\n", "four\n"} {
			if _, err := p.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
			if got, err := lines.ReadString('\n'); got != line || err != nil {
				t.Fatalf("%s: %v", cutText(got), err)
			}
			if err := p.Queue(filo.NewPreparedMessage([]byte("queued " + line))); err != nil {
				t.Fatal(err)
			}
			if got, err := lines.ReadString('\n'); got != "queued "+line || err != nil {
				t.Fatalf("%s: %v", cutText(got), err)
			}
			c.want("GET", "/", nil, 200, "ok")
		}
		lifeAwait(t, "the parked stream alone", func() bool { return s.Stats().Streams == 1 })
		cancel()
		lifeRecv(t, ended, "the end of the parked stream")
		lifeAwait(t, "the stream to be gone", func() bool { return s.Stats().Streams == 0 })
		if _, err := p.Write([]byte("late")); err == nil {
			t.Error("a write after the end has no error")
		}
	})
}

// End ends the body properly, Close breaks it off, and a shutdown lets the function say goodbye.
func TestHTTP2ParkedEnds(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*lifeServer, *filo.ParkedConn)
		want string
		err  bool
	}{
		"End":      {func(_ *lifeServer, p *filo.ParkedConn) { p.End() }, "hello", false},
		"Close":    {func(_ *lifeServer, p *filo.ParkedConn) { p.Close() }, "hello", true},
		"shutdown": {func(s *lifeServer, _ *filo.ParkedConn) { go s.shutdown() }, "hellobye\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			eachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*lifeServer, *http2Client)) {
				parked, ended := make(chan *filo.ParkedConn, 1), make(chan error, 1)
				s, c := serve(&filo.Server{Handler: parkAll(parked, ended)})
				response, err := c.do(context.Background(), "GET", "/", nil)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				p := lifeRecv(t, parked, "the parked stream")
				p.Write([]byte("hello"))
				if _, err := io.ReadFull(response.Body, make([]byte, 5)); err != nil {
					t.Fatal(err)
				}
				test.end(s, p)
				rest, err := io.ReadAll(response.Body)
				if got := "hello" + string(rest); got != test.want || (err != nil) != test.err {
					t.Errorf("%q, %v", got, err)
				}
				lifeRecv(t, ended, "OnClose")
			})
		})
	}
}

// The deadline of SetWait wakes the function of a parked stream.
func TestHTTP2ParkedDeadline(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*lifeServer, *http2Client)) {
		_, c := serve(&filo.Server{Handler: func(c *filo.Ctx) error {
			p, err := c.ParkStream(func(p *filo.ParkedConn, why filo.Wake) error {
				if why != filo.WakeDeadline {
					return errors.New("not the deadline")
				}
				p.Write([]byte("tick"))
				return io.EOF
			})
			if err != nil {
				return err
			}
			p.SetWait(time.Now().Add(20 * time.Millisecond))
			return nil
		}})
		c.want("GET", "/", nil, 200, "tick")
	})
}

// A client that has vanished is found by a PING.
func TestHTTP2Ping(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*lifeServer, *http2Client)) {
		begun, release := make(chan struct{}), make(chan struct{})
		_, c := serve(&filo.Server{HTTP2: filo.HTTP2Options{PingInterval: 10 * time.Millisecond}, Handler: func(c *filo.Ctx) error {
			if c.Path() == "/slow" {
				close(begun)
				<-release
			}
			return c.Text(200, "ok")
		}})
		slow := make(chan struct{})
		go func() {
			defer close(slow)
			c.want("GET", "/slow", nil, 200, "ok") // net/http's client answers the PINGs
		}()
		lifeRecv(t, begun, "the handler")
		time.Sleep(50 * time.Millisecond) // several PINGs; the test passes without them, too
		close(release)
		lifeRecv(t, slow, "the answer")
		c.want("GET", "/", nil, 200, "ok")
	})
}
