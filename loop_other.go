//go:build !linux || 386

package filo

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/filohttp/filo/internal/class"
)

// There is no loop driver here: every connection is served by the blocking one.

type loop struct{}

type monitor struct{}

type hosting struct{}

type handshakeQueue struct{}

func (w *scratch) leave(*class.Class) error {
	if !w.mayRun() {
		return errBusy
	}
	return nil
}

func (w *workerChan) holdsLoop() bool { return false }
func (w *workerChan) crowded() bool   { return false }
func (w *workerChan) overtaken() bool { return false }

func (s *Server) startLoops() error                { return nil }
func (s *Server) stopLoops()                       {}
func (s *Server) awaitLoops(context.Context) error { return nil }

func (s *Server) loopStats(*Stats) {}

func loopable(net.Listener) bool { return false }

func (s *Server) loopSockets(net.Listener) ([]int, net.Listener, bool) { return nil, nil, false }

func closeSockets([]int) {}

func (s *Server) serveLoops(net.Addr, net.Listener, []int, *tls.Config) error {
	panic("filo: no loops here")
}
