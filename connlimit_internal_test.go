package filo

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/census"
	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/sock"
)

// The default of MaxConns is the number of descriptors minus an eighth, or minus 32 if that is more.
func TestDefaultMaxConns(t *testing.T) {
	for descriptors, want := range map[uint64]int{0: 1, 20: 1, 32: 1, 33: 1, 200: 168, 1024: 896, 1 << 20: 1<<20 - 1<<17, 1<<64 - 1: 1<<31 - 1} {
		if got := defaultMaxConns(descriptors); got != want {
			t.Errorf("%d descriptors: %d, want %d", descriptors, got, want)
		}
	}
	byDefault := 0
	if n, ok := sock.MaxDescriptors(); ok {
		byDefault = defaultMaxConns(n)
	}
	for set, want := range map[int]int{-1: 0, 7: 7, 0: byDefault} {
		if got := (&Server{MaxConns: set}).maxConns(); got != want {
			t.Errorf("MaxConns %d: %d, want %d", set, got, want)
		}
	}
}

// quietConn is a connection that nobody uses.
type quietConn struct {
	net.Conn
	remote net.Addr
}

func (quietConn) SetReadDeadline(time.Time) error { return nil }

// loopDriver is a driver whose connections wait without a worker.
type loopDriver struct{ driver }

func (loopDriver) keepsWorker() bool { return false }

func (c quietConn) RemoteAddr() net.Addr { return c.remote }

// idleServer returns a server at its limit of n connections. Each has been idle for a millisecond less than the one before. They come from
// the given addresses in turn, or have no address if none is given.
func idleServer(n int, from ...net.Addr) (*Server, []*conn) {
	s := &Server{MaxConns: n}
	s.configure()
	s.conns.clock = &s.clock
	var all []*conn
	for i := range n {
		var q quietConn
		if len(from) > 0 {
			q.remote = from[i%len(from)]
		}
		c := newConn(s, q)
		s.conns.add(c)
		c.remoteAddr() // its first request would have called this
		c.setState(stateIdle)
		c.word.Store(int64(clock.Time(int64(time.Hour)+int64(i)*int64(time.Millisecond)))&^stateMask | int64(stateIdle))
		all = append(all, c)
	}
	return s, all
}

// The connections that have been idle for the longest are closed first. Connections that have a request, and new ones, aren't closed.
func TestMakeRoomOrder(t *testing.T) {
	s, all := idleServer(600)
	now := s.clock.Exact()
	all[0].setState(stateHandler)
	all[1].setState(stateParked)
	config := &s.config
	for i, age := range map[int]time.Duration{2: newConnTime - time.Second, 3: newConnTime + time.Second} {
		all[i].setState(stateNew)
		all[i].driver = loopDriver{}
		all[i].word.Store(int64(now.Add(config.readHeaderTimeout-age))&^stateMask | int64(stateNew))
	}
	for i := 4; i < 30; i++ {
		if !s.conns.makeRoom() {
			t.Fatalf("no room after %d", i)
		}
		if i == 10 {
			all[12].setState(stateHandler) // the search has found it, and it has become busy since
		}
	}
	for i, c := range all {
		shed := i >= 3 && i < 30 && i != 12 // 0 and 1 aren't idle, 2 is too new, and 12 has become busy
		if got := c.state() == stateShed; got != shed {
			t.Errorf("connection %d is in state %d", i, c.state())
		}
	}
}

// Connections that send nothing, from however many addresses, displace no client that was served, even if that client's connections have
// been idle for longer. The silent connections are closed as soon as they are a second old; newer ones aren't touched.
func TestMakeRoomSilentFirst(t *testing.T) {
	var own []net.Addr
	for i := range 200 {
		own = append(own, &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(i))})
	}
	s, all := idleServer(len(own), own...)
	now, silent := s.clock.Exact(), 0
	for i, c := range all {
		switch {
		case i%10 == 0: // of a client that was served; idle for longer than any of the others
			c.word.Store(int64(now.Add(s.config.idleTimeout-20*time.Second))&^stateMask | int64(stateIdle))
			continue
		case i%10 == 1: // new
		default:
			silent++
		}
		age := time.Duration(i%10) * (newConnTime * 3 / 4)
		c.setState(stateNew)
		c.driver = loopDriver{}
		c.word.Store(int64(now.Add(s.config.readHeaderTimeout-age))&^stateMask | int64(stateNew))
	}
	for k, i := range shedOrder(t, s, all) {
		if served := i%10 == 0; served != (k >= silent) || i%10 == 1 {
			t.Fatalf("number %d to go is connection %d", k, i)
		}
	}
}

// shedOrder makes room as often as it can, and returns the connections in the order in which they were closed.
func shedOrder(t *testing.T, s *Server, all []*conn) (order []int) {
	t.Helper()
	left := make(map[int]bool)
	for i := range all {
		left[i] = true
	}
	for {
		s.conns.room.next = 0
		if !s.conns.makeRoom() {
			return order
		}
		for i := range left {
			if all[i].state() == stateShed {
				order = append(order, i)
				delete(left, i)
			}
		}
		if len(order)+len(left) != len(all) {
			t.Fatal("room was made without a connection that closes")
		}
	}
}

