package filo

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// takingNower is a socket that takes as much as it is told to.
type takingNower struct{ takes int }

func (n *takingNower) writeNow(first, second []byte) (int, error) {
	taken := min(n.takes, len(first)+len(second))
	n.takes -= taken
	return taken, nil
}

func (n *takingNower) pumpLater() {}
func (n *takingNower) leaveTurn() {}
func (n *takingNower) wakeOwner() {}

// A timer may fire just when its client has taken everything: what was queued since has all of its time.
func TestTimerOfAStallThatIsOver(t *testing.T) {
	s := &Server{WriteTimeout: time.Hour} // which no timer comes to
	s.configure()
	socket := &takingNower{}
	o := &outbox{conn: &conn{exchange: exchange{server: s}}, now: socket, limit: defaultQueueLimit}
	o.progress.L = &o.mu
	message := make([]byte, 100)
	queue := func() {
		t.Helper()
		if err := o.queue(message); err != nil {
			t.Fatal(err)
		}
	}
	queue()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.endPaceLocked()
	}()
	socket.takes = len(message)
	o.pump()
	if o.stall != nil {
		t.Fatal("a client that has taken everything is watched")
	}
	queue()
	if o.stall == nil {
		t.Fatal("a client that has something to take isn't watched")
	}
	if o.tooSlow() || o.err != nil {
		t.Errorf("a client whose time has just begun is too slow: %v", o.err)
	}
	o.looked -= clock.Time(time.Hour) // as if that had passed
	if !o.tooSlow() || o.err == nil {
		t.Error("a client that has taken nothing in its time isn't too slow")
	}
}

// Where everything may wait, so may what TLS has to say by itself.
func TestQueueLimitOfEverything(t *testing.T) {
	s := &Server{WriteTimeout: -1}
	s.configure()
	o := &outbox{conn: &conn{exchange: exchange{server: s}}, now: &takingNower{}}
	o.progress.L = &o.mu
	o.setLimit(math.MaxInt)
	for range 3 {
		if _, err := o.put(make([]byte, 100)); err != nil {
			t.Error(err)
		}
		if err := o.queue(make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
	}
}

// In the blocking driver, too, what is given is sent in the order in which it was given, whether or not its sender waits for it; and
// a Write that gives up leaves the order of the others as it was.
func TestBlockingOrder(t *testing.T) {
	for name, test := range map[string]struct {
		before func(*outbox) // the client reads
		want   string
		errs   map[string]error // of the writes
	}{
		"all are sent":        {func(*outbox) {}, "a b c d e f", nil},
		"a deadline passes":   {func(o *outbox) { o.setDeadline(time.Now().Add(-time.Second)) }, "a c e f", map[string]error{"b": os.ErrDeadlineExceeded, "d": os.ErrDeadlineExceeded}},
		"the connection ends": {func(o *outbox) { o.finish([]byte("-")) }, "a c e f -", map[string]error{"b": net.ErrClosed, "d": net.ErrClosed}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{WriteTimeout: -1}
				s.configure()
				client, server := net.Pipe()
				o := &outbox{conn: &conn{exchange: exchange{server: s}, netConn: server}, limit: defaultQueueLimit}
				o.progress.L = &o.mu
				queue := func(text string) {
					if err := o.queue([]byte(text)); err != nil {
						t.Error(err)
					}
					synctest.Wait()
				}
				errs := make(map[string]chan error)
				write := func(text string) {
					err := make(chan error, 1)
					errs[text] = err
					go func() {
						_, e := o.write([]byte(text))
						err <- e
					}()
					synctest.Wait()
				}
				queue("a")
				write("b")
				queue("c")
				write("d")
				queue("e")
				queue("f")
				test.before(o)
				synctest.Wait()
				got := ""
				go func() {
					var p [100]byte
					for {
						n, err := client.Read(p[:])
						if err != nil {
							return
						}
						got += " " + string(p[:n])
					}
				}()
				synctest.Wait()
				if want := " " + test.want; got != want {
					t.Errorf("got%s, want%s", got, want)
				}
				for text, err := range errs {
					if e := <-err; !errors.Is(e, test.errs[text]) || e != nil && test.errs[text] == nil {
						t.Errorf("%s: %v, want %v", text, e, test.errs[text])
					}
				}
				if o.sending || len(o.pieces) > 0 {
					t.Error("afterwards something is still being sent: " + fmt.Sprint(o.pieces))
				}
				server.Close()
			})
		})
	}
}
