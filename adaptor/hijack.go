package adaptor

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/filohttp/filo/internal/inside"
)

// Hijack implements http.Hijacker. If WriteHeader was called, as for 101, Hijack first sends that head. Over HTTP/2 only what was switched by
// a 101 can be taken over: the handler gets the stream of a request by extended CONNECT.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.exchange.mu.Lock()
	defer w.exchange.mu.Unlock()
	return w.hijackLocked()
}

func (w *responseWriter) hijackLocked() (net.Conn, *bufio.ReadWriter, error) {
	e := w.exchange
	switch {
	case e.ended:
		return nil, nil, errEnded
	case w.hijacked, w.direct:
		return nil, nil, http.ErrHijacked
	}
	conn, received, err := w.takeOverLocked()
	if err != nil {
		return nil, nil, err
	}
	w.hijacked = true
	w.release()
	rw := bufio.NewReadWriter(newReceivedReader(conn, received), bufio.NewWriter(conn))
	if w.wrote && w.status != http.StatusSwitchingProtocols {
		fmt.Fprintf(rw, "HTTP/1.1 %03d %s\r\n", w.status, http.StatusText(w.status))
		w.header.Write(rw)
		rw.WriteString("\r\n")
		if err := rw.Flush(); err != nil {
			conn.Close()
			return nil, nil, err
		}
	}
	return conn, rw, nil
}

// takeOverLocked takes the connection over. filo sends the head of a 101, so that its status is known to middleware, which can still add
// fields. HTTP/2 has no 101 that could be sent as it is: there the client's protocol counts.
func (w *responseWriter) takeOverLocked() (conn net.Conn, received []byte, err error) {
	c := w.exchange.ctx
	switch {
	case !w.wrote || w.status != http.StatusSwitchingProtocols:
		return c.Hijack()
	case c.Request.Proto() == "HTTP/2.0":
		return c.Upgrade(c.Request.Header.Get("Upgrade"))
	}
	return inside.Upgrade(c)
}

// newReceivedReader returns a reader of what was received, which is in its buffer, and then of the connection.
func newReceivedReader(conn net.Conn, received []byte) *bufio.Reader {
	const size = 4 << 10
	if len(received) == 0 {
		return bufio.NewReaderSize(conn, size)
	}
	r := bufio.NewReaderSize(&receivedReader{conn, received}, max(size, len(received)))
	r.Peek(len(received))
	return r
}

// receivedReader reads what was received, and then the connection.
type receivedReader struct {
	conn     io.Reader
	received []byte
}

// Read implements io.Reader.
func (r *receivedReader) Read(p []byte) (int, error) {
	if len(r.received) == 0 {
		return r.conn.Read(p)
	}
	n := copy(p, r.received)
	r.received = r.received[n:]
	return n, nil
}
