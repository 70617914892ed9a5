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

type loopGroup struct{}

func (*loopGroup) stop()                       {}
func (*loopGroup) await(context.Context) error { return nil }
func (*loopGroup) addTo(*Stats)                {}

type handshakeQueue struct{}

func (w *loopWorker) leave(*class.Class) error {
	if !w.owner.mayRun() {
		return errBusy
	}
	return nil
}

func (w *loopWorker) holdsLoop() bool { return false }
func (w *loopWorker) crowded() bool   { return false }
func (w *loopWorker) overtaken() bool { return false }

func loopable(net.Listener) bool { return false }

func (s *Server) serveLoops(net.Listener, *tls.Config) (served bool, err error) { return false, nil }
