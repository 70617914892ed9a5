package filo

import "time"

// SetMaxHandshakes changes how many TLS handshakes a server lets compute at once, and how many wait for their clients, before it
// serves.
func (s *Server) SetMaxHandshakes(n int) { s.handshakes.Most = n }

// SetLongHandshake changes for how long a TLS handshake counts as one that computes, before the server serves.
func (s *Server) SetLongHandshake(d time.Duration) { s.handshakes.Long = d }
