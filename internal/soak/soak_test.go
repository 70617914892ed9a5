package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/hooks"
	"github.com/filohttp/filo/internal/soak/kit"
)

// little returns the configuration of a very short run with these kinds of clients.
func little(t *testing.T, kinds string) config {
	c := defaults()
	if err := c.choose(kinds); err != nil {
		t.Fatal(err)
	}
	c.duration, c.span = 600*time.Millisecond, 200*time.Millisecond
	c.clients, c.pause = 1, 20*time.Millisecond
	c.seed = 1
	c.output = &bytes.Buffer{}
	t.Cleanup(func() { t.Logf("%s", c.output) })
	return c
}

// allBut returns the names of all kinds except these.
func allBut(names ...string) string {
	var others []string
	for _, kind := range kinds {
		if !slices.Contains(names, kind.name) {
			others = append(others, kind.name)
		}
	}
	return strings.Join(others, ",")
}

// quick are the kinds of clients that the tests of a faulty server use. A shutdown doesn't have to wait for any of them.
const quick = "keep-alive,pipelined,one-shot,uploads,streams,garbage"

// TestSoak makes a short run with almost all kinds of clients, on each driver.
func TestSoak(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		t.Run(fmt.Sprintf("blocking=%t", blocking), func(t *testing.T) {
			// Silent clients wait for a time-out of the server, which takes too long in a test.
			c := little(t, allBut("silence"))
			c.blocking = blocking
			if err := soak(context.Background(), c); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(fmt.Sprint(c.output), "passed") {
				t.Error("the run doesn't say that it has passed")
			}
		})
	}
}

// TestSoakFails shows that a run finds a server's mistakes.
func TestSoakFails(t *testing.T) {
	released := make(chan struct{})
	defer close(released)
	var kept [][]byte
	for name, test := range map[string]struct {
		wrong func(c *filo.Ctx, call uint64) // called after the handler with the number of the call, and does something wrong
		want  string
	}{
		"another request's number": {
			func(c *filo.Ctx, _ uint64) { c.Response.Header.Set("Number", "0") }, `the answer is that to number "0"`,
		},
		"another status": {
			func(c *filo.Ctx, _ uint64) { c.Response.SetStatus(202) }, "status 202 instead of",
		},
		"another body": {
			func(c *filo.Ctx, _ uint64) { c.Response.SetBodyString("another") }, "instead of",
		},
		"a connection that closes": {
			func(c *filo.Ctx, _ uint64) { c.Response.SetClose() }, "closes the connection for no reason",
		},
		"goroutines that stay": {
			func(_ *filo.Ctx, call uint64) {
				if call == 1 {
					for range 10 { // ten, because a goroutine that was about to end may have been counted at the beginning
						go func() { <-released }()
					}
				}
			}, "leak: there are",
		},
		"memory that stays": {
			func(_ *filo.Ctx, call uint64) {
				if call == 1 {
					kept = append(kept, make([]byte, kit.KeptBuffers+2*kit.MemorySlack))
				}
			}, "MB are allowed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := little(t, quick)
			c.settling = 3 * time.Second
			var calls atomic.Uint64
			c.wrap = func(next filo.Handler) filo.Handler {
				return func(ctx *filo.Ctx) error {
					err := next(ctx)
					if path := ctx.Path(); path == "/hello" && err == nil {
						test.wrong(ctx, calls.Add(1))
					}
					return err
				}
			}
			err := soak(context.Background(), c)
			for ; calls.Load() == 0 && c.duration < time.Minute; err = soak(context.Background(), c) {
				c.duration *= 2 // on a busy machine, no request may have been made in the given time
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %.300v, want one with %q", err, test.want)
			}
			kept = nil
		})
	}
}

// TestLeakedDescriptor: a check finds a descriptor that stays open, and says which one.
func TestLeakedDescriptor(t *testing.T) {
	leaks, err := newLeakCheck(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaks.check(); err != nil {
		t.Fatalf("nothing was opened, but: %v", err)
	}
	leaks.start.Descriptors = leaks.start.Descriptors[:1] // forget the others, since descriptors of an earlier test may still be closed
	if _, err := leaks.check(); err == nil || !strings.Contains(err.Error(), "/") {
		t.Errorf("error %v, want one that lists the descriptors", err)
	}
}

// TestHang: a client that gets no answer reports that, and doesn't wait for ever.
func TestHang(t *testing.T) {
	c := little(t, "keep-alive")
	c.duration, c.span, c.patience = time.Hour, time.Hour, time.Second
	released := make(chan struct{})
	defer close(released)
	c.wrap = func(next filo.Handler) filo.Handler {
		return func(*filo.Ctx) error {
			<-released
			return nil
		}
	}
	err := soak(context.Background(), c)
	if err == nil || !strings.Contains(err.Error(), "no answer after 1s") || !strings.Contains(err.Error(), "goroutine ") {
		t.Errorf("error %.300v, want one of a hang, with stacks", err)
	}
}

// watchOverdue reports a connection that makes no progress although it has input and its loop checks for events. It doesn't report a
// connection that makes progress, or whose loop doesn't run.
func TestWatchOverdue(t *testing.T) {
	for name, test := range map[string]struct {
		read  uint64 // bytes that the server reads between two calls of overdue
		looks int64  // checks for events by the connection's loop in that time
		found bool
	}{
		"it isn't woken":        {0, overdueLooks, true},
		"it goes on":            {1, overdueLooks, false},
		"its loop doesn't look": {0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &run{}
			r.failed, r.fail = context.WithCancelCause(t.Context())
			ended, look := make(chan struct{}), 0
			r.watchOverdue(func(found func(hooks.OverdueWait)) {
				if look++; look == int(overdueTime/lookTime)+2 {
					close(ended)
				}
				found(hooks.OverdueWait{Of: r, What: "a test", Progress: [2]uint64{uint64(look) * test.read}, Looks: int64(look) * test.looks})
			}, ended)
			if err := context.Cause(r.failed); (err != nil) != test.found {
				t.Errorf("error %.100v", err)
			}
		})
	}
}

// TestRefused: the server refuses every request that clients send as garbage.
func TestRefused(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	c := little(t, "garbage")
	c.duration, c.span, c.pause = time.Hour, time.Hour, 0
	next := 0
	c.kinds[0].use = func(v *visit) error {
		if next == len(refused) {
			stop()
			return nil
		}
		bad := refused[next]
		next++
		v.Write(slices.Concat(bad, encode(v.call("/hello"))))
		if err := v.refusal(); err != nil {
			return fmt.Errorf("after %.100q: %w", bad, err)
		}
		return nil
	}
	if err := soak(ctx, c); err != nil {
		t.Error(err)
	}
	if len(refused) < 100 || next < len(refused) {
		t.Errorf("%d of %d requests were tried, want all and at least 100", next, len(refused))
	}
}

// If an HTTP/2 client dials again while its connection is open, Dial waits until the connection ends, and then returns ErrEnded.
func TestOnlyConn(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	only := kit.NewOnlyConn(conn)
	if got, err := only.Dial(t.Context(), "", ""); got != net.Conn(only) || err != nil {
		t.Fatal(got, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := only.Dial(over, "", ""); err != context.Canceled {
		t.Errorf("while the connection lives: %v", err)
	}
	server.Close()
	if _, err := only.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	if _, err := only.Dial(t.Context(), "", ""); !errors.Is(err, kit.ErrEnded) {
		t.Errorf("behind the end: %v", err)
	}
	only.Close()
}
