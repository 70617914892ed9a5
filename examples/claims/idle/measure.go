package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"
)

// figures are what a server measures about itself.
type figures struct {
	before, with int // bytes in memory: without connections, and with all of them
	goroutines   int // with all of them
}

func (f figures) grown() int { return f.with - f.before }

// patience is how long the program waits for an answer.
const patience = 30 * time.Second

// measure starts a server, and asks it for its figures before and after opening n connections.
func measure(ctx context.Context, name string, n int) (f figures, err error) {
	if err := possible(n); err != nil {
		return f, err
	}
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	server := exec.CommandContext(ctx, self)
	server.Env = append(os.Environ(), childVariable+"="+name)
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	if err != nil {
		return f, err
	}
	out, err := server.StdoutPipe()
	if err != nil {
		return f, err
	}
	if err := server.Start(); err != nil {
		return f, err
	}
	defer server.Wait()
	defer in.Close()
	said := bufio.NewReader(out)
	var address string
	if _, err := fmt.Fscanln(said, &address); err != nil {
		return f, fmt.Errorf("the server didn't start: %w", err)
	}
	ask := func(memory *int) error {
		if _, err := io.WriteString(in, "\n"); err != nil {
			return err
		}
		_, err := fmt.Fscanln(said, memory, &f.goroutines)
		return err
	}
	first, conns := make([]net.Conn, 10), make([]net.Conn, n)
	defer func() {
		for _, c := range append(first, conns...) {
			if c != nil {
				c.Close()
			}
		}
	}()
	// A few requests come first, so that memory which a server needs for its first requests isn't counted for the connections.
	if err := each(ctx, first, address); err != nil {
		return f, err
	}
	if err := ask(&f.before); err != nil {
		return f, err
	}
	if err := each(ctx, conns, address); err != nil {
		return f, err
	}
	if err := ask(&f.with); err != nil {
		return f, err
	}
	return f, each(ctx, conns, address) // all connections are still open
}

// each makes a request on each of the connections, 64 at a time. It dials connections that are nil.
func each(ctx context.Context, conns []net.Conn, address string) error {
	requests, ctx := errgroup.WithContext(ctx)
	requests.SetLimit(64)
	for i := range conns {
		requests.Go(func() error {
			if err := get(ctx, &conns[i], address); err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			return nil
		})
	}
	return requests.Wait()
}

// get makes a request on a connection. It dials the connection if it is nil.
func get(ctx context.Context, c *net.Conn, address string) (err error) {
	if ctx.Err() != nil { // the program was interrupted, or another connection has failed
		return ctx.Err()
	}
	if *c == nil {
		var dialer net.Dialer
		if *c, err = dialer.DialContext(ctx, "tcp", address); err != nil {
			return err
		}
	}
	if err := (*c).SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(*c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(*c), nil)
	if err != nil {
		return err
	}
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != body {
		return fmt.Errorf("the answer is %q, %v", got, err)
	}
	return nil
}
