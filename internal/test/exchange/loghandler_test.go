package exchange

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// Code that has only a context logs with the attributes of its request, each of them once, even after the request has ended.
func TestLogHandler(t *testing.T) {
	var text bytes.Buffer
	logger := slog.New(filo.LogHandler(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})))
	type key struct{}
	var kept context.Context
	var task sync.WaitGroup
	task.Add(1)
	r := router.New()
	r.Use(middleware.RequestID(middleware.RequestIDOptions{Generate: func() string { return "id-1" }}), func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			// Other middleware may derive a context before all attributes have been added.
			c.SetContext(context.WithValue(c.Context(), key{}, 1))
			c.AddLogAttributes(func(_ *filo.Ctx, attributes []slog.Attr) []slog.Attr { return append(attributes, slog.Int("user", 7)) })
			return next(c)
		}
	})
	r.GET("/a/{id}", func(c *filo.Ctx) error {
		kept = c.Context()
		logger.InfoContext(kept, "plain", "x", 1)
		logger.With("y", 2).WithGroup("g").With("z", 3).InfoContext(kept, "group", "user", 1)
		logger.With("user", 1).InfoContext(kept, "own", "route", "mine")
		logger.Info("none")
		return c.Go(func(ctx context.Context) {
			defer task.Done()
			logger.InfoContext(ctx, "task")
		})
	})
	server := servertest.NewServer(t, &filo.Server{Handler: r.Serve, Logger: slog.New(filo.LogHandler(slog.DiscardHandler))})
	server.Raw(t, "GET /a/1 HTTP/1.1\r\nHost: a\r\n\r\n")
	task.Wait()
	logger.InfoContext(kept, "after")
	const all = ` route="GET /a/{id}" request_id=id-1 user=7`
	want := strings.Join([]string{
		"msg=plain x=1" + all,
		`msg=group y=2` + all + ` g.z=3 g.user=1`,
		`msg=own user=1 route=mine request_id=id-1`,
		"msg=none",
		"msg=task" + all,
		"msg=after" + all,
	}, "\n") + "\n"
	if got := text.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Ctx.Logger already adds the attributes, so LogHandler must not add them again.
func TestLogHandlerOfServer(t *testing.T) {
	var text bytes.Buffer
	r := router.New()
	r.GET("/", func(c *filo.Ctx) error {
		c.Logger().InfoContext(c.Context(), "logger")
		return c.NoContent()
	})
	var mu sync.Mutex
	server := servertest.NewServer(t, &filo.Server{Handler: r.Serve, Logger: slog.New(filo.LogHandler(slog.NewTextHandler(lockedWriter{&mu, &text}, nil)))})
	server.Raw(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	mu.Lock()
	defer mu.Unlock()
	_, line, _ := strings.Cut(text.String(), "msg=logger")
	if line, _, _ = strings.Cut(line, "\n"); strings.Count(line, "route=") != 1 {
		t.Errorf("got %s", line)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
