package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/filohttp/filo/internal/conformance"
)

// client makes one visit after the other. Each visit uses a connection as the client's kind prescribes.
type client struct {
	run    *run
	kind   kind
	count  *count // shared by all clients of the kind
	random *rand.Rand
}

// kind is a way to use a server.
type kind struct {
	name string
	// use does a client's work on a connection. It returns errInterrupted, or an error that describes the server's mistake.
	use func(*visit) error
	// tls says that the connection goes to the TLS port, where use makes the handshake.
	tls bool
}

var kinds = []kind{
	{name: "keep-alive", use: repeat(50, helloSoon)},
	{name: "pipelined", use: pipelined},
	{name: "one-shot", use: repeat(1, lastRequest)},
	{name: "handlers", use: repeat(20, func(v *visit) *request {
		return v.call(v.pick("/sleep", "/processor", "/mostly", "/mostly", "/mostly", "/context"))
	})},
	{name: "uploads", use: repeat(20, func(v *visit) *request { return v.upload(v.random.IntN(100 << 10)) })},
	{name: "large-uploads", use: repeat(3, func(v *visit) *request { return v.upload(largeBody) })},
	{name: "continued", use: continued},
	{name: "pieces", use: pieces},
	{name: "streams", use: repeat(10, func(v *visit) *request { return v.stream(v.random.IntN(200 << 10)) })},
	{name: "panics", use: panics},
	{name: "slow-heads", use: slowHeads},
	{name: "slow-readers", use: slowReaders},
	{name: "half-closes", use: halfCloses},
	{name: "resets", use: resets},
	{name: "leaves", use: leaves},
	{name: "watched-resets", use: watchedResets},
	{name: "hijacks", use: hijacks},
	{name: "garbage", use: garbage},
	{name: "silence", use: silence},
	{name: "bursts", use: bursts},
	{name: "tls", use: overTLS, tls: true},
	{name: "h2c", use: overHTTP2(mixed)},
	{name: "h2-tls", use: overHTTP2(mixed), tls: true},
	{name: "h2-both-ways", use: overHTTP2(bothWays)},
	{name: "h2-cancels", use: overHTTP2(cancels)},
	{name: "h2-tls-cancels", use: overHTTP2(cancels), tls: true},
	{name: "h2-gone", use: overHTTP2(gone)},
	{name: "h2-windows", use: windows},
	{name: "h2-cuts", use: cuts},
	{name: "h2-garbage", use: frameGarbage},
}

// work makes visits until ctx is done or the server makes a mistake.
func (c *client) work(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.visit()
		switch {
		case err == nil:
		case errors.Is(err, errInterrupted):
			c.count.interrupted.Add(1)
			time.Sleep(5 * time.Millisecond) // no server may be running now
		default:
			c.run.fail(fmt.Errorf("%s, server %d: %w", c.kind.name, c.run.lives.number(), err))
			return
		}
		c.sleep(c.run.pause)
	}
}

// sleep pauses for a random time, from 0 up to the argument most.
func (c *client) sleep(most time.Duration) {
	time.Sleep(time.Duration(c.random.Int64N(int64(most) + 1)))
}

// repeat makes a random number of exchanges of one request each, up to the argument most.
func repeat(most int, next func(*visit) *request) func(*visit) error {
	return func(v *visit) error {
		for range 1 + v.random.IntN(most) {
			if err := v.exchange(next(v)); err != nil {
				return err
			}
		}
		return nil
	}
}

// helloSoon returns a request, sometimes after a pause in which the connection becomes idle.
func helloSoon(v *visit) *request {
	if v.random.IntN(8) == 0 {
		v.sleep(10 * time.Millisecond)
	}
	return v.call("/hello")
}

// lastRequest asks the server to close the connection after the answer, in one of two ways.
func lastRequest(v *visit) *request {
	q := v.any()
	q.last = true
	q.http10 = v.random.IntN(3) == 0 && q.method != "POST" // HTTP/1.0 has no chunks
	if !q.http10 {
		q.fields += "Connection: close\r\n"
	}
	return q
}

func pipelined(v *visit) error {
	for range 1 + v.random.IntN(4) {
		requests := v.some(24)
		b := encode(requests...)
		if v.random.IntN(2) == 0 {
			// Send a part of the batch separately. It may end anywhere, even within a head.
			cut := v.random.IntN(min(len(b), 16<<10))
			v.Write(b[:cut])
			v.sleep(time.Millisecond)
			b = b[cut:]
		}
		if err := v.exchangeAs(b, requests...); err != nil {
			return err
		}
	}
	return nil
}

// continued sends Expect: 100-continue, and sends the body after the 100.
func continued(v *visit) error {
	q := v.upload(1 + v.random.IntN(100<<10))
	q.fields += "Expect: 100-continue\r\n"
	v.Write(q.appendHead(nil))
	if err := v.begins(q); err != nil {
		return err
	}
	r, err := conformance.ReadResponse(v.reader, false)
	if err != nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	if r.Status != 100 {
		return fmt.Errorf("%s: status %d instead of 100", q, r.Status)
	}
	return v.exchangeAs(q.body, q)
}

