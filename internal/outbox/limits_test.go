package outbox

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/pace"
)

// watched returns an outbox with limits for its client, and the outbox's owner.
func watched(socket *stubSocket, limits pace.Limits) (*Outbox, *stubOwner) {
	o, owner := new(Outbox), &stubOwner{limits: limits, start: time.Now()}
	o.Open(owner, socket, nil, false)
	return o, owner
}

// A timer may fire just when the client has taken everything. A message that is queued after that still has its full time.
func TestTimerOfAStallThatIsOver(t *testing.T) {
	socket := newStubSocket()
	o, _ := watched(socket, pace.Limits{Grace: time.Hour}) // a time so long that no timer fires
	message := string(make([]byte, 100))
	o.mustQueue(t, message)
	defer o.Fail(net.ErrClosed)
	socket.takes = len(message)
	o.Pump()
	if o.stall != nil {
		t.Fatal("a client that has taken everything is watched")
	}
	o.mustQueue(t, message)
	if o.stall == nil {
		t.Fatal("a client that has something to take isn't watched")
	}
	if o.tooSlow() || o.err != nil {
		t.Errorf("a client whose time has just begun is too slow: %v", o.err)
	}
	o.stall.next, o.stall.until = 1, 1 // as if the deadline had passed
	if !o.tooSlow() || o.err == nil {
		t.Error("a client that has taken nothing in its time isn't too slow")
	}
}

// A client that takes nothing is disconnected after the grace period. By taking bytes it gets at most one more grace period.
func TestStall(t *testing.T) {
	const grace = 10 * time.Second
	for _, test := range []struct {
		name  string
		rate  int
		takes []int         // bytes taken: first at a quarter of the grace period, then after three quarters each
		after time.Duration // when the client is disconnected; 0: never
	}{
		{"takes nothing", 100, nil, grace},
		{"takes nothing, without a rate", -1, nil, grace},
		{"takes something at first, without a rate", -1, []int{1, 1}, 2 * grace},
		{"takes little", 100, []int{10, 10, 10}, grace},
		{"has earned half a period", 100, []int{500, 1, 1}, 3 * grace / 2},
		{"has earned much and takes nothing", 100, []int{50_000}, 5 * grace / 4},
		{"has earned much and takes little", 100, []int{50_000, 1, 1, 1, 1}, 9 * grace / 4},
		{"keeps up the rate", 100, []int{1100, 1100, 1100, 1100, 1100, 94_500}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				socket := newStubSocket()
				o, owner := watched(socket, pace.Limits{Grace: grace, Rate: test.rate})
				o.mustQueue(t, string(make([]byte, 100_000)))
				start := time.Now()
				for _, n := range test.takes {
					time.Sleep(grace / 4)
					socket.takes = n
					o.Pump()
					time.Sleep(grace / 2)
				}
				synctest.Wait()
				for owner.disconnected.Load() == 0 && !o.Empty() && time.Since(start) < 100*grace {
					time.Sleep(grace)
					synctest.Wait()
				}
				if test.after == 0 {
					if owner.disconnected.Load() > 0 || o.err != nil || !o.Empty() {
						t.Errorf("disconnected %d times, %v, %d wait", owner.disconnected.Load(), o.err, o.Size())
					}
					return
				}
				if owner.disconnected.Load() != 1 || !errors.Is(o.err, os.ErrDeadlineExceeded) {
					t.Errorf("disconnected %d times, %v", owner.disconnected.Load(), o.err)
				}
				if took := owner.at.Sub(start); took < test.after || took > test.after+2*time.Second {
					t.Errorf("disconnected after %v, want %v", took, test.after)
				}
			})
		})
	}
}

