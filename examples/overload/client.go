package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// answer is the handler's response body.
const answer = "served\n"

// patience is how long a client waits for a whole answer.
const patience = 5 * time.Second

// pause is what one of the crowd waits before it comes back. A polite client waits for Retry-After; this
// crowd isn't polite.
const pause = 20 * time.Millisecond

// client sends one request at a time.
type client struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
}

// outcome is the result of one request: the status of a whole answer, or an error.
type outcome struct {
	status int
	took   time.Duration // from dialling, or from sending on a kept connection, to the answer's last byte
	err    error
}

// ask sends requests until ctx ends and enters what became of them in t. The last one is let finish.
func (c *client) ask(ctx context.Context, t *tally, keep bool) {
	for ctx.Err() == nil {
		got := c.get()
		t.add(got)
		if !keep || got.err != nil {
			c.close()
		}
		if !keep {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
}

func (c *client) get() outcome {
	started := time.Now()
	status, err := c.roundTrip()
	return outcome{status, time.Since(started), err}
}

func (c *client) roundTrip() (status int, err error) {
	if c.conn == nil {
		if c.conn, err = net.DialTimeout("tcp", c.addr, patience); err != nil {
			return 0, err
		}
		c.in = bufio.NewReader(c.conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: "+c.addr+"\r\n\r\n"); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		if string(body) != answer {
			return 0, fmt.Errorf("the answer is %q", body)
		}
	case http.StatusServiceUnavailable:
		// A refusal says when to come back, and that the connection is over.
		if resp.Header.Get("Retry-After") == "" || !resp.Close {
			return 0, errors.New("a 503 without Retry-After or Connection: close")
		}
		c.close()
	}
	return resp.StatusCode, nil
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}
