package main

import (
	"context"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/filohttp/filo/bench/internal/site"
)

// stack has the ten middlewares of package site, and the handler.
func stack() []app.HandlerFunc {
	handlers := []app.HandlerFunc{recovered, timed}
	steps := site.Steps(
		func(c *app.RequestContext, name string) []byte { return c.Request.Header.Peek(name) },
		func(c *app.RequestContext, name string, value []byte) { c.Response.Header.SetBytesV(name, value) },
	)
	for _, step := range steps {
		handlers = append(handlers, func(_ context.Context, c *app.RequestContext) {
			if status := step(c); status != 0 {
				c.AbortWithStatus(status)
			}
		})
	}
	return append(handlers, func(_ context.Context, c *app.RequestContext) { c.Set(site.UserKey, site.User) }, greetUser)
}

func recovered(ctx context.Context, c *app.RequestContext) {
	defer func() {
		if recover() != nil {
			c.AbortWithStatus(500)
		}
	}()
	c.Next(ctx)
}

func timed(ctx context.Context, c *app.RequestContext) {
	begin := time.Now()
	c.Next(ctx)
	site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
}

func greetUser(ctx context.Context, c *app.RequestContext) {
	if c.GetString(site.UserKey) != site.User {
		c.AbortWithStatus(500)
		return
	}
	greet(ctx, c)
}
