package loop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/sock"
)

// newTestLoop makes a loop without leaders.
func newTestLoop(t *testing.T, seats int) *Loop {
	g := new(Group)
	l, err := newLoop(g, make([]Workers, seats))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.closeFiles)
	g.loops, g.seats = []*Loop{l}, l.seats
	return l
}

// restInTest makes the leader of a seat rest.
func restInTest(s *Seat) {
	r := &s.loop.roster
	s.resting.Store(true)
	r.awake--
	r.rested = append(r.rested, s)
	r.resting.Add(1)
}

// seatWorkers implements Workers: each leader of the seat is a new worker.
type seatWorkers struct {
	Workers
	seat *Seat
	all  *sync.WaitGroup
}

func (w *seatWorkers) Lead(s *Seat) {
	w.seat = s
	w.Retake()
}
func (w *seatWorkers) Retake()            { w.all.Go(func() { w.seat.Lead(newFakeWorker()) }) }
func (w *seatWorkers) MayRetake(int) bool { return true }
func (w *seatWorkers) Serving() int       { return 0 }

// echo is a connection that sends back what it receives.
type echo struct {
	Socket
	stubServed
}

func (e *echo) Turn(*Worker) bool {
	e.WokenBy()
	b := make([]byte, 100)
	for {
		switch n, err := e.TryRead(b); {
		case err == nil:
			e.TryWrite(b[:n], nil)
		case err != ErrNotYet:
			e.CloseSocket()
			return false
		case e.Release(false):
			return false
		}
	}
}

func admitEcho(to *Loop, fd int, peer sock.Address) error {
	e := new(echo)
	e.Open(fd, peer, e)
	err := to.Add(&e.Socket)
	if err == nil && !e.Release(false) {
		e.Post()
	}
	return err
}

// No event is lost between a leader's last check for events and its rest, whether the leader rests in the parker or waits for its bell, and
// whatever wakes it. Leaders without work don't spin, and all of them leave a loop that has ended.
func TestLeadersRest(t *testing.T) {
	const leaders, clients, requests = 4, 8, 2000
	var workers []Workers
	var all sync.WaitGroup
	for range leaders {
		workers = append(workers, &seatWorkers{all: &all})
	}
	g, err := NewGroup(workers, new(atomic.Bool))
	if err != nil {
		t.Fatal(err)
	}
	g.Start()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fd := duplicateOf(t, listener)
	ll, err := g.NewListener(Listening{
		Address: listener.Addr(), Sockets: []int{fd}, Options: new(sock.Options), Logger: slog.Default,
		Admit: admitEcho,
	})
	if err != nil {
		t.Fatal(err)
	}
	served, begun := make(chan error, 1), make(chan struct{})
	go func() { served <- ll.Serve(func() { close(begun) }) }()
	<-begun

	var group, callers sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			c, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			random, answer := rand.New(rand.NewPCG(uint64(i), 0)), make([]byte, 3)
			for range requests {
				c.SetDeadline(time.Now().Add(time.Minute))
				io.WriteString(c, "abc")
				if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "abc" {
					t.Errorf("got %q, %v", answer, err)
					return
				}
				if random.IntN(4) == 0 {
					time.Sleep(time.Duration(random.IntN(100)) * time.Microsecond)
				}
			}
		})
	}
	l, ended := g.loops[0], make(chan struct{})
	called := 0
	callers.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Microsecond):
				if l.roster.wakeOne() {
					called++
				}
			}
		}
	})
	group.Wait()
	close(ended)
	callers.Wait()
	if called == 0 {
		t.Error("no leader has rested until it was called")
	}
	for end := time.Now().Add(time.Minute); l.roster.resting.Load() != leaders-1 || !l.sleeping.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d leaders wait for their bells, one in the parker: %v", l.roster.resting.Load(), l.sleeping.Load())
		}
	}
	listener.Close()
	ll.Close()
	<-served
	endTestGroup(t, g, &all)
	// A shutdown of the listener after the end of the loops mustn't ring, since the numbers of the bells' descriptors may have been reused.
	if l.pending.Store(false); ll.SetDeadline(time.Time{}) != nil || l.pending.Load() {
		t.Error("a loop that has ended was rung")
	}
}

