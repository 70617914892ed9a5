package websocket

import (
	"sync"

	"github.com/filohttp/filo"
)

// openConns contains the open connections that an Upgrader's Accept has opened. Those opened by Serve aren't included, because the server
// itself keeps track of them.
type openConns struct {
	mu      sync.Mutex
	conns   map[*Conn]*filo.Server // guarded by mu
	servers map[*filo.Server]bool  // the servers whose shutdown hook is registered; guarded by mu
}

// add registers a connection until it ends.
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
			go c.sendClose(errGoingAway, errGoingAway, stateClosing) // in a goroutine, since the client may be slow to read
		}
	}
}
