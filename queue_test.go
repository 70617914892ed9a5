package filo_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
)

// Requests over Concurrency wait in the order in which they came, quick handlers are called meanwhile, and earlier pipelined answers don't
// wait. The queue ends at its length.
func TestQueue(t *testing.T) {
	lifeLooped(t)
	begun, release := make(chan string, 10), make(chan struct{})
	held := filo.Offload(func(c *filo.Ctx) error {
		begun <- c.Path()
		<-release
		return c.Text(200, c.Path())
	})
	quick := filo.Inline(func(c *filo.Ctx) error { return c.Text(200, "quick") })
	for name, handler := range map[string]filo.Handler{
		"of the server": held,
		"of a route": func(c *filo.Ctx) error {
			if c.Path() == "/quick" {
				return quick(c)
			}
			return held(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := lifeServe(t, &filo.Server{Concurrency: 1, Queue: 2, QueueTimeout: time.Hour, Handler: handler})
			first, second, third, fourth := s.dial(t), s.dial(t), s.dial(t), s.dial(t)
			first.get("/1")
			lifeRecv(t, begun, "the handler")
			if name == "of a route" {
				second.get("/quick")
			}
			second.get("/2")
			lifeAwait(t, "a request to wait", func() bool { return s.Stats().RequestsQueued == 1 })
			if name == "of a route" {
				second.want(200, "quick", false)
			}
			third.get("/3")
			lifeAwait(t, "another request to wait", func() bool { return s.Stats().RequestsQueued == 2 })
			fourth.get("/4")
			if response, _ := fourth.answer(); response.StatusCode != 503 {
				t.Errorf("a request that finds the queue full gets %d", response.StatusCode)
			}
			if got := s.Stats().Refusals; got != (filo.Refusals{QueueFull: 1}) {
				t.Errorf("a request that finds the queue full: %+v", got)
			}
			if name == "of a route" {
				fourth.get("/quick")
				fourth.want(200, "quick", false)
			}
			for i, c := range []*lifeClient{first, second, third} {
				release <- struct{}{}
				c.want(200, fmt.Sprint("/", i+1), false)
				if i < 2 {
					if got, want := lifeRecv(t, begun, "the next handler"), fmt.Sprint("/", i+2); got != want {
						t.Errorf("%s is next, want %s", got, want)
					}
				}
			}
			lifeAwait(t, "the places to be free", func() bool { stats := s.Stats(); return stats.WorkersRunning == 0 && stats.RequestsQueued == 0 })
		})
	}
}

// A request that waits for too long gets a 503, and nothing is left of it.
func TestQueueTimeout(t *testing.T) {
	lifeLooped(t)
	begun, release := make(chan struct{}, 1), make(chan struct{})
	s := lifeServe(t, &filo.Server{Concurrency: 1, Queue: 10, QueueTimeout: time.Millisecond, Handler: filo.Offload(func(c *filo.Ctx) error {
		begun <- struct{}{}
		<-release
		return c.Text(200, "ok")
	})})
	first, second := s.dial(t), s.dial(t)
	first.get("/")
	lifeRecv(t, begun, "the handler")
	for range 3 {
		second.get("/")
		if response, _ := second.answer(); response.StatusCode != 503 || response.Header.Get("Retry-After") == "" {
			t.Errorf("got %d", response.StatusCode)
		}
	}
	stats := s.Stats()
	if stats.RequestsRefused != 3 || stats.RequestsQueued != 0 {
		t.Errorf("%d refused, %d wait", stats.RequestsRefused, stats.RequestsQueued)
	}
	if stats.Refusals != (filo.Refusals{QueueTimeout: 3}) || stats.Timeouts != (filo.Timeouts{Queue: 3}) {
		t.Errorf("%+v, %+v", stats.Refusals, stats.Timeouts)
	}
	release <- struct{}{}
	first.want(200, "ok", false)
	lifeAwait(t, "the place to be free", func() bool { return s.Stats().WorkersRunning == 0 })
	go func() { release <- struct{}{} }()
	second.get("/")
	second.want(200, "ok", false)
}

