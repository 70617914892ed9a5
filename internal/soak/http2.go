package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// overHTTP2 uses a connection by net/http's client, for several requests at once: use returns what does one after the other.
func overHTTP2(use func(*visit) func(*http.Transport) error) func(*visit) error {
	return func(v *visit) error {
		transport := v.transport()
		transport.Protocols.SetUnencryptedHTTP2(!v.kind.tls)
		transport.Protocols.SetHTTP2(v.kind.tls)
		defer transport.CloseIdleConnections()
		// One alone opens the connection. If it were given up meanwhile, so would be the connection.
		if err := v.do(context.Background(), transport, v.call("/hello")); err != nil {
			return err
		}
		var streams sync.WaitGroup
		errs := make([]error, 1+v.random.IntN(8))
		for i := range errs {
			one := use(v)
			streams.Go(func() { errs[i] = one(transport) })
		}
		streams.Wait()
		return errors.Join(errs...)
	}
}

// transport returns net/http's client for the connection. The caller sets its protocol.
func (v *visit) transport() *http.Transport {
	only := &onlyConn{TCPConn: v.TCPConn, ended: make(chan struct{})}
	return &http.Transport{
		Protocols: new(http.Protocols), DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext:     only.dial,
	}
}

// overTLS uses a connection of HTTP/1.1 by net/http's client.
func overTLS(v *visit) error {
	transport := v.transport()
	transport.Protocols.SetHTTP1(true)
	defer transport.CloseIdleConnections()
	return mixed(v)(transport)
}

// errEnded says that the connection of a client of HTTP/2 takes no further request.
var errEnded = errors.New("the connection takes no requests any more")

// onlyConn is a client's only connection. It remembers the last read with a result, which may say why the client uses it no longer.
type onlyConn struct {
	*net.TCPConn
	dialed atomic.Bool
	ended  chan struct{} // closed when a read has failed, or the client has closed the connection
	end    sync.Once
	mu     sync.Mutex
	last   string // guarded by mu
}

// dial returns the connection, and fails once that has ended. A client that dials again before is in a hurry: net/http hands a new
// connection out before requests beside find it. It takes the connection for those, too, while dial waits.
func (l *onlyConn) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if l.dialed.CompareAndSwap(false, true) {
		return l, nil
	}
	select {
	case <-l.ended:
		return nil, fmt.Errorf("%w after %s", errEnded, l)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *onlyConn) Read(p []byte) (int, error) {
	n, err := l.TCPConn.Read(p)
	l.mu.Lock()
	l.last = fmt.Sprintf("%x, %v", p[max(0, n-64):n], err)
	l.mu.Unlock()
	if err != nil {
		l.end.Do(func() { close(l.ended) })
	}
	return n, err
}

func (l *onlyConn) Close() error {
	l.end.Do(func() { close(l.ended) })
	return l.TCPConn.Close()
}

func (l *onlyConn) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return "reading " + l.last
}

// unanswered returns what it means that a request has got no answer.
func (v *visit) unanswered(q *request, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return hang(fmt.Errorf("%s: no answer after %v: %w", q, v.run.patience, err))
	case v.excused():
		return errInterrupted
	}
	return fmt.Errorf("%s: no answer: %w", q, err)
}

// do sends a request and checks its answer, unless the context ends before.
func (v *visit) do(ctx context.Context, transport *http.Transport, q *request) error {
	var body io.Reader
	switch {
	case q.unsized:
		body = io.MultiReader(bytes.NewReader(q.content)) // whose length can't be known
	case q.content != nil:
		body = bytes.NewReader(q.content)
	}
	scheme := "http"
	if v.kind.tls {
		scheme = "https"
	}
	r, err := http.NewRequestWithContext(ctx, q.method, scheme+"://soak.test"+q.target, body)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return v.unanswered(q, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%s: inside the answer: %w", q, err)
	}
	if err := q.check(&answer{status: response.StatusCode, values: response.Header.Values, body: content, trailers: len(response.Trailer)}); err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	v.count.done.Add(1)
	return nil
}

// mixed is requests of any kind, some of which are large.
func mixed(v *visit) func(*http.Transport) error {
	requests := v.some(12)
	switch v.random.IntN(12) {
	case 0:
		requests = append(requests, v.upload(largeBody))
	case 1:
		requests = append(requests, v.content(largeBody))
	case 2:
		requests = append(requests, v.stream(largeBody))
	case 3:
		requests = append(requests, v.call("/context"))
	}
	return func(transport *http.Transport) error {
		for _, q := range requests {
			if err := v.do(context.Background(), transport, q); err != nil {
				return err
			}
		}
		return nil
	}
}

// cancels gives up requests at any time, and then makes one that has to be answered.
func cancels(v *visit) func(*http.Transport) error {
	all := []*request{v.upload(largeBody), v.stream(largeBody), v.content(largeBody), v.call("/sleep"), v.call("/context"), v.any()}
	first, last := v.random.IntN(len(all)), v.call("/hello")
	after := time.Duration(v.random.Int64N(int64(8 * time.Millisecond)))
	return func(transport *http.Transport) error {
		ctx, cancel := context.WithTimeout(context.Background(), after)
		defer cancel()
		err := v.do(ctx, transport, all[first])
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return v.do(context.Background(), transport, last)
	}
}

// gone resets the stream of a handler that waits for just that.
func gone(v *visit) func(*http.Transport) error {
	q, last := v.call("/gone"), v.call("/hello")
	after := 10*time.Millisecond + time.Duration(v.random.Int64N(int64(20*time.Millisecond)))
	return func(transport *http.Transport) error {
		ctx, cancel := context.WithTimeout(context.Background(), after)
		defer cancel()
		if err := v.do(ctx, transport, q); !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return v.do(context.Background(), transport, last)
	}
}

// bothWays reads what it has sent before it sends more.
func bothWays(v *visit) func(*http.Transport) error {
	q := v.newRequest("POST", "/both-ways", "")
	q.want = v.run.pattern.Cut(q.number, v.random.IntN(200<<10))
	piece := 1 + v.random.IntN(40<<10)
	return func(transport *http.Transport) error {
		body, send := io.Pipe()
		defer send.Close()
		r, err := http.NewRequest(q.method, "http://soak.test"+q.target, body)
		if err != nil {
			return err
		}
		// The answer begins with the first piece, or with the end of the request.
		rest := q.want
		next := func() {
			p := rest[:min(piece, len(rest))]
			if rest = rest[len(p):]; len(p) == 0 {
				send.Close()
				return
			}
			send.Write(p)
		}
		go next()
		response, err := transport.RoundTrip(r)
		if err != nil {
			return v.unanswered(q, err)
		}
		defer response.Body.Close()
		var content []byte
		for len(content) < len(q.want) {
			p := make([]byte, min(piece, len(q.want)-len(content)))
			n, err := io.ReadFull(response.Body, p)
			content = append(content, p[:n]...)
			if err != nil {
				return fmt.Errorf("%s: inside the answer, at byte %d of %d: %w", q, len(content), len(q.want), err)
			}
			go next()
		}
		if _, err := response.Body.Read(make([]byte, 1)); err != io.EOF {
			return fmt.Errorf("%s: no end behind the answer: %v", q, err)
		}
		if err := q.check(&answer{status: response.StatusCode, values: response.Header.Values, body: content, trailers: len(response.Trailer)}); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
		v.count.done.Add(1)
		return nil
	}
}
