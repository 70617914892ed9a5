package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/inside"
)

const (
	// panicValue is the value of the handler that panics.
	panicValue = "asked for by the soak"
	// goneTime is how soon a request's context must be over when its client has reset the connection.
	goneTime = 10 * time.Second
	// hijackTime is how long a hijacked connection lives at most.
	hijackTime = 30 * time.Second
)

// site has the handlers. Every answer has the request's number in its Number field.
type site struct {
	run     *run
	pattern pattern
	routes  map[string]*route
	entered bool // the routes have classes of their own
	running atomic.Int64
}

type route struct {
	class   class.Class
	handler func(c *filo.Ctx, number uint64) error
}

func newSite(r *run) *site {
	s := &site{run: r, pattern: newPattern(r.seed), entered: r.random.IntN(3) > 0}
	s.routes = map[string]*route{
		"/hello":     {handler: hello},
		"/mostly":    {handler: mostlyQuick},
		"/sleep":     {handler: sleep},
		"/processor": {handler: useProcessor},
		"/content":   {handler: s.content},
		"/stream":    {handler: s.stream},
		"/upload":    {handler: upload},
		"/context":   {handler: withContext},
		"/gone":      {handler: s.awaitGone},
		"/hijack":    {handler: hijack},
		"/panic":     {handler: func(*filo.Ctx, uint64) error { panic(panicValue) }},
	}
	for name, route := range s.routes {
		route.class.Name = name
	}
	return s
}

func (s *site) serve(c *filo.Ctx) error {
	s.running.Add(1)
	defer s.running.Add(-1)
	number, err := strconv.ParseUint(c.Request.Query().Get("number"), 10, 64)
	if err != nil {
		return filo.Error(400, "every request has a number")
	}
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
	return route.handler(c, number)
}

func (s *site) String() string { return fmt.Sprintf("%d handlers are running", s.running.Load()) }

// text is the body of most answers.
func text(path string, number uint64) string { return fmt.Sprintf("%s %d\n", path, number) }

func hello(c *filo.Ctx, number uint64) error { return c.Text(200, text("/hello", number)) }

// mostlyQuick looks like a quick handler, and now and then isn't: so loops are taken away from it.
func mostlyQuick(c *filo.Ctx, number uint64) error {
	switch number % 500 {
	case 1:
		time.Sleep(5 * time.Millisecond)
	case 2:
		spin(time.Millisecond)
	}
	return c.Text(200, text("/mostly", number))
}

func sleep(c *filo.Ctx, number uint64) error {
	time.Sleep(5 * time.Millisecond)
	return c.Text(200, text("/sleep", number))
}

func useProcessor(c *filo.Ctx, number uint64) error {
	spin(time.Millisecond)
	return c.Text(200, text("/processor", number))
}

func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
		sha256.Sum256(make([]byte, 256))
	}
}

// content answers with a part of the pattern: copied if it is small, as it is otherwise.
func (s *site) content(c *filo.Ctx, number uint64) error {
	size, err := size(c)
	if err != nil {
		return err
	}
	body := s.pattern.cut(number, size)
	if size < 64<<10 {
		return c.Bytes(200, "application/octet-stream", body)
	}
	return c.BytesNoCopy(200, "application/octet-stream", body)
}

func size(c *filo.Ctx) (int, error) {
	size, err := c.Request.Query().Int("size")
	if err != nil || size < 0 || size > largeBody {
		return 0, filo.Error(400, "invalid size")
	}
	return size, nil
}

// stream answers with a part of the pattern piece by piece, of a length that was announced if the request has "length".
func (s *site) stream(c *filo.Ctx, number uint64) error {
	size, err := size(c)
	if err != nil {
		return err
	}
	piece, err := c.Request.Query().Int("piece")
	if err != nil || piece < 1 {
		return filo.Error(400, "invalid piece")
	}
	if c.Request.Query().Has("length") {
		c.Response.Header.Set("Content-Length", strconv.Itoa(size))
	}
	w := c.Stream()
	for body, n := s.pattern.cut(number, size), 0; len(body) > 0; n++ {
		part := body[:min(piece, len(body))]
		body = body[len(part):]
		if _, err := w.Write(part); err != nil {
			return err
		}
		if n%4 == 3 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// upload answers with the length and the hash of the body, which it reads whole or as a stream.
func upload(c *filo.Ctx, number uint64) error {
	if c.Request.Query().Has("whole") {
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, receipt(number, len(body), sha256.Sum256(body)))
	}
	hash := sha256.New()
	n, err := io.Copy(hash, c.BodyReader())
	if err != nil {
		return err
	}
	return c.Text(200, receipt(number, int(n), [sha256.Size]byte(hash.Sum(nil))))
}

func receipt(number uint64, size int, hash [sha256.Size]byte) string {
	return fmt.Sprintf("%d %d %x\n", number, size, hash)
}

// withContext works for a client that it watches. One that stays must not look gone.
func withContext(c *filo.Ctx, number uint64) error {
	ctx := c.Context()
	select {
	case <-ctx.Done():
		return fmt.Errorf("the client of request %d is gone: %w", number, context.Cause(ctx))
	case <-time.After(2 * time.Millisecond):
	}
	return c.Text(200, text("/context", number))
}

// awaitGone waits for its client to reset the connection, as it surely does.
func (s *site) awaitGone(c *filo.Ctx, number uint64) error {
	ctx := c.Context()
	select {
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, filo.ErrClientGone) {
			s.run.fail(fmt.Errorf("request %d: the client has reset the connection, but the cause is: %w", number, cause))
		}
	case <-time.After(goneTime):
		s.run.fail(fmt.Errorf("request %d: the client has reset the connection, but after %v its context isn't over", number, goneTime))
	}
	return ctx.Err()
}

// hijack echoes lines, in the handler or after it, until one says quit or the client leaves.
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
	for line := text("/hijack", number); !strings.HasPrefix(line, "quit"); {
		if _, err := io.WriteString(netConn, line); err != nil {
			return
		}
		var err error
		if line, err = lines.ReadString('\n'); err != nil {
			return
		}
	}
}
