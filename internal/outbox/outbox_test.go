package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/pace"
	"github.com/filohttp/filo/internal/race"
)

// stubOwner has the limits for a slow client, and counts how often the client was disconnected.
type stubOwner struct {
	limits       pace.Limits
	start        time.Time
	disconnected atomic.Int32
	at           time.Time // when Disconnect was last called
	more         bool
}

func (s *stubOwner) Limits() pace.Limits { return s.limits }
func (s *stubOwner) Now() clock.Time     { return 1 + clock.Time(time.Since(s.start)) }
func (s *stubOwner) HasMore() bool       { return s.more }
func (s *stubOwner) Drained()            {}
func (s *stubOwner) Disconnect(error)    { s.at = time.Now(); s.disconnected.Add(1) }

// stubSocket accepts as many bytes as the test says, and counts calls.
type stubSocket struct {
	takes     int
	once      int // how many bytes it accepts by one call at most; 0: no limit
	err       error
	taken     []byte
	calls     int
	later     int          // calls of PumpLater
	left      int          // calls of LeaveTurn
	buffered  atomic.Int64 // what Buffered returns
	known     bool
	ownerWoke chan struct{}
}

func newStubSocket() *stubSocket { return &stubSocket{ownerWoke: make(chan struct{}, 10)} }

func (s *stubSocket) WriteNow(first, second []byte) (n int, err error) {
	if s.calls++; s.err != nil {
		return 0, s.err
	}
	n = min(s.takes, len(first)+len(second))
	if s.once > 0 {
		n = min(n, s.once)
	}
	s.takes -= n
	s.taken = append(append(s.taken, first...), second...)[:len(s.taken)+n]
	return n, nil
}

func (s *stubSocket) PumpLater() { s.later++ }
func (s *stubSocket) LeaveTurn() { s.left++ }
func (s *stubSocket) WakeOwner() { s.ownerWoke <- struct{}{} }

func (s *stubSocket) Buffered() (n int, ok bool) { return int(s.buffered.Load()), s.known }

// open returns an outbox for the socket, without time limits for the client.
func open(socket *stubSocket, frames bool) *Outbox {
	o := new(Outbox)
	o.Open(&stubOwner{limits: pace.Limits{Grace: -1}, start: time.Now()}, socket, nil, frames)
	return o
}

func (o *Outbox) mustQueue(t *testing.T, text string) {
	t.Helper()
	if err := o.Queue([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// Bytes that the socket doesn't accept at once wait, and are sent in order when the socket has room, however few at a time.
func TestQueueAndPump(t *testing.T) {
	for _, once := range []int{0, 1, 3, 7} {
		socket := newStubSocket()
		socket.takes, socket.once = 4, once
		o := open(socket, false)
		for _, text := range []string{"first ", "", "second ", "third"} {
			o.mustQueue(t, text)
		}
		if string(socket.taken) != "firs" || o.Size() != len("t second third") || o.Empty() {
			t.Errorf("%d at once: sent %q, %d wait", once, socket.taken, o.Size())
		}
		for socket.takes = 1; !o.Empty(); socket.takes++ {
			before := len(socket.taken)
			o.Pump()
			if len(socket.taken) == before {
				t.Fatalf("%d at once: nothing goes on after %q", once, socket.taken)
			}
		}
		if string(socket.taken) != "first second third" || o.Size() != 0 {
			t.Errorf("%d at once: sent %q, %d wait", once, socket.taken, o.Size())
		}
	}
}

// A leader sends only a part of a long queue at a time, so that it can serve other connections.
func TestPumpInParts(t *testing.T) {
	socket := newStubSocket()
	socket.once = 64 << 10
	o := open(socket, false)
	o.SetLimit(math.MaxInt)
	message := make([]byte, 3*maxPump)
	socket.takes = math.MaxInt
	if o.Queue(message); socket.later != 1 || len(socket.taken) != maxPump {
		t.Errorf("at once %d bytes, PumpLater %d times", len(socket.taken), socket.later)
	}
	for round := 2; round <= 3; round++ {
		if o.Pump(); socket.later != round || len(socket.taken) != round*maxPump {
			t.Errorf("round %d: %d bytes, PumpLater %d times", round, len(socket.taken), socket.later)
		}
	}
	if !o.Empty() {
		t.Errorf("%d bytes wait", o.Size())
	}
}

// Queue returns ErrFull, and sends nothing, if more bytes would wait than the limit allows. A single message may always wait. The bytes of a
// Write don't count.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		socket := newStubSocket()
		o := open(socket, false)
		o.SetLimit(10)
		written := make(chan error)
		go func() {
			_, err := o.Write(make([]byte, 100))
			written <- err
		}()
		synctest.Wait()
		o.mustQueue(t, "twelve bytes")
		if err := o.Queue(nil); err != ErrFull {
			t.Errorf("over the limit: %v", err)
		}
		socket.takes = 100 + 4
		o.Pump()
		if err := <-written; err != nil {
			t.Error(err)
		}
		o.mustQueue(t, "xx") // together with the 8 bytes that wait, these are 10
		if err := o.Queue([]byte("x")); err != ErrFull || o.Size() != 10 {
			t.Errorf("11 of 10 bytes: %v, %d wait", err, o.Size())
		}
	})
}

