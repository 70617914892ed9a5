package filo

import "time"

// SetMaxHandshakes changes how many TLS handshakes a server lets compute at once, and how many wait for their clients, before it
// serves.
func (s *Server) SetMaxHandshakes(n int) { s.handshakes.most = n }

// IsWholeHello is isWholeHello.
func IsWholeHello(b []byte) bool { return isWholeHello(b) }

// SetLongHandshake changes for how long a TLS handshake counts as one that computes, before the server serves.
func (s *Server) SetLongHandshake(d time.Duration) { s.handshakes.long = d }

// HandshakesPerProc is handshakesPerProc.
const HandshakesPerProc = handshakesPerProc
