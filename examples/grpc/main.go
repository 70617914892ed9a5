// Command grpc serves the same notes on one port in three ways: gRPC for programs, gRPC-Web for its page, and REST for other clients.
//
//	go run ./grpc                            # http://localhost:8080
//	grpcurl -plaintext -d '{"text":"Water the plants"}' localhost:8080 notes.v1.Notes/Add
//	grpcurl -plaintext localhost:8080 notes.v1.Notes/Watch
//	curl localhost:8080/notes
package main

import (
	"context"
	_ "embed"
	"flag"
	"io"

	"github.com/filohttp/filo"
	grpcfilo "github.com/filohttp/filo/contrib/grpc"
	"github.com/filohttp/filo/examples/grpc/notespb"
	"github.com/filohttp/filo/examples/internal/program"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	_ "google.golang.org/grpc/encoding/gzip" // allows clients to compress
	"google.golang.org/grpc/reflection"
)

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative notespb/notes.proto

func main() { program.Main("grpc", run) }

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("grpc", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "TCP `address` to listen on")
	if err := program.Parse(flags, args); err != nil {
		return err
	}
	return program.Serve(ctx, newServer(newNotes()), *addr, stdout)
}

// newServer returns the server of the notes.
func newServer(n *notes) *filo.Server {
	services := grpcfilo.New()
	notespb.RegisterNotesServer(services, n)
	reflection.Register(services) // so that grpcurl needs no .proto file

	r := router.New()
	r.Use(middleware.AccessLog())
	services.Mount(r)
	r.GET("/{$}", page)
	r.GET("/notes", n.list)

	server := &filo.Server{Handler: r.Serve, ErrorHandler: grpcfilo.ErrorHandler(nil)}
	server.HTTP2.Unencrypted = true // gRPC clients connect without TLS in this example
	server.RegisterOnShutdown(n.end)
	return server
}

//go:embed page.html
var pageHTML []byte

func page(c *filo.Ctx) error {
	return c.BytesNoCopy(200, "text/html; charset=utf-8", pageHTML)
}
