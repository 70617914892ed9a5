package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// resets ends connections by a reset, in any state.
func resets(c *client) error { return c.abandon((*link).reset) }

// leaves closes connections in any state.
func leaves(c *client) error { return c.abandon(func(l *link) { l.Close() }) }

// abandon sends a part of some requests, reads a part of the answers, and goes away.
func (c *client) abandon(end func(*link)) error {
	l, err := c.dial()
	if err != nil {
		return err
	}
	defer end(l)
	var b []byte
	switch c.random.IntN(5) {
	case 0:
		b = encode(c.upload(largeBody))
	case 1:
		b = encode(c.content(largeBody), c.stream(largeBody))
	case 2:
		b = encode(c.call("/context"), c.call("/sleep"))
	default:
		b = encode(c.some(4)...)
	}
	if c.random.IntN(3) > 0 {
		b = b[:c.random.IntN(len(b)+1)]
	}
	l.Write(b)
	if c.random.IntN(2) == 0 {
		c.sleep(8 * time.Millisecond)
	}
	if c.random.IntN(2) == 0 {
		l.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		io.CopyN(io.Discard, l, c.random.Int64N(largeBody/2))
	}
	l.count.done.Add(1)
	return nil
}

// watchedResets goes away from handlers that wait for just that.
func watchedResets(c *client) error {
	l, err := c.dial()
	if err != nil {
		return err
	}
	defer l.reset()
	l.Write(encode(c.call("/gone")))
	c.sleep(30 * time.Millisecond)
	l.count.done.Add(1)
	return nil
}

// malformed are requests that must be refused, whatever else is on the connection.
var malformed = [...]string{
	"GET /hello?number=1 HTTP/1.1\r\n\r\n",
	"GET /hello?number=1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	"GET /hello?number=1 HTTP/1.1\nHost: a\n\n",
	"GET  /hello?number=1 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /hello?number=1 HTTP/3.0\r\nHost: a\r\n\r\n",
	"GET /hello?number=1 HTTP/1.1\r\nHost: a\r\nField : b\r\n\r\n",
	"GET /hello?number=1 HTTP/1.1\r\nHost: a\r\nField: b\r\n c\r\n\r\n",
	"GET /hello?number=1 HTTP/1.1\r\nHost: a\r\nField: \x00\r\n\r\n",
	"GET /hello?number=1 HTTP/1.1\r\nHost: a\r\nField: " + strings.Repeat("a", 20<<10) + "\r\n\r\n",
	"GET /hello?number=1" + strings.Repeat("1", 9<<10) + " HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /upload?number=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST /upload?number=1 HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
	"POST /upload?number=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
	"POST /upload?number=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n",
	"POST /upload?number=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n",
	"POST /upload?number=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
}

// garbage sends what isn't HTTP. It gets an answer that says so or none, no other one, and the connection's end.
func garbage(c *client) error {
	l, err := c.dial()
	if err != nil {
		return err
	}
	defer l.Close()
	var before []*request
	if c.random.IntN(2) == 0 {
		before = c.some(3)
	}
	bad := c.garble()
	behind := c.call("/hello") // which mustn't be seen
	b := append(append(encode(before...), bad...), encode(behind)...)
	if err := l.exchangeAs(b, before...); err != nil {
		return err
	}
	if err := l.refusal(); err != nil {
		return fmt.Errorf("after %.100q: %w", bad, err)
	}
	l.count.done.Add(1)
	return nil
}

// garble returns a malformed request, or random bytes that can't be the beginning of a request.
func (c *client) garble() []byte {
	if c.random.IntN(2) == 0 {
		return []byte(malformed[c.random.IntN(len(malformed))])
	}
	b := make([]byte, 2+c.random.IntN(500))
	for i := range b {
		b[i] = byte(c.random.Uint32())
	}
	b[0] = 0x80 | b[0]
	return append(b, "\r\n\r\n"...)
}

// refusal reads to the connection's end, which has to come soon. All that may come before is an error.
func (l *link) refusal() error {
	b, err := io.ReadAll(l.reader)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return l.run.hang(fmt.Errorf("the connection isn't closed after %v; received: %.500q", l.run.patience, b))
	case err != nil && !errors.Is(err, syscall.ECONNRESET):
		return err
	case len(b) == 0:
		return nil
	case !bytes.HasPrefix(b, []byte("HTTP/1.1 4")) && !bytes.HasPrefix(b, []byte("HTTP/1.1 5")):
		return fmt.Errorf("the answer isn't an error: %.500q", b)
	case bytes.Count(b, []byte("\r\nDate: ")) > 1:
		return fmt.Errorf("something comes behind the error: %.500q", b)
	}
	return nil
}

// silence sends a part of a head, or nothing, and waits until the server has had enough of it.
func silence(c *client) error {
	l, err := c.dial()
	if err != nil {
		return err
	}
	defer l.Close()
	b := encode(c.call("/hello"))
	l.Write(b[:c.random.IntN(len(b))])
	if err := l.refusal(); err != nil {
		return err
	}
	l.count.done.Add(1)
	return nil
}
