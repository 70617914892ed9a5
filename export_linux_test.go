package filo

// SetMaxHandshakes changes how many TLS handshakes a server lets compute at once, and how many wait for their clients, before it
// serves.
func (s *Server) SetMaxHandshakes(n int) { s.handshakes.most = n }

// IsWholeHello is isWholeHello.
func IsWholeHello(b []byte) bool { return isWholeHello(b) }
