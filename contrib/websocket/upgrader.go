package websocket

import (
	"sync/atomic"

	"github.com/filohttp/filo"
)

// Upgrader accepts WebSockets with given options. Many requests may use it at once.
type Upgrader struct {
	options shared
	origins originCheck
	open    openConns // connections opened by Accept
}

// shared is what the connections of an Upgrader have in common.
type shared struct {
	Options                 // immutable
	_          [64]byte     // so that writes to incomplete don't slow down readers of the options
	incomplete atomic.Int64 // the memory of incomplete messages, in bytes
}

// hold counts n more bytes of an incomplete message that has own bytes so far. If MaxBufferedBytes has no room for them, it counts nothing, and
// reports false. As with bodies, there is room as long as no other message has bytes.
func (s *shared) hold(n, own int) bool {
	if held := s.incomplete.Add(int64(n)); s.MaxBufferedBytes >= 0 && held > s.MaxBufferedBytes && held > int64(own+n) {
		s.incomplete.Add(-int64(n))
		return false
	}
	return true
}

// New makes an Upgrader. It panics if an option is invalid.
func New(options ...Options) *Upgrader {
	o := one(options)
	return &Upgrader{options: shared{Options: o.withDefaults()}, origins: newOriginCheck(o.Origins)}
}

// one returns the options that were passed to New, or the zero value if there are none. It panics if there are two.
func one(options []Options) (o Options) {
	if len(options) > 1 {
		panic("websocket: New takes one Options at most: set all of them in one")
	}
	if len(options) == 1 {
		o = options[0]
	}
	return o
}

// Serve is a handler that accepts a WebSocket and registers it with its loop. While the connection waits, it has no goroutine and no buffer.
// A worker calls Options.OnMessage when a message has arrived. Use Serve for many connections that mostly wait.
//
// The error is a *filo.HTTPError: 426 if the client didn't request a WebSocket, or requested another version of the protocol,
// 403 if its page's origin may not connect, 400 if its handshake is malformed, and 405 for a method other than GET.
//
// The connections count against Server.MaxConns, and against Server.Concurrency only while one of the functions in Options runs. At Shutdown
// their clients get StatusGoingAway.
func (u *Upgrader) Serve(c *filo.Ctx) error {
	if u.options.OnMessage == nil {
		panic("websocket: Serve needs Options.OnMessage, which is called with each message; without it, use Accept")
	}
	conn, err := u.upgrade(c, func(conn *Conn) (err error) {
		conn.parked, err = c.Park(protocol, conn.serve)
		conn.net = conn.parked
		return err
	})
	if err != nil {
		return err
	}
	conn.parked.SetQueueLimit(u.options.MaxQueuedBytes)
	conn.opened(c)
	return nil
}

// Accept accepts a WebSocket for a goroutine that reads and writes it: the handler's or another one. The caller must read it
// until an error, and end it by Close or CloseNow. Accept fails with the same errors as Serve.
//
// At Shutdown the client gets StatusGoingAway, but the server doesn't wait for the connection to end, except over HTTP/2.
func (u *Upgrader) Accept(c *filo.Ctx) (*Conn, error) {
	var received []byte
	conn, err := u.upgrade(c, func(conn *Conn) (err error) {
		conn.net, received, err = c.Upgrade(protocol)
		return err
	})
	if err != nil {
		return nil, err
	}
	conn.stream = newStream(conn, received)
	u.open.add(conn, c.Server())
	return conn, nil
}

// upgrade performs the handshake. takeOver sends the answer, and takes the connection over from the server.
func (u *Upgrader) upgrade(c *filo.Ctx, takeOver func(*Conn) error) (*Conn, error) {
	agreed, err := u.shake(c)
	if err != nil {
		return nil, err
	}
	conn := &Conn{options: &u.options, subprotocol: agreed.subprotocol, deflate: agreed.deflate, heard: now()}
	if agreed.deflate.sendContext || agreed.deflate.receiveContext {
		conn.contexts = new(contexts)
	}
	if err := takeOver(conn); err != nil {
		withdraw(&c.Response.Header)
		return nil, err
	}
	return conn, nil
}
