package loop

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/sock"
)

// Setting a bit claims a connection without an owner if the connection waits for the bit. The claim clears the bits whose events the owner
// finds by trying the socket anyway. Other bits stay set for the owner.
func TestPollSet(t *testing.T) {
	const gone = pollReadable | pollHup | pollGone | pollWritable
	for _, test := range []struct {
		name         string
		before, bits uint32
		claimed      bool
		after        uint32
	}{
		{"bytes", 0, pollReadable, true, pollBusy},
		{"bytes with the end", 0, pollReadable | pollHup, true, pollBusy | pollHup},
		{"the end behind an older one", pollHup, pollReadable | pollHup, true, pollBusy | pollHup},
		{"room that nobody waits for", 0, pollWritable, false, pollWritable},
		{"a reset", 0, gone, true, pollBusy | pollHup | pollGone | pollWritable},
		{"Close", 0, pollClosing, true, pollBusy | pollClosing},
		{"a deadline", 0, pollReadExpired, true, pollBusy | pollReadExpired},
		{"the other deadline", 0, pollWriteExpired, true, pollBusy | pollWriteExpired},
		{"nothing", 0, 0, false, 0},
		{"bytes before there is room", pollWaitsWrite, pollReadable, false, pollWaitsWrite | pollReadable},
		{"the end before there is room", pollWaitsWrite, pollReadable | pollHup, false, pollWaitsWrite | pollReadable | pollHup},
		{"room", pollWaitsWrite, pollWritable, true, pollBusy},
		{"room behind bytes", pollWaitsWrite | pollReadable, pollWritable, true, pollBusy | pollReadable},
		{"a reset before there is room", pollWaitsWrite, gone, true, pollBusy | pollReadable | pollHup | pollGone},
		{"Close before there is room", pollWaitsWrite, pollClosing, true, pollBusy | pollClosing},
		{"a deadline before there is room", pollWaitsWrite, pollWriteExpired, true, pollBusy | pollWriteExpired},
		{"the other deadline before there is room", pollWaitsWrite, pollReadExpired, true, pollBusy | pollReadExpired},
		{"bytes for an owner", pollBusy, pollReadable, false, pollBusy | pollReadable},
		{"a reset for an owner", pollBusy, gone, false, pollBusy | gone},
		{"Close for an owner", pollBusy, pollClosing, false, pollBusy | pollClosing},
	} {
		lc := new(Socket)
		lc.poll.Store(test.before)
		old, claimed := lc.set(test.bits)
		if old != test.before || claimed != test.claimed || lc.poll.Load() != test.after {
			t.Errorf("%s: set returned %b, %v and made %b; want %v and %b", test.name, old, claimed, lc.poll.Load(), test.claimed, test.after)
		}
	}
}

// errNoWait is the error of stubServed's BeforeWait.
var errNoWait = errors.New("no waiting")

// stubServed is a Conn that records the calls of its socket.
type stubServed struct{ told []string }

func (s *stubServed) TakeAway()             {}
func (s *stubServed) Turn(*Worker) bool     { return false }
func (s *stubServed) Abandon(*Worker, bool) { s.told = append(s.told, "abandon") }
func (s *stubServed) PeerLeft(broken bool) {
	s.told = append(s.told, fmt.Sprint("left, broken: ", broken))
}
func (s *stubServed) Writable()         { s.told = append(s.told, "writable") }
func (s *stubServed) Closing()          { s.told = append(s.told, "closing") }
func (s *stubServed) BeforeWait() error { return errNoWait }