// Whatever the order in which requests come and end, no place is lost and none is taken twice.
func TestQueueUnderLoad(t *testing.T) {
	lifeLooped(t)
	const places, clients, each = 3, 16, 50
	var running, answered atomic.Int32
	s := lifeServe(t, &filo.Server{Concurrency: places, Queue: clients, QueueTimeout: time.Hour, Handler: filo.Offload(func(c *filo.Ctx) error {
		if n := running.Add(1); n > places {
			t.Errorf("%d handlers run", n)
		}
		time.Sleep(20 * time.Microsecond)
		running.Add(-1)
		return c.Text(200, "ok")
	})})
	var done sync.WaitGroup
	for range clients {
		c := s.dial(t)
		done.Go(func() {
			for range each {
				c.get("/")
				if response, _ := c.answer(); response.StatusCode == 200 {
					answered.Add(1)
				}
			}
		})
	}
	done.Wait()
	if n := answered.Load(); n != clients*each {
		t.Errorf("%d of %d requests are answered", n, clients*each)
	}
	lifeAwait(t, "the places to be free", func() bool { stats := s.Stats(); return stats.WorkersRunning == 0 && stats.RequestsQueued == 0 })
}

// A client that goes on sending gives its place to whoever waits for one, between two requests and between two messages.
func TestQueueBesideBusyClient(t *testing.T) {
	lifeLooped(t)
	const get = "GET %s HTTP/1.1\r\nHost: filo.test\r\n\r\n"
	for name, test := range map[string]struct{ sends, goesOn string }{
		"requests":      {"", fmt.Sprintf(get, "/")},
		"large answers": {"", fmt.Sprintf(get, "/large")},
		"messages":      {"GET / HTTP/1.1\r\nHost: filo.test\r\nConnection: Upgrade\r\nUpgrade: messages\r\n\r\n", "m"},
	} {
		t.Run(name, func(t *testing.T) {
			const pieces = 300
			begun, release := make(chan string), make(chan struct{})
			work := func(name string) {
				begun <- name
				<-release
				time.Sleep(time.Millisecond) // otherwise the system may not run those that give way and that wait at all
			}
			s := lifeServe(t, &filo.Server{Concurrency: 1, Queue: 10, QueueTimeout: time.Hour, Handler: filo.Offload(func(c *filo.Ctx) error {
				switch {
				case c.Request.Header.Get("Upgrade") != "":
					_, err := c.Park("messages", func(p *filo.ParkedConn, why filo.Wake) error {
						if _, err := p.Read(make([]byte, 1)); why != filo.WakeData || err != nil {
							return io.EOF
						}
						work("busy")
						return nil
					})
					return err
				case c.Path() == "/polite":
					work("polite")
				default:
					work("busy")
					if c.Path() == "/large" {
						return c.BytesNoCopy(200, "text/plain", make([]byte, 1<<20))
					}
				}
				return c.NoContent()
			})})
			busy, polite := s.dial(t), s.dial(t)
			go io.Copy(io.Discard, busy)
			busy.send(test.sends + strings.Repeat(test.goesOn, pieces))
			lifeRecv(t, begun, "the busy client's handler")
			polite.get("/polite")
			lifeAwait(t, "the polite client's request to wait", func() bool { return s.Stats().RequestsQueued == 1 })
			for i := range pieces {
				release <- struct{}{}
				if lifeRecv(t, begun, "the next handler") == "polite" {
					break
				}
				if i > pieces/2 {
					t.Error("the busy client doesn't give its place away")
					break
				}
			}
			go func() {
				for range begun {
				}
			}()
			close(release)
			polite.want(204, "", false)
			busy.Close()
			lifeAwait(t, "the busy client's end", func() bool { return s.Stats().ConnsOpen == 1 })
			close(begun)
		})
	}
}
