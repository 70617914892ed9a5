// Package servertest tests filo handlers and servers without a socket.
//
// [New] starts a server on an in-memory listener. When the test ends it ends the server, and checks for goroutines left behind.
// [Server.Client] is a standard [net/http.Client]; [Server.Do] sends a request in one line and returns its answer; [Server.Raw]
// sends raw bytes and returns every byte of the answer.
//
// [Listener] and [Conn] can be used alone. The connections of a Listener behave like TCP's (bounded buffers, deadlines,
// half-close, resets), don't depend on timing, and block durably in a testing/synctest bubble.
package servertest