// Serve fails if a loop can't accept from its socket. Otherwise the clients of that socket would wait forever.
func TestServeFails(t *testing.T) {
	var all sync.WaitGroup
	g, err := NewGroup([]Workers{&seatWorkers{all: &all}}, new(atomic.Bool))
	if err != nil {
		t.Fatal(err)
	}
	g.Start()
	defer endTestGroup(t, g, &all)
	file, err := os.Open("seat_linux_test.go") // epoll accepts no files
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := sock.Duplicate(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	ll, err := g.NewListener(Listening{Address: new(net.TCPAddr), Sockets: []int{fd}, Options: new(sock.Options), Logger: slog.Default})
	if err != nil {
		t.Fatal(err)
	}
	if err := ll.Serve(func() { t.Error("it has begun") }); !errors.Is(err, syscall.EPERM) {
		t.Errorf("Serve returned %v", err)
	}
}

// endTestGroup ends a group whose listeners are closed, and waits for its leaders.
func endTestGroup(t *testing.T, g *Group, leaders *sync.WaitGroup) {
	t.Helper()
	g.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := g.Await(ctx); err != nil {
		t.Error(err)
	}
	leaders.Wait()
}

// After a leader had to share its processor, no leaders are woken for a while, and for longer if the same happens again soon. The leader
// rests unless it is the last one awake.
func TestLeadersWithoutAProcessor(t *testing.T) {
	const leaders = 8
	l := &Loop{}
	l.roster.awake = leaders
	for range leaders - 1 {
		restInTest(newSeat(l, nil))
	}
	called := func() bool {
		before := l.roster.resting.Load()
		l.roster.callHelp()
		return l.roster.resting.Load() < before
	}
	if l.roster.lacksProcessors() {
		t.Error("nobody looks after the loop any more")
	}
	l.roster.until, l.roster.pause = clock.Atomic[clock.Nanos]{}, 0
	if !called() {
		t.Error("nobody helps")
	}
	for _, want := range []time.Duration{minPause, 2 * minPause, 4 * minPause} {
		for range 2 { // the second call is another leader's
			if !l.roster.lacksProcessors() {
				t.Error("a leader without a processor doesn't rest")
			}
		}
		if l.roster.pause != want {
			t.Errorf("a pause of %v, want %v", l.roster.pause, want)
		}
		if called() {
			t.Error("a leader is called that has no processor")
		}
		l.roster.until.Store(1) // the pause has ended
		if !called() {
			t.Error("nobody helps after the pause")
		}
		l.roster.until.Store(clock.Nanotime()) // the pause has ended just now
	}
}

// A leader that gets maxEvents events at once wakes another leader, unless this is one of the leader's first batches since it woke up.
func TestFullBatchCallsHelp(t *testing.T) {
	l := newTestLoop(t, 2)
	s, w := l.seats[0], newFakeWorker()
	restInTest(l.seats[1])
	for slot := range maxEvents {
		fd, err := sock.NewEventFD()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sock.Close(fd) })
		l.slots = append(l.slots, &Socket{loop: l, generation: 1, served: new(stubServed)})
		// Each poll reports this event again.
		if errno := sock.EpollControl(int(l.epoll), syscall.EPOLL_CTL_ADD, fd, syscall.EPOLLIN, uint32(slot), 1); errno != 0 {
			t.Fatal(errno)
		}
		sock.RingEventFD(fd)
	}
	w.seat = s
	for batch := range wakeRounds {
		if l.roster.resting.Load() == 0 {
			t.Errorf("after %d full batches the other leader was called", batch)
		}
		if !s.step(w) {
			t.Fatal("no events")
		}
		for l.hasBatch() {
			s.step(w)
		}
	}
	if len(l.seats[1].bell) != 1 || l.roster.awake != 2 {
		t.Error("the other leader wasn't called")
	}
}

