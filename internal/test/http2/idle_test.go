package http2

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"golang.org/x/net/http2"
)

// An open stream keeps its connection open, even if no frame is sent for a long time, with and without PINGs.
func TestHTTP2IdleKeepsStreams(t *testing.T) {
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		parked, next := make(chan *filo.ParkedConn, 1), make(chan struct{})
		_, dial := serve(&filo.Server{IdleTimeout: 600 * time.Millisecond, HTTP2: filo.HTTP2Options{ExtendedConnect: true}, Handler: func(c *filo.Ctx) error {
			switch c.Path() {
			case "/park":
				p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return nil })
				if err == nil {
					parked <- p
				}
				return err
			case "/wait":
				time.Sleep(time.Second)
				<-next
			case "/upload":
				n, err := io.Copy(io.Discard, c.BodyReader())
				if err != nil {
					return err
				}
				return c.Text(200, fmt.Sprint(n))
			}
			return c.Text(200, "ok")
		}})
		// Each stream begins before the previous one ends, so the connection is never idle, however slow the machine is.
		c := dial().Request(1, "/wait", true).Send()
		time.Sleep(900 * time.Millisecond)
		c.Request(3, "/upload", false, ":method", "POST").Send()
		close(next)
		c.WantAnswer(1, "200 ok")
		for range 5 {
			time.Sleep(200 * time.Millisecond)
			c.Data(3, false, []byte("hello")).Send()
		}
		c.Request(5, "/park", true).Send()
		p := <-parked
		c.Data(3, true, nil).Send()
		c.WantAnswer(3, "200 25")
		time.Sleep(time.Second)
		c.Request(7, "/", true).Send()
		c.WantAnswer(7, "200 ok")
		begin := time.Now()
		p.Close()
		c.WantEnd(0)
		if d := time.Since(begin); d < 200*time.Millisecond { // IdleTimeout begins at the end of the parked stream
			t.Errorf("ended after %v", d)
		}
	})
}

// If a request's head begins to arrive before IdleTimeout, the request is served.
func TestHTTP2HeadAcrossIdleTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
		_, dial := serve(&filo.Server{IdleTimeout: timeout, ReadHeaderTimeout: filotest.Bound, Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }})
		c := dial().Request(1, "/", true).Send()
		c.WantAnswer(1, "200 ok")
		time.Sleep(timeout / 3)
		c.Request(3, "/", true, "x", "a long field, of which the second half comes late")
		b := append([]byte(nil), c.Out.Bytes()...)
		c.Out.Reset()
		c.Conn.Write(b[:20])
		time.Sleep(timeout * 5 / 6)
		c.Conn.Write(b[20:])
		c.WantAnswer(3, "200 ok")
	})
}