// The records that TLS sends by itself are limited, and the program's messages have the same limits with TLS as without it.
func TestPut(t *testing.T) {
	o := open(newStubSocket(), false)
	o.SetLimit(1000)
	record := []byte("a record")
	if err := o.BeginSeal(true, len(record)); err != nil {
		t.Fatal(err)
	}
	if n, err := o.Put(record); n != len(record) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	o.EndSeal()
	record[0] = 'X' // crypto/tls reuses the slice
	if first, _ := o.queue.front(); string(first) != "a record" {
		t.Errorf("%q waits", first)
	}
	if err := o.BeginSeal(true, 1000); err != ErrFull {
		t.Errorf("a message that is too large: %v", err)
	}
	if err := o.BeginSeal(false, 0); err != nil {
		t.Errorf("a Write: %v", err)
	}
	if _, err := o.Put(make([]byte, 2000)); err != nil || o.queue.messages != len("a record") {
		t.Errorf("%d bytes count as messages, %v", o.queue.messages, err)
	}
	o.EndSeal()
	for n := 0; ; n += 1 << 10 {
		if _, err := o.Put(make([]byte, 1<<10)); err != nil {
			if err != ErrFull || n < maxOwnRecords {
				t.Errorf("after %d bytes: %v", n, err)
			}
			break
		}
		if n > maxOwnRecords+4<<10 {
			t.Fatalf("%d bytes wait", o.Size())
		}
	}
	if err := o.Queue(nil); err != ErrFull || !o.Empty() {
		t.Errorf("afterwards: %v, %d wait", err, o.Size())
	}
}

// If there is no limit, the records that TLS sends by itself have none either.
func TestLimitOfEverything(t *testing.T) {
	o := open(newStubSocket(), false)
	o.SetLimit(math.MaxInt)
	for range 3 {
		if _, err := o.Put(make([]byte, 100)); err != nil {
			t.Error(err)
		}
		if err := o.Queue(make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
	}
}

// A Write whose deadline passes withdraws its unsent bytes. If a part of a frame was sent by then, nothing more can be sent.
func TestWriteDeadline(t *testing.T) {
	for _, test := range []struct {
		takes  int
		frames bool
		after  error // the error of a message afterwards
	}{{0, false, nil}, {0, true, nil}, {3, false, nil}, {3, true, os.ErrDeadlineExceeded}} {
		synctest.Test(t, func(t *testing.T) {
			socket := newStubSocket()
			socket.takes = test.takes
			o := open(socket, test.frames)
			o.SetDeadline(time.Now().Add(time.Hour))
			start, result := time.Now(), make(chan error)
			go func() {
				n, err := o.Write([]byte("abcdef"))
				if n != test.takes {
					t.Errorf("%+v: wrote %d", test, n)
				}
				result <- err
			}()
			synctest.Wait()
			o.SetDeadline(start.Add(time.Minute))
			if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
				t.Errorf("%+v: %v after %v", test, err, time.Since(start))
			}
			if socket.left != 1 {
				t.Errorf("%+v: a Write that waits has left the turn %d times", test, socket.left)
			}
			if n, err := o.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%+v: after the deadline: %d, %v", test, n, err)
			}
			if err := o.Queue([]byte("next")); !errors.Is(err, test.after) || (err == nil) != (test.after == nil) {
				t.Errorf("%+v: a message afterwards: %v", test, err)
			}
			socket.takes = 100
			if o.Pump(); test.after == nil && string(socket.taken) != "abcdef"[:test.takes]+"next" {
				t.Errorf("%+v: sent %q", test, socket.taken)
			}
		})
	}
}

