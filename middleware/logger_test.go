package middleware_test

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// "Logger returns the server's logger with attributes that identify the request."
func TestLoggerSaysWhichRequest(t *testing.T) {
	var log bytes.Buffer
	tenant := func(c *filo.Ctx, attributes []slog.Attr) []slog.Attr {
		return append(attributes, slog.String("tenant", c.Param("tenant")))
	}
	r := router.New()
	r.Use(middleware.RequestID(middleware.RequestIDOptions{TrustIncoming: true}), func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			c.Logger().Info("outside")
			return next(c)
		}
	})
	r.GET("/of/{tenant}", func(c *filo.Ctx) error {
		if first := c.Logger(); c.Logger() != first {
			t.Error("each call makes another one")
		}
		c.AddLogAttributes(tenant)
		c.Logger().Info("inside", "more", 1)
		return c.NoContent()
	})
	s := servertest.NewServer(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		c.Logger().Info("first")
		return r.Serve(c)
	}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c := s.Dial(t)
	for _, request := range []string{"GET /of/acme", "GET /of/other"} {
		io.WriteString(c, request+" HTTP/1.1\r\nHost: a\r\nX-Request-ID: id-"+request[8:]+"\r\n\r\n")
		if _, err := io.ReadAtLeast(c, make([]byte, 1000), 20); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	var want strings.Builder
	for _, of := range []string{"acme", "other"} {
		want.WriteString("msg=first\n")
		want.WriteString(`msg=outside route="GET /of/{tenant}" request_id=id-` + of + "\n")
		want.WriteString(`msg=inside route="GET /of/{tenant}" request_id=id-` + of + " tenant=" + of + " more=1\n")
	}
	var got strings.Builder
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "msg=serving ") {
			continue
		}
		got.WriteString(line[strings.Index(line, "msg="):])
	}
	if got.String() != want.String() {
		t.Errorf("got\n%swant\n%s", got.String(), want.String())
	}
}