// The last leader awake doesn't wait for events while claimed connections are queued: they have no event that would wake it.
func TestQueuedConnectionsKeepLeaderAwake(t *testing.T) {
	l := newTestLoop(t, 1)
	l.roster.awake = 1
	turns := 0
	socket := &Socket{loop: l, generation: 1, served: &countedTurns{turns: &turns}}
	all := 3 * len(l.batch)
	for range all {
		l.queue = append(l.queue, socket)
	}
	s, w := l.seats[0], newFakeWorker()
	w.seat = s
	rested := make(chan struct{})
	go func() {
		defer close(rested)
		for turns < all {
			l.beginFilling()
			l.fill()
			for e, ok := l.take(); ok; e, ok = l.take() {
				s.serve(w, e)
			}
			if turns < all {
				s.rest()
			}
		}
	}()
	select {
	case <-rested:
	case <-time.After(time.Minute):
		t.Fatal("the leader sleeps")
	}
}

// If none of the leaders that are awake has made progress since the last tick, their threads may be waiting for processors. Then the monitor
// wakes another leader.
func TestMonitorWakesAnother(t *testing.T) {
	l := newTestLoop(t, 2)
	restInTest(l.seats[1])
	seen := make([]uint64, 2)
	l.seats[0].word.Store(2)
	if l.lookAfter(seen); l.roster.resting.Load() != 1 {
		t.Error("the leader that was awake has moved")
	}
	if l.lookAfter(seen); len(l.seats[1].bell) != 1 {
		t.Error("the other leader wasn't woken")
	}
}

// Leaders are distributed evenly over as few loops as possible.
func TestSeatsOfLoops(t *testing.T) {
	for leaders, want := range map[int][]int{1: {1}, 8: {8}, 9: {4, 5}, 17: {5, 6, 6}} {
		g, err := NewGroup(make([]Workers, leaders), new(atomic.Bool))
		if err != nil {
			t.Fatal(err)
		}
		g.closeFiles()
		if len(g.loops) != len(want) || len(g.seats) != leaders {
			t.Fatalf("%d loops and %d seats for %d leaders", len(g.loops), len(g.seats), leaders)
		}
		for i, l := range g.loops {
			if len(l.seats) != want[i] {
				t.Errorf("of %d leaders, loop %d has %d; want %d", leaders, i, len(l.seats), want[i])
			}
		}
	}
}

// A leader is alone while nothing else is ready. The events that IsAlone finds are served afterwards.
func TestLeaderIsAlone(t *testing.T) {
	l := newTestLoop(t, 1)
	s, w := l.seats[0], newFakeWorker()
	if w.IsAlone() {
		t.Error("a worker without a loop is alone in it")
	}
	w.seat = s
	want := func(alone bool, when string) {
		t.Helper()
		w.word = s.word.Load() // in a turn
		if w.IsAlone() != alone {
			t.Errorf("%s: alone: %v", when, !alone)
		}
	}
	want(true, "an empty loop")
	fd, err := sock.NewEventFD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close(fd) })
	turns := 0
	l.slots = append(l.slots, &Socket{loop: l, generation: 1, served: &countedTurns{turns: &turns}})
	const once = syscall.EPOLLIN | sock.EpollET
	if errno := sock.EpollControl(int(l.epoll), syscall.EPOLL_CTL_ADD, fd, once, 0, 1); errno != 0 {
		t.Fatal(errno)
	}
	want(true, "nothing has happened")
	sock.RingEventFD(fd)
	want(false, "an event")
	want(false, "the same event, in the batch")
	if s.step(w); turns != 1 {
		t.Errorf("the event led to %d turns", turns)
	}
	want(true, "the event is served")
	l.pending.Store(true)
	want(false, "a connection is left to the loop")
	l.pending.Store(false)
	w.Stay(&class.Class{})
	sock.RingEventFD(fd)
	s.step(w) // the leader finds the event
	s.step(w)
	want(true, "the same client asks again")
	w.Stay(&class.Class{})
	s.slot++ // the leader now serves another client
	sock.RingEventFD(fd)
	s.step(w)
	s.step(w)
	for range crossedCalls {
		want(false, "another client asked while a handler stayed")
	}
	want(true, "that was some calls ago")
	w.Stay(&class.Class{})
	s.step(w)
	want(true, "nothing came while a handler stayed")
	l.beginFilling()
	want(false, "another leader fills the batch")
	l.endFilling()
	if s.word.Add(1 << 32); w.IsAlone() {
		t.Error("a leader is alone whose seat was taken away")
	}
}

// countedTurns counts its turns.
type countedTurns struct {
	stubServed
	turns *int
}

func (c *countedTurns) Turn(*Worker) bool { *c.turns++; return false }
