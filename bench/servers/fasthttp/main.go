// Command fasthttp serves the resources of package site with fasthttp.
package main

import (
	"context"
	"io"
	"log"
	"time"

	"github.com/fasthttp/router"
	"github.com/fasthttp/websocket"
	"github.com/filohttp/filo/bench/internal/database"
	"github.com/filohttp/filo/bench/internal/site"
	"github.com/valyala/fasthttp"
)

func main() {
	flags := site.Parse()
	s := &fasthttp.Server{
		Handler: newHandler(flags), Name: site.Server, MaxRequestBodySize: site.MaxBody, StreamRequestBody: flags.Stream,
	}
	log.Fatal(s.Serve(flags.Listen()))
}

// newHandler returns a handler that finds fixed paths with a switch. A router finds all other paths.
func newHandler(flags *site.Flags) fasthttp.RequestHandler {
	compressed := fasthttp.CompressHandlerLevel(func(ctx *fasthttp.RequestCtx) { answerJSON(ctx, site.LargeJSON()) }, site.GzipLevel)
	places := make(chan struct{}, flags.Limit)
	pool, err := database.Open(context.Background(), flags.Database)
	if err != nil {
		log.Fatal(err)
	}
	routes := newRouter(flags).Handler
	return func(ctx *fasthttp.RequestCtx) {
		switch string(ctx.Path()) {
		case "/":
			greet(ctx)
		case "/json":
			answerJSON(ctx, site.SmallJSON())
		case "/json20k":
			compressed(ctx)
		case "/echo-length":
			answerLength(ctx, int64(len(ctx.PostBody())))
		case "/echo":
			ctx.SetContentType(site.TextType)
			ctx.SetBody(ctx.PostBody())
		case "/upload":
			upload(ctx)
		case "/sleep":
			sleep(ctx, flags.Wait)
		case "/limited":
			limited(ctx, places)
		case "/db":
			product(ctx, pool)
		default:
			routes(ctx)
		}
	}
}

func newRouter(flags *site.Flags) *router.Router {
	r := router.New()
	r.GET("/mixed/quick", greet)
	r.GET("/mixed/sleep", func(ctx *fasthttp.RequestCtx) { sleep(ctx, site.Wait) })
	r.ServeFilesCustom("/files/{filepath:*}", &fasthttp.FS{
		Root: flags.Files, PathRewrite: fasthttp.NewPathSlashesStripper(1), AcceptByteRange: true,
	})
	upgrader := &websocket.FastHTTPUpgrader{}
	r.GET("/websocket", func(ctx *fasthttp.RequestCtx) {
		// After an error, the upgrader has already sent an answer.
		upgrader.Upgrade(ctx, echo)
	})
	for route, names := range flags.GitHub(false) {
		r.Handle(route.Method, route.Path, func(ctx *fasthttp.RequestCtx) {
			for _, name := range names {
				if value, _ := ctx.UserValue(name).(string); value == "" {
					ctx.Error("a parameter is empty", 400)
					return
				}
			}
			greet(ctx)
		})
	}
	return r
}

func greet(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType(site.TextType)
	ctx.SetBodyString(site.Greeting)
}

func answerJSON(ctx *fasthttp.RequestCtx, body []byte) {
	ctx.SetContentType(site.JSONType)
	ctx.Response.SetBodyRaw(body)
}

func answerLength(ctx *fasthttp.RequestCtx, n int64) {
	ctx.SetContentType(site.TextType)
	ctx.Response.SetBodyRaw(fasthttp.AppendUint(nil, int(n)))
}

func upload(ctx *fasthttp.RequestCtx) {
	n, err := io.Copy(io.Discard, ctx.RequestBodyStream())
	if err != nil {
		ctx.Error(err.Error(), 400)
		return
	}
	answerLength(ctx, n)
}

func sleep(ctx *fasthttp.RequestCtx, wait time.Duration) {
	time.Sleep(wait)
	greet(ctx)
}

// limited sleeps. At most as many requests as the channel's capacity sleep at once.
func limited(ctx *fasthttp.RequestCtx, places chan struct{}) {
	select {
	case places <- struct{}{}:
		sleep(ctx, site.Wait)
		<-places
	default:
		ctx.Error("Service Unavailable", 503)
	}
}

func product(ctx *fasthttp.RequestCtx, pool *database.Pool) {
	body, err := pool.Product(ctx, string(ctx.QueryArgs().Peek("id")))
	if err != nil {
		ctx.Error(err.Error(), 500)
		return
	}
	answerJSON(ctx, body)
}

func echo(conn *websocket.Conn) {
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil || conn.WriteMessage(kind, message) != nil {
			return
		}
	}
}
