package main

import (
	"context"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/filohttp/filo/bench/internal/site"
)

// These are the ten middlewares of site.Stack.

func recovered(ctx context.Context, c *app.RequestContext) {
	defer func() {
		if recover() != nil {
			c.AbortWithStatus(500)
		}
	}()
	c.Next(ctx)
}

func requestID(ctx context.Context, c *app.RequestContext) {
	if id := c.Request.Header.Peek(site.RequestID); id != nil {
		c.Response.Header.SetBytesV(site.RequestID, id)
	} else {
		c.Response.Header.Set(site.RequestID, site.NoRequestID)
	}
	c.Next(ctx)
}

func counted(ctx context.Context, c *app.RequestContext) {
	site.Stack.Requests.Add(1)
	c.Next(ctx)
}

func timed(ctx context.Context, c *app.RequestContext) {
	begin := time.Now()
	c.Next(ctx)
	site.Stack.Nanoseconds.Add(int64(time.Since(begin)))
}

func field(nameValue [2]string) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		c.Response.Header.Set(nameValue[0], nameValue[1])
		c.Next(ctx)
	}
}

func authorized(ctx context.Context, c *app.RequestContext) {
	if given := c.Request.Header.Peek("Authorization"); len(given) > 0 && string(given) != site.Authorization {
		c.AbortWithStatus(401)
		return
	}
	c.Next(ctx)
}

func forwarded(ctx context.Context, c *app.RequestContext) {
	if site.TooMany(c.Request.Header.Peek("X-Forwarded-For")) {
		c.AbortWithStatus(400)
		return
	}
	c.Next(ctx)
}

func withUser(ctx context.Context, c *app.RequestContext) {
	c.Set(site.UserKey, site.User)
	c.Next(ctx)
}

func greetUser(ctx context.Context, c *app.RequestContext) {
	if c.GetString(site.UserKey) != site.User {
		c.AbortWithStatus(500)
		return
	}
	greet(ctx, c)
}
