package filo_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/filohttp/filo"
)

// eachShed runs a test without and with TLS, in each driver.
func eachShed(t *testing.T, test func(t *testing.T, config *filo.Server, serve func() *lifeServer, dial func(*lifeServer) *lifeClient)) {
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		t.Run(driver.String(), func(t *testing.T) {
			config := &filo.Server{Driver: driver}
			test(t, config, func() *lifeServer { return lifeServe(t, config) }, func(s *lifeServer) *lifeClient { return s.dial(t) })
		})
		t.Run(driver.String()+" TLS", func(t *testing.T) {
			config := &filo.Server{Driver: driver}
			test(t, config, func() *lifeServer { return lifeListenTLS(t, config) }, func(s *lifeServer) *lifeClient {
				conn, err := tls.Dial("tcp", s.addr, lifeClientTLS())
				if err != nil {
					t.Fatal(err)
				}
				return newLifeClient(t, conn)
			})
		})
	}
}

// Twice as many clients as there may be connections come one after the other: each has its first answer. Idle ones make room, one
// that has a request doesn't.
func TestMaxConnsOldestIdle(t *testing.T) {
	eachShed(t, func(t *testing.T, config *filo.Server, serve func() *lifeServer, dial func(*lifeServer) *lifeClient) {
		const most = 40
		config.MaxConns = most
		gate := newLifeGate()
		config.Handler = gate.handle
		s := serve()
		t.Cleanup(gate.open)
		held := dial(s)
		gate.hold(t, held)
		for range 2 * most {
			c := dial(s)
			c.get("/")
			c.want(200, "quick", false)
		}
		stats := s.Stats()
		if stats.ConnsRefused != 0 || stats.ConnsShed < most || stats.ConnsOpen > most+16 {
			t.Errorf("%d refused, %d shed, %d open", stats.ConnsRefused, stats.ConnsShed, stats.ConnsOpen)
		}
		gate.open()
		held.want(200, "held", false)
	})
}

// A client that opens many connections, and uses all of them, makes its own go, not those of a client that has few and was quiet for longer.
func TestMaxConnsByAddress(t *testing.T) {
	eachShed(t, func(t *testing.T, config *filo.Server, serve func() *lifeServer, _ func(*lifeServer) *lifeClient) {
		const most = 20
		config.MaxConns = most
		config.Handler = func(c *filo.Ctx) error { return c.Text(200, "quick") }
		s := serve()
		dial := func(from string) *lifeClient {
			conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", s.addr)
			if err != nil && from != "127.0.0.1" {
				t.Skip(err) // some systems have only one such address
			}
			if err != nil {
				t.Fatal(err)
			}
			if config.TLSConfig != nil {
				conn = tls.Client(conn, lifeClientTLS())
			}
			c := newLifeClient(t, conn)
			c.get("/")
			c.want(200, "quick", false)
			return c
		}
		polite := []*lifeClient{dial("127.0.0.1"), dial("127.0.0.1"), dial("127.0.0.1")}
		for range 3 * most {
			dial("127.0.0.2")
		}
		if stats := s.Stats(); stats.ConnsRefused != 0 || stats.ConnsShed < 2*most {
			t.Errorf("%d refused, %d shed", stats.ConnsRefused, stats.ConnsShed)
		}
		for _, c := range polite {
			c.get("/")
			c.want(200, "quick", false)
		}
	})
}

// Connections of HTTP/2 without streams make room, too, and their clients lose no request.
func TestMaxConnsHTTP2(t *testing.T) {
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		t.Run(driver.String(), func(t *testing.T) {
			const most = 10
			gate := newLifeGate()
			t.Cleanup(gate.open)
			s := lifeServe(t, &filo.Server{Driver: driver, MaxConns: most, HTTP2: filo.HTTP2Options{Unencrypted: true}, Handler: gate.handle})
			held := make(chan string, 1)
			holder := newHTTP2Client(t, "http://"+s.addr, nil, nil)
			go func() {
				response, err := holder.do(context.Background(), "GET", "/hold", nil)
				if err != nil {
					held <- err.Error()
					return
				}
				defer response.Body.Close()
				body, _ := io.ReadAll(response.Body)
				held <- string(body)
			}()
			lifeRecv(t, gate.entered, "the request that is held")
			var clients []*http2Client
			for range 2 * most {
				c := newHTTP2Client(t, "http://"+s.addr, nil, nil)
				c.want("GET", "/", nil, http.StatusOK, "quick")
				clients = append(clients, c)
			}
			clients[0].want("GET", "/", nil, http.StatusOK, "quick")
			if stats := s.Stats(); stats.ConnsRefused != 0 || stats.ConnsShed < most {
				t.Errorf("%d refused, %d shed", stats.ConnsRefused, stats.ConnsShed)
			}
			gate.open()
			if got := lifeRecv(t, held, "the answer that is held"); got != "held" {
				t.Errorf("the request that was held: %s", got)
			}
		})
	}
}

// A request that comes just when its connection is closed has a whole answer, or none.
func TestMaxConnsRace(t *testing.T) {
	eachShed(t, func(t *testing.T, config *filo.Server, serve func() *lifeServer, dial func(*lifeServer) *lifeClient) {
		config.MaxConns = 8
		config.Handler = func(c *filo.Ctx) error { return c.Text(200, strings.Repeat("quick", 1000)) }
		s := serve()
		for range config.MaxConns {
			c := dial(s)
			c.get("/")
			c.want(200, strings.Repeat("quick", 1000), false)
		}
		var clients sync.WaitGroup
		for range 12 {
			clients.Go(func() {
				for range 5 {
					c := dial(s)
					for range 20 {
						if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
							break
						}
						if _, err := c.reader.Peek(1); err != nil {
							if err != io.EOF && !lifeReset(err) && !errors.Is(err, net.ErrClosed) {
								t.Errorf("no answer: %v", err)
							}
							break
						}
						response, body, err := c.tryAnswer()
						if err != nil || response.StatusCode == 200 && len(body) != 5000 {
							t.Errorf("a part of an answer: %v", err)
						}
						if err != nil || response.Close {
							break
						}
					}
					c.Close()
				}
			})
		}
		clients.Wait()
		if s.Stats().ConnsShed == 0 {
			t.Error("no connection made room")
		}
	})
}
