package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/soak/kit"
)

// overHTTP2 uses a connection through net/http's client, with several streams at once: the function use is called for each stream, and returns
// a function that makes one request after the other.
func overHTTP2(use func(*visit) func(*http.Transport) error) func(*visit) error {
	return func(v *visit) error {
		transport := v.transport()
		transport.Protocols.SetUnencryptedHTTP2(!v.kind.tls)
		transport.Protocols.SetHTTP2(v.kind.tls)
		defer transport.CloseIdleConnections()
		// The first request, which opens the connection, is made alone: if a request is cancelled while it opens the connection, net/http
		// gives up the connection, too.
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

// transport returns a net/http client that uses only the visit's connection. The caller sets its protocol.
func (v *visit) transport() *http.Transport {
	return &http.Transport{
		Protocols: new(http.Protocols), DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext:     kit.NewOnlyConn(v.TCPConn).Dial,
	}
}

// overTLS uses a TLS connection for HTTP/1.1, through net/http's client.
func overTLS(v *visit) error {
	transport := v.transport()
	transport.Protocols.SetHTTP1(true)
	defer transport.CloseIdleConnections()
	return mixed(v)(transport)
}

// unanswered returns the error for a request whose answer hasn't begun.
func (v *visit) unanswered(q *request, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return hang(fmt.Errorf("%s: no answer after %v: %w", q, v.run.patience, err))
	case v.excused():
		return errInterrupted
	}
	return fmt.Errorf("%s: no answer: %w", q, err)
}

// do sends a request and checks its answer. If ctx ends first, it returns the error of ctx.
func (v *visit) do(ctx context.Context, transport *http.Transport, q *request) error {
	var body io.Reader
	switch {
	case q.unsized:
		body = io.MultiReader(bytes.NewReader(q.content)) // a reader whose length net/http can't find out
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

// mixed sends requests of all kinds, some of which are large.
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

// cancels cancels a request at a random time, and then makes one that must be answered.
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

// gone resets the stream of a handler that waits for this reset.
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

// bothWays sends its body in pieces, and reads the echo of each piece before it sends the next one.
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
		// RoundTrip returns when the answer begins, so the first piece, or the end of the request, must be sent before.
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
