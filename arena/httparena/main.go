// Command httparena serves those test profiles of HttpArena that need neither a proxy nor gRPC.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/static"
	"github.com/filohttp/filo/templates"
	"golang.org/x/sync/errgroup"
)

//go:embed views
var views embed.FS

func main() {
	o := options{url: os.Getenv("DATABASE_URL"), connections: os.Getenv("DATABASE_MAX_CONN"), listen: (*filo.Server).Listen}
	flag.StringVar(&o.data, "data", "/data", "folder with dataset.json and the folder static")
	flag.StringVar(&o.certs, "certs", "/certs", "folder with server.crt and server.key; without them there is no TLS")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		log.Fatal(err)
	}
}

// options say where the data, the certificates and the database are, and how to listen.
type options struct {
	data, certs      string
	url, connections string // of the database
	listen           func(s *filo.Server, addr string) (net.Listener, error)
}

// run serves until ctx ends or a server fails.
func (o *options) run(ctx context.Context) error {
	db, err := openDatabase(ctx, o.url, o.connections)
	if err != nil {
		return err
	}
	defer db.close()
	r, err := newRouter(o.data, db)
	if err != nil {
		return err
	}
	pages, err := newPages()
	if err != nil {
		return err
	}
	certificate, noTLS := tls.LoadX509KeyPair(filepath.Join(o.certs, "server.crt"), filepath.Join(o.certs, "server.key"))
	if noTLS != nil {
		log.Print("no TLS: ", noTLS)
	}
	running, ctx := errgroup.WithContext(ctx)
	for addr, s := range newServers(r) {
		s.Renderer = pages
		serve := s.RunListener
		if s.TLSConfig != nil {
			if noTLS != nil {
				continue
			}
			s.TLSConfig.Certificates = []tls.Certificate{certificate}
			serve = func(ctx context.Context, l net.Listener) error { return s.RunListenerTLS(ctx, l, "", "") }
		}
		running.Go(func() error {
			listener, err := o.listen(s, addr)
			if err != nil {
				return err
			}
			return serve(ctx, listener)
		})
	}
	return running.Wait()
}

// newServers returns the servers by address. Each protocol has a separate port.
func newServers(r *router.Router) map[string]*filo.Server {
	return map[string]*filo.Server{
		":8080": {Handler: r.Serve, HTTP2: filo.HTTP2Options{Disabled: true}},
		":8081": {Handler: r.Serve, HTTP2: filo.HTTP2Options{Disabled: true}, TLSConfig: new(tls.Config)},
		":8082": {Handler: onlyHTTP2(r.Serve), HTTP2: filo.HTTP2Options{Unencrypted: true}},
		":8443": {Handler: r.Serve, TLSConfig: new(tls.Config)},
	}
}

// onlyHTTP2 refuses HTTP/1.1 requests.
func onlyHTTP2(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		if c.Request.Proto() != "HTTP/2.0" {
			return filo.Error(505, "this port speaks HTTP/2")
		}
		return next(c)
	}
}

// newPages returns the templates, which are embedded in the program.
func newPages() (*templates.Templates, error) {
	folder, err := fs.Sub(views, "views")
	if err != nil {
		return nil, err
	}
	return templates.New(folder)
}

func newRouter(data string, db *database) (*router.Router, error) {
	text, err := os.ReadFile(filepath.Join(data, "dataset.json"))
	if err != nil {
		return nil, err
	}
	var dataset dataset
	if err := json.Unmarshal(text, &dataset); err != nil {
		return nil, err
	}
	// The benchmark's rules require that files are read for each request.
	files, err := static.Dir(filepath.Join(data, "static"), static.Options{Precompressed: true, CacheBytes: -1})
	if err != nil {
		return nil, err
	}
	socket := websocket.New(websocket.Options{
		OnMessage: func(conn *websocket.Conn, kind websocket.MessageType, message []byte) error {
			return conn.Write(kind, message)
		},
	})
	r := router.New()
	r.GET("/baseline11", sum)
	r.POST("/baseline11", sum)
	r.GET("/baseline2", sum)
	r.GET("/pipeline", func(c *filo.Ctx) error { return c.Text(200, "ok") })
	r.GET("/json/{count}", dataset.priced, middleware.Compress())
	r.GET("/delay/{ms:int}", delay).Offload()
	r.POST("/echo", echo)
	r.GET("/static/{path...}", files.Serve)
	r.GET("/ws", socket.Serve)
	r.GET("/async-db", db.inRange).Offload()
	r.GET("/fortunes", db.fortunes).Offload()
	return r, nil
}

// sum answers with the sum of the parameters a and b and of the body, if there is one.
func sum(c *filo.Ctx) error {
	var in struct {
		A int `query:"a"`
		B int `query:"b"`
	}
	if err := bind.Query(c, &in); err != nil {
		return err
	}
	body, err := c.Body()
	if err != nil {
		return err
	}
	n := in.A + in.B
	if body = bytes.TrimSpace(body); len(body) > 0 {
		more, err := strconv.Atoi(string(body))
		if err != nil {
			return filo.Error(400, "the body is no number")
		}
		n += more
	}
	return c.Text(200, strconv.Itoa(n))
}

// maxDelay is the longest delay that a client may request, in milliseconds. The benchmark requests 10, its checks up to 500.
const maxDelay = 10_000

// delay answers after the number of milliseconds in the path.
func delay(c *filo.Ctx) error {
	var in struct {
		Milliseconds int `path:"ms"`
	}
	if err := bind.All(c, &in); err != nil {
		return err
	}
	if in.Milliseconds < 0 || in.Milliseconds > maxDelay {
		return filo.Error(400, fmt.Sprintf("a delay has 0 to %d milliseconds", maxDelay))
	}
	time.Sleep(time.Duration(in.Milliseconds) * time.Millisecond)
	return c.Text(200, strconv.Itoa(in.Milliseconds))
}

// echo answers with the body.
func echo(c *filo.Ctx) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	return c.Bytes(200, "application/octet-stream", body)
}

// item is an item of the data set, or of the database.
type item struct {
	ID       int      `json:"id"`
	Name     string   `json:"name"`
	Category string   `json:"category"`
	Price    int      `json:"price"`
	Quantity int      `json:"quantity"`
	Active   bool     `json:"active"`
	Tags     []string `json:"tags"`
	Rating   rating   `json:"rating"`
}

type rating struct {
	Score int `json:"score"`
	Count int `json:"count"`
}

type pricedItem struct {
	item
	Total int `json:"total"`
}

type answer[T any] struct {
	Items []T `json:"items"`
	Count int `json:"count"`
}

func answerWith[T any](c *filo.Ctx, items []T) error {
	return c.JSON(200, answer[T]{items, len(items)})
}

type dataset []item

// priced answers with the first items and their total prices.
func (d dataset) priced(c *filo.Ctx) error {
	in := struct {
		Count int `path:"count"`
		M     int `query:"m"`
	}{M: 1}
	if err := bind.All(c, &in); err != nil {
		return err
	}
	items := make([]pricedItem, min(max(in.Count, 0), len(d)))
	for i := range items {
		items[i] = pricedItem{d[i], d[i].Price * d[i].Quantity * in.M}
	}
	return answerWith(c, items)
}
