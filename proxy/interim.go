package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"net/textproto"
	"runtime/debug"
	"time"

	"github.com/filohttp/filo/internal/syntax"
)

// interimWait is how long the connection to an upstream waits at most until an interim answer is passed on to the client.
const interimWait = 10 * time.Millisecond

// attemptContext returns the context of an attempt to send a request that has the context ctx.
func (p *Proxy) attemptContext(ctx context.Context) context.Context {
	if !p.options.HTTP2 && p.options.Transport == nil {
		return ctx // over HTTP/1.1 a connection carries one request at a time
	}
	return freeTrace{ctx, p}
}

// freeTrace is a context in whose trace Got1xxResponse doesn't wait for the client. ReverseProxy passes interim answers on in that function,
// and a transport calls it on the goroutine that reads all answers of a connection of HTTP/2. A client that doesn't read, or that holds back
// its own body, must not delay the answers for others.
type freeTrace struct {
	context.Context
	proxy *Proxy
}

// Value implements context.Context.
func (c freeTrace) Value(key any) any {
	value := c.Context.Value(key)
	trace, ok := value.(*httptrace.ClientTrace)
	if !ok || trace.Got1xxResponse == nil {
		return value
	}
	free, pass := *trace, trace.Got1xxResponse
	free.Got1xxResponse = func(status int, header textproto.MIMEHeader) error {
		passed := make(chan error, 1)
		go func() {
			err := errors.New("proxy: passing an interim answer on has panicked")
			defer func() {
				if value := recover(); value != nil {
					c.proxy.options.Logger.Error("proxy: panic while an interim answer was passed on",
						"error", syntax.LoggedError(fmt.Errorf("%v", value)), "stack", string(debug.Stack()))
				}
				passed <- err
			}()
			err = pass(status, header)
		}()
		timer := time.NewTimer(interimWait)
		defer timer.Stop()
		select {
		case err := <-passed:
			return err
		case <-timer.C:
			return nil // ReverseProxy waits for the call before it uses the answer
		}
	}
	return &free
}