// pieces sends each request in two or three parts. The pauses are so short that the next part often arrives just after the server has found
// no more bytes, but before it waits for them.
func pieces(v *visit) error {
	for range 1 + v.random.IntN(30) {
		q := v.upload(v.random.IntN(64 << 10))
		b := encode(q)
		for range 1 + v.random.IntN(2) {
			cut := v.random.IntN(len(b) + 1)
			v.Write(b[:cut])
			b = b[cut:]
			spin(time.Duration(v.random.IntN(200)) * time.Microsecond)
		}
		if err := v.exchangeAs(b, q); err != nil {
			return err
		}
	}
	return nil
}

// panics requests a panic, between two other requests that show that the connection stays open.
func panics(v *visit) error {
	return v.exchange(v.call("/hello"), v.fails("/panic", 500), v.call("/hello"))
}

// bursts sends several requests at once, each on a separate connection, and waits for all answers before the next burst. If the server may
// run only few handlers at once, most of the requests wait in its queue, and some of their clients disconnect. Nothing follows a burst, so no
// later request can wake one that the server has forgotten in its queue.
func bursts(v *visit) error {
	all := []*visit{v}
	for range 2 + v.random.IntN(6) {
		other, err := v.dial()
		if err != nil {
			return err
		}
		defer other.Close()
		all = append(all, other)
	}
	for range 1 + v.random.IntN(20) {
		var burst sync.WaitGroup
		errs := make([]error, len(all))
		for i, each := range all[:1+v.random.IntN(len(all))] {
			q := v.call(v.pick("/sleep", "/processor", "/context"))
			burst.Go(func() { errs[i] = each.exchange(q) })
		}
		if err := v.leaveQueue(v.random.IntN(4)); err != nil {
			return err
		}
		burst.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// leaveQueue sends n requests on other connections, and resets all of these connections at once. So the handler of one request may end, and
// wake the next one in the queue, while that one's client leaves.
func (v *visit) leaveQueue(n int) error {
	others := make([]*visit, n)
	for i := range others {
		other, err := v.dial()
		if err != nil {
			return err
		}
		defer other.reset()
		other.Write(encode(v.call("/context")))
		others[i] = other
	}
	v.sleep(12 * time.Millisecond)
	return nil
}

// slowHeads sends a head byte by byte. On a busy machine the pauses last longer, so it sends the rest at once after half of the server's
// ReadHeaderTimeout.
func slowHeads(v *visit) error {
	for range 1 + v.random.IntN(2) {
		q := v.call("/mostly")
		head, began := encode(q), time.Now()
		for i := range head {
			if time.Since(began) > headTime/2 {
				v.Write(head[i:])
				break
			}
			if _, err := v.Write(head[i : i+1]); err != nil {
				break // receive decides whether the connection may have ended
			}
			v.sleep(2 * time.Millisecond)
		}
		if err := v.receive(q); err != nil {
			return err
		}
	}
	return nil
}

// slowReaders reads a large answer so slowly that the server must wait before it can send the rest.
func slowReaders(v *visit) error {
	v.SetReadBuffer(16 << 10)
	v.slow = 2 * time.Millisecond
	if v.random.IntN(2) == 0 {
		return v.exchange(v.stream(largeBody))
	}
	return v.exchange(v.content(largeBody))
}

// halfCloses closes its writing half after the last request. The server must still send all answers.
func halfCloses(v *visit) error {
	requests := v.some(6)
	v.Write(encode(requests...))
	v.sleep(time.Millisecond)
	v.CloseWrite()
	for _, q := range requests {
		if _, err := v.answer(q); err != nil {
			return err
		}
	}
	return v.end()
}

// hijacks requests /hijack, whose handler hijacks the connection, and exchanges lines with it. Once the first line has arrived, a shutdown
// must not end the connection.
func hijacks(v *visit) error {
	q := v.call("/hijack")
	early := fmt.Sprintf("early %d\n", q.number)
	v.Write(append(encode(q), early...))
	if err := v.begins(q); err != nil {
		return err
	}
	want := string(q.want)
	for i := range 2 + v.random.IntN(8) {
		if err := v.line(q, want); err != nil {
			return err
		}
		if want = early; i > 0 {
			want = fmt.Sprintf("line %d of %d\n", i, q.number)
			io.WriteString(v, want)
		}
	}
	if v.random.IntN(3) == 0 {
		v.reset()
		return nil
	}
	io.WriteString(v, "quit\n")
	if err := v.line(q, want); err != nil {
		return err
	}
	return v.end()
}

// line reads a line from a hijacked connection, and compares it to want.
func (v *visit) line(q *request, want string) error {
	line, err := v.reader.ReadString('\n')
	if err != nil || line != want {
		return fmt.Errorf("%s: line %q instead of %q: %v", q, line, want, err)
	}
	v.count.done.Add(1)
	return nil
}
