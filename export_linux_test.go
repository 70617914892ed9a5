package filo

import "time"

// SetMaxHandshakes changes how many TLS handshakes may compute at once, and how many may wait for their clients. Call it before the server
// serves.
func (s *Server) SetMaxHandshakes(n int) { s.handshakes.Most = n }

// SetLongHandshake changes for how long a TLS handshake counts as computing. Call it before the server serves.
func (s *Server) SetLongHandshake(d time.Duration) { s.handshakes.Long = d }
