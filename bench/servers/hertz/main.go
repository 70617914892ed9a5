// Command hertz serves some of the resources of package site with hertz on netpoll, its default on Linux.
package main

import (
	"context"
	"net"
	"slices"
	"strconv"

	"github.com/cloudwego/hertz/pkg/app"
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

// listen returns a plain listener: netpoll takes it over, which isn't possible for a TLS listener.
func listen(flags *site.Flags) net.Listener {
	flags.Secure = false
	return flags.Listen()
}

func greet(_ context.Context, c *app.RequestContext) { c.Data(200, site.TextType, site.GreetingBytes) }

func length(_ context.Context, c *app.RequestContext) {
	c.Data(200, site.TextType, strconv.AppendInt(nil, int64(len(c.Request.Body())), 10))
}
