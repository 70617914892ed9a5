//go:build !386

package loop

import (
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/sock"
)

// hostLoops returns loops that nobody leads, and who are busy by so many percent.
func hostLoops(t *testing.T, percent ...int32) (loops []*Loop) {
	g := new(Group)
	for i, load := range percent {
		l, err := newLoop(g, i, new(fakeWorkers))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.closeFiles)
		l.load.percent.Store(load)
		l.guestSince = time.Now().Add(-time.Hour)
		loops = append(loops, l)
	}
	g.loops = loops
	return loops
}

// become runs what may make a loop a guest, as its leader, until it is let go.
func become(try func()) (returned chan struct{}) {
	returned = make(chan struct{})
	go func() {
		try()
		close(returned)
	}()
	return returned
}

func hostAwait(t *testing.T, guest, host *Loop) {
	t.Helper()
	for end := time.Now().Add(time.Minute); guest.host.Load() != host; {
		if time.Now().After(end) {
			t.Fatal("the loop is nobody's guest")
		}
		time.Sleep(time.Millisecond)
	}
	host.takeInbox()
}

// A leader that had to share its processor leaves its loop to another one until that has been busy, with a processor for
// itself, for long enough; and the next time for longer.
func TestSharedProcessor(t *testing.T) {
	loops := hostLoops(t, 100, 100)
	guest, host := loops[0], loops[1]
	still := func() { guest.guestSince = time.Now().Add(time.Hour) } // however slow the machine is, that time isn't over
	for _, guestTime := range []time.Duration{minGuestTime, 2 * minGuestTime} {
		still()
		guest.group.hosting.since = time.Time{}
		guest.share = share{took: shareTime, lost: shareTime / 2}
		returned := become(guest.shareProcessors)
		hostAwait(t, guest, host)
		still()
		if guest.guestTime != guestTime {
			t.Errorf("a guest for %v, want %v", guest.guestTime, guestTime)
		}
		// The only host doesn't become a guest itself.
		host.share = share{took: shareTime, lost: shareTime}
		if host.shareProcessors(); host.host.Load() != nil {
			t.Fatal("nobody looks after the loops any more")
		}
		for range 2 {
			host.share.took = shareTime
			if host.shareProcessors(); guest.host.Load() != host {
				t.Fatal("let go too early")
			}
		}
		guest.guestSince = time.Now().Add(-guestTime)
		host.share.took = shareTime
		host.shareProcessors()
		<-returned
		if guest.host.Load() != nil || len(host.guests) != 0 {
			t.Error("the loop is still a guest")
		}
	}
}

// A loop with little to do becomes the guest of one that has room for it, and at once another one's if that one becomes a
// guest itself. What is posted to it goes to its host.
func TestLowLoad(t *testing.T) {
	loops := hostLoops(t, 40, 60, 10)
	first, second, third := loops[0], loops[1], loops[2]
	low := func(l *Loop, percent clock.Nanos) func() {
		return func() {
			const measured = clock.Nanos(time.Hour) // so long that it doesn't matter what this goroutine waits for a processor
			l.load.since = clock.Nanotime() - percent*measured/100
			l.load.begin = clock.Nanotime() - measured
			l.load.busy = 0
			l.lookForHost()
		}
	}
	low(second, 60)() // too busy: it stays
	firstReturned := become(low(first, 40))
	hostAwait(t, first, third)
	first.group.hosting.since = time.Time{}
	low(third, 45)() // the other one has no room for it
	if third.host.Load() != nil {
		t.Fatal("a guest of a loop that has no room")
	}
	thirdReturned := become(low(third, 20))
	hostAwait(t, third, second)
	if first.host.Load() != second || len(second.guests) != 2 || len(third.guests) != 0 {
		t.Fatal("a guest's guest has another host")
	}
	lc := &Socket{}
	first.post(lc)
	if len(second.inbox) != 1 || len(first.inbox) != 0 {
		t.Error("what is posted to a guest doesn't get to its host")
	}
	// The bell lets a guest go: there is news for its own leader.
	first.stop()
	third.stop()
	for len(second.guests) > 0 {
		second.poll(second)
	}
	<-firstReturned
	<-thirdReturned
	if first.isOver() != true || third.isOver() != true {
		t.Error("the loops that were stopped aren't over")
	}
	// Nobody becomes a guest of a server that shuts down.
	first.group.hosting.close()
	first.group.hosting.since = time.Time{}
	if low(first, 5)(); first.host.Load() != nil {
		t.Error("a guest during a shutdown")
	}
}

