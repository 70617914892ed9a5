package exchange

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/inside"
)

type userKey struct{}

// A request's values, parameters, route and context aren't visible to the next request.
func TestValuesEndWithTheirRequest(t *testing.T) {
	number := filo.NewKey[int]("number")
	same := filo.NewKey[int]("number")
	if name := fmt.Sprint(number); name != "number" {
		t.Errorf("the key is called %q", name)
	}
	s := filotest.Serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		before := fmt.Sprint(c.Get(userKey{}), c.Route(), c.Param("id"), inside.Match(c).Len(), c.Context().Value(userKey{}))
		if _, ok := number.Get(c); ok || before != "<nil>0 <nil>" {
			t.Errorf("a new request has %q, and a number: %v", before, ok)
		}
		c.Set(userKey{}, "gopher")
		c.Set(userKey{}, "owl")
		number.Set(c, 7)
		inside.Match(c).Route = "GET /{id}"
		inside.Match(c).Append([]byte("x"))
		inside.Match(c).Append([]byte("41"))
		inside.Match(c).Truncate(1)
		inside.Match(c).Append([]byte("42"))
		inside.Match(c).SetNames([]string{"kind", "id"})
		c.SetContext(context.WithValue(c.Context(), userKey{}, "hawk"))
		n, ok := number.Get(c)
		if _, other := same.Get(c); other || !ok {
			t.Error("keys of the same name are the same")
		}
		name, value := inside.Match(c).At(0)
		done := make(chan any, 1)
		if err := c.Go(func(ctx context.Context) { done <- ctx.Value(userKey{}) }); err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(c.Get(userKey{}), n, c.Route(), " ", c.Param("id"), string(c.ParamBytes("kind")), c.Param("none"),
			name, string(value), c.Context().Value(userKey{}), <-done))
	}})
	client := s.Dial(t)
	for range 3 {
		client.Get("/")
		client.Want(200, "owl7GET /{id} 42xkindxhawkhawk", false)
	}
}

// "Logger returns the server's logger with attributes that identify the request … built on the first call, and again when attributes were
// added."
func TestLogger(t *testing.T) {
	var log filotest.Log
	attribute := func(name string) func(*filo.Ctx, []slog.Attr) []slog.Attr {
		return func(c *filo.Ctx, attributes []slog.Attr) []slog.Attr {
			return append(attributes, slog.String(name, c.Path()))
		}
	}
	s := filotest.Serve(t, &filo.Server{Logger: log.Logger(), Handler: func(c *filo.Ctx) error {
		c.Logger().Info("plain")
		c.AddLogAttributes(attribute("first"))
		c.Logger().Info("one")
		c.AddLogAttributes(attribute("second"))
		inside.Match(c).Route = "GET /{id}"
		c.Logger().Info("two")
		if first := c.Logger(); c.Logger() != first {
			t.Error("each call makes another logger")
		}
		defer func() {
			if value := recover(); value != "filo: AddLogAttributes with a nil function" {
				t.Errorf("AddLogAttributes(nil) panics with %v", value)
			}
		}()
		c.AddLogAttributes(nil)
		return nil
	}})
	c := s.Dial(t)
	for _, path := range []string{"/a", "/b"} { // the second request must not have the attributes of the first
		c.Get(path)
		c.Want(200, "", false)
	}
	for message, want := range map[string]string{
		"plain": "", "one": " first=PATH", "two": ` route="GET /{id}" first=PATH second=PATH`,
	} {
		lines := log.Lines("msg=" + message)
		for i, path := range []string{"/a", "/b"} {
			if end := "msg=" + message + strings.ReplaceAll(want, "PATH", path) + "\n"; len(lines) != 2 || !strings.HasSuffix(lines[i], end) {
				t.Errorf("logged %q, want %q at the end of line %d", lines, end, i)
			}
		}
	}
}

// The router renders a handler's error before middleware gets control again, so status, fields and body are final when next returns. It also
// returns the error. The server renders an error only if nobody has rendered it before.
func TestRenderError(t *testing.T) {
	wrong := errors.New("no such record")
	for name, test := range map[string]struct {
		handler  filo.Handler
		seen     string // by the middleware: status, size, whether it was rendered and committed
		status   int
		body     string
		rendered int
	}{
		"an error": {func(c *filo.Ctx) error { return c.RenderError(filo.Error(404, "nothing here")) },
			"404 12 true false", 404, "nothing here", 1},
		"none": {func(c *filo.Ctx) error { return errors.Join(c.RenderError(nil), c.Text(201, "made")) },
			"201 4 false false", 201, "made", 0},
		"twice": {func(c *filo.Ctx) error { c.RenderError(wrong); return c.RenderError(filo.Error(404, "nothing here")) },
			"500 14 true false", 500, "no such record", 1},
		"left to the server": {func(c *filo.Ctx) error { return wrong },
			"200 0 false false", 500, "no such record", 1},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, seen := 0, ""
			s := &filo.Server{
				Handler: func(c *filo.Ctx) error {
					err := test.handler(c)
					seen = fmt.Sprint(c.Status(), c.BytesWritten(), c.ErrorRendered(), c.Committed())
					return err
				},
				ErrorHandler: func(c *filo.Ctx, err error) {
					rendered++
					var httpError *filo.HTTPError
					if errors.As(err, &httpError) {
						c.Text(httpError.Status, httpError.Detail)
					} else {
						c.Text(500, err.Error())
					}
				},
			}
			client := filotest.Serve(t, s).Dial(t)
			client.Get("/")
			client.Want(test.status, test.body, false)
			if rendered != test.rendered || seen != test.seen {
				t.Errorf("rendered %d times, want %d; the middleware saw %q, want %q", rendered, test.rendered, seen, test.seen)
			}
		})
	}
}

// ErrAbort can't be rendered, and neither can an error that occurs after the head has been sent. The server logs the latter once, however
// many middlewares have tried to render it.
func TestRenderErrorTooLate(t *testing.T) {
	log := &answerLog{}
	s := filotest.Serve(t, &filo.Server{Logger: log.logger(), Handler: func(c *filo.Ctx) error {
		if c.Path() == "/abort" {
			return c.RenderError(filo.ErrAbort)
		}
		w := c.Stream()
		w.Write([]byte("begun"))
		w.Flush()
		err := c.RenderError(c.RenderError(filo.Error(500, "the rest isn't there")))
		if c.ErrorRendered() || !c.Committed() || c.BytesWritten() != 5 {
			t.Errorf("rendered %v, committed %v, %d bytes", c.ErrorRendered(), c.Committed(), c.BytesWritten())
		}
		return err
	}})
	for _, path := range []string{"/abort", "/stream"} {
		client := s.Dial(t)
		client.Get(path)
		if _, _, err := client.TryAnswer(); err == nil {
			t.Errorf("%s is answered as if all was well", path)
		}
	}
	if got := log.all(); len(got) != 1 || !strings.Contains(got[0], "the rest isn't there") {
		t.Errorf("logged %q, want one record", got)
	}
}
