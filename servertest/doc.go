// Package servertest tests filo handlers and servers without a socket.
//
// [New] starts a server on an in-memory listener and ends it, with a check for
// goroutines left behind, when the test ends. Its [Server.Client] is a standard
// [net/http.Client]; [Server.Do] sends a request in one line and returns its answer;
// [Server.Raw] sends bytes as they are and returns every byte that comes back.
//
// [Listener] and [Conn] serve without the rest: a listener whose connections
// behave like TCP's (buffers with a bound, deadlines, half-close, resets), are
// free of timing accidents, and block durably in a testing/synctest bubble.
package servertest