// AwaitSent waits for the bytes that were queued before, and not for later bytes. If its deadline passes, the outbox fails.
func TestAwaitSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		socket := newStubSocket()
		o := open(socket, false)
		if err := o.AwaitSent(); err != nil {
			t.Error(err)
		}
		sent := make(chan error, 1)
		o.mustQueue(t, "before")
		go func() { sent <- o.AwaitSent() }()
		synctest.Wait()
		o.mustQueue(t, "after")
		socket.takes = len("before")
		o.Pump()
		if err := <-sent; err != nil {
			t.Error(err)
		}
		go func() { sent <- o.AwaitSent() }()
		synctest.Wait()
		o.SetDeadline(time.Now().Add(time.Second))
		if err := <-sent; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if err := o.Queue(nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// After Finish the queued bytes are sent, and then those that were passed to Finish, and the outbox accepts no more bytes. If bytes are
// still waiting, Finish returns false, and the owner is woken when they were sent.
func TestFinish(t *testing.T) {
	socket := newStubSocket()
	o := open(socket, false)
	if !o.Finish(nil) {
		t.Error("an empty outbox has something to send")
	}
	socket = newStubSocket()
	o = open(socket, false)
	o.mustQueue(t, "message ")
	if o.Finish([]byte("end")) || o.Empty() {
		t.Error("all has left, it says")
	}
	if o.Finish([]byte("twice")) {
		t.Error("all has left, it says")
	}
	for name, err := range map[string]error{"Queue": o.Queue([]byte("late")), "BeginSeal": o.BeginSeal(false, 0)} {
		if err != net.ErrClosed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, err := o.Write([]byte("late")); n != 0 || err != net.ErrClosed {
		t.Errorf("Write: %d, %v", n, err)
	}
	socket.takes = 100
	if o.Pump(); !o.Empty() || string(socket.taken) != "message end" {
		t.Errorf("sent %q", socket.taken)
	}
}

// Whatever makes the outbox fail, waiting goroutines and later callers get its error, and an owner that waits to close the connection is
// woken.
func TestFail(t *testing.T) {
	broken := errors.New("broken")
	for name, fail := range map[string]func(*Outbox, *stubSocket){
		"Fail":                    func(o *Outbox, _ *stubSocket) { o.Fail(broken) },
		"the socket, at a Pump":   func(o *Outbox, s *stubSocket) { s.err = broken; o.Pump() },
		"twice, the first counts": func(o *Outbox, _ *stubSocket) { o.Fail(broken); o.Fail(io.EOF) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				socket := newStubSocket()
				o := open(socket, false)
				waiting := make(chan error, 2)
				go func() {
					_, err := o.Write([]byte("x"))
					waiting <- err
				}()
				synctest.Wait()
				go func() { waiting <- o.AwaitSent() }()
				synctest.Wait()
				o.Finish(nil)
				fail(o, socket)
				for range 2 {
					if err := <-waiting; err != broken {
						t.Errorf("who waits gets %v", err)
					}
				}
				o.AwaitEmpty()
				<-socket.ownerWoke
				if err := o.Queue([]byte("x")); err != broken || o.Size() != 0 {
					t.Errorf("afterwards: %v, %d wait", err, o.Size())
				}
				if n, err := o.Put([]byte("x")); n != 0 || err != broken {
					t.Errorf("Put afterwards: %d, %v", n, err)
				}
			})
		})
	}
	t.Run("the socket, at once", func(t *testing.T) {
		socket := newStubSocket()
		socket.err = broken
		if err := open(socket, false).Queue([]byte("x")); err != broken {
			t.Error(err)
		}
	})
}

// Even without a Socket, messages are sent in the order of the calls, whether or not their senders wait. A Write that gives up doesn't
// change the order of the other messages.
func TestBlockingOrder(t *testing.T) {
	for name, test := range map[string]struct {
		before func(*Outbox) // called before the client begins to read
		want   string
		errs   map[string]error // the errors of the writes
	}{
		"all are sent":        {func(*Outbox) {}, "a b c d e f", nil},
		"a deadline passes":   {func(o *Outbox) { o.SetDeadline(time.Now().Add(-time.Second)) }, "a c e f", map[string]error{"b": os.ErrDeadlineExceeded, "d": os.ErrDeadlineExceeded}},
		"the connection ends": {func(o *Outbox) { o.Finish([]byte("-")) }, "a c e f -", map[string]error{"b": net.ErrClosed, "d": net.ErrClosed}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				o := new(Outbox)
				o.Open(&stubOwner{limits: pace.Limits{Grace: -1}}, nil, server, false)
				queue := func(text string) {
					o.mustQueue(t, text)
					synctest.Wait()
				}
				errs := make(map[string]chan error)
				write := func(text string) {
					err := make(chan error, 1)
					errs[text] = err
					go func() {
						_, e := o.Write([]byte(text))
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
				if o.turn.taken || !o.queue.empty() {
					t.Error("afterwards something is still being sent: " + fmt.Sprint(o.queue))
				}
				server.Close()
			})
		})
	}
}

