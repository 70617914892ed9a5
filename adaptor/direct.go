package adaptor

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/filohttp/filo"
)

// snapshot holds the parts of a request that a middleware might change, as they were before the middleware ran.
type snapshot struct {
	method, host, remote string
	url                  url.URL
	header               http.Header
	body                 io.ReadCloser
	length               int64
}

func newSnapshot(r *http.Request) *snapshot {
	return &snapshot{r.Method, r.Host, r.RemoteAddr, *r.URL, r.Header.Clone(), r.Body, r.ContentLength}
}

// is reports whether the middleware has left a request unchanged, except for its context.
func (s *snapshot) is(r *http.Request) bool {
	return r.Method == s.method && r.Host == s.host && r.RemoteAddr == s.remote && *r.URL == s.url && r.Body == s.body &&
		r.ContentLength == s.length && maps.EqualFunc(r.Header, s.header, slices.Equal)
}

// serveDirect runs next with the middleware's own Ctx, unless the middleware has parsed a form, or has changed more than the context and the
// header of the answer; then it reports false. While next runs, no other code of the exchange uses the Ctx.
func (e *exchange) serveDirect(r *http.Request, next filo.Handler) bool {
	if !e.beginDirect(r) {
		return false
	}
	c, before := e.ctx, e.context.Context
	returned := false
	defer func() { e.endDirect(c, before, returned) }()
	c.SetContext(r.Context())
	e.returned = c.RenderError(next(c))
	returned = true
	return true
}

// beginDirect reserves the Ctx for next, and reports false if that isn't possible.
func (e *exchange) beginDirect(r *http.Request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &e.writer
	if e.ended || e.running != nil || w.wrote || w.hijacked || !e.sent.is(r) || parsedForm(r) {
		return false
	}
	if e.local == nil {
		e.local = e.ctx.LocalAddr()
	}
	w.copyHeader()
	w.wrote, w.direct = true, true
	e.running = make(chan struct{})
	return true
}

// endDirect ends the reservation of the Ctx. If next has panicked without sending anything, the middleware can still write the
// answer.
func (e *exchange) endDirect(c *filo.Ctx, before context.Context, returned bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.SetContext(before)
	w := &e.writer
	if returned || c.Committed() {
		w.header = nil // from now on Header returns the fields of next's answer
	} else {
		w.wrote, w.direct = false, false
	}
	close(e.running)
	e.running = nil
}

// lockIdle waits until next no longer runs with the exchange's Ctx, and locks the exchange.
func (e *exchange) lockIdle() {
	e.mu.Lock()
	for e.running != nil {
		running := e.running
		e.mu.Unlock()
		<-running
		e.mu.Lock()
	}
}
