package parked

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/internal/filotest"
	"golang.org/x/net/http2"
)

// crowdedParks is how many connections or streams the tests of Concurrency park.
const crowdedParks = 10

// crowd has a handler for a server with Concurrency 2. The path /park parks the request's connection or stream. Its function blocks until release
// is called, and then ends the connection. The path /probe needs an ordinary place.
type crowd struct {
	running, most, called atomic.Int32
	blocked               chan struct{}
	release               func()
}

func newCrowd() *crowd {
	c := &crowd{blocked: make(chan struct{})}
	c.release = sync.OnceFunc(func() { close(c.blocked) })
	return c
}

func (c *crowd) server() *filo.Server {
	probe := filo.Offload(func(c *filo.Ctx) error { return c.Text(200, "free") })
	return &filo.Server{Concurrency: 2, Logger: filotest.Quiet, HTTP2: filo.HTTP2Options{ExtendedConnect: true}, Handler: func(ctx *filo.Ctx) error {
		if ctx.Path() == "/probe" {
			return probe(ctx)
		}
		_, err := ctx.Park("echo", c.serve)
		return err
	}}
}

func (c *crowd) serve(p *filo.ParkedConn, _ filo.Wake) error {
	running := c.running.Add(1)
	defer c.running.Add(-1)
	for most := c.most.Load(); running > most && !c.most.CompareAndSwap(most, running); most = c.most.Load() {
	}
	<-c.blocked
	c.called.Add(1)
	if _, err := p.Read(make([]byte, 10)); err != nil {
		return err
	}
	return io.EOF
}

// expect expects that two functions run, and that a probe is refused. Then it calls meanwhile, lets the functions end, and calls served, which waits
// until all have been called.
func (c *crowd) expect(t *testing.T, s *filo.Server, probe func() (status int), meanwhile, served func()) {
	filotest.Await(t, "two functions to run", func() bool { return c.running.Load() >= 2 })
	if status := probe(); status != 503 {
		t.Errorf("while two functions run, the answer is %d", status)
	}
	meanwhile()
	c.release()
	served()
	if n := c.most.Load(); n != 2 {
		t.Errorf("%d functions ran at once", n)
	}
	if n := c.called.Load(); n != crowdedParks {
		t.Errorf("%d calls", n)
	}
	filotest.Await(t, "the places to be free", func() bool { return s.Stats().WorkersRunning == 0 && s.Stats().Streams == 0 })
}

// eachCrowdedEnd runs a test of Concurrency in which the functions end, and one in which the server shuts down before they end. The test calls
// shuts for that.
func eachCrowdedEnd(t *testing.T, test func(t *testing.T, shuts func(*filo.Server))) {
	t.Run("open", func(t *testing.T) { test(t, func(*filo.Server) {}) })
	t.Run("shutdown", func(t *testing.T) {
		test(t, func(s *filo.Server) {
			ended := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), filotest.Bound)
				defer cancel()
				ended <- s.Shutdown(ctx)
			}()
			filotest.Await(t, "the shutdown", func() bool { return s.Stats().Draining })
			t.Cleanup(func() {
				if err := filotest.Recv(t, ended, "the end of the shutdown"); err != nil {
					t.Error(err)
				}
			})
		})
	})
}

// The functions of parked connections count against Concurrency. Those that find no place are called later.
func TestParkedConcurrency(t *testing.T) {
	const park = "GET /park HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	eachCrowdedEnd(t, func(t *testing.T, shuts func(*filo.Server)) {
		var c *crowd
		filotest.EachHost(t, func() *filo.Server { c = newCrowd(); return c.server() }, func(t *testing.T, h *filotest.Host) {
			t.Cleanup(c.release)
			var clients []*filotest.StrictClient
			for range crowdedParks {
				client := h.Connect(t)
				client.Send(t, park)
				if m := client.Receive(t, "GET"); m.Status != 101 {
					t.Fatalf("got %d", m.Status)
				}
				filotest.Await(t, "the worker to be free", func() bool { return h.Config.Stats().WorkersRunning == 0 })
				clients = append(clients, client)
			}
			for _, client := range clients {
				client.Send(t, "x")
			}
			c.expect(t, h.Config, func() int {
				client := h.Connect(t)
				client.Send(t, "GET /probe HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				return client.Receive(t, "GET").Status
			}, func() { shuts(h.Config) }, func() {
				for _, client := range clients {
					client.WantEnd(t)
				}
			})
		})
	})
}

// The same holds for parked streams of HTTP/2.
func TestParkedConcurrencyHTTP2(t *testing.T) {
	eachCrowdedEnd(t, func(t *testing.T, shuts func(*filo.Server)) {
		filotest.EachRawHTTP2(t, func(t *testing.T, serve func(*filo.Server) (*filotest.Server, func(...http2.Setting) *filotest.RawHTTP2)) {
			c := newCrowd()
			config := c.server()
			_, dial := serve(config)
			t.Cleanup(c.release)
			client, others := dial(), dial()
			others.Request(1, "/probe", true).Send()
			others.WantAnswer(1, "200 free")
			for id := uint32(1); id < 2*crowdedParks; id += 2 {
				client.Request(id, "/park", false, ":method", "CONNECT", ":protocol", "echo").Send()
				filotest.Await(t, "the parked stream", func() bool { return config.Stats().Streams == int(id/2+1) && config.Stats().WorkersRunning == 0 })
			}
			for id := uint32(1); id < 2*crowdedParks; id += 2 {
				client.Data(id, false, []byte("x"))
			}
			client.Send()
			c.expect(t, config, func() int {
				others.Request(3, "/probe", true).Send()
				return others.Answer(3).Status
			}, func() { shuts(config) }, func() {
				for id := uint32(1); id < 2*crowdedParks; id += 2 {
					client.WantAnswer(id, "200 ")
				}
			})
		})
	})
}

// The same holds for connections that another server has received.
func TestParkedConcurrencyCarried(t *testing.T) {
	eachCrowdedEnd(t, func(t *testing.T, shuts func(*filo.Server)) {
		c := newCrowd()
		config := c.server()
		s := httptest.NewServer(adaptor.ToHTTPServer(config))
		t.Cleanup(s.Close)
		t.Cleanup(c.release)
		var conns []io.ReadWriteCloser
		for range crowdedParks {
			request, err := http.NewRequest("GET", s.URL+"/park", nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Connection", "Upgrade")
			request.Header.Set("Upgrade", "echo")
			response, err := http.DefaultTransport.RoundTrip(request)
			if err != nil || response.StatusCode != 101 {
				t.Fatal(response, err)
			}
			t.Cleanup(func() { response.Body.Close() })
			conns = append(conns, response.Body.(io.ReadWriteCloser))
		}
		for _, conn := range conns {
			io.WriteString(conn, "x")
		}
		c.expect(t, config, func() int {
			response, err := http.Get(s.URL + "/probe")
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			return response.StatusCode
		}, func() { shuts(config) }, func() {
			for _, conn := range conns {
				if b, err := io.ReadAll(conn); len(b) > 0 || err != nil && !errors.Is(err, net.ErrClosed) {
					t.Errorf("%q, %v", b, err)
				}
			}
		})
	})
}
