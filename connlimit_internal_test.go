package filo

import (
	"net"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/sock"
)

// "less an eighth and at least 32"
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
type quietConn struct{ net.Conn }

func (quietConn) SetReadDeadline(time.Time) error { return nil }

func (quietConn) RemoteAddr() net.Addr { return nil }

// idleServer returns a server with so many members, at its limit. Each has been idle for a millisecond less than the one before.
func idleServer(n int) (*Server, []*conn) {
	s := &Server{MaxConns: n}
	s.configure()
	s.conns.clock = &s.clock
	var all []*conn
	for i := range n {
		c := newConn(s, quietConn{})
		s.conns.add(c)
		c.setState(stateIdle)
		c.word.Store(int64(clock.Time(int64(time.Hour)+int64(i)*int64(time.Millisecond)))&^stateMask | int64(stateIdle))
		all = append(all, c)
	}
	return s, all
}

// Those that have been idle for the longest are closed first. Ones that have a request aren't, nor ones that are new.
func TestMakeRoomOrder(t *testing.T) {
	s, all := idleServer(600)
	now := s.clock.exact()
	all[0].setState(stateHandler)
	all[1].setState(stateParked)
	config := &s.config
	for i, age := range map[int]time.Duration{2: newConnTime - time.Second, 3: newConnTime + time.Second} {
		all[i].setState(stateNew)
		all[i].looped = struct{ looped }{}
		all[i].word.Store(int64(now.Add(config.readHeaderTimeout-age))&^stateMask | int64(stateNew))
	}
	for i := 4; i < 30; i++ {
		if !s.conns.makeRoom() {
			t.Fatalf("no room after %d", i)
		}
		if i == 10 {
			all[12].setState(stateHandler) // found before, and busy since
		}
	}
	for i, c := range all {
		shed := i >= 3 && i < 30 && i != 12 // the clock of the others is ahead by an hour
		if got := c.state() == stateShed; got != shed {
			t.Errorf("connection %d is in state %d", i, c.state())
		}
	}
}

// If nobody is idle, the connections aren't visited for each new one.
func TestMakeRoomRests(t *testing.T) {
	s, all := idleServer(300)
	for _, c := range all {
		c.setState(stateHandler)
	}
	if s.conns.makeRoom() {
		t.Error("a connection with a request was closed")
	}
	all[7].word.Store(int64(stateIdle))
	s.conns.room.next = s.clock.exact().Add(time.Hour)
	if s.conns.makeRoom() {
		t.Error("the connections were visited again at once")
	}
	s.conns.room.next = 0
	if !s.conns.makeRoom() || all[7].state() != stateShed {
		t.Error("later, no room was made")
	}
}

// A connection that was told to close while its owner was about to wait once more, after a wake-up for something else, doesn't wait.
func TestShedDuringWakeUp(t *testing.T) {
	s, all := idleServer(2)
	deadline := s.clock.exact().Add(time.Hour)
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

// What a new connection costs at the limit, if 9,000 are idle.
func BenchmarkMakeRoom(b *testing.B) {
	s, all := idleServer(9000)
	free := func(c *conn) { // as its owner does
		s.conns.remove(c)
		c.setState(stateIdle)
	}
	next := 0
	for b.Loop() {
		s.conns.room.next = 0
		c := newConn(s, quietConn{})
		if s.conns.add(c) != nil {
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