// The server closes a connection of the address with the most idle connections: the one that has been idle for the longest time. The result is
// as if the idle connections were counted again before each close. A search keeps only some of the connections, so the order must hold across
// searches.
func TestMakeRoomByAddress(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	one := func(n int, addr net.Addr) []net.Addr { return slices.Repeat([]net.Addr{addr}, n) }
	const n = 200
	var own []net.Addr
	for i := range n {
		own = append(own, tcp(fmt.Sprintf("198.51.100.%d", i)))
	}
	for name, from := range map[string][]net.Addr{
		"one address":            {tcp("192.0.2.1")},
		"addresses of their own": own,
		"one has most":           append(one(9, tcp("192.0.2.1")), tcp("192.0.2.2"), tcp("192.0.2.3")),
		"a /64 is one":           {tcp("2001:db8::1"), tcp("2001:db8::2"), tcp("2001:db8::3"), tcp("192.0.2.1"), tcp("2001:db8:0:1::1")},
		"IPv4 in IPv6":           {tcp("::ffff:192.0.2.1"), &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1).To4()}, tcp("192.0.2.2")},
		"without an IP address":  {nil, &net.UnixAddr{Net: "unix"}, tcp("192.0.2.1")},
	} {
		t.Run(name, func(t *testing.T) {
			s, all := idleServer(n, from...)
			left := make(map[netip.Addr][]int) // the oldest first
			for i := range all {
				address := census.Of(from[i%len(from)])
				left[address] = append(left[address], i)
			}
			for k, got := range shedOrder(t, s, all) {
				var most []int
				var whose netip.Addr
				for address, each := range left {
					if len(each) > len(most) || len(each) == len(most) && len(each) > 0 && each[0] < most[0] {
						most, whose = each, address
					}
				}
				if got != most[0] {
					t.Fatalf("connection %d closes as number %d, want %d", got, k, most[0])
				}
				left[whose] = most[1:]
			}
			for address, each := range left {
				if len(each) > 0 {
					t.Errorf("of %v %v are left", address, each)
				}
			}
		})
	}
}

// A client may keep using those of its connections that would be closed first. That neither closes other clients' connections nor causes
// endless searches: there is no new search until the client has used as many connections as a search keeps.
func TestMakeRoomWhileUsed(t *testing.T) {
	attacker, polite := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2)}
	s, all := idleServer(320, append(slices.Repeat([]net.Addr{attacker}, 9), polite)...)
	used, searches := 0, 0
	deadline := clock.Time(2 * time.Hour)
	for range 100 {
		for kept := s.conns.room.found; len(kept) > 1; { // all of them but the one that would be closed next
			kept[0].conn.word.Store(int64(deadline)&^stateMask | int64(stateIdle))
			deadline = deadline.Add(time.Millisecond)
			kept = kept[1:]
			used++
		}
		if len(s.conns.room.found) == 0 {
			searches++
		}
		if !s.conns.makeRoom() {
			t.Fatal("no room")
		}
	}
	if kept := s.conns.roomBatch(); searches > (used+100)/kept+1 {
		t.Errorf("%d searches for %d uses and 100 connections, of which each keeps %d", searches, used, kept)
	}
	for i, c := range all {
		if c.netConn.RemoteAddr() == net.Addr(polite) && c.state() != stateIdle {
			t.Errorf("connection %d, of the client that has few, is in state %d", i, c.state())
		}
	}
}

// While no connection is idle, not every new connection causes a search of all connections.
func TestMakeRoomRests(t *testing.T) {
	s, all := idleServer(300)
	for _, c := range all {
		c.setState(stateHandler)
	}
	if s.conns.makeRoom() {
		t.Error("a connection with a request was closed")
	}
	all[7].word.Store(int64(stateIdle))
	s.conns.room.next = s.clock.Exact().Add(time.Hour)
	if s.conns.makeRoom() {
		t.Error("the connections were visited again at once")
	}
	s.conns.room.next = 0
	if !s.conns.makeRoom() || all[7].state() != stateShed {
		t.Error("later, no room was made")
	}
}

// A connection is told to close while its owner, which was woken for something else, is about to wait once more: the owner doesn't wait.
func TestShedDuringWakeUp(t *testing.T) {
	s, all := idleServer(2)
	deadline := s.clock.Exact().Add(time.Hour)
	if !all[1].waitAgain(stateIdle, deadline) || all[1].state() != stateIdle || deadlineIn(all[1].word.Load()) != deadline&^stateMask {
		t.Error("one that wasn't told to close doesn't wait")
	}
	if !s.conns.makeRoom() || all[0].state() != stateShed {
		t.Fatal("no room")
	}
	if all[0].waitAgain(stateIdle, deadline) || all[0].state() != stateShed {
		t.Error("one that was told to close waits")
	}
}

// BenchmarkMakeRoom is the cost of a new connection at the limit while 9,000 are idle, from one address or from many.
func BenchmarkMakeRoom(b *testing.B) {
	var many []net.Addr
	for i := range 9000 {
		many = append(many, &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i))})
	}
	for _, from := range [][]net.Addr{many[:1], many[:100], many} {
		b.Run(fmt.Sprint(len(from)), func(b *testing.B) { benchmarkMakeRoom(b, from) })
	}
}

func benchmarkMakeRoom(b *testing.B, from []net.Addr) {
	s, all := idleServer(9000, from...)
	free := func(c *conn) { // as its owner does
		s.conns.remove(c)
		c.setState(stateIdle)
	}
	next := 0
	for b.Loop() {
		s.conns.room.next = 0
		c := newConn(s, quietConn{remote: from[next%len(from)]})
		if _, refused := s.conns.add(c); refused != nil {
			b.Fatal("refused")
		}
		c.word.Store(int64(clock.Time(2*int64(time.Hour)+int64(next)*16))&^stateMask | int64(stateIdle))
		all = append(all, c)
		if all[next].state() == stateShed {
			free(all[next])
		}
		next++
	}
}