// Each event of the epoll set sets the poll bits of everything that it can imply. PeerLeft is called at once if the connection has an owner.
// Writable is called if the connection is shared.
func TestPollEvent(t *testing.T) {
	const half, broken, writable = "left, broken: false", "left, broken: true", "writable"
	for _, test := range []struct {
		events, bits uint32
		owned        []string
		shared       []string // as owned, for a shared connection
	}{
		{syscall.EPOLLIN, pollReadable, nil, nil},
		{syscall.EPOLLOUT, pollWritable, nil, []string{writable}},
		{syscall.EPOLLIN | syscall.EPOLLOUT, pollReadable | pollWritable, nil, []string{writable}},
		{syscall.EPOLLIN | sock.EpollRDHUP, pollReadable | pollHup, []string{half}, []string{half}},
		{sock.EpollRDHUP, pollReadable | pollHup, []string{half}, []string{half}},
		{syscall.EPOLLHUP, pollReadable | pollHup | pollGone | pollWritable, []string{broken}, []string{writable, broken}},
		{syscall.EPOLLERR, pollReadable | pollHup | pollGone | pollWritable, []string{broken}, []string{writable, broken}},
	} {
		for word, told := range map[uint32][]string{pollBusy: test.owned, pollBusy | pollShared: test.shared} {
			var stub stubServed
			lc := &Socket{served: &stub}
			lc.poll.Store(word)
			if lc.event(test.events) {
				t.Errorf("%#x claimed what has an owner", test.events)
			}
			if got := lc.poll.Load(); got != word|test.bits {
				t.Errorf("%#x made %b, want %b", test.events, got, word|test.bits)
			}
			if !slices.Equal(stub.told, told) {
				t.Errorf("%#x for %b told %q, want %q", test.events, word, stub.told, told)
			}
		}
	}
}

// A socket works without HTTP: it reads and writes, waits only if its connection allows that, ends all writes of a shared connection before
// it is cut, and leaves its slot when it is closed.
func TestSocketAlone(t *testing.T) {
	l := newTestLoop(t, 1)
	pair := socketPair(t)
	defer sock.Close(pair[1])
	var stub stubServed
	s := new(Socket)
	s.Open(pair[0], sock.Address{}, &stub)
	if err := l.Add(s); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	if _, err := s.TryRead(b); err != ErrNotYet {
		t.Errorf("reading nothing: %v", err)
	}
	if _, err := s.Read(b); err != errNoWait {
		t.Errorf("waiting against BeforeWait: %v", err)
	}
	sock.Write(pair[1], []byte("abc"))
	if n, err := s.TryRead(b); string(b[:n]) != "abc" || err != nil || !s.Drained {
		t.Errorf("read %q, %v, drained: %v", b[:n], err, s.Drained)
	}
	if n, err := s.WriteVector([]byte("de"), []byte("f")); n != 3 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if n, _ := sock.Read(pair[1], b); string(b[:n]) != "def" {
		t.Errorf("the client got %q", b[:n])
	}
	s.Share()
	if !s.Release(false) {
		t.Fatal("something has happened")
	}
	if err := s.Cut(); err != nil || !slices.Equal(stub.told, []string{"closing"}) {
		t.Errorf("Cut: %v, told %q", err, stub.told)
	}
	if cut, _ := s.WokenBy(); len(l.inbox) != 1 || l.inbox[0] != s || !cut {
		t.Errorf("the loop has %d connections to serve, cut: %v", len(l.inbox), cut)
	}
	s.CloseSocket()
	if err := s.Cut(); l.Conns() != 0 || !s.IsClosed() || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%d connections, closed: %v, Cut: %v", l.Conns(), s.IsClosed(), err)
	}
}

