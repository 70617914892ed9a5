package bench

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/filohttp/filo"
	"github.com/valyala/fasthttp"
)

// handlers has the same handler for each server.
type handlers struct {
	filo     filo.Handler
	fasthttp fasthttp.RequestHandler
	nethttp  http.HandlerFunc
}

// starters has for each server a function that starts it. The benchmarks measure the servers in this order. serve gives one connection to the
// server, which calls the connection's Close at the end.
var starters = []struct {
	name  string
	start func(handlers) (serve func(net.Conn), stop func())
}{
	{"filo", startFilo},
	{"fasthttp", startFasthttp},
	{"nethttp", startNetHTTP},
}

func startFilo(h handlers) (serve func(net.Conn), stop func()) {
	s := &filo.Server{Handler: h.filo}
	return func(c net.Conn) { s.ServeConn(c) }, func() { s.Close() }
}

func startFasthttp(h handlers) (serve func(net.Conn), stop func()) {
	s := &fasthttp.Server{Handler: h.fasthttp, Name: "fasthttp"}
	return func(c net.Conn) { s.ServeConn(c) }, func() { s.Shutdown() }
}

func startNetHTTP(h handlers) (serve func(net.Conn), stop func()) {
	ln := newMemListener()
	s := &http.Server{Handler: h.nethttp, ErrorLog: log.New(io.Discard, "", 0)}
	go s.Serve(ln)
	return func(c net.Conn) { ln.conns <- c }, func() { s.Close() }
}

const (
	greeting  = "Hello, World!"
	plainText = "text/plain; charset=utf-8"
)

var greetingBytes = []byte(greeting)

// greet sets the header fields that filo and fasthttp set automatically, so that all servers send the same ones.
func greet(w http.ResponseWriter) {
	header := w.Header()
	header["Server"] = nethttpServer
	header["Content-Type"] = nethttpType
	w.Write(greetingBytes)
}

var (
	nethttpServer = []string{"net/http"}
	nethttpType   = []string{plainText}
)

func greetFasthttp(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType(plainText)
	ctx.SetBodyString(greeting)
}

var plainHandlers = handlers{
	filo:     func(c *filo.Ctx) error { return c.Text(200, greeting) },
	fasthttp: greetFasthttp,
	nethttp:  func(w http.ResponseWriter, r *http.Request) { greet(w) },
}

const postSize = 1024

// postHandlers read the whole body.
var postHandlers = handlers{
	filo: func(c *filo.Ctx) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		if len(body) != postSize {
			return filo.Error(400, "wrong length")
		}
		return c.Text(200, greeting)
	},
	fasthttp: func(ctx *fasthttp.RequestCtx) {
		if len(ctx.PostBody()) != postSize {
			ctx.Error("wrong length", 400)
			return
		}
		greetFasthttp(ctx)
	},
	nethttp: func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) != postSize {
			http.Error(w, "wrong length", 400)
			return
		}
		greet(w)
	},
}

// headerHandlers read three header fields: the first, one in the middle, and the last.
var headerHandlers = handlers{
	filo: func(c *filo.Ctx) error {
		for _, name := range lookedAt {
			if len(c.Request.Header.GetBytes(name)) == 0 {
				return filo.Error(400, "a field is missing")
			}
		}
		return c.Text(200, greeting)
	},
	fasthttp: func(ctx *fasthttp.RequestCtx) {
		for _, name := range lookedAt {
			if len(ctx.Request.Header.Peek(name)) == 0 {
				ctx.Error("a field is missing", 400)
				return
			}
		}
		greetFasthttp(ctx)
	},
	nethttp: func(w http.ResponseWriter, r *http.Request) {
		for _, name := range lookedAt {
			if r.Header.Get(name) == "" {
				http.Error(w, "a field is missing", 400)
				return
			}
		}
		greet(w)
	},
}

var lookedAt = []string{"User-Agent", "X-Forwarded-For", "X-Trace-29"}

// hijacked is everything that is sent on a connection that the handler has taken over.
var hijacked = []byte("it is mine")

// hijackHandlers take the connection over, write to it themselves, and close it.
var hijackHandlers = handlers{
	filo: func(c *filo.Ctx) error {
		conn, _, err := c.Hijack()
		if err != nil {
			return err
		}
		_, err = conn.Write(hijacked)
		return errors.Join(err, conn.Close())
	},
	fasthttp: func(ctx *fasthttp.RequestCtx) {
		ctx.HijackSetNoResponse(true)
		// fasthttp closes the connection when this returns.
		ctx.Hijack(func(conn net.Conn) { conn.Write(hijacked) })
	},
	nethttp: func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		conn.Write(hijacked)
		conn.Close()
	},
}
