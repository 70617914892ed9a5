package main

import (
	"context"
	"net"
	"net/http"

	"github.com/filohttp/filo/adaptor"
)

// byFilo serves the application with filo.
func byFilo(ctx context.Context, l net.Listener) error {
	s := newServer()
	return s.RunListener(ctx, l)
}

// byNetHTTP serves the application with net/http.
func byNetHTTP(ctx context.Context, l net.Listener) error {
	s := newServer()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	return http.Serve(l, adaptor.ToHTTPServer(s))
}
