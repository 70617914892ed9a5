// Command chat is a chat with rooms: a page that talks by WebSocket, and watches by server-sent events.
//
//	go run ./chat                            # http://localhost:8080
//	go run ./chat -addr :9000 -hosts chat.example
//	curl -N 'localhost:8080/feed?room=lobby' # what is said there, live
//	curl localhost:8080/rooms/lobby/messages
//
// WebSockets come from contrib/websocket, and events from package sse: a client that waits for messages takes no goroutine. It shuts down
// gracefully on SIGINT and SIGTERM, and the pages reconnect when the server is back. It has no accounts, and keeps nothing: everybody who
// reaches the address can read and write in every room, and all messages are gone when the program ends.
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
	// shutdownGrace is how long connections may take to say goodbye after the first signal before they are cut off.
	shutdownGrace = 10 * time.Second
	// maxConns is how many connections there may be, WebSockets and feeds included.
	maxConns = 20_000
)

func main() { program.Main("chat", run) }

// run serves until ctx ends and then shuts down: WebSockets are told that the server goes away, and feeds end. It returns nil
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
