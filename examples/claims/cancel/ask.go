package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// result sums up the work for the clients of one server.
type result struct {
	cancelled int           // contexts that had ended when the work did
	wasted    int           // steps that were done after the client had left
	longest   time.Duration // from when a client left until its work ended
}

// task is the work for one client.
type task struct {
	config
	due   chan struct{} // closed when the client is to leave
	ended chan struct{} // closed when the work has ended; from then on what follows is set
	steps int
	at    time.Time
	err   error // of the context, at the end
}

// work does the steps, until they are all done or the context is.
func (t *task) work(ctx context.Context) error {
	defer close(t.ended)
	left := false
	for t.steps < t.config.steps && ctx.Err() == nil {
		select {
		case <-time.After(t.step): // this is where a query would be made
			t.steps++
		case <-ctx.Done():
		}
		if t.steps == t.leave && !left {
			close(t.due)
			left = true
		}
	}
	t.at, t.err = time.Now(), ctx.Err()
	return t.err
}

// ask has a server work for all clients at the same time, and waits until the work has ended.
func ask(ctx context.Context, cfg config, s server) (*result, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	tasks := make([]*task, cfg.clients)
	for i := range tasks {
		tasks[i] = &task{config: cfg, due: make(chan struct{}), ended: make(chan struct{})}
	}
	stop := s.serve(l, func(ctx context.Context, client string) error {
		i, err := strconv.Atoi(client)
		if err != nil || i < 0 || i >= len(tasks) {
			return fmt.Errorf("there is no client %q", client)
		}
		return tasks[i].work(ctx)
	})
	defer stop()
	var (
		r       result
		mu      sync.Mutex // guards r and failed
		failed  error
		clients sync.WaitGroup
	)
	for i, t := range tasks {
		clients.Go(func() {
			left, err := leave(ctx, l.Addr().String(), i, t)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			r.wasted += t.steps - cfg.leave
			r.longest = max(r.longest, t.at.Sub(left))
			if t.err != nil {
				r.cancelled++
			}
		})
	}
	clients.Wait()
	return &r, failed
}

// leave is a client that asks for its work, and leaves when that is under way. It returns when it left, after the work has ended.
func leave(ctx context.Context, address string, i int, t *task) (left time.Time, err error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return left, err
	}
	defer c.Close()
	if _, err := io.WriteString(c, fmt.Sprintf("GET /?client=%d HTTP/1.1\r\nHost: localhost\r\n\r\n", i)); err != nil {
		return left, err
	}
	for _, event := range []chan struct{}{t.due, t.ended} {
		select {
		case <-event:
		case <-ctx.Done():
			return left, ctx.Err()
		}
		if left.IsZero() {
			left = time.Now()
			c.Close()
		}
	}
	return left, nil
}
