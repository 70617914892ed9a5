package adaptor

import (
	"context"
	"net/http"

	"github.com/filohttp/filo/internal/asked"
)

// standIn is the value of http.ServerContextKey. Some handlers, such as httputil.ReverseProxy, check that the context has a
// server.
var standIn http.Server

// requestContext is the context of a request of net/http: the context of the filo.Ctx, with the values that net/http's server adds.
type requestContext struct {
	context.Context
	exchange *exchange
}

// Value implements context.Context.
func (r *requestContext) Value(key any) any {
	switch key {
	case exchangeKey{}:
		return r.exchange
	case http.ServerContextKey:
		return &standIn
	case http.LocalAddrContextKey:
		return r.exchange.localAddr()
	case asked.ReceivedKey{}:
		if received := &r.exchange.received; received.RemoteAddr != "" {
			return received
		}
	}
	return r.Context.Value(key)
}
