package filo_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/inside"
)

// While its loop has nothing else to do, a handler that computes for at most class.Brief runs directly in the loop. The next such handler
// doesn't run there if answers to earlier requests would wait for it, or if the leader has already run handlers for too long. A handler that
// takes the same time because it waits never runs there.
func TestHandlersThatCompute(t *testing.T) {
	filotest.NeedLoops(t)
	spin := func() {
		for begin := time.Now(); time.Since(begin) < 50*time.Microsecond; {
		}
	}
	computing, waiting := class.Class{Name: "computing"}, class.Class{Name: "waiting"}
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		if c.Path() == "/wait" {
			waiting.Median.Store(int64(class.Brief) / 2)
			if err := inside.Enter(c, &waiting); err != nil {
				return err
			}
			for left := (syscall.Timespec{Nsec: 50_000}); syscall.Nanosleep(&left, &left) == syscall.EINTR; {
			}
			return c.Text(200, "fine")
		}
		if err := inside.Enter(c, &computing); err != nil {
			return err
		}
		spin()
		return c.Text(200, "fine")
	}})
	plain := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error { // enters no class
		spin()
		return c.Text(200, "fine")
	}})
	for _, test := range []struct {
		s           *filotest.Server
		path, class string
	}{{s, "/", "computing"}, {plain, "/", ""}} {
		c := test.s.Dial(t)
		filotest.Await(t, "calls of the class \""+test.class+"\" to stay", func() bool {
			for range 100 {
				filo.TrainClass(test.s.Server, test.class) // on a busy machine it may seem to wait
				c.Get(test.path)
				c.Want(200, "fine", false)
			}
			return filotest.ClassOf(test.s.Server, test.class).Inline > 0
		})
		handoffs := filotest.ClassOf(test.s.Server, test.class).Handoffs
		filotest.Await(t, "one of many pipelined calls to be handed off", func() bool {
			filo.TrainClass(test.s.Server, test.class)
			c.Send(strings.Repeat("GET "+test.path+" HTTP/1.1\r\nHost: a\r\n\r\n", 50))
			for range 50 {
				c.Want(200, "fine", false)
			}
			return filotest.ClassOf(test.s.Server, test.class).Handoffs > handoffs
		})
	}
	c := s.Dial(t)
	for range 1000 {
		c.Get("/wait")
		c.Want(200, "fine", false)
	}
	if n := filotest.ClassOf(s.Server, "waiting").Inline; n > 0 {
		t.Errorf("%d calls that wait stayed", n)
	}
}

// If the function of a parked connection computes for at most class.Brief, the loop's leader calls it, while nothing else is ready in the
// loop.
func TestParkedThatComputes(t *testing.T) {
	filotest.NeedLoops(t)
	s := filotest.Serve(t, &filo.Server{Leaders: 1, Handler: func(c *filo.Ctx) error {
		_, err := c.Park("", func(p *filo.ParkedConn, why filo.Wake) error {
			b := make([]byte, 64)
			n, err := p.Read(b)
			for begin := time.Now(); time.Since(begin) < 50*time.Microsecond; {
			}
			if err == nil {
				_, err = p.Write(b[:n])
			}
			return err
		})
		return err
	}})
	c := s.Dial(t)
	c.Get("/park")
	filotest.Await(t, "calls where the loop runs", func() bool {
		for range 100 {
			filo.TrainClass(s.Server, "(parked)") // on a busy machine it may seem to wait
			c.Send("x")
			if b, err := c.Reader.ReadByte(); err != nil || b != 'x' {
				t.Fatalf("got %q, %v", b, err)
			}
		}
		return filotest.ClassOf(s.Server, "(parked)").Inline > 0
	})
}
