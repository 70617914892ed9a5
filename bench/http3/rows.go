package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/filohttp/filo/bench/internal/site"
	"github.com/filohttp/filo/bench/internal/turns"
)

const (
	loadConns = 10
	idleConns = 1000
	large     = 1e9 // bytes
)

// rows are all rows. Each of the ten connections has as many requests in flight as the row's name says.
var rows = []turns.Row{
	{Name: "get-1", Unit: "µs/request", Load: gets(1)},
	{Name: "get-10", Unit: "µs/request", Load: gets(10)},
	{Name: "get-100", Unit: "µs/request", Load: gets(100)},
	{Name: "down-cpu", Unit: "µs/MB", Load: down1GB},
	{Name: "down-speed", Unit: "MB/s", Load: down1GB, Speed: true},
	{Name: "up-cpu", Unit: "µs/MB", Load: up1GB},
	{Name: "up-speed", Unit: "MB/s", Load: up1GB, Speed: true},
	{Name: "idle-conns", Unit: "MB for 1,000", Wait: idle},
}

// client is an HTTP client with a separate connection.
type client struct {
	http.Client
	base string
}

// dial returns n clients, each of which has already received an answer.
func dial(ctx context.Context, address string, n int) (clients []*client, end func(), err error) {
	protocol, hostPort, _ := strings.Cut(address, " ")
	end = func() {
		for _, c := range clients {
			c.CloseIdleConnections()
			if t, ok := c.Transport.(io.Closer); ok {
				t.Close()
			}
		}
	}
	config := &tls.Config{InsecureSkipVerify: true}
	for range n {
		c := &client{base: "https://" + hostPort}
		if protocol == "h3" {
			c.Transport = &http3.Transport{TLSClientConfig: config, QUICConfig: &quic.Config{KeepAlivePeriod: 10 * time.Second}}
		} else {
			c.Transport = &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		}
		clients = append(clients, c)
		if err := c.get(ctx); err != nil {
			end()
			return nil, nil, err
		}
	}
	return clients, end, nil
}

// get requests the small answer, and checks it.
func (c *client) get(ctx context.Context) error {
	return c.ask(ctx, http.MethodGet, "/", nil, func(body io.Reader) error {
		text, err := io.ReadAll(body)
		if err == nil && string(text) != site.Greeting {
			err = fmt.Errorf("the answer is %q", text)
		}
		return err
	})
}

func (c *client) ask(ctx context.Context, method, path string, body io.Reader, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	response, err := c.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.ProtoMajor < 2 || response.StatusCode != 200 {
		return fmt.Errorf("%s by %s", response.Status, response.Proto)
	}
	return read(response.Body)
}

// check receives a large answer and sends a large body.
func check(ctx context.Context, address string) error {
	return errors.Join(receive(ctx, address, 1e6), send(ctx, address, 1e6))
}

// gets returns a function that loads a server with requests for the small answer.
func gets(streams int) func(context.Context, string, time.Duration) (float64, error) {
	return func(ctx context.Context, address string, d time.Duration) (float64, error) {
		clients, end, err := dial(ctx, address, loadConns)
		if err != nil {
			return 0, err
		}
		defer end()
		return turns.Repeat(loadConns*streams, d, func(i int, _ time.Time) (float64, error) {
			return 1, clients[i%loadConns].get(ctx)
		})
	}
}

// down1GB and up1GB transfer a gigabyte, or less for warming up. A unit of work is a megabyte.
func down1GB(ctx context.Context, address string, d time.Duration) (float64, error) {
	size := int64(large * d / turns.Measured)
	return float64(size) / 1e6, receive(ctx, address, size)
}

func up1GB(ctx context.Context, address string, d time.Duration) (float64, error) {
	size := int64(large * d / turns.Measured)
	return float64(size) / 1e6, send(ctx, address, size)
}

// receive requests an answer of size bytes.
func receive(ctx context.Context, address string, size int64) error {
	return one(ctx, address, func(c *client) error {
		return c.ask(ctx, http.MethodGet, downPath+strconv.FormatInt(size, 10), nil, func(body io.Reader) error {
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, make([]byte, 64<<10))
			if err == nil && n != size {
				err = fmt.Errorf("%d bytes instead of %d", n, size)
			}
			return err
		})
	})
}

// send sends a body of size bytes.
func send(ctx context.Context, address string, size int64) error {
	return one(ctx, address, func(c *client) error {
		return c.ask(ctx, http.MethodPost, upPath, &zeros{left: size}, func(body io.Reader) error {
			text, err := io.ReadAll(body)
			if want := strconv.AppendInt(nil, size, 10); err == nil && !bytes.Equal(text, want) {
				err = fmt.Errorf("the server read %q bytes instead of %s", text, want)
			}
			return err
		})
	})
}

// zeros is a body of zero bytes; left is how many of them are still to be read.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (n int, err error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n = int(min(int64(len(p)), z.left))
	z.left -= int64(n)
	return n, nil
}

// one calls f with a client.
func one(ctx context.Context, address string, f func(*client) error) error {
	clients, end, err := dial(ctx, address, 1)
	if err != nil {
		return err
	}
	defer end()
	return f(clients[0])
}

// idle opens connections that stay idle after one answer each.
func idle(ctx context.Context, address string) (end func(), err error) {
	_, end, err = dial(ctx, address, idleConns)
	return end, err
}
