//go:build !linux

package filo

import (
	"crypto/tls"
	"net"

	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/loop"
)

// There is no loop driver on this system: the blocking driver serves every connection.

// Losing implements loop.Owner.
func (w *workerChan) Losing(*loop.Socket, *class.Class) {}

func loopable(net.Listener) bool { return false }

func (s *Server) serveLoops(net.Listener, *tls.Config, func(net.Addr)) (served bool, err error) {
	return false, nil
}
