// Command chat is a chat with rooms. Its page talks over a WebSocket, and watches other rooms with server-sent events.
//
//	go run ./chat                            # http://localhost:8080
//	go run ./chat -addr :9000 -hosts chat.example
//	curl -N 'localhost:8080/feed?room=lobby' # what is said there, live
//	curl localhost:8080/rooms/lobby/messages
//
// WebSockets come from contrib/websocket, and events from package sse: a client that waits for messages uses no goroutine. The program shuts down
// gracefully on SIGINT and SIGTERM, and the pages reconnect when the server is back. The chat has no accounts, and stores nothing: everyone who can
// reach the address can read and write in every room, and all messages are gone when the program ends.
package main

import (
	"context"
	"flag"
	"io"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/examples/internal/program"
)

const (
	// shutdownGrace is how long connections may take to close after the first signal before they are cut off.
	shutdownGrace = 10 * time.Second
	// maxConns is how many connections there may be, WebSockets and feeds included.
	maxConns = 20_000
)

func main() { program.Main("chat", run) }

// run serves until ctx ends and then shuts down: WebSockets get the close code for a server that goes away, and feeds end. It returns nil
// after a complete shutdown.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("chat", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "TCP `address` to listen on")
	hosts := flags.String("hosts", "localhost,127.0.0.1,[::1]", "`hosts` that it is asked for by, without ports, separated by commas")
	if err := program.Parse(flags, args); err != nil {
		return err
	}
	handler := newHandler(newChat(time.Now), strings.Split(*hosts, ","))
	server := &filo.Server{Handler: handler, MaxConns: maxConns, GracePeriod: shutdownGrace}
	return program.Serve(ctx, server, *addr, stdout)
}
