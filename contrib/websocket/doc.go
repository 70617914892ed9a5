// Package websocket serves many WebSockets (RFC 6455) with filo: a waiting WebSocket has no goroutine and no buffers. github.com/gobwas/ws
// unmasks frames, and github.com/klauspost/compress compresses messages.
//
//	go get github.com/filohttp/filo/contrib/websocket@latest
//
// The package is a separate module, so that filo doesn't depend on these libraries.
//
//	chat := websocket.New(websocket.Options{
//		OnMessage: func(c *websocket.Conn, kind websocket.MessageType, message []byte) error {
//			return c.Write(kind, message)
//		},
//	})
//	r.GET("/chat", chat.Serve)
//
// # Serve and Accept
//
// With Upgrader.Serve the connection waits in its loop, and OnMessage is called with each message. Use Serve for many
// connections and with a Hub. With Upgrader.Accept a goroutine owns the connection, and calls Read and Write, or Reader and
// Writer for messages that are too large for memory:
//
//	func echo(c *filo.Ctx) error {
//		conn, err := upgrader.Accept(c)
//		if err != nil {
//			return err
//		}
//		defer conn.CloseNow()
//		for {
//			kind, message, err := conn.Read()
//			if err != nil {
//				return err
//			}
//			if err := conn.Write(kind, message); err != nil {
//				return err
//			}
//		}
//	}
//
// # Protocol handling
//
// The package answers pings, and pings silent clients. It answers a close frame and closes the connection. At Shutdown it tells clients
// that the server is going away. Only pages of the server's own origin and of Options.Origins may connect. A client that violates the
// protocol, for example with text that isn't UTF-8, gets a close frame with the reason, and its connection ends. Everything that a client
// could make grow has a limit.
//
// # HTTP/2
//
// Serve, Accept and Hub also work for clients that open WebSockets over HTTP/2 (RFC 8441), as browsers do if the server has
// HTTP2Options.ExtendedConnect set. Such a WebSocket is a stream of the client's connection. Over HTTP/2, Shutdown waits for connections
// opened by Accept.
//
// # Several processes
//
// The members of a hub made by NewHub may be connected to different processes, if these share a Broker, such as those of contrib/redis. A
// client that reconnects to any of these processes gets the messages that it has missed: see Hub.Resume.
//
// # Order
//
// Messages that one goroutine writes and sends on a connection arrive in that order. A Hub's messages on a topic arrive at all
// members in the same order.
package websocket
