package adaptor

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// standIn is what http.ServerContextKey stands for: httputil.ReverseProxy, for one, looks whether there is any.
var standIn http.Server

// requestContext is the context of a request of net/http. The one that it stands for, which watches the client, costs more
// than many handlers do otherwise, so it is made when it is first needed: by a call of any method, or before something
// waits for the client.
type requestContext struct {
	exchange *exchange
	resolved atomic.Pointer[context.Context]
}

// over is the context of a request whose handler has returned, and has never asked for one.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (r *requestContext) resolve() context.Context {
	if ctx := r.resolved.Load(); ctx != nil {
		return *ctx
	}
	// Nobody who holds the lock waits for anything: see resolveLocked.
	r.exchange.mu.Lock()
	defer r.exchange.mu.Unlock()
	return r.resolveLocked()
}

// resolveLocked makes the context. It is called before whatever waits for the client with the exchange locked, so that no
// method waits for that.
func (r *requestContext) resolveLocked() context.Context {
	if ctx := r.resolved.Load(); ctx != nil {
		return *ctx
	}
	ctx := over
	if !r.exchange.ended {
		ctx = r.exchange.ctx.Context()
	}
	r.resolved.Store(&ctx)
	return ctx
}

// endLocked makes a context that nobody has asked for one that is over, with the values that it would have had: the handler may
// have kept it.
func (r *requestContext) endLocked() {
	if r.resolved.Load() != nil {
		return
	}
	values := r.exchange.ctx.ContextValues()
	if values == context.Background() {
		return // as over
	}
	ctx, cancel := context.WithCancel(values)
	cancel()
	r.resolved.Store(&ctx)
}

// Deadline implements context.Context.
func (r *requestContext) Deadline() (time.Time, bool) { return r.resolve().Deadline() }

// Done implements context.Context.
func (r *requestContext) Done() <-chan struct{} { return r.resolve().Done() }

// Err implements context.Context.
func (r *requestContext) Err() error { return r.resolve().Err() }

// Value implements context.Context.
func (r *requestContext) Value(key any) any {
	switch key {
	case exchangeKey{}:
		return r.exchange
	case http.ServerContextKey:
		return &standIn
	case http.LocalAddrContextKey:
		return r.exchange.localAddr()
	}
	return r.resolve().Value(key)
}
