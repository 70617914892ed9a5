package adaptor

import (
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/asked"
)

// exchange is one request that a handler of net/http answers. Handlers may keep an exchange, and use it from several goroutines.
// Therefore an exchange is never reused, and drops the Ctx when its handler returns.
type exchange struct {
	// mu guards the Ctx, which belongs to one goroutine at a time.
	mu    sync.Mutex
	ctx   *filo.Ctx // guarded by mu; nil when ended
	ended bool      // the handler has returned; guarded by mu
	// server is the server that received the request.
	server *filo.Server
	local  net.Addr // nil until asked for; guarded by mu
	// proxy is the connection's remote end if the request's RemoteAddr is another address, which middleware.RealIP has found; otherwise nil.
	proxy net.Addr
	// received is set if middleware.RealIP has run; the request's Host and RemoteAddr may be others then.
	received asked.Received
	// returned is the error from the rest of filo's chain, if Middleware runs it, or the error passed to Fail; guarded by mu.
	returned error
	failed   bool // Fail was called; guarded by mu
	// take takes the connection over when Hijack is called, on behalf of the Ctx of next, the rest of filo's chain. It is nil unless next is
	// taking the connection over. Guarded by mu.
	take func(*filo.Ctx) (net.Conn, error)
	// sent is the request that was passed to a middleware; nil for a handler.
	sent *snapshot
	// parts are the requests in progress that middleware has derived from this one, each with the function that detaches it from
	// the Ctx; guarded by mu.
	parts map[*carrier]func(*filo.Ctx)
	// running is closed when next has returned, if next runs with this exchange's Ctx; otherwise it is nil. Guarded by mu.
	running chan struct{}

	context requestContext
	body    requestBody
	writer  responseWriter
}

// FromHTTP returns a handler that runs a net/http handler. The request's PathValues are filo's path parameters, and its Pattern
// is the route. If middleware.RealIP runs before, RemoteAddr is the client's address, with the port 0 if a proxy has named it, and Host is the
// host that the client has asked for.
func FromHTTP(h http.Handler) filo.Handler {
	if h == nil {
		panic("adaptor: FromHTTP with a nil handler")
	}
	return func(c *filo.Ctx) error { return serve(c, h) }
}

// serve runs h on the request of c.
func serve(c *filo.Ctx, h http.Handler) error {
	e := newExchange(c)
	r, err := newRequest(c, e)
	if err != nil {
		return err
	}
	return e.run(h, r)
}

func newExchange(c *filo.Ctx) *exchange {
	e := &exchange{ctx: c, server: c.Server()}
	e.context = requestContext{c.Context(), e}
	e.writer.exchange = e
	e.writer.length = noLength
	return e
}

// run calls the handler and completes its answer.
func (e *exchange) run(h http.Handler, r *http.Request) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		e.end(r)
		value := recover()
		// If value is nil, the handler has called runtime.Goexit, so nobody sees the error, or has panicked with nil, which GODEBUG may
		// allow.
		if problem, ok := value.(error); value != nil && !(ok && errors.Is(problem, http.ErrAbortHandler)) {
			panic(value)
		}
		err = filo.ErrAbort
	}()
	h.ServeHTTP(&e.writer, r)
	err = e.finish()
	returned = true
	e.end(r)
	return err
}

// finish completes the answer, and is the last to use the Ctx.
func (e *exchange) finish() error {
	e.lockIdle()
	defer e.mu.Unlock()
	if e.failed {
		return e.returned
	}
	return e.writer.finishLocked()
}

// Fail makes the handler of r return err, as if it were a filo handler. Unless a part of the answer was sent, the written answer
// is dropped, and the server's ErrorHandler answers instead. Fail returns false if FromHTTP didn't make r, or if the handler of r
// has returned.
func Fail(r *http.Request, err error) bool {
	e, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	e.failed, e.returned = true, err
	return true
}

// end drops the Ctx, after waiting until no other goroutine uses it.
func (e *exchange) end(r *http.Request) {
	e.lockIdle()
	for _, detach := range e.parts {
		detach(e.ctx)
	}
	e.ended, e.ctx, e.parts = true, nil, nil
	e.writer.release()
	e.mu.Unlock()
	if r.MultipartForm != nil {
		r.MultipartForm.RemoveAll()
	}
}

// localAddr returns the connection's local address. After the handler has returned, localAddr returns nil unless it was called
// earlier.
func (e *exchange) localAddr() any {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.local == nil {
		if e.ended {
			return nil
		}
		e.local = e.ctx.LocalAddr()
	}
	return e.local
}