// A connection can't be released while a bit is set for which it would wait. clear clears the given bits.
func TestPollRelease(t *testing.T) {
	for _, test := range []struct {
		name  string
		bits  uint32
		write bool
		want  bool
	}{
		{"nothing", 0, false, true},
		{"bytes", pollReadable, false, false},
		{"the end", pollHup, false, false},
		{"Close", pollClosing, false, false},
		{"a deadline", pollReadExpired, false, false},
		{"the other deadline", pollWriteExpired, false, false},
		{"room", pollWritable, false, true},
		{"nothing, to write", 0, true, true},
		{"bytes, to write", pollReadable, true, true},
		{"the end, to write", pollHup, true, true},
		{"room, to write", pollWritable, true, false},
		{"a reset, to write", pollGone, true, false},
		{"Close, to write", pollClosing, true, false},
		{"a deadline, to write", pollReadExpired, true, false},
	} {
		lc := new(Socket)
		lc.poll.Store(pollBusy | test.bits)
		after := pollBusy | test.bits&^(pollReadable|pollWritable) // Release clears these bits, since the owner tries the socket again
		if test.want {
			if after = test.bits; test.write {
				after |= pollWaitsWrite
			}
		}
		if got := lc.Release(test.write); got != test.want || lc.poll.Load() != after {
			t.Errorf("%s: release returned %v and made %b, want %v and %b", test.name, got, lc.poll.Load(), test.want, after)
		}
		if lc.clear(test.bits); lc.poll.Load() != after&^test.bits {
			t.Errorf("%s: clear made %b", test.name, lc.poll.Load())
		}
	}
}

// If several threads report events, the connection has one owner at a time, and no event is lost between an owner's last read or write and
// its Release.
func TestPollOwners(t *testing.T) {
	for _, write := range []bool{false, true} {
		var events uint32 = syscall.EPOLLIN
		lc := new(Socket)
		if write {
			events = syscall.EPOLLOUT
			lc.poll.Store(pollWaitsWrite)
		}
		var owners, served atomic.Int32
		var work atomic.Int64
		own := func() {
			for {
				if owners.Add(1) != 1 {
					t.Error("two own the connection")
				}
				if work.Swap(0) > 0 {
					served.Add(1)
				}
				owners.Add(-1)
				if lc.Release(write) {
					return
				}
			}
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for i := range 5000 {
					if i%3 == 0 && write {
						if lc.event(syscall.EPOLLIN) {
							t.Error("bytes have claimed a connection that waits to write")
						}
						continue
					}
					work.Add(1)
					if lc.event(events) {
						own()
					}
				}
			})
		}
		group.Wait()
		if left := work.Load(); left > 0 || served.Load() == 0 {
			t.Errorf("%d events were seen by nobody, %d were", left, served.Load())
		}
		if word := lc.poll.Load(); word&pollBusy != 0 || word&pollWaitsWrite != 0 != write {
			t.Errorf("the word is %b at the end", word)
		}
	}
}

// An owner that parks is woken once by each event, whether the event happens before, while or after the owner parks, and the event is then
// cleared. It makes no difference whether the loop or the runtime's poller wakes the owner.
func TestPollPark(t *testing.T) {
	for way, events := range [2]uint32{input: syscall.EPOLLIN, output: syscall.EPOLLOUT} {
		for _, own := range []bool{false, true} {
			lc := &Socket{loop: &Loop{group: new(Group)}}
			lc.MakeWaiters()
			lc.poll.Store(pollBusy)
			wait := func() { lc.sleep(way) }
			if own {
				fds := socketPair(t)
				defer syscall.Close(fds[0])
				file, raw, err := polledFile(fds[1], "socket")
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				polled := &polledSocket{file: file, raw: raw}
				lc.waiters.Load().waiter[way].polled.Store(polled)
				wait = func() {
					if lc.tryAlone(way, polled, func(uintptr) bool { return false }) {
						t.Error("it is done")
					}
				}
			}
			check := func(want uint32) {
				t.Helper()
				if word := lc.poll.Load(); word != want {
					t.Fatalf("direction %d, by itself: %v: the word is %b, want %b", way, own, word, want)
				}
				for d := range directions {
					if len(lc.waiters.Load().waiter[d].woken) > 0 {
						t.Fatalf("direction %d, by itself: %v: a wake-up is left", way, own)
					}
				}
			}
			for range 2000 {
				var group sync.WaitGroup
				group.Go(func() { lc.event(events) })
				wait()
				group.Wait()
				check(pollBusy)
			}
			// The other bits that end a wait stay set: each further wait ends at once.
			for bit := uint32(1); bit <= pollWriteExpired; bit <<= 1 {
				if directions[way].happened&bit == 0 {
					continue
				}
				var group sync.WaitGroup
				group.Go(func() { lc.set(bit) })
				for range 2 {
					wait()
				}
				group.Wait()
				check(pollBusy | bit)
				lc.clear(bit)
			}
		}
	}
}

