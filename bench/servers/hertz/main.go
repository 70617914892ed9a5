// Command hertz serves some of the resources of package site by hertz, over netpoll as is its default on Linux.
package main

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/middlewares/server/recovery"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/filohttp/filo/bench/internal/site"
)

func main() {
	flags := site.Parse()
	hlog.SetLevel(hlog.LevelError)
	h := server.New(server.WithListener(listen(flags)), server.WithMaxRequestBodySize(site.MaxBody), server.WithDisablePrintRoute(true))
	h.Name = site.Server
	h.GET("/", greet)
	h.GET("/json", func(_ context.Context, c *app.RequestContext) { c.Data(200, site.JSONType, site.SmallJSON()) })
	h.POST("/echo-length", length)
	h.GET("/middleware", stack()...)
	for route, names := range flags.GitHub(true) {
		h.Handle(route.Method, route.Path, func(ctx context.Context, c *app.RequestContext) {
			if slices.ContainsFunc(names, func(name string) bool { return c.Param(name) == "" }) {
				c.AbortWithStatus(400)
				return
			}
			greet(ctx, c)
		})
	}
	h.Spin()
}

// listen returns a plain listener: netpoll takes it over, which it can't with one of TLS.
func listen(flags *site.Flags) net.Listener {
	flags.Secure = false
	return flags.Listen()
}

func greet(_ context.Context, c *app.RequestContext) { c.Data(200, site.TextType, site.GreetingBytes) }

func length(_ context.Context, c *app.RequestContext) {
	c.Data(200, site.TextType, strconv.AppendInt(nil, int64(len(c.Request.Body())), 10))
}

// stack has the ten middlewares of package site, and the handler.
func stack() []app.HandlerFunc {
	handlers := []app.HandlerFunc{recovery.Recovery(), timed}
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

func timed(ctx context.Context, c *app.RequestContext) {
	defer site.Timed(time.Now())
	c.Next(ctx)
}

func greetUser(ctx context.Context, c *app.RequestContext) {
	if c.GetString(site.UserKey) != site.User {
		c.AbortWithStatus(500)
		return
	}
	greet(ctx, c)
}
