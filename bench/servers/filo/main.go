// Command filo serves the resources of package site with filo, with the loop driver or, with -blocking, the blocking one.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"strconv"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bench/internal/database"
	"github.com/filohttp/filo/bench/internal/site"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/static"
)

func main() {
	blocking := flag.Bool("blocking", false, "use the blocking driver")
	leaders := flag.Int("leaders", 0, "number of leaders, GOMAXPROCS if 0")
	flags := site.Parse()
	s := &filo.Server{Name: site.Server, MaxBodyBytes: site.MaxBody, Leaders: *leaders}
	s.HTTP2.Unencrypted = flags.HTTP2
	s.Handler = newHandler(flags, *blocking)
	if *blocking {
		s.Driver = filo.DriverBlocking
	} else {
		s.Concurrency = flags.Limit
	}
	listener, err := s.Listen(flags.Addr)
	if err != nil {
		log.Fatal(err)
	}
	flags.Announce(listener.Addr())
	if s.TLSConfig = flags.TLS(); s.TLSConfig != nil {
		log.Fatal(s.ServeTLS(listener, "", ""))
	}
	log.Fatal(s.Serve(listener))
}

// newHandler returns a handler that finds fixed paths with a switch. A router finds all other paths.
func newHandler(flags *site.Flags, blocking bool) filo.Handler {
	compress := middleware.Compress(middleware.CompressOptions{Encodings: []string{"gzip"}, GzipLevel: site.GzipLevel})
	compressed := compress(func(c *filo.Ctx) error { return c.BytesNoCopy(200, site.JSONType, site.LargeJSON()) })
	slow, limited := sleep(flags.Wait), sleep(site.Wait)
	if blocking && flags.Limit > 0 {
		// In the blocking driver Server.Concurrency bounds connections, so the limit is a middleware there.
		limited = middleware.ConcurrencyLimit(middleware.ConcurrencyLimitOptions{Limit: flags.Limit})(limited)
	}
	pool, err := database.Open(context.Background(), flags.Database)
	if err != nil {
		log.Fatal(err)
	}
	routes := newRouter(flags)
	return func(c *filo.Ctx) error {
		switch string(c.PathBytes()) {
		case "/":
			return greet(c)
		case "/json":
			return c.BytesNoCopy(200, site.JSONType, site.SmallJSON())
		case "/json20k":
			return compressed(c)
		case "/echo-length":
			return length(c)
		case "/echo":
			return echo(c)
		case "/upload":
			return upload(c)
		case "/sleep":
			return slow(c)
		case "/limited":
			return limited(c)
		case "/db":
			return product(c, pool)
		}
		return routes.Serve(c)
	}
}

func newRouter(flags *site.Flags) *router.Router {
	r := router.New()
	r.GET("/mixed/quick", greet)
	r.GET("/mixed/sleep", sleep(site.Wait))
	files, err := static.Dir(flags.Files)
	if err != nil {
		log.Fatal(err)
	}
	r.GET("/files/{path...}", files.Serve)
	r.GET("/websocket", websocket.New(websocket.Options{
		OnMessage: func(conn *websocket.Conn, kind websocket.MessageType, message []byte) error {
			return conn.Write(kind, message)
		},
	}).Serve)
	for route, names := range flags.GitHub(false) {
		r.Handle(route.Method+" "+route.Path, func(c *filo.Ctx) error {
			for _, name := range names {
				if len(c.ParamBytes(name)) == 0 {
					return filo.Error(400, "a parameter is empty")
				}
			}
			return greet(c)
		})
	}
	return r
}

func greet(c *filo.Ctx) error { return c.Text(200, site.Greeting) }

func sleep(wait time.Duration) filo.Handler {
	return func(c *filo.Ctx) error {
		time.Sleep(wait)
		return greet(c)
	}
}

func product(c *filo.Ctx, pool *database.Pool) error {
	body, err := pool.Product(c.Context(), c.Query("id"))
	if err != nil {
		return err
	}
	return c.BytesNoCopy(200, site.JSONType, body)
}

func length(c *filo.Ctx) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	return c.Text(200, strconv.Itoa(len(body)))
}

func echo(c *filo.Ctx) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	return c.Bytes(200, site.TextType, body)
}

func upload(c *filo.Ctx) error {
	n, err := io.Copy(io.Discard, c.BodyReader())
	if err != nil {
		return err
	}
	return c.Text(200, fmt.Sprint(n))
}
