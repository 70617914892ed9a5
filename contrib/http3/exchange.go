package http3filo

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/pace"
)

// exchange is a request and its answer. Its reads and writes wait for the client as long as ReadTimeout, WriteTimeout and MinTransferRate
// allow, which the stream's deadlines enforce.
type exchange struct {
	listener *listener
	w        http.ResponseWriter
	control  deadliner
	body     io.ReadCloser

	reading, writing pace.Pace

	mu                    sync.Mutex // held while a deadline is set
	readUntil, writeUntil time.Time  // what the handler has set; guarded by mu
}

// deadliner is what the protocol's ResponseWriter offers besides.
type deadliner interface {
	FlushError() error
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// serve answers a request. It reports false if the client has cancelled the request.
func (c *conn) serve(w http.ResponseWriter, r *http.Request) bool {
	e := &exchange{listener: c.listener, w: w, control: w.(deadliner), body: r.Body}
	if r.ContentLength < 0 && e.isOver() {
		r.ContentLength, r.Body = 0, http.NoBody
	} else {
		r.Body = e
	}
	c.listener.handler.ServeHTTP(e, r)
	// The protocol sends what is left when the handler has returned, and has no deadline of its own for that.
	return e.FlushError() == nil && r.Context().Err() == nil
}

// isOver reports whether the client has ended a request whose head doesn't say how long its body is.
func (e *exchange) isOver() bool {
	e.control.SetReadDeadline(clock.Past)
	defer e.control.SetReadDeadline(time.Time{})
	_, err := e.body.Read(make([]byte, 1))
	return err == io.EOF
}

// Read implements io.Reader.
func (e *exchange) Read(p []byte) (int, error) {
	limits, since := e.listener.reading, e.listener.clock.Exact()
	e.setDeadline(e.control.SetReadDeadline, &e.readUntil, e.reading.Deadline(since, limits), since)
	n, err := e.body.Read(p)
	e.reading.Add(limits, n, e.listener.clock.Exact().Sub(since))
	return n, err
}

// Close implements io.Closer.
func (e *exchange) Close() error { return e.body.Close() }

// setDeadline sets the earlier one of two deadlines: what the handler has set, and the moment due. Either may be none.
func (e *exchange) setDeadline(set func(time.Time) error, until *time.Time, due, now clock.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := *until
	if due != 0 {
		if limit := time.Now().Add(due.Sub(now)); at.IsZero() || limit.Before(at) {
			at = limit
		}
	}
	set(at)
}

// Header implements http.ResponseWriter.
func (e *exchange) Header() http.Header { return e.w.Header() }

// WriteHeader implements http.ResponseWriter.
func (e *exchange) WriteHeader(status int) {
	if status < 200 {
		e.beginWrite()
	}
	e.w.WriteHeader(status)
}

// Write implements http.ResponseWriter. A client that takes a part before the deadline gets the time that it has earned by that.
func (e *exchange) Write(p []byte) (written int, err error) {
	err = e.send(func() (int, error) {
		n, err := e.w.Write(p[written:])
		written += n
		return n, err
	})
	return written, err
}

// FlushError is http.Flusher's Flush for an http.ResponseController.
func (e *exchange) FlushError() error {
	return e.send(func() (int, error) { return 0, e.control.FlushError() })
}

// send calls write, and again as long as the client takes something in time.
func (e *exchange) send(write func() (int, error)) error {
	for {
		since := e.beginWrite()
		n, err := write()
		e.writing.Add(e.listener.writing, n, e.listener.clock.Exact().Sub(since))
		if n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) || e.writing.UsedUp(e.listener.writing) || e.isPastUntil() {
			return err
		}
	}
}

// beginWrite sets the deadline for a write that begins now.
func (e *exchange) beginWrite() (now clock.Time) {
	now = e.listener.clock.Exact()
	e.setDeadline(e.control.SetWriteDeadline, &e.writeUntil, e.writing.Deadline(now, e.listener.writing), now)
	return now
}

// isPastUntil reports whether the deadline that the handler has set for writing has passed.
func (e *exchange) isPastUntil() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.writeUntil.IsZero() && !time.Now().Before(e.writeUntil)
}

// SetReadDeadline is for an http.ResponseController.
func (e *exchange) SetReadDeadline(at time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readUntil = at
	return e.control.SetReadDeadline(at)
}

// SetWriteDeadline is for an http.ResponseController.
func (e *exchange) SetWriteDeadline(at time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writeUntil = at
	return e.control.SetWriteDeadline(at)
}
