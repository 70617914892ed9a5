// Command fasthttp is examples/hello's GET /hello on fasthttp, for cmd/compare.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"

	"github.com/valyala/fasthttp"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "TCP `address` to listen on")
	flag.Parse()
	ln, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", ln.Addr())
	log.Fatal((&fasthttp.Server{Handler: handle, Name: "fasthttp"}).Serve(ln))
}

func handle(ctx *fasthttp.RequestCtx) {
	if string(ctx.Path()) != "/hello" {
		ctx.Error("not found", fasthttp.StatusNotFound)
		return
	}
	if !ctx.IsGet() && !ctx.IsHead() {
		ctx.Response.Header.Set("Allow", "GET, HEAD")
		ctx.Error("allowed here: GET, HEAD", fasthttp.StatusMethodNotAllowed)
		return
	}
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.SetBodyString("Hello, World!")
}
