//go:build !386

package loop

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/sock"
)

// Leaders that compete for a processor, with each other or with other programs, delay their clients by whole time slices. Leaders that
// have little to do spend much of their time on going to sleep and waking up. In both cases one running leader is worth more than two. So
// a loop can be the guest of another loop, its host: the host's leader takes the guest's events too, while the guest's own leader waits.
// A host that has been busy for long enough without a break, and had its processor for itself, lets a guest go.

const (
	// shareTime is how long a busy leader measures its share of the processor.
	shareTime = 5 * time.Millisecond
	// lostShare: if other threads get more than this percentage of that time, the leader lacks a processor of its own.
	lostShare = 20
	// minGuestTime is how long a loop without a processor is a guest the first time. The time doubles, up to maxGuestTime, with each new
	// try that fails at once.
	minGuestTime = 100 * time.Millisecond
	maxGuestTime = 10 * time.Second

	// maxGuests is how many guests a loop has at most. The system allows 50 paths from a socket to the sets
	// that contain its set, and other sets take some of them.
	maxGuests = 32

	// loadTime is how long a leader that isn't always busy measures its load.
	loadTime = 20 * time.Millisecond
	// lowLoad is the load, in percent, up to which a loop looks for a host. sharedLoad is the most that it and the host may have
	// together.
	lowLoad    = 50
	sharedLoad = 90
)

// hosting orders the changes of hosts and guests in a group of loops.
type hosting struct {
	mu     race.Mutex // in the order of docs/LOOP.md, "Locks"
	since  time.Time  // of the last change; guarded by mu
	closed bool       // no loop becomes a guest any more; guarded by mu
}

// share measures a leader's share of its processor: the part of the time on the clock in which its thread runs. It is measured while the
// leader is busy without a break.
type share struct {
	thread int           // runs the leader; 0: not measuring
	wall   clock.Nanos   // when begin was called
	cpu    time.Duration // the thread's running time then
	took   time.Duration // measured by earlier begins and ends
	lost   time.Duration // part of took in which the thread didn't run
	quiet  int           // measurements in a row that found little lost
}

// begin begins to measure the calling thread.
func (s *share) begin() { s.thread, s.wall, s.cpu = sock.Thread(), clock.Nanotime(), sock.ThreadTime() }

// end adds the time since begin. If the leader was moved to another thread that time is unknown, and end adds nothing.
func (s *share) end() {
	if s.thread != 0 && s.thread == sock.Thread() {
		took := clock.Nanotime().Sub(s.wall)
		s.took += took
		s.lost += max(took-(sock.ThreadTime()-s.cpu), 0)
	}
	s.thread = 0
}

// over reports whether enough was measured and, if so, whether the leader had to share its processor.
func (s *share) over() (over, shared bool) {
	if s.took < shareTime {
		return false, false
	}
	shared = s.lost > s.took*lostShare/100
	s.took, s.lost = 0, 0
	if s.quiet++; shared {
		s.quiet = 0
	}
	return true, shared
}

// load measures how much of the time a leader is busy.
type load struct {
	since   clock.Nanos   // when the leader woke up
	begin   clock.Nanos   // when the measurement began
	busy    time.Duration // busy since begin
	percent atomic.Int32  // result of the last measurement
}

// rests notes that the leader has nothing to do. It reports whether enough was measured.
func (d *load) rests() bool {
	now := clock.Nanotime()
	d.busy += now.Sub(d.since)
	measured := now.Sub(d.begin)
	if measured < loadTime {
		return false
	}
	d.percent.Store(int32(100 * d.busy / measured))
	d.begin, d.busy = now, 0
	return true
}

// lookForHost is called by a leader that has nothing to do. If its load is low, another loop's leader may do its work too.
func (l *Loop) lookForHost() {
	if !l.load.rests() || l.load.percent.Load() > lowLoad {
		return
	}
	l.becomeGuest(0, func(other *Loop) bool { return other.load.percent.Load()+l.load.percent.Load() <= sharedLoad })
}

