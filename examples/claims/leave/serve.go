package main

import (
	"context"
	"net"
	"net/http"

	"github.com/filohttp/filo/adaptor"
)

// byFilo lets filo serve the application.
func byFilo(ctx context.Context, l net.Listener) error {
	s := newServer()
	return s.RunListener(ctx, l)
}

// byNetHTTP lets net/http serve it.
func byNetHTTP(ctx context.Context, l net.Listener) error {
	s := newServer()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	return http.Serve(l, adaptor.ToHTTPServer(s))
}
