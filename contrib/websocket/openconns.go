package websocket

import (
	"sync"

	"github.com/filohttp/filo"
)

// openConns are the open connections that an Upgrader's Accept has opened; the server itself knows those opened by Serve.
type openConns struct {
	mu      sync.Mutex
	conns   map[*Conn]*filo.Server // guarded by mu
	servers map[*filo.Server]bool  // whose shutdown hook is registered; guarded by mu
}

// add registers a connection until it is over.
func (o *openConns) add(c *Conn, s *filo.Server) {
	c.stream.forget = func() { o.remove(c) }
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conns == nil {
		o.conns, o.servers = make(map[*Conn]*filo.Server), make(map[*filo.Server]bool)
	}
	o.conns[c] = s
	if !o.servers[s] {
		o.servers[s] = true
		s.RegisterOnShutdown(func() { o.goAway(s) })
	}
}

func (o *openConns) remove(c *Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.conns, c)
}

// goAway sends a close frame to the clients of a server that shuts down.
func (o *openConns) goAway(s *filo.Server) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.servers, s)
	for c, server := range o.conns {
		if server == s {
			go c.sendClose(errGoingAway, errGoingAway, stateClosing) // the client may be slow to take it
		}
	}
}
