//go:build linux

package filo

import (
	"crypto/tls"
	"fmt"
	"net"
	"runtime"

	"github.com/filohttp/filo/internal/admit"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/life"
	"github.com/filohttp/filo/internal/loop"
	"github.com/filohttp/filo/internal/running"
	"github.com/filohttp/filo/internal/sock"
)

// serveLoops does the work of Serve in the loop driver. It reports false, and leaves the listener untouched, if loops can't accept from it.
func (s *Server) serveLoops(listener net.Listener, config *tls.Config, begun func(net.Addr)) (served bool, err error) {
	fds, user, ok := s.loopSockets(listener)
	if !ok {
		return false, nil
	}
	g, err := s.startLoops()
	if err != nil {
		closeSockets(fds)
		return true, err
	}
	return true, s.listenInLoops(g, listener.Addr(), user, fds, config, begun)
}

// listenInLoops accepts from the sockets until they are closed: one socket for each loop, or a single socket whose listener is the argument
// user. At the end it closes that listener, if there is one.
func (s *Server) listenInLoops(g *loop.Group, address net.Addr, user net.Listener, fds []int, config *tls.Config, begun func(net.Addr)) error {
	ll, err := g.NewListener(loop.Listening{
		Address: address, Sockets: fds, User: user, Options: (*sock.Options)(&s.SocketOptions), Logger: s.logger,
		Failures: &s.counts.acceptFailures,
		Full:     s.freeDescriptors,
		Admit:    func(to *loop.Loop, fd int, peer sock.Address) error { return s.admitTo(to, fd, peer, config) },
	})
	if err != nil {
		closeSockets(fds)
		return err
	}
	listener := net.Listener(ll)
	if !s.life.Track(&listener) {
		ll.Close()
		return ErrServerClosed
	}
	defer s.life.Untrack(&listener) // runs after Serve, which may accept connections until it returns
	err = ll.Serve(func() {
		s.logServing(life.AddressOf(listener), DriverLoop, config)
		begun(address)
	})
	if s.life.Draining.Load() {
		return ErrServerClosed
	}
	return err
}

// startLoops returns the server's loops, and starts them if they don't run yet.
func (s *Server) startLoops() (g *loop.Group, err error) {
	s.life.Hold(func() {
		if s.life.Draining.Load() {
			err = ErrServerClosed // a shutdown stops only loops that have been stored by then
		} else if g = s.loops.Load(); g == nil {
			g, err = s.newLoops()
		}
	})
	return g, err
}

// newLoops starts the server's loops.
func (s *Server) newLoops() (*loop.Group, error) {
	var workers []loop.Workers
	for i := range s.config.leaders {
		workers = append(workers, &loopWorkers{pool: s.pool, answered: &s.conns.answered[i].answerCounts})
	}
	g, err := loop.NewGroup(workers, &s.life.Draining)
	if err != nil {
		return nil, fmt.Errorf("filo: starting the loops: %w", err)
	}
	g.Start()
	s.loops.Store(g)
	return g, nil
}

// loopWorkers implements loop.Workers for a seat.
type loopWorkers struct {
	pool       *workerPool
	answered   *answerCounts // see workerChan.answered
	leadership leadership
}

func (p *loopWorkers) Lead(s *loop.Seat) {
	p.leadership = leadership{lead: func(w *workerChan) { s.Lead(&w.Worker) }, retakes: s.Lost(), answered: p.answered}
	p.pool.Lead(&p.leadership)
}

func (p *loopWorkers) HandOver(w *loop.Worker, places admit.Kinds) bool {
	return p.pool.handOver(w.Owner().(*workerChan), &p.leadership, places)
}

func (p *loopWorkers) Retake() { p.pool.retake(&p.leadership) }

// Losing implements loop.Owner. Since w loses its loop, its request takes long: Losing lists it for Server.Running.
func (w *workerChan) Losing(socket *loop.Socket, class *class.Class) {
	if socket == nil {
		return
	}
	if lc, ok := socket.Served().(*loopConn); ok {
		w.running.Begin(w.pool.clock.Exact(), class, &lc.conn, running.Handler)
	}
}

func (p *loopWorkers) Crowded() bool { return p.pool.crowded(&p.leadership) }

func (p *loopWorkers) MayRetake(seats int) bool { return p.pool.places.Beyond() < seats+admit.MaxQuick }

func (p *loopWorkers) Serving() int { return p.pool.places.Taken(admit.Ordinary) }

func (p *loopWorkers) Panicked(value any, stack []byte) {
	logPanic(p.pool.Logger, "panic in a worker", value, stack)
}

// admitTo puts an accepted connection into a loop, where it waits for its first request. If the loop can't add the connection, it closes
// the connection, and admitTo returns the error.
func (s *Server) admitTo(l *loop.Loop, fd int, peer sock.Address, config *tls.Config) error {
	awaitsProxy := s.ProxyProtocol.enabled()
	if awaitsProxy && !s.ProxyProtocol.trusts(peer.AddrPort()) {
		s.counts.accepted.Add(1)
		s.refuseProxied(peer.AddrPort(), errUntrustedPeer)
		sock.Close(fd)
		return nil
	}
	lc := new(loopConn)
	lc.awaitsProxy = awaitsProxy
	lc.Socket.Open(fd, peer, lc)
	if lc.conn.open(s, lc, lc); config != nil {
		lc.netConn = tls.Server(lc, config)
	}
	if err := l.Add(&lc.Socket); err != nil {
		return err
	}
	s.counts.accepted.Add(1)
	lc.wait()
	return nil
}

// loopable reports whether loops can accept from a listener of this type. On 386 they aren't used: the kernel may lack their system calls.
func loopable(listener net.Listener) bool {
	switch listener.(type) {
	case *serverListener, *net.TCPListener, *net.UnixListener:
		return runtime.GOARCH != "386"
	}
	return false
}

// loopSockets returns a listening socket for each loop, or a single socket and its listener, which stays open as long as loops accept
// from it. It reports false if loops can't accept from the listener.
func (s *Server) loopSockets(listener net.Listener) (fds []int, user net.Listener, ok bool) {
	if !loopable(listener) {
		return nil, nil, false
	}
	if own, ok := listener.(*serverListener); ok {
		if fds, err := siblings((*sock.Options)(&s.SocketOptions), own.TCPListener, loop.Count(s.config.leaders)); err == nil {
			return fds, nil, true
		}
		listener = own.TCPListener
	}
	fds, err := s.sharedSocket(listener)
	return fds, listener, err == nil
}

// siblings returns n listening sockets on the listener's address, and closes the listener. The first socket is the listener's own, which
// was bound without sharing. So a second instance of the program can't get the address, although the other sockets share it.
func siblings(o *sock.Options, listener *net.TCPListener, n int) (fds []int, err error) {
	listeners := []net.Listener{listener}
	defer func() {
		for i, each := range listeners {
			// Close package net's descriptors, which the runtime's poller watches.
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

// sharedSocket returns a new descriptor of the listener's socket.
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
