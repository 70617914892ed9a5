package adaptor

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Hijack implements http.Hijacker. If WriteHeader was called, as for 101, Hijack first sends that head.
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
	conn, received, err := e.ctx.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.hijacked = true
	w.release()
	rw := bufio.NewReadWriter(newReceivedReader(conn, received), bufio.NewWriter(conn))
	if w.wrote {
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
