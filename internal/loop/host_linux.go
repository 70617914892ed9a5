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

// Leaders that compete for a processor, with each other or with other programs, hold their clients up by whole time slices;
// and leaders that have little to do spend much of their time on going to sleep and waking up. In both cases one leader that
// runs is worth more than two. So a loop can be another one's guest, whose leader takes its events too, while its own waits.
// When the host has been busy without a break for long enough, and has had its processor for itself, it lets a guest go.

const (
	// shareTime is how long a leader that is busy watches how much of the time it gets.
	shareTime = 5 * time.Millisecond
	// lostShare is the part of it, in percent, that goes to others when there isn't a processor for it.
	lostShare = 20
	// minGuestTime is how long a loop without a processor is a guest the first time. It doubles with each try that fails at
	// once, up to maxGuestTime.
	minGuestTime = 100 * time.Millisecond
	maxGuestTime = 10 * time.Second

	// maxGuests is how many guests a loop has at most. The system bounds how many paths there may be from a socket through
	// epoll sets that are nested so deep: 50.
	maxGuests = 32

	// loadTime is how long a leader that isn't always busy watches how much it is.
	loadTime = 20 * time.Millisecond
	// lowLoad is the part of it, in percent, with which its loop looks for a host, and sharedLoad what a host may have then.
	lowLoad    = 50
	sharedLoad = 90
)

// hosting is which loops of a group are guests.
type hosting struct {
	mu     race.Mutex // in the order of docs/LOOP.md, "Locks"
	since  time.Time  // of the last change; guarded by mu
	closed bool       // there are no guests any more; guarded by mu
}

// share is what part of the time a leader gets: of the time that passes on the clock the part that its thread runs. It is
// measured while the leader is busy, without a break.
type share struct {
	thread int           // that runs the leader; 0 is none
	wall   clock.Nanos   // when it began to be measured
	cpu    time.Duration // that the thread had run by then
	took   time.Duration // measured before that
	lost   time.Duration // of that
	quiet  int           // times in a row that little was lost
}

// begin begins to measure, on the calling thread.
func (s *share) begin() { s.thread, s.wall, s.cpu = sock.Thread(), clock.Nanotime(), sock.ThreadTime() }

// end ends that. Nothing is known if the leader was moved to another thread.
func (s *share) end() {
	if s.thread != 0 && s.thread == sock.Thread() {
		took := clock.Nanotime().Sub(s.wall)
		s.took += took
		s.lost += max(took-(sock.ThreadTime()-s.cpu), 0)
	}
	s.thread = 0
}

// over reports whether enough was measured, and whether the leader had to share its processor.
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

// load is what part of the time a leader is busy.
type load struct {
	since   clock.Nanos   // when the leader woke up
	begin   clock.Nanos   // when it began to be measured
	busy    time.Duration // since then
	percent atomic.Int32  // of the last time
}

// rests takes note that the leader has nothing to do. It reports whether enough was measured.
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

// lookForHost is called by a leader that has nothing to do. If that is often so, another one may do it as well.
func (l *Loop) lookForHost() {
	if !l.load.rests() || l.load.percent.Load() > lowLoad {
		return
	}
	l.becomeGuest(0, func(other *Loop) bool { return other.load.percent.Load()+l.load.percent.Load() <= sharedLoad })
}

// shareProcessors is called now and then by a leader that has been busy without a break, when it has measured its share.
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

// becomeGuest makes the loop and its guests those of another one that suits, if there is one, for that long at least. The
// leader waits until its loop is let go.
func (l *Loop) becomeGuest(atLeast time.Duration, suits func(host *Loop) bool) {
	h := &l.group.hosting
	now := time.Now()
	h.mu.Lock()
	host := l.findHost(suits)
	// A change shows only in what is measured after it.
	if h.closed || host == nil || now.Sub(h.since) < 2*shareTime {
		h.mu.Unlock()
		return
	}
	h.since, l.guestSince, l.guestTime = now, now, atLeast
	host.hosted += 1 + l.hosted
	l.hosted = 0
	l.mu.Lock()
	l.host.Store(host) // from here on what is posted goes there
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

// findHost returns the next loop that suits and isn't a guest. The caller holds hosting.mu.
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

// receiveGuests takes the loops over that are guests from now on.
func (l *Loop) receiveGuests(arrived []*Loop) {
	for _, guest := range arrived {
		l.guests = append(l.guests, guest)
		err := l.epoll.add(int(guest.epoll), watchLevel, firstGuest+uint32(guest.index), 0)
		if err != nil || guest.pending.Load() {
			l.letGo(guest) // it has been rung already, or the system allows no more
		}
	}
}

// letGo makes a guest's leader serve it again.
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
	l.pending.Store(true) // a loop with guests isn't over
	guest.released <- struct{}{}
}

// close ends the hosting, as far as new guests are concerned.
func (h *hosting) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}
