package openloop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
)

// maxReference is how many bytes the body of a reference answer may have.
const maxReference = 1 << 30

// Answer is what a server said to one request.
type Answer struct {
	Status int
	Head   []byte // the status line and the fields, up to and with the empty line
	Body   []byte // without its transfer coding
}

// Reference sends a request once, over a connection of its own, and returns the answer, so that it can become what others
// are compared with. Of the options it uses Address, Host, TLS and Timeout.
func Reference(ctx context.Context, options Options, r Request) (*Answer, error) {
	options.Requests, options.WebSocket, options.Duration = []Request{r}, nil, 1
	o, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	ready, err := r.prepare(o.Host, false)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	conn, err := dial(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("openloop: reference answer: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(ready.raw)
		sent <- err
	}()
	answer, err := readAnswer(conn, ready.headOnly)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("openloop: reference answer: %w", errors.Join(err, <-sent, ctx.Err()))
	}
	return answer, nil
}

func dial(ctx context.Context, o *Options) (net.Conn, error) {
	if o.TLS != nil {
		return (&tls.Dialer{Config: o.TLS}).DialContext(ctx, "tcp", o.Address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", o.Address)
}

// readAnswer reads one answer.
func readAnswer(r io.Reader, headOnly bool) (*Answer, error) {
	p := parser{memo: &headMemo{}}
	p.begin(headOnly)
	a := &Answer{Body: []byte{}}
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Read(buffer)
		for data := buffer[:n]; len(data) > 0; {
			n, body, done, err := p.next(data)
			if err != nil {
				return nil, err
			}
			if a.Body = append(a.Body, body...); len(a.Body) > maxReference {
				return nil, fmt.Errorf("the body has more than %d bytes", maxReference)
			}
			if data = data[n:]; done {
				a.Status, a.Head = p.head.status, p.memo.bytes
				return a, nil
			}
		}
		if err == io.EOF && p.eof() {
			a.Status, a.Head = p.head.status, p.memo.bytes
			return a, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
