package loop

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// A listening socket that was removed from the epoll set is added again, even if that fails at first for lack of memory.
func TestListenerIsWatchedAgain(t *testing.T) {
	bell, err := sock.NewEventFD() // stands in for the listening socket
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close(bell)
	set, err := newEpollSet()
	if err != nil {
		t.Fatal(err)
	}
	defer set.close()
	var failures atomic.Uint64
	var freed atomic.Int32
	e := &listenerEntry{
		Listener: &Listener{
			logger: func() *slog.Logger { return slog.New(slog.DiscardHandler) }, log: sock.AcceptLog{Failures: &failures},
			full: func() { freed.Add(1) },
		},
		loop: &Loop{epoll: -1}, fd: bell, watched: true,
	}
	e.pause()
	await(t, "a watch to fail, which others are to make room for", func() bool { return failures.Load() > 0 && freed.Load() > 0 })
	e.mu.Lock()
	e.loop.epoll = set
	e.mu.Unlock()
	await(t, "the socket to be watched", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.watched
	})
}

// If a loop can't watch an accepted connection, for lack of memory or epoll watches, that counts as a failed accept: the loop pauses, and
// the log has one record, however many clients connect. The pauses grow until the first success.
func TestConnectionsThatCannotBeWatched(t *testing.T) {
	for name, user := range map[string]bool{"a socket of its own": false, "the user's": true} {
		t.Run(name, func(t *testing.T) { testUnwatched(t, user) })
	}
}

func testUnwatched(t *testing.T, user bool) {
	var all sync.WaitGroup
	g, err := NewGroup([]Workers{&seatWorkers{all: &all}}, new(atomic.Bool))
	if err != nil {
		t.Fatal(err)
	}
	g.Start()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fd := duplicateOf(t, listener)
	var log bytes.Buffer // used only by the log handler, until the loop has ended
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var freed, lost atomic.Int32
	var failures atomic.Uint64
	var works atomic.Bool
	on := Listening{
		Address: listener.Addr(), Sockets: []int{fd}, Options: new(sock.Options), Failures: &failures,
		Logger: func() *slog.Logger { return logger },
		Full:   func() { freed.Add(1) },
		Admit: func(to *Loop, fd int, peer sock.Address) error {
			if works.Load() {
				return admitEcho(to, fd, peer)
			}
			sock.Close(fd)
			lost.Add(1)
			return os.NewSyscallError("epoll_ctl", syscall.ENOSPC)
		},
	}
	if user {
		on.User = listener
	} else {
		defer listener.Close()
	}
	ll, err := g.NewListener(on)
	if err != nil {
		t.Fatal(err)
	}
	served, begun := make(chan error, 1), make(chan struct{})
	go func() { served <- ll.Serve(func() { close(begun) }) }()
	<-begun
	delay := func() time.Duration {
		e := ll.entries[0]
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.delay
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	for range 4 {
		defer dial().Close()
	}
	await(t, "all of them to be lost, with longer pauses", func() bool {
		return lost.Load() == 4 && failures.Load() == 4 && freed.Load() == 4 && (user || delay() > sock.NextAcceptDelay(0))
	})
	works.Store(true)
	c := dial()
	defer c.Close()
	answer := make([]byte, 3)
	io.WriteString(c, "abc")
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "abc" {
		t.Errorf("got %q, %v", answer, err)
	}
	c.Close()
	await(t, "the next pause to be the first", func() bool { return user || delay() == 0 })
	ll.Close()
	<-served
	endTestGroup(t, g, &all)
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d records of failures:\n%s", n, &log)
	}
}

// Serve doesn't return before the last connection that a loop has accepted is admitted, even if another leader has closed the socket by then.
func TestServeAwaitsAdmission(t *testing.T) {
	var all sync.WaitGroup
	g, err := NewGroup([]Workers{&seatWorkers{all: &all}}, new(atomic.Bool))
	if err != nil {
		t.Fatal(err)
	}
	g.Start()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	entered, goOn := make(chan struct{}), make(chan struct{})
	ll, err := g.NewListener(Listening{
		Address: listener.Addr(), Sockets: []int{duplicateOf(t, listener)}, Options: new(sock.Options), Failures: new(atomic.Uint64),
		Logger: slog.Default,
		Admit: func(_ *Loop, fd int, _ sock.Address) error {
			close(entered)
			<-goOn
			sock.Close(fd)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	served, begun := make(chan error, 1), make(chan struct{})
	go func() { served <- ll.Serve(func() { close(begun) }) }()
	<-begun
	c, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-entered
	ll.Close()
	select {
	case err := <-served:
		served <- err
		t.Error("Serve has returned while a connection was being admitted")
	case <-time.After(100 * time.Millisecond):
	}
	close(goOn)
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	endTestGroup(t, g, &all)
}

// While ready connections fill batch after batch, a connection that waits to be accepted waits no longer than one that the loop already has.
func TestBacklogIsAcceptedInFullBatches(t *testing.T) {
	const conns, waiting = 2*maxEvents + maxAccepts, 50
	l := newTestLoop(t, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted, turns := 0, 0
	ll, err := l.group.NewListener(Listening{
		Address: listener.Addr(), Sockets: []int{duplicateOf(t, listener)}, Logger: slog.Default,
		Admit: func(_ *Loop, fd int, _ sock.Address) error {
			accepted++
			return os.NewSyscallError("close", syscall.Close(fd))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ll.Close()
	for range waiting {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if err := ll.entries[0].watch(); err != nil {
		t.Fatal(err)
	}
	for slot := range uint32(conns) {
		fd, err := sock.NewEventFD()
		if err != nil {
			t.Fatal(err)
		}
		defer sock.Close(fd)
		l.slots = append(l.slots, &Socket{loop: l, generation: 1, served: &countedTurns{turns: &turns}})
		if err := l.epoll.add(fd, watchConn, slot, 1); err != nil {
			t.Fatal(err)
		}
		sock.RingEventFD(fd)
	}
	s, w := l.seats[0], newFakeWorker()
	w.seat = s
	for turns < conns && s.step(w) {
	}
	if turns != conns || accepted != waiting {
		t.Errorf("when %d of %d connections had had their turn, %d of %d were accepted", turns, conns, accepted, waiting)
	}
}

// duplicateOf returns a descriptor of the socket of a listener or a connection.
func duplicateOf(t *testing.T, of any) (fd int) {
	t.Helper()
	if err := sock.Control(of, func(own int) (err error) {
		fd, err = sock.Duplicate(own)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// Opening a parker fails if it can't watch its loop's epoll set, since it would never be woken.
func TestParkerNeedsItsWatches(t *testing.T) {
	p := new(parker)
	if err := p.open(-1); err == nil {
		p.close()
		t.Error("a parker was opened whose set watches nothing")
	}
}

// await waits until the function so returns true.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
