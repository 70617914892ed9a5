package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// result sums up the tasks of one server.
type result struct {
	cancelled int           // how many tasks ended because their context had ended
	wasted    int           // how many steps were done after the clients had left
	longest   time.Duration // the longest time from a client's leaving until its task ended
}

// task is the work for one client.
type task struct {
	config
	asking context.Context    // the context of the client's request; its end closes the client's connection
	hangUp context.CancelFunc // ends asking

	ended chan struct{} // closed when the work has ended; the fields below are set by then
	done  int           // how many steps are done
	left  time.Time     // when the client left
	at    time.Time     // when the work ended
	err   error         // the error of the handler's context at that time
}

// work does the steps until all are done, or until the context has ended. Once t.leave steps are done, it makes the client leave.
func (t *task) work(ctx context.Context) error {
	defer close(t.ended)
	for t.done < t.steps && ctx.Err() == nil {
		select {
		case <-time.After(t.step): // a real program would make a query here
			t.done++
			if t.done == t.leave {
				t.left = time.Now()
				t.hangUp()
			}
		case <-ctx.Done():
		}
	}
	t.at, t.err = time.Now(), ctx.Err()
	return t.err
}

// request is a client: it sends its request, waits until it leaves, and returns when the work has ended.
func (t *task) request(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(t.asking, "GET", url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	switch {
	case err == nil:
		response.Body.Close()
		return fmt.Errorf("the server answered %s before the client had left", response.Status)
	case t.asking.Err() == nil:
		return err
	}
	select {
	case <-t.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask makes all clients send their requests to a server at the same time, and waits until their tasks have ended.
func ask(ctx context.Context, cfg config, s server) (*result, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	clients, ctx := errgroup.WithContext(ctx)
	tasks := make(map[string]*task) // by the client's number
	for i := range cfg.clients {
		t := &task{config: cfg, ended: make(chan struct{})}
		t.asking, t.hangUp = context.WithCancel(ctx)
		tasks[strconv.Itoa(i)] = t
	}
	stop := s.serve(l, func(ctx context.Context, client string) error {
		if t := tasks[client]; t != nil {
			return t.work(ctx)
		}
		return fmt.Errorf("there is no client %q", client)
	})
	defer stop()
	for client, t := range tasks {
		clients.Go(func() error { return t.request(ctx, "http://"+l.Addr().String()+"/?client="+client) })
	}
	if err := clients.Wait(); err != nil {
		return nil, err
	}
	var r result
	for _, t := range tasks {
		r.wasted += t.done - cfg.leave
		r.longest = max(r.longest, t.at.Sub(t.left))
		if t.err != nil {
			r.cancelled++
		}
	}
	return &r, nil
}
