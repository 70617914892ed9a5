//go:build !linux || 386

package filo

import (
	"crypto/tls"
	"net"
)

// There is no loop driver here: every connection is served by the blocking one.

type handshakeQueue struct{}

func loopable(net.Listener) bool { return false }

func (s *Server) serveLoops(net.Listener, *tls.Config) (served bool, err error) { return false, nil }
