// Command todo is a small but complete application: a REST API with a database, a document that describes the API, and a page to use it.
//
//	go run ./todo                            # http://localhost:8080, with the todos in todo.db
//	go run ./todo -addr :9000 -hosts todo.example -db /tmp/my.db
//	curl localhost:8080/api/todos -H 'Content-Type: application/json' -d '{"title":"Water the plants"}'
//	curl localhost:8080/openapi.json
//
// Package router routes the requests, and package bind reads and checks their input. Clients that accept JSON get errors as problem details. SQLite
// stores the todos, and contrib/huma generates the OpenAPI document. The program shuts down gracefully on SIGINT and SIGTERM. It has no users and no
// passwords: everyone who can reach the address can read and change all todos.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/examples/internal/program"
)

const (
	// shutdownGrace is how long running requests may take after the first signal before they are cut off.
	shutdownGrace = 10 * time.Second
	// maxBody limits the size of a request body, in bytes: many times the size of the longest title.
	maxBody = 16 << 10
)

func main() { program.Main("todo", run) }

// run serves until ctx ends and then shuts down: running requests finish, new ones are refused, and then the database is closed. It returns
// nil after a complete shutdown.
func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("todo", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "TCP `address` to listen on")
	hosts := flags.String("hosts", "localhost,127.0.0.1,[::1]", "`hosts` that it is asked for by, without ports, separated by commas")
	db := flags.String("db", "todo.db", "SQLite `file` with the todos; made if it isn't there")
	if err := program.Parse(flags, args); err != nil {
		return err
	}
	todos, err := openStore(ctx, *db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, todos.close()) }()
	handler, err := newHandler(todos, strings.Split(*hosts, ","))
	if err != nil {
		return err
	}
	return program.Serve(ctx, &filo.Server{Handler: handler, MaxBodyBytes: maxBody, GracePeriod: shutdownGrace}, *addr, stdout)
}