// shareProcessors is called by a leader that has been busy without a break, each time after it has measured its share.
func (l *Loop) shareProcessors() {
	over, shared := l.share.over()
	if !over {
		return
	}
	l.load.percent.Store(100)
	switch n := len(l.guests); {
	case shared:
		guestTime := min(2*l.guestTime, maxGuestTime)
		if l.guestTime == 0 || time.Since(l.guestSince) > 3*l.guestTime {
			guestTime = minGuestTime
		}
		l.becomeGuest(guestTime, func(*Loop) bool { return true })
	case n > 0 && l.share.quiet > 1 && time.Since(l.guests[n-1].guestSince) >= l.guests[n-1].guestTime:
		l.letGo(l.guests[n-1])
	}
}

// becomeGuest makes the loop, and its guests, guests of another loop that suits, if there is one, for at least this time. The leader waits
// until the host lets its loop go.
func (l *Loop) becomeGuest(atLeast time.Duration, suits func(host *Loop) bool) {
	h := &l.group.hosting
	now := time.Now()
	h.mu.Lock()
	host := l.findHost(suits)
	// Measurements show the effect of a change only after a while.
	if h.closed || host == nil || now.Sub(h.since) < 2*shareTime {
		h.mu.Unlock()
		return
	}
	h.since, l.guestSince, l.guestTime = now, now, atLeast
	host.hosted += 1 + l.hosted
	l.hosted = 0
	l.mu.Lock()
	l.host.Store(host) // from here on the host gets what is posted
	conns, guests := append(l.inbox, l.queue[l.queued:]...), append(l.arrivals, l.guests...)
	l.inbox, l.queue, l.queued, l.arrivals, l.guests = nil, nil, 0, nil, nil
	l.mu.Unlock()
	for _, guest := range guests {
		guest.mu.Lock()
		guest.host.Store(host)
		guest.mu.Unlock()
		l.epoll.remove(int(guest.epoll))
	}
	l.resting.Store(true)
	l.sleeping.Store(true)
	host.mu.Lock()
	host.inbox, host.arrivals = append(host.inbox, conns...), append(append(host.arrivals, guests...), l)
	host.mu.Unlock()
	h.mu.Unlock()
	host.ring()
	<-l.released
	l.sleeping.Store(false)
	l.resting.Store(false)
	l.busySince, l.rounds, l.share = 0, 0, share{}
	l.load.since = clock.Nanotime()
	l.load.begin, l.load.busy = l.load.since, 0
	l.group.monitor.wakeUp()
}

// findHost returns the next loop that suits and isn't a guest, or nil. The caller holds hosting.mu.
func (l *Loop) findHost(suits func(host *Loop) bool) *Loop {
	l.group.hosting.mu.AssertHeld()
	loops := l.group.loops
	for i := range loops {
		other := loops[(l.index+1+i)%len(loops)]
		if other != l && other.host.Load() == nil && other.hosted+l.hosted < maxGuests && suits(other) {
			return other
		}
	}
	return nil
}

// receiveGuests makes the host serve its new guests.
func (l *Loop) receiveGuests(arrived []*Loop) {
	for _, guest := range arrived {
		l.guests = append(l.guests, guest)
		err := l.epoll.add(int(guest.epoll), watchLevel, firstGuest+uint32(guest.index), 0)
		if err != nil || guest.pending.Load() {
			l.letGo(guest) // its bell has already rung, or the system allows no further set
		}
	}
}

// letGo returns a guest to its own leader.
func (l *Loop) letGo(guest *Loop) {
	h := &l.group.hosting
	leaves := func(each *Loop) bool { return each == guest }
	l.epoll.remove(int(guest.epoll))
	l.guests = slices.DeleteFunc(l.guests, leaves)
	l.mu.Lock()
	l.arrivals = slices.DeleteFunc(l.arrivals, leaves)
	l.mu.Unlock()
	h.mu.Lock()
	h.since = time.Now()
	l.hosted--
	guest.mu.Lock()
	guest.host.Store(nil)
	guest.mu.Unlock()
	h.mu.Unlock()
	l.pending.Store(true) // check isOver again: a loop with guests isn't over
	guest.released <- struct{}{}
}

// close prevents new guests.
func (h *hosting) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}