// A deadline that is set while a Write holds the turn ends the Write.
func TestBlockingWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		o := new(Outbox)
		o.Open(&stubOwner{limits: pace.Limits{Grace: -1}}, nil, server, true)
		start, result := time.Now(), make(chan error)
		go func() {
			_, err := o.Write(bytes.Repeat([]byte("x"), 2*maxPaced))
			result <- err
		}()
		io.ReadFull(client, make([]byte, maxPaced))
		synctest.Wait()
		o.SetDeadline(start.Add(time.Minute))
		if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := o.Queue(nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("behind a part of a frame: %v", err)
		}
		o.AwaitEmpty()
	})
}

// Lend keeps b itself if most of it must wait, and calls release when all of it was sent. Otherwise the caller may reuse b at once.
func TestLend(t *testing.T) {
	for _, test := range []struct {
		takes int
		kept  bool
	}{{0, true}, {40, true}, {49, true}, {50, false}, {99, false}, {100, false}} {
		socket := newStubSocket()
		socket.takes = test.takes
		o := open(socket, false)
		b := bytes.Repeat([]byte("0123456789"), 10)
		want := string(b)
		var released []byte
		if kept := o.Lend(b, func(b []byte) { released = b }); kept != test.kept {
			t.Errorf("%d bytes taken: kept %t", test.takes, kept)
			continue
		}
		if !test.kept {
			clear(b)
		}
		if socket.takes = 100 - test.takes - 1; socket.takes > 0 {
			o.Pump()
		}
		if released != nil {
			t.Errorf("%d bytes taken: released before all has left", test.takes)
		}
		socket.takes = 100
		o.Pump()
		if got := string(socket.taken); got != want {
			t.Errorf("%d bytes taken: %q was sent", test.takes, got)
		}
		if test.kept != (len(released) == len(b)) || test.kept && &released[0] != &b[0] {
			t.Errorf("%d bytes taken: %d bytes were released", test.takes, len(released))
		}
	}
}

// If the connection fails, a lent slice isn't released, since a goroutine may still be writing it.
func TestLendFails(t *testing.T) {
	o := open(newStubSocket(), false)
	release := func([]byte) { t.Error("released") }
	if !o.Lend([]byte("0123456789"), release) {
		t.Error("not kept")
	}
	o.Fail(net.ErrClosed)
	if o.Lend([]byte("0123456789"), release) {
		t.Error("kept when nothing can be sent any more")
	}
}

// failingConn is a connection that accepts only a part of each write, and then fails.
type failingConn struct {
	net.Conn
	takes int
	err   error
}

func (c *failingConn) Write(b []byte) (int, error)      { return min(len(b), c.takes), c.err }
func (c *failingConn) SetWriteDeadline(time.Time) error { return nil }

