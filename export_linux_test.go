//go:build !386

package filo

// SetMaxHandshakes changes how many TLS handshakes a server makes at once, before it serves.
func (s *Server) SetMaxHandshakes(n int) { s.handshakes.most = n }
