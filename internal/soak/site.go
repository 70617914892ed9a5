package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/soak/kit"
)

const (
	// panicValue is the value with which the handler of /panic panics.
	panicValue = "asked for by the soak"
	// hijackTime is how long a hijacked connection may last.
	hijackTime = 30 * time.Second
)

// site has the handlers. Every answer has the request's number in its Number field.
type site struct {
	run     *run
	pattern kit.Pattern
	routes  map[string]*route
	entered bool // requests enter the class of their route
	running atomic.Int64
}

type route struct {
	class  class.Class
	handle handler
}

// handler handles the request with this number.
type handler func(c *filo.Ctx, number uint64) error

func newSite(r *run) *site {
	s := &site{run: r, pattern: kit.NewPattern(r.seed), entered: r.random.IntN(3) > 0, routes: make(map[string]*route)}
	for path, handle := range map[string]handler{
		"/hello":     says(func(uint64) {}),
		"/mostly":    says(mostlyQuick),
		"/sleep":     says(func(uint64) { time.Sleep(5 * time.Millisecond) }),
		"/processor": says(func(uint64) { spin(time.Millisecond) }),
		"/content":   s.content,
		"/stream":    s.stream,
		"/upload":    upload,
		"/both-ways": bothWaysHandler,
		"/echo":      upload, // requested by the conformance table's cases
		"/context":   withContext,
		"/gone":      s.awaitGone,
		"/hijack":    hijack,
		"/panic":     func(*filo.Ctx, uint64) error { panic(panicValue) },
	} {
		s.routes[path] = &route{class.Class{Name: path}, handle}
	}
	return s
}

// serve answers a request. Requests of the conformance table have no number, so serve uses 0.
func (s *site) serve(c *filo.Ctx) error {
	s.running.Add(1)
	defer s.running.Add(-1)
	number, _ := strconv.ParseUint(c.Request.Query().Get("number"), 10, 64)
	c.Response.Header.Set("Number", strconv.FormatUint(number, 10))
	route := s.routes[c.Path()]
	if route == nil {
		return filo.Error(404, "no such page")
	}
	if s.entered {
		if err := inside.Enter(c, &route.class); err != nil {
			return err
		}
	}
	return route.handle(c, number)
}

// text is the body of most answers.
func text(path string, number uint64) string { return fmt.Sprintf("%s %d\n", path, number) }

// says returns a handler that does some work, and answers with the text for its path and number.
func says(work func(number uint64)) handler {
	return func(c *filo.Ctx, number uint64) error {
		work(number)
		return c.Text(200, text(c.Path(), number))
	}
}

// mostlyQuick usually returns at once. Sometimes it takes longer, so that another goroutine must take over the loop that called the handler.
func mostlyQuick(number uint64) {
	switch number % 500 {
	case 1:
		time.Sleep(5 * time.Millisecond)
	case 2:
		spin(time.Millisecond)
	}
}

func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
		sha256.Sum256(make([]byte, 256))
	}
}

// content answers with a part of the pattern. It copies a small part, and passes a large part without a copy.
func (s *site) content(c *filo.Ctx, number uint64) error {
	size, err := c.Request.Query().Int("size")
	if err != nil {
		return err
	}
	if size < 0 || size > largeBody { // a client may have garbled the request
		return filo.Error(400, "the size")
	}
	body := s.pattern.Cut(number, size)
	if size < 64<<10 {
		return c.Bytes(200, "application/octet-stream", body)
	}
	return c.BytesNoCopy(200, "application/octet-stream", body)
}

// stream answers with a part of the pattern, written in pieces. If the query has "length", it sets Content-Length.
func (s *site) stream(c *filo.Ctx, number uint64) error {
	query := c.Request.Query()
	size, sizeErr := query.Int("size")
	piece, pieceErr := query.Int("piece")
	if err := cmp.Or(sizeErr, pieceErr); err != nil {
		return err
	}
	if size < 0 || size > largeBody || piece < 1 {
		return filo.Error(400, "the size")
	}
	if query.Has("length") {
		c.Response.Header.Set("Content-Length", strconv.Itoa(size))
	}
	w := c.Stream()
	n := 0
	for part := range slices.Chunk(s.pattern.Cut(number, size), piece) {
		if _, err := w.Write(part); err != nil {
			return err
		}
		if n++; n%4 == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// bothWaysHandler echoes each part of the request's body as soon as it arrives.
func bothWaysHandler(c *filo.Ctx, _ uint64) error {
	w, body, buffer := c.Stream(), c.BodyReader(), make([]byte, 16<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// upload answers with the length and the hash of the body. It reads the body with Body or BodyReader, as the query says.
func upload(c *filo.Ctx, number uint64) error {
	read := c.Body
	if !c.Request.Query().Has("whole") {
		read = func() ([]byte, error) { return io.ReadAll(c.BodyReader()) }
	}
	body, err := read()
	if err != nil {
		return err
	}
	return c.Text(200, receipt(number, body))
}

func receipt(number uint64, body []byte) string {
	return fmt.Sprintf("%d %d %x\n", number, len(body), sha256.Sum256(body))
}

// withContext uses the request's context for a moment. The context must not end while the client stays connected.
func withContext(c *filo.Ctx, number uint64) error {
	ctx := c.Context()
	select {
	case <-ctx.Done():
		return fmt.Errorf("the client of request %d is gone: %w", number, context.Cause(ctx))
	case <-time.After(2 * time.Millisecond):
	}
	return c.Text(200, text("/context", number))
}

// awaitGone waits until its client resets the connection, or the stream. The context must end soon after.
func (s *site) awaitGone(c *filo.Ctx, number uint64) error {
	ctx, soon := c.Context(), s.run.patience/3
	select {
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, filo.ErrClientGone) {
			s.run.fail(fmt.Errorf("request %d: the client has reset the connection, but the cause is: %w", number, cause))
		}
	case <-time.After(soon):
		s.run.fail(fmt.Errorf("request %d: the client has reset the connection, but after %v its context isn't over", number, soon))
	}
	return ctx.Err()
}

// hijack echoes lines until a line says quit or the client disconnects. Half of the calls do so in the handler, the other half in a goroutine
// that outlives it.
func hijack(c *filo.Ctx, number uint64) error {
	netConn, buffered, err := c.Hijack()
	if err != nil {
		return err
	}
	netConn.SetDeadline(time.Now().Add(hijackTime))
	if number%2 == 0 {
		go echo(netConn, buffered, number)
	} else {
		echo(netConn, buffered, number)
	}
	return nil
}

func echo(netConn net.Conn, buffered []byte, number uint64) {
	defer netConn.Close()
	lines := bufio.NewReader(io.MultiReader(bytes.NewReader(buffered), netConn))
	line, err := text("/hijack", number), error(nil)
	for err == nil && line != "quit\n" {
		if _, err = io.WriteString(netConn, line); err == nil {
			line, err = lines.ReadString('\n')
		}
	}
}
