// Package websocket serves WebSockets (RFC 6455) with filo, many of them: one that waits keeps no goroutine and no buffers.
// Frames are unmasked by github.com/gobwas/ws, and messages compressed by github.com/klauspost/compress.
//
//	go get github.com/filohttp/filo/contrib/websocket@latest
//
// It is a module of its own, so that filo doesn't depend on what it needs.
//
//	chat := websocket.New(websocket.Options{
//		OnMessage: func(c *websocket.Conn, kind websocket.MessageType, message []byte) error {
//			return c.Write(kind, message)
//		},
//	})
//	r.GET("/chat", chat.Serve)
//
// # Two ways
//
// With Upgrader.Serve the connection waits in its loop, and OnMessage is called with each message. It is for many connections,
// and it is what a Hub is for. With Upgrader.Accept a goroutine has the connection to itself, and calls Read and Write, or
// Reader and Writer for messages that are too large for memory:
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
// # What is done without being asked
//
// Pings are answered, and silent clients are sent some. A close frame is answered, and the connection closed. At Shutdown
// clients are told that the server goes away. Only pages of the server's own origin may connect, and those of Options.Origins.
// What violates the protocol, text that isn't UTF-8 included, fails the connection with a close frame that says why; everything
// that a client could make grow has a limit.
//
// # Order
//
// What one goroutine writes and sends on a connection arrives in that order, and a Hub's messages on a topic arrive at all its
// members in the same order.
package websocket