// If a write fails for a reason other than the client's leaving, the connection is disconnected. Otherwise its owner might not notice the
// failure, and owner and client would wait for each other. If the client has left, the connection isn't disconnected, so the owner can still
// read the bytes that the client sent before.
func TestFailedWriteDisconnects(t *testing.T) {
	errs := []struct {
		err         error
		disconnects int32
	}{
		{syscall.ENOMEM, 1},
		{syscall.ENOBUFS, 1},
		{errors.New("another"), 1},
		{syscall.EPIPE, 0},
		{syscall.ECONNRESET, 0},
		{syscall.ETIMEDOUT, 0},
		{syscall.EHOSTUNREACH, 0},
		{io.ErrClosedPipe, 0},
		{net.ErrClosed, 0},
	}
	for name, fail := range map[string]func(t *testing.T, o *Outbox, socket *stubSocket, err error){
		"at once": func(t *testing.T, o *Outbox, socket *stubSocket, err error) {
			socket.err = err
			o.Queue([]byte("text"))
		},
		"later": func(t *testing.T, o *Outbox, socket *stubSocket, err error) {
			o.mustQueue(t, "text")
			socket.err = err
			o.Pump()
		},
		"of a goroutine that waits": func(t *testing.T, o *Outbox, socket *stubSocket, err error) {
			socket.err = err
			if _, got := o.Write([]byte("text")); !errors.Is(got, err) {
				t.Errorf("Write: %v", got)
			}
		},
		"without a socket": func(t *testing.T, o *Outbox, _ *stubSocket, err error) {
			o.socket = nil
			o.mustQueue(t, "text")
		},
		"without a socket, of a goroutine that waits": func(t *testing.T, o *Outbox, _ *stubSocket, err error) {
			o.socket = nil
			if _, got := o.Write([]byte("text")); !errors.Is(got, err) {
				t.Errorf("Write: %v", got)
			}
		},
	} {
		for _, tt := range errs {
			t.Run(fmt.Sprintf("%s/%v", name, tt.err), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					socket := newStubSocket()
					o, owner := watched(socket, pace.Limits{Grace: -1})
					failed := &net.OpError{Op: "write", Err: os.NewSyscallError("write", tt.err)}
					o.conn = &failingConn{err: failed}
					fail(t, o, socket, failed)
					synctest.Wait()
					if n := owner.disconnected.Load(); n != tt.disconnects {
						t.Errorf("disconnected %d times", n)
					}
					if got := o.Err(); !errors.Is(got, tt.err) {
						t.Errorf("then the error is %v", got)
					}
				})
			})
		}
	}
}

// If only a part of a frame was sent, the outbox fails with the error that has ended the write. If that error is the deadline of a waiting
// goroutine, the connection isn't disconnected, and can still be read.
func TestBrokenFrame(t *testing.T) {
	for _, tt := range []struct {
		err         error
		disconnects int32
	}{{syscall.ENOMEM, 1}, {syscall.EPIPE, 0}, {os.ErrDeadlineExceeded, 0}} {
		synctest.Test(t, func(t *testing.T) {
			o, owner := watched(nil, pace.Limits{Grace: -1})
			o.socket, o.frames = nil, true
			o.conn = &failingConn{takes: 3, err: tt.err}
			if n, err := o.Write([]byte("text")); n != 3 || !errors.Is(err, tt.err) {
				t.Errorf("%d bytes, %v", n, err)
			}
			synctest.Wait()
			if n := owner.disconnected.Load(); n != tt.disconnects || !errors.Is(o.Err(), tt.err) {
				t.Errorf("%v: disconnected %d times, then the error is %v", tt.err, n, o.Err())
			}
		})
	}
}

// brokenConn is a connection of the program whose Write panics or ends the goroutine.
type brokenConn struct {
	net.Conn
	breaks func()
}

func (c *brokenConn) Write([]byte) (int, error)        { c.breaks(); return 0, nil }
func (c *brokenConn) SetWriteDeadline(time.Time) error { return nil }

// If the connection's Write panics or ends its goroutine, the outbox fails, and nothing else.
func TestBrokenConn(t *testing.T) {
	for name, breaks := range map[string]func(){"panic": func() { panic("broken") }, "Goexit": runtime.Goexit} {
		for _, waits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				o, owner := watched(nil, pace.Limits{Grace: -1})
				o.socket, o.conn = nil, &brokenConn{breaks: breaks}
				go func() {
					if !waits {
						o.Queue([]byte("text"))
					} else if _, err := o.Write([]byte("text")); err == nil {
						t.Errorf("%s: Write returns no error", name)
					}
				}()
				synctest.Wait()
				if err := o.Err(); err == nil || !o.Empty() || owner.disconnected.Load() != 1 {
					t.Errorf("%s: the error is %v, disconnected %d times", name, err, owner.disconnected.Load())
				}
				if _, err := o.Write([]byte("more")); err == nil {
					t.Errorf("%s: a later Write returns no error", name)
				}
			})
		}
	}
}

// lockedConn is a connection with a lock, like a tunnel of another server over HTTP/2.
type lockedConn struct {
	net.Conn
	mu race.Mutex[race.OfHTTP2]
}

func (c *lockedConn) Write(p []byte) (int, error) { return len(p), nil }

func (c *lockedConn) SetWriteDeadline(time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return nil
}

// The net.Conn may belong to another server, so its locks may have any rank.
func TestConnWithLock(t *testing.T) {
	var o Outbox
	o.Open(&stubOwner{start: time.Now()}, nil, new(lockedConn), false)
	if n, err := o.Write([]byte("x")); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
