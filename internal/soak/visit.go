package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/conformance"
)

// errInterrupted says that a shutdown has ended a client's connection between two answers, which is allowed.
var errInterrupted = errors.New("interrupted by a shutdown")

// visit is a client's use of one connection.
type visit struct {
	*client
	*net.TCPConn
	reader *bufio.Reader
	phase  int64         // lives.phase when the connection was opened
	slow   time.Duration // the pause before each read
}

// visit opens a connection, uses it and closes it.
func (c *client) visit() error {
	v, err := c.dial()
	if err != nil {
		return err
	}
	defer v.Close()
	if err := c.kind.use(v); err != nil {
		return err
	}
	if b, _ := v.reader.Peek(v.reader.Buffered()); len(b) > 0 {
		return fmt.Errorf("bytes that nobody has asked for: %q", b)
	}
	return nil
}

func (c *client) dial() (*visit, error) {
	v := &visit{client: c, phase: c.run.lives.phase.Load()}
	address := c.run.lives.address
	if c.kind.tls {
		address = c.run.lives.tlsAddress
	}
	netConn, err := net.DialTimeout("tcp", address, c.run.patience)
	if err != nil {
		if v.excused() || errors.Is(err, syscall.EADDRNOTAVAIL) { // the system has no free port at the moment
			return nil, errInterrupted
		}
		return nil, err
	}
	v.TCPConn = netConn.(*net.TCPConn)
	v.reader = bufio.NewReader(v)
	return v, v.SetDeadline(time.Now().Add(c.run.patience))
}

// Read reads at most 8 KB at a time. If slow is set, it pauses first.
func (v *visit) Read(p []byte) (int, error) {
	time.Sleep(v.slow)
	return v.TCPConn.Read(p[:min(len(p), 8<<10)])
}

// excused reports whether the connection may end without an answer, because its server is shutting down or has been shut down.
func (v *visit) excused() bool {
	return v.phase%2 == 0 || v.phase != v.run.lives.phase.Load()
}

// reset ends the connection with a TCP reset.
func (v *visit) reset() {
	v.SetLinger(0)
	v.Close()
}

// exchange sends requests together and checks their answers.
func (v *visit) exchange(requests ...*request) error {
	return v.exchangeAs(encode(requests...), requests...)
}

// exchangeAs is like exchange, for requests that are already encoded as b. It writes b while it reads answers, because the server stops
// reading requests if nobody reads its answers.
func (v *visit) exchangeAs(b []byte, requests ...*request) error {
	sent := make(chan error, 1)
	go func() {
		_, err := v.Write(b)
		sent <- err
	}()
	err := v.receive(requests...)
	if err != nil {
		v.SetWriteDeadline(time.Unix(1, 0))
	}
	if sendErr := <-sent; err != nil && sendErr != nil {
		return fmt.Errorf("%w (sending: %w)", err, sendErr)
	}
	return err
}

// receive reads the answers to requests, and checks them.
func (v *visit) receive(requests ...*request) error {
	for i, q := range requests {
		closes, err := v.answer(q)
		if err != nil {
			return err
		}
		if !closes {
			continue
		}
		if !q.last && !v.excused() {
			return fmt.Errorf("%s: the answer closes the connection for no reason", q)
		}
		if err := v.end(); err != nil {
			return err
		}
		if i < len(requests)-1 {
			return errInterrupted
		}
	}
	return nil
}

// answer reads the answer to a request, and checks it. The result closes says that no other answer follows.
func (v *visit) answer(q *request) (closes bool, err error) {
	if err := v.begins(q); err != nil {
		return false, err
	}
	r, err := conformance.ReadResponse(v.reader, q.method == "HEAD")
	if err == nil {
		err = q.check(&answer{r.Status, r.Values, r.Body, len(r.Trailer), r.Closes()})
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", q, err)
	}
	v.count.done.Add(1)
	return r.Closes(), nil
}

// begins waits for the first byte of an answer.
func (v *visit) begins(q *request) error {
	_, err := v.reader.Peek(1)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return hang(fmt.Errorf("%s: no answer after %v", q, v.run.patience))
	case v.excused():
		return errInterrupted
	}
	return fmt.Errorf("%s: the connection has ended without an answer: %w", q, err)
}

// end checks that the server ends the connection without sending anything more.
func (v *visit) end() error {
	b, err := v.reader.ReadByte()
	switch {
	case err == nil:
		return fmt.Errorf("%q behind the last answer", b)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return hang(errors.New("the connection isn't closed behind the last answer"))
	}
	return nil
}
