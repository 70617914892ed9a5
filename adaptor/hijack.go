package adaptor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
)

// Hijack implements http.Hijacker. If WriteHeader was called, as for 101, Hijack first sends that head. Over HTTP/2 Hijack succeeds only
// after a 101: it then returns the stream of the extended CONNECT request.
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
	inner := e.take != nil
	conn, received, err := w.takeOverLocked()
	if err != nil {
		if inner {
			w.wrote = false // so that an answer to the error can be written
		}
		if errors.Is(err, errors.ErrUnsupported) {
			err = errors.Join(err, http.ErrNotSupported) // which net/http's handlers test for
		}
		return nil, nil, err
	}
	w.hijacked = true
	w.release()
	rw := bufio.NewReadWriter(newReceivedReader(conn, received), bufio.NewWriter(conn))
	if w.wrote && !inner && w.status != http.StatusSwitchingProtocols {
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

// takeOverLocked takes the connection over. filo itself sends the head of a 101, so that filo's middleware sees the status and can still
// add fields. Over HTTP/2, which has no 101, the new protocol is the one that the client has asked for.
func (w *responseWriter) takeOverLocked() (conn net.Conn, received []byte, err error) {
	c, take := w.exchange.ctx, w.exchange.take
	w.exchange.take = nil
	switch {
	case take != nil:
		conn, err = take(c)
		return conn, nil, err
	case !w.wrote || w.status != http.StatusSwitchingProtocols:
		return c.Hijack()
	case c.Request.Proto() == "HTTP/2.0":
		return c.Upgrade(c.Request.Header.Get("Upgrade"))
	}
	return inside.Upgrade(c)
}

// Outer calls f with the outer Ctx, whose connection the inner Ctx may take over by a Hijack that the middleware sees. It reports
// false if there is no such Ctx.
func (t *carrier) Outer(f func(*filo.Ctx) error) (ok bool, err error) {
	e := t.outer
	if e == nil || !reaches[http.Hijacker](t.w) {
		return false, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended || e.running != nil || e.writer.wrote || e.writer.hijacked {
		return false, nil
	}
	return true, f(e.ctx)
}

// Join makes this request a part of the request from which it was derived, if s is handling that request. Otherwise it reports
// false.
func (t *carrier) Join(s *filo.Server, detach func(*filo.Ctx)) bool {
	e := t.outer
	for e != nil && e.server != s {
		e, _ = e.context.Context.Value(exchangeKey{}).(*exchange)
	}
	if e == nil {
		return false
	}
	t.around = e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		detach(nil)
		return true
	}
	if e.parts == nil {
		e.parts = map[*carrier]func(*filo.Ctx){}
	}
	e.parts[t] = detach
	return true
}

// Leave undoes Join.
func (t *carrier) Leave() {
	e := t.around
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.parts, t)
}

// Around calls f with the Ctx of the request that Join has found, or with nil if that request's handler has returned or another call of
// next runs with that Ctx. A middleware that uses its own ResponseWriter at the same time waits for f.
func (t *carrier) Around(f func(*filo.Ctx) error) error {
	e := t.around
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running != nil {
		return f(nil)
	}
	return f(e.ctx)
}

// reaches reports whether a ResponseWriter, or one that it wraps, has the interface's method.
func reaches[Method any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(Method); ok {
			return true
		}
		wraps, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = wraps.Unwrap()
	}
}

// TakeOver calls Hijack on the middleware's ResponseWriter. When that call reaches filo's own ResponseWriter, the function take
// takes the connection over. TakeOver does nothing and reports false if the middleware encodes the body.
func (t *carrier) TakeOver(take func(*filo.Ctx) (net.Conn, error)) (ok bool, err error) {
	e := t.outer
	e.mu.Lock()
	encoded := e.writer.wrote && e.writer.status != http.StatusSwitchingProtocols && e.ctx.Response.Header.Has("Content-Encoding")
	if !encoded {
		e.take = take
	}
	e.mu.Unlock()
	if encoded {
		return false, nil
	}
	conn, _, err := t.control.Hijack()
	e.mu.Lock()
	defer e.mu.Unlock()
	if ok = e.take == nil; !ok && err == nil {
		conn.Close() // the middleware has returned another connection
	}
	e.take = nil
	return ok, err
}

// newReceivedReader returns a reader that has the received bytes in its buffer, and then reads from the connection.
func newReceivedReader(conn net.Conn, received []byte) *bufio.Reader {
	const size = 4 << 10
	if len(received) == 0 {
		return bufio.NewReaderSize(conn, size)
	}
	r := bufio.NewReaderSize(&receivedReader{conn, received}, max(size, len(received)))
	r.Peek(len(received))
	return r
}

// receivedReader reads the bytes that were received already, and then from the connection.
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
