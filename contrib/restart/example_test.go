//go:build unix

package restart_test

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/restart"
)

// SIGUSR2 starts the new version of the program; SIGTERM and Ctrl-C end the program.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) }) // a second Ctrl-C ends the process at once; a second SIGTERM doesn't
	r, err := restart.New()
	if err != nil {
		log.Fatal(err)
	}
	listener, err := r.Listen(":8080")
	if err != nil {
		log.Fatal(err)
	}
	s := &filo.Server{
		Handler:   func(c *filo.Ctx) error { return c.Text(200, "Hello, World!") },
		IdleGrace: 5 * time.Second,
	}
	err = r.Run(ctx, func(ctx context.Context) error { return s.RunListener(ctx, listener) })
	if err != nil {
		log.Fatal(err)
	}
}