// A client isn't watched while no bytes wait for it, or if it has no time limit. Without a Socket, the client is also watched during a
// Write.
func TestWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := watched(newStubSocket(), pace.Limits{Grace: -1})
		if o.mustQueue(t, "x"); o.stall != nil {
			t.Error("a client that may take its time is watched")
		}
		owner := &stubOwner{limits: pace.Limits{Grace: time.Second}, start: time.Now()}
		client, server := net.Pipe()
		defer client.Close()
		blocking := new(Outbox)
		blocking.Open(owner, nil, server, false)
		written := make(chan error)
		go func() {
			_, err := blocking.Write([]byte("nobody reads this"))
			written <- err
		}()
		time.Sleep(2 * time.Second)
		if owner.disconnected.Load() != 1 {
			t.Errorf("a client that takes nothing was disconnected %d times", owner.disconnected.Load())
		}
		server.Close() // as Disconnect would do
		if err := <-written; err == nil {
			t.Error("a Write that nobody reads succeeded")
		}
	})
}

// The number of bytes in the system's buffer shows how much the client takes, long before the socket has room.
func TestStallWithABuffer(t *testing.T) {
	const grace = 10 * time.Second
	for _, test := range []struct {
		name  string
		takes int64 // how many bytes of the buffer the client takes each second
		for_  int   // for how many seconds; -1: until the buffer is empty
		cut   bool
	}{
		{"takes nothing", 0, 0, true},
		{"takes something, and then nothing", 1000, 25, true},
		{"takes a byte now and then", 1, -1, true},
		{"is slow", 1000, -1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				socket := newStubSocket()
				socket.buffered.Store(100_000)
				socket.known = true
				o, owner := watched(socket, pace.Limits{Grace: grace, Rate: 500})
				o.mustQueue(t, "there is no room for this")
				last := time.Now()
				for second := 0; owner.disconnected.Load() == 0 && socket.buffered.Load() > 0; second++ {
					time.Sleep(time.Second - time.Millisecond)
					if test.for_ < 0 || second < test.for_ {
						socket.buffered.Add(-test.takes)
						last = time.Now()
					}
					time.Sleep(time.Millisecond)
					synctest.Wait()
				}
				if cut := owner.disconnected.Load() > 0; cut != test.cut {
					t.Errorf("disconnected: %t", cut)
				}
				if silent := owner.at.Sub(last); test.cut && test.for_ >= 0 && (silent < grace-time.Second || silent > grace+2*time.Second) {
					t.Errorf("disconnected after %v of silence", silent)
				}
				o.Fail(net.ErrClosed)
			})
		})
	}
}

func TestAdmits(t *testing.T) {
	for _, test := range []struct {
		waiting, size, limit int
		want                 bool
	}{{0, 100, 10, true}, {0, 0, 0, true}, {1, 9, 10, true}, {1, 10, 10, false}, {10, 0, 10, true}, {11, 0, 10, false}} {
		if got := admits(test.waiting, test.size, test.limit); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}

// After PumpLater the client is watched until the socket has room or there is nothing more to send.
func TestPumpLaterWatches(t *testing.T) {
	const grace = 10 * time.Second
	for _, test := range []struct {
		name         string
		more, room   bool
		disconnected int32
	}{
		{"nothing happens", true, false, 1},
		{"the socket has room", true, true, 0},
		{"the rest was sent", false, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, owner := watched(newStubSocket(), pace.Limits{Grace: grace})
				owner.more = test.more
				if !o.PumpLater() {
					t.Fatal("nothing can be sent")
				}
				time.Sleep(grace / 2)
				if test.room {
					o.Pump()
				}
				time.Sleep(5 * grace)
				synctest.Wait()
				o.mu.Lock()
				watched := o.stall != nil
				o.mu.Unlock()
				if got := owner.disconnected.Load(); got != test.disconnected || watched {
					t.Errorf("disconnected %d times, and watched: %v", got, watched)
				}
				if test.disconnected == 0 && o.Err() != nil {
					t.Error(o.Err())
				}
				o.Fail(net.ErrClosed)
			})
		})
	}
}
