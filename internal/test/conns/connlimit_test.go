package conns

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
	"github.com/filohttp/filo/internal/filotest"
)

// eachShed runs a test with each driver, with and without TLS.
func eachShed(t *testing.T, test func(t *testing.T, config *filo.Server, serve func() *filotest.Server, dial func(*filotest.Server) *filotest.Client)) {
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		t.Run(driver.String(), func(t *testing.T) {
			config := &filo.Server{Driver: driver}
			test(t, config, func() *filotest.Server { return filotest.Serve(t, config) }, func(s *filotest.Server) *filotest.Client { return s.Dial(t) })
		})
		t.Run(driver.String()+" TLS", func(t *testing.T) {
			config := &filo.Server{Driver: driver}
			test(t, config, func() *filotest.Server { return filotest.ListenTLS(t, config) }, func(s *filotest.Server) *filotest.Client {
				conn, err := tls.Dial("tcp", s.Addr, filotest.ClientTLS())
				if err != nil {
					t.Fatal(err)
				}
				return filotest.NewClient(t, conn)
			})
		})
	}
}

// Twice as many clients as MaxConns allows connect one after the other, and each gets its first answer. The server closes idle connections to
// make room, but no connection with a request.
func TestMaxConnsOldestIdle(t *testing.T) {
	eachShed(t, func(t *testing.T, config *filo.Server, serve func() *filotest.Server, dial func(*filotest.Server) *filotest.Client) {
		const most = 40
		config.MaxConns = most
		gate := filotest.NewGate()
		config.Handler = gate.Handle
		s := serve()
		t.Cleanup(gate.Open)
		held := dial(s)
		gate.Hold(t, held)
		for range 2 * most {
			c := dial(s)
			c.Get("/")
			c.Want(200, "quick", false)
		}
		stats := s.Stats()
		if stats.ConnsRefused != 0 || stats.ConnsShed < most || stats.ConnsOpen > most+16 {
			t.Errorf("%d refused, %d shed, %d open", stats.ConnsRefused, stats.ConnsShed, stats.ConnsOpen)
		}
		gate.Open()
		held.Want(200, "held", false)
	})
}

// If a client has opened and used many connections, the server closes its connections to make room. It doesn't close those of a client with
// few connections, even if they have been idle for longer.
func TestMaxConnsByAddress(t *testing.T) {
	eachShed(t, func(t *testing.T, config *filo.Server, serve func() *filotest.Server, _ func(*filotest.Server) *filotest.Client) {
		const most = 20
		config.MaxConns = most
		config.Handler = func(c *filo.Ctx) error { return c.Text(200, "quick") }
		s := serve()
		dial := func(from string) *filotest.Client {
			conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", s.Addr)
			if err != nil && from != "127.0.0.1" {
				t.Skip(err) // some systems have only one loopback address
			}
			if err != nil {
				t.Fatal(err)
			}
			if config.TLSConfig != nil {
				conn = tls.Client(conn, filotest.ClientTLS())
			}
			c := filotest.NewClient(t, conn)
			c.Get("/")
			c.Want(200, "quick", false)
			return c
		}
		polite := []*filotest.Client{dial("127.0.0.1"), dial("127.0.0.1"), dial("127.0.0.1")}
		for range 3 * most {
			dial("127.0.0.2")
		}
		if stats := s.Stats(); stats.ConnsRefused != 0 || stats.ConnsShed < 2*most {
			t.Errorf("%d refused, %d shed", stats.ConnsRefused, stats.ConnsShed)
		}
		for _, c := range polite {
			c.Get("/")
			c.Want(200, "quick", false)
		}
	})
}

// The server also closes HTTP/2 connections without streams to make room, and their clients lose no request.
func TestMaxConnsHTTP2(t *testing.T) {
	for _, driver := range []filo.Driver{filo.DriverAuto, filo.DriverBlocking} {
		t.Run(driver.String(), func(t *testing.T) {
			const most = 10
			gate := filotest.NewGate()
			t.Cleanup(gate.Open)
			s := filotest.Serve(t, &filo.Server{Driver: driver, MaxConns: most, HTTP2: filo.HTTP2Options{Unencrypted: true}, Handler: gate.Handle})
			held := make(chan string, 1)
			holder := filotest.NewHTTP2Client(t, "http://"+s.Addr, nil, nil)
			go func() {
				response, err := holder.Fetch(context.Background(), "GET", "/hold", nil)
				if err != nil {
					held <- err.Error()
					return
				}
				defer response.Body.Close()
				body, _ := io.ReadAll(response.Body)
				held <- string(body)
			}()
			filotest.Recv(t, gate.Entered, "the request that is held")
			var clients []*filotest.HTTP2Client
			for range 2 * most {
				c := filotest.NewHTTP2Client(t, "http://"+s.Addr, nil, nil)
				c.Want("GET", "/", nil, http.StatusOK, "quick")
				clients = append(clients, c)
			}
			clients[0].Want("GET", "/", nil, http.StatusOK, "quick")
			if stats := s.Stats(); stats.ConnsRefused != 0 || stats.ConnsShed < most {
				t.Errorf("%d refused, %d shed", stats.ConnsRefused, stats.ConnsShed)
			}
			gate.Open()
			if got := filotest.Recv(t, held, "the answer that is held"); got != "held" {
				t.Errorf("the request that was held: %s", got)
			}
		})
	}
}

// If a request arrives just when its connection is closed to make room, it gets a complete answer or none.
func TestMaxConnsRace(t *testing.T) {
	eachShed(t, func(t *testing.T, config *filo.Server, serve func() *filotest.Server, dial func(*filotest.Server) *filotest.Client) {
		config.MaxConns = 8
		config.Handler = func(c *filo.Ctx) error { return c.Text(200, strings.Repeat("quick", 1000)) }
		s := serve()
		for range config.MaxConns {
			c := dial(s)
			c.Get("/")
			c.Want(200, strings.Repeat("quick", 1000), false)
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
						if _, err := c.Reader.Peek(1); err != nil {
							if err != io.EOF && !filotest.IsReset(err) && !errors.Is(err, net.ErrClosed) {
								t.Errorf("no answer: %v", err)
							}
							break
						}
						response, body, err := c.TryAnswer()
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
