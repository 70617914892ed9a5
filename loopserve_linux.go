//go:build !386

package filo

import (
	"crypto/tls"
	"net"
	"syscall"

	"github.com/filohttp/filo/internal/sock"
)

// serveLoops is Serve by the loops. It reports false, and the listener is untouched, if they can't accept from it.
func (s *Server) serveLoops(listener net.Listener, config *tls.Config) (served bool, err error) {
	fds, user, ok := s.loopSockets(listener)
	if !ok {
		return false, nil
	}
	g, err := s.startLoops()
	if err != nil {
		closeSockets(fds)
		return true, err
	}
	return true, s.listenInLoops(g, listener.Addr(), user, fds, config)
}

// listenInLoops accepts from the sockets, of which there is one for each loop, or one that is the user's listener's, until they are
// closed. It closes the listener at the end; nil is none.
func (s *Server) listenInLoops(g *loopGroup, address net.Addr, user net.Listener, fds []int, config *tls.Config) error {
	ll := &loopListener{
		group: g, options: (*sock.Options)(&s.SocketOptions), logger: s.logger, user: user, address: address, done: make(chan struct{}),
		admit: func(to *loop, fd int, peer sock.Address) { s.admitTo(to, fd, peer, config) },
	}
	if user != nil {
		raw, err := user.(syscall.Conn).SyscallConn()
		if err != nil {
			closeSockets(fds)
			return err
		}
		ll.userRaw = raw
	}
	ll.open.Store(int32(len(fds)))
	for i, fd := range fds {
		l := g.loops[i]
		l.mu.Lock()
		e := &listenerEntry{loopListener: ll, loop: l, slot: firstListener + uint32(len(l.listeners)), fd: fd}
		l.listeners = append(l.listeners, e)
		l.mu.Unlock()
		ll.entries = append(ll.entries, e)
	}
	listener := net.Listener(ll)
	if !s.life.track(&listener) {
		ll.Close()
		return ErrServerClosed
	}
	defer s.life.untrack(&listener)
	if user != nil {
		ll.watched = make(chan struct{})
		if !g.hold() {
			return ErrServerClosed
		}
		go ll.watchUser()
		defer ll.endWatch() // before untrack: it may have accepted something
	}
	for _, e := range ll.entries {
		e.listen()
	}
	<-ll.done
	if s.life.draining.Load() {
		return ErrServerClosed
	}
	ll.mu.Lock()
	defer ll.mu.Unlock()
	if ll.err == nil {
		ll.err = &net.OpError{Op: "accept", Net: ll.address.Network(), Addr: ll.address, Err: net.ErrClosed}
	}
	return ll.err
}

// startLoops returns the server's loops, and starts them if they don't run yet.
func (s *Server) startLoops() (*loopGroup, error) {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	// Who shuts down stops the loops that there are by then.
	if s.life.draining.Load() {
		return nil, ErrServerClosed
	}
	if g := s.loops.Load(); g != nil {
		return g, nil
	}
	g, err := newLoopGroup(s.pools, &s.life.draining)
	if err == nil {
		g.start()
		s.loops.Store(g)
	}
	return g, err
}

// admitTo puts a connection that was accepted into a loop, where it waits for its first request.
func (s *Server) admitTo(l *loop, fd int, peer sock.Address, config *tls.Config) {
	lc := new(loopConn)
	lc.looped = lc
	lc.socket.open(fd, peer, lc)
	if lc.conn.open(s, lc); config != nil {
		lc.netConn = tls.Server(lc, config)
	}
	lc.answered = s.conns.countsOf(l.index)
	if err := l.add(&lc.socket); err != nil {
		s.logger().Error("an accepted connection is lost", "error", err)
		return
	}
	s.admit(lc)
}

// loopable reports whether loops can accept from such a listener.
func loopable(listener net.Listener) bool {
	switch listener.(type) {
	case *serverListener, *net.TCPListener, *net.UnixListener:
		return true
	}
	return false
}

// loopSockets returns a listening socket for each loop, and the listener if they stand for it while it is open; or false if
// the loops can't accept from it.
func (s *Server) loopSockets(listener net.Listener) (fds []int, user net.Listener, ok bool) {
	if !loopable(listener) {
		return nil, nil, false
	}
	if own, ok := listener.(*serverListener); ok {
		if fds, err := siblings((*sock.Options)(&s.SocketOptions), own.TCPListener, s.config.loops); err == nil {
			return fds, nil, true
		}
		listener = own.TCPListener
	}
	fds, err := s.sharedSocket(listener)
	return fds, listener, err == nil
}

// siblings returns that many listening sockets on the listener's address, and closes it. The first is the listener's own,
// which was bound for itself: so a second instance of the program is refused the address, though the others share it.
func siblings(o *sock.Options, listener *net.TCPListener, n int) (fds []int, err error) {
	listeners := []net.Listener{listener}
	defer func() {
		for i, each := range listeners {
			// Package net's descriptors go, since the runtime's poller watches those.
			if i > 0 || err == nil {
				each.Close()
			}
		}
		if err != nil {
			closeSockets(fds)
		}
	}()
	for i := range n {
		if i > 0 {
			sibling, err := o.Listen(listener.Addr().String(), true)
			if err != nil {
				return fds, err
			}
			listeners = append(listeners, sibling)
		}
		err := sock.Control(listeners[i], func(fd int) error {
			o.SetInherited(fd)
			if err := sock.SetReusePort(fd); err != nil {
				return err
			}
			dup, err := sock.Duplicate(fd)
			if err == nil {
				fds = append(fds, dup)
			}
			return err
		})
		if err != nil {
			return fds, err
		}
	}
	return fds, nil
}

// sharedSocket returns a descriptor of the socket that a listener has.
func (s *Server) sharedSocket(listener net.Listener) (fds []int, err error) {
	err = sock.Control(listener, func(fd int) error {
		if listener.Addr().Network() != "unix" {
			(*sock.Options)(&s.SocketOptions).SetInherited(fd)
		}
		dup, err := sock.Duplicate(fd)
		if err == nil {
			fds = append(fds, dup)
		}
		return err
	})
	return fds, err
}

func closeSockets(fds []int) {
	for _, fd := range fds {
		sock.Close(fd)
	}
}
