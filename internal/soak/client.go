package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// client makes one visit of its kind after the other.
type client struct {
	run    *run
	kind   int // in kinds
	random *rand.Rand
}

// kind is a way to use a server.
type kind struct {
	name string
	// visit opens a connection, does what is to be done on it, and ends it. Its error is what the server has done wrong, or
	// errInterrupted.
	visit func(*client) error
}

var kinds = [...]kind{
	{"keep-alive", keepAlive},
	{"pipelined", pipelined},
	{"one-shot", oneShot},
	{"handlers", handlers},
	{"uploads", uploads},
	{"large-uploads", largeUploads},
	{"continued", continued},
	{"streams", streams},
	{"panics", panics},
	{"slow-heads", slowHeads},
	{"slow-readers", slowReaders},
	{"half-closes", halfCloses},
	{"resets", resets},
	{"leaves", leaves},
	{"watched-resets", watchedResets},
	{"hijacks", hijacks},
	{"garbage", garbage},
	{"silence", silence},
}

// work visits the server until ctx is over or something is wrong.
func (c *client) work(ctx context.Context) {
	for ctx.Err() == nil {
		err := kinds[c.kind].visit(c)
		switch {
		case err == nil:
		case errors.Is(err, errInterrupted):
			c.run.counts[c.kind].interrupted.Add(1)
			time.Sleep(5 * time.Millisecond) // while the server isn't there
		default:
			c.run.fail(fmt.Errorf("%s, server %d: %w", kinds[c.kind].name, c.run.lives.number(), err))
			return
		}
		c.sleep(c.run.pause)
	}
}

// sleep pauses for up to most.
func (c *client) sleep(most time.Duration) {
	time.Sleep(time.Duration(c.random.Int64N(int64(most) + 1)))
}

// visit opens a connection for use, and closes it.
func (c *client) visit(use func(*link) error) error {
	l, err := c.dial()
	if err != nil {
		return err
	}
	defer l.Close()
	if err := use(l); err != nil {
		return err
	}
	return l.finish()
}

// repeat makes up to most exchanges of one request each on a connection.
func (c *client) repeat(most int, next func() *request) error {
	return c.visit(func(l *link) error {
		for range 1 + c.random.IntN(most) {
			if err := l.exchange(next()); err != nil {
				return err
			}
		}
		return nil
	})
}

func keepAlive(c *client) error {
	return c.repeat(50, func() *request {
		if c.random.IntN(8) == 0 {
			c.sleep(10 * time.Millisecond) // so that the connection becomes idle
		}
		return c.call("/hello")
	})
}

func pipelined(c *client) error {
	return c.visit(func(l *link) error {
		for range 1 + c.random.IntN(4) {
			requests := c.some(24)
			b := encode(requests...)
			if len(b) > 0 && c.random.IntN(2) == 0 {
				// A part of the batch comes alone, and ends anywhere.
				cut := c.random.IntN(min(len(b), 16<<10))
				l.Write(b[:cut])
				c.sleep(time.Millisecond)
				b = b[cut:]
			}
			if err := l.exchangeAs(b, requests...); err != nil {
				return err
			}
		}
		return nil
	})
}

func oneShot(c *client) error {
	return c.visit(func(l *link) error {
		q := c.any()
		// HTTP/1.0 has no chunks.
		return l.exchange(q.closing(c.random.IntN(3) == 0 && q.method != "POST"))
	})
}

func handlers(c *client) error {
	paths := [...]string{"/sleep", "/processor", "/mostly", "/mostly", "/mostly", "/context"}
	return c.repeat(20, func() *request { return c.call(paths[c.random.IntN(len(paths))]) })
}

func uploads(c *client) error {
	return c.repeat(20, func() *request { return c.upload(c.random.IntN(100 << 10)) })
}

func largeUploads(c *client) error {
	return c.repeat(3, func() *request { return c.upload(largeBody) })
}

// continued sends a body when the server asks for it.
func continued(c *client) error {
	return c.visit(func(l *link) error {
		q := c.upload(1 + c.random.IntN(100<<10))
		q.fields += "Expect: 100-continue\r\n"
		l.Write(q.appendHead(nil))
		if _, err := l.reader.Peek(1); err != nil {
			return l.ended(q, err)
		}
		h, err := l.head()
		if err != nil || h.status != 100 {
			return fmt.Errorf("%s: status %d instead of 100: %v", q, h.status, err)
		}
		return l.exchangeAs(q.body, q)
	})
}

func streams(c *client) error {
	return c.repeat(10, func() *request { return c.stream(c.random.IntN(200 << 10)) })
}

// panics checks that the connection lives on, too.
func panics(c *client) error {
	return c.visit(func(l *link) error {
		return l.exchange(c.call("/hello"), c.fails("/panic", 500), c.call("/hello"))
	})
}

// slowHeads sends a head byte by byte.
func slowHeads(c *client) error {
	return c.visit(func(l *link) error {
		for range 1 + c.random.IntN(2) {
			q := c.call("/mostly")
			for _, b := range encode(q) {
				if _, err := l.Write([]byte{b}); err != nil {
					break // answer says whether that may be
				}
				c.sleep(2 * time.Millisecond)
			}
			if err := l.receive(q); err != nil {
				return err
			}
		}
		return nil
	})
}

// slowReaders read a large answer so slowly that the server has to wait with the rest.
func slowReaders(c *client) error {
	return c.visit(func(l *link) error {
		l.SetReadBuffer(16 << 10)
		l.slow = 2 * time.Millisecond
		q := c.content(largeBody)
		if c.random.IntN(2) == 0 {
			q = c.stream(largeBody)
		}
		return l.exchange(q)
	})
}

// halfCloses ends the client's side behind the last request, and gets its answers all the same.
func halfCloses(c *client) error {
	return c.visit(func(l *link) error {
		requests := c.some(6)
		l.Write(encode(requests...))
		c.sleep(time.Millisecond)
		l.CloseWrite()
		for _, q := range requests {
			if _, err := l.answer(q); err != nil {
				return err
			}
		}
		return l.end()
	})
}

// hijacks takes a connection over and sends lines both ways. From its first line on it has nothing to do with a
// shutdown.
func hijacks(c *client) error {
	l, err := c.dial()
	if err != nil {
		return err
	}
	defer l.Close()
	q := c.call("/hijack")
	early := fmt.Sprintf("early %d\n", q.number)
	l.Write(append(encode(q), early...))
	if _, err := l.reader.Peek(1); err != nil {
		return l.ended(q, err)
	}
	want := string(q.want)
	for i := range 2 + c.random.IntN(8) {
		line, err := l.reader.ReadString('\n')
		if err != nil || line != want {
			return fmt.Errorf("%s: line %q instead of %q: %v", q, line, want, err)
		}
		l.count.done.Add(1)
		if want = early; i > 0 {
			want = fmt.Sprintf("line %d of %d\n", i, q.number)
			fmt.Fprint(l, want)
		}
	}
	if c.random.IntN(3) == 0 {
		l.reset()
		return nil
	}
	fmt.Fprint(l, "quit\n")
	if line, err := l.reader.ReadString('\n'); err != nil || line != want {
		return fmt.Errorf("%s: line %q instead of %q: %v", q, line, want, err)
	}
	return l.end()
}