// A loop that is over serves first what was posted to a guest that it has let go meanwhile.
func TestOverWithQueue(t *testing.T) {
	l := hostLoops(t, 10)[0]
	l.group.inUse.Store(2) // or else the end closes what isn't there
	for range 3 * len(l.batch) {
		l.inbox = append(l.inbox, &Socket{loop: l, fd: -1})
	}
	l.stop()
	for l.pending.Load() {
		if l.takeInbox(); len(l.queue) > 0 && l.stopped {
			t.Fatalf("the loop has ended with %d connections to be served", len(l.queue))
		}
		l.requeue()
		l.publish()
	}
	if !l.stopped {
		t.Error("the loop hasn't ended")
	}
}

// The system bounds the paths from a socket through nested epoll sets: nobody has more guests than that allows, and a guest
// that can't be added is let go.
func TestTooManyGuests(t *testing.T) {
	loops := hostLoops(t, make([]int32, maxGuests+2)...)
	host := loops[0]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	fd := int(file.Fd())
	for _, l := range loops {
		if errno := sock.EpollControl(int(l.epoll), syscall.EPOLL_CTL_ADD, fd, syscall.EPOLLIN, firstListener, 0); errno != 0 {
			t.Fatal(errno)
		}
	}
	var returned []chan struct{}
	for _, l := range loops[1 : maxGuests+1] {
		l.group.hosting.since = time.Time{}
		returned = append(returned, become(func() { l.becomeGuest(0, func(other *Loop) bool { return other == host }) }))
		hostAwait(t, l, host)
	}
	if len(host.guests) != maxGuests {
		t.Fatalf("%d guests", len(host.guests))
	}
	last := loops[maxGuests+1]
	last.group.hosting.since = time.Time{}
	last.becomeGuest(0, func(other *Loop) bool { return other == host }) // which returns at once
	if last.host.Load() != nil {
		t.Error("one guest too many")
	}
	for _, guest := range slices.Clone(host.guests) {
		host.letGo(guest)
	}
	for _, each := range returned {
		<-each
	}
	// A descriptor that can't be added.
	closed := loops[1]
	real := closed.epoll
	closed.epoll = -1
	host.group.hosting.since = time.Time{}
	let := become(func() { closed.becomeGuest(0, func(other *Loop) bool { return other == host }) })
	hostAwait(t, closed, host)
	<-let
	closed.epoll = real
	if len(host.guests) != 0 || host.hosted != 0 {
		t.Errorf("%d guests, %d counted", len(host.guests), host.hosted)
	}
}

// A guest's connections are served as often as those of a host that doesn't keep up.
func TestGuestOfABusyHost(t *testing.T) {
	loops := hostLoops(t, 100, 100)
	guest, host := loops[0], loops[1]
	ready := func(l *Loop, n int) {
		for slot := range n {
			fd, err := sock.NewEventFD()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { sock.Close(fd) })
			sock.RingEventFD(fd)
			l.slots = append(l.slots, &Socket{loop: l, generation: 1})
			if errno := sock.EpollControl(int(l.epoll), syscall.EPOLL_CTL_ADD, fd, syscall.EPOLLIN|sock.EpollET, uint32(slot), 1); errno != 0 {
				t.Fatal(errno)
			}
		}
	}
	ready(host, 10*maxEvents)
	ready(guest, 2*maxEvents)
	guest.host.Store(host)
	host.receiveGuests([]*Loop{guest})
	for range 2 {
		host.poll(host)
		host.publish()
		served := map[*Loop]int{}
		for e, ok := host.take(); ok; e, ok = host.take() {
			served[e.socket.loop]++
		}
		if served[host] != maxEvents || served[guest] != maxEvents {
			t.Errorf("%d of the host's and %d of the guest's, want %d of each", served[host], served[guest], maxEvents)
		}
	}
}