// Each entry of a batch is taken exactly once, by any leader, and unchanged. No leader fills a batch that isn't used up.
func TestBatchTakenOnce(t *testing.T) {
	const batches = 2000
	l := new(Loop)
	conns := make([]Socket, batches*maxEvents)
	for id := range conns {
		conns[id].generation = uint32(id)
	}
	taken := make([]atomic.Int32, len(conns))
	filled, batch := uint32(0), 0 // only the filler uses them
	var leaders sync.WaitGroup
	for range 3 {
		leaders.Go(func() {
			for over := false; !over; {
				if l.beginFilling() {
					for range batch % (maxEvents + 1) {
						l.put(loopEvent{socket: &conns[filled], events: filled})
						filled++
					}
					batch++
					over = batch > batches
					l.endFilling()
				} else if e, ok := l.take(); ok {
					id := e.socket.generation
					if e.events != id {
						t.Errorf("the event of %d came with connection %d", e.events, id)
					}
					taken[id].Add(1)
				} else if over = l.cursor.Load()>>32 > batches; !over {
					runtime.Gosched()
				}
			}
		})
	}
	leaders.Wait()
	for e, ok := l.take(); ok; e, ok = l.take() {
		taken[e.socket.generation].Add(1)
	}
	for id := range filled {
		if n := taken[id].Load(); n != 1 {
			t.Fatalf("entry %d was taken %d times", id, n)
		}
	}
}

// The queue keeps its order, and the entries of a long queue aren't moved each time that some are taken.
func TestRequeue(t *testing.T) {
	const conns = 100_000
	l, last := new(Loop), uint32(0)
	push := func() {
		lc := new(Socket)
		lc.generation = last
		last++
		l.queue = append(l.queue, lc)
	}
	for range conns {
		push()
	}
	moves, next := 0, uint32(0)
	for len(l.queue) > 0 {
		before := len(l.queue)
		if l.requeue(); len(l.queue) < before {
			moves++
		}
		for i := range l.batch[:l.filled] {
			if id := l.batch[i].socket.Load().generation; id != next {
				t.Fatalf("%d comes when it is %d's turn", id, next)
			}
			if next++; next%10 == 0 {
				push() // append more connections to the queue
			}
		}
		l.filled = 0
		if len(l.queue) < 100 {
			l.requeue() // the last entries
			next += uint32(l.filled)
			l.filled = 0
		}
	}
	if moves > 100 {
		t.Errorf("what is left was moved %d times", moves)
	}
	if next != last || l.queued > 0 {
		t.Errorf("%d of %d were served, and %d are left", next, last, l.queued)
	}
	if i := slices.IndexFunc(l.queue[:cap(l.queue)], func(lc *Socket) bool { return lc != nil }); i >= 0 {
		t.Errorf("the queue still holds a connection at %d", i)
	}
}

// In builds with the race detector, methods that only the owner may call panic if the socket has no owner.
func TestAssertOwned(t *testing.T) {
	var s Socket
	s.fd = -1
	for name, use := range map[string]func(){
		"TryRead":     func() { s.TryRead(nil) },
		"Read":        func() { s.Read(nil) },
		"WriteVector": func() { s.WriteVector(nil, nil) },
		"Release":     func() { s.Release(false) },
	} {
		for _, owned := range []bool{false, true} {
			if s.poll.Store(0); owned {
				s.poll.Store(pollBusy)
			}
			panicked := func() (panicked bool) {
				defer func() { panicked = recover() != nil }()
				use()
				return
			}()
			if want := race.Enabled && !owned; panicked != want {
				t.Errorf("%s, owned: %t: it panics: %t", name, owned, panicked)
			}
		}
	}
}
