package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/net/http2"

	"github.com/filohttp/filo/internal/filotest"
)

// newFrames returns a client that writes raw frames. Its first Send also sends the preface and these settings.
func (v *visit) newFrames(settings ...http2.Setting) *filotest.RawHTTP2 {
	return filotest.NewRawHTTP2(nil, v, settings...)
}

// addRequest adds the frames of a request, with DATA frames of a maximum size (most).
func addRequest(c *filotest.RawHTTP2, id uint32, q *request, most int) {
	c.Request(id, q.target, len(q.content) == 0, ":method", q.method)
	for rest := q.content; len(rest) > 0; {
		p := rest[:min(most, len(rest))]
		rest = rest[len(p):]
		c.Data(id, len(rest) == 0, p)
	}
}

// windows starts with streams whose windows are closed, and opens them bit by bit. The server must send exactly as much as each window
// allows: RawHTTP2 checks that it doesn't send more.
func windows(v *visit) error {
	c := v.newFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	open := make(map[uint32]*request)
	for i := range 1 + v.random.IntN(4) {
		q := v.content(v.random.IntN(200 << 10))
		if v.random.IntN(2) == 0 {
			q = v.stream(v.random.IntN(200 << 10))
		}
		id := uint32(2*i + 1)
		open[id] = q
		addRequest(c, id, q, 0)
	}
	c.Send()
	granted := 0 // bytes that stream windows have allowed, minus those by which the connection's window has grown
	for len(open) > 0 {
		ids := slices.Sorted(maps.Keys(open))
		id := ids[v.random.IntN(len(ids))]
		q, s := open[id], c.Streams[id]
		left := len(q.want) - len(s.Body)
		if left > 0 {
			left = min(left, 1024+v.random.IntN(48<<10))
			c.OpenStream(id, uint32(left)).Send()
			if granted += left; granted > 65535 {
				v.sleep(time.Millisecond)
				c.Open(0, 128<<10).Send()
				granted -= 128 << 10
			}
		}
		due := len(s.Body) + left
		for !s.Ended && (len(s.Body) < due || due == len(q.want)) {
			if err := v.take(c); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
			if s.Reset {
				return fmt.Errorf("%s: reset with %v", q, s.Code)
			}
		}
		if !s.Ended {
			continue
		}
		delete(open, id)
		if err := q.check(&answer{status: s.Status, values: s.Values, body: s.Body, trailers: len(s.Trailer)}); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
		v.count.done.Add(1)
	}
	return nil
}

// take reads and handles a frame. A server that shuts down may end the connection, after a GOAWAY.
func (v *visit) take(c *filotest.RawHTTP2) error {
	err := c.Take()
	switch {
	case err != nil && v.excused() && !errors.Is(err, os.ErrDeadlineExceeded):
		return errInterrupted
	case err != nil:
		return err
	case c.GoneAll && (!v.excused() || c.Code != http2.ErrCodeNo):
		return fmt.Errorf("GOAWAY with %v", c.Code)
	case c.GoneAll && c.LastID < slices.Max(slices.Collect(maps.Keys(c.Streams))):
		return errInterrupted
	}
	return nil
}

// someFrames returns the bytes of a client that opens its windows, sends bodies, and cancels some requests.
func (v *visit) someFrames() []byte {
	c := v.newFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}).Open(0, 1<<24)
	requests := v.some(6)
	switch v.random.IntN(4) {
	case 0:
		requests = append(requests, v.upload(40<<10))
	case 1:
		requests = append(requests, v.content(largeBody), v.stream(largeBody))
	case 2:
		requests = append(requests, v.call("/context"))
	}
	for i, q := range requests {
		id := uint32(2*i + 1)
		addRequest(c, id, q, 1+v.random.IntN(16<<10))
		switch v.random.IntN(6) {
		case 0:
			c.Add(func(f *http2.Framer) { f.WriteRSTStream(id, http2.ErrCodeCancel) })
		case 1:
			c.Add(func(f *http2.Framer) { f.WritePing(false, [8]byte{1}) })
		}
	}
	return c.Out.Bytes()
}

// cuts sends only the beginning of its frames, and ends the connection.
func cuts(v *visit) error {
	b := v.someFrames()
	v.Write(b[:v.random.IntN(len(b)+1)])
	v.sleep(8 * time.Millisecond)
	if v.random.IntN(2) == 0 {
		v.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		io.CopyN(io.Discard, v, v.random.Int64N(largeBody/2))
	}
	if v.random.IntN(2) == 0 {
		v.reset()
	}
	v.count.done.Add(1)
	return nil
}

// frameGarbage changes some bytes of its frames at random. Whatever the new bytes mean, the server must end the connection soon after the
// client has closed its writing half.
func frameGarbage(v *visit) error {
	b := v.someFrames()
	for range 1 + v.random.IntN(4) {
		b[v.random.IntN(len(b))] = byte(v.random.Uint32())
	}
	go func() {
		v.Write(b) // the server may end the connection before it has read everything
		v.CloseWrite()
	}()
	if _, err := io.Copy(io.Discard, v.reader); errors.Is(err, os.ErrDeadlineExceeded) {
		return hang(fmt.Errorf("the connection isn't closed after %v", v.run.patience))
	}
	v.count.done.Add(1)
	return nil
}
