package filo_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"golang.org/x/net/http2"
)

// Streams that are open keep their connection, however long nothing happens, with and without PINGs.
func TestHTTP2IdleKeepsStreams(t *testing.T) {
	eachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*lifeServer, func(...http2.Setting) *rawHTTP2)) {
		parked := make(chan *filo.ParkedConn, 1)
		_, dial := serve(&filo.Server{IdleTimeout: 150 * time.Millisecond, HTTP2: filo.HTTP2Options{ExtendedConnect: true}, Handler: func(c *filo.Ctx) error {
			switch c.Path() {
			case "/park":
				p, err := c.ParkStream(func(*filo.ParkedConn, filo.Wake) error { return nil })
				if err == nil {
					parked <- p
				}
				return err
			case "/wait":
				time.Sleep(700 * time.Millisecond)
			case "/upload":
				n, err := io.Copy(io.Discard, c.BodyReader())
				if err != nil {
					return err
				}
				return c.Text(200, fmt.Sprint(n))
			}
			return c.Text(200, "ok")
		}})
		c := dial().request(1, "/wait", true).send()
		c.wantAnswer(1, "200 ok")
		c.request(3, "/upload", false, ":method", "POST").send()
		for range 5 {
			time.Sleep(200 * time.Millisecond)
			c.data(3, false, []byte("hello")).send()
		}
		c.data(3, true, nil).send()
		c.wantAnswer(3, "200 25")
		c.request(5, "/park", true).send()
		p := <-parked
		time.Sleep(700 * time.Millisecond)
		c.request(7, "/", true).send()
		c.wantAnswer(7, "200 ok")
		p.Close()
		begin := time.Now()
		c.wantEnd(0)
		if d := time.Since(begin); d < 100*time.Millisecond { // IdleTimeout counts from the end of the parked stream
			t.Errorf("ended after %v", d)
		}
	})
}

// A request whose head has begun to come before IdleTimeout is over is served.
func TestHTTP2HeadAcrossIdleTimeout(t *testing.T) {
	eachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*lifeServer, func(...http2.Setting) *rawHTTP2)) {
		_, dial := serve(&filo.Server{IdleTimeout: time.Second, ReadHeaderTimeout: 10 * time.Second, Handler: func(c *filo.Ctx) error { return c.Text(200, "ok") }})
		c := dial().request(1, "/", true).send()
		c.wantAnswer(1, "200 ok")
		time.Sleep(700 * time.Millisecond)
		c.request(3, "/", true, "x", "a long field, of which the second half comes late")
		b := append([]byte(nil), c.out.Bytes()...)
		c.out.Reset()
		c.Conn.Write(b[:20])
		time.Sleep(800 * time.Millisecond)
		c.Conn.Write(b[20:])
		c.wantAnswer(3, "200 ok")
	})
}
