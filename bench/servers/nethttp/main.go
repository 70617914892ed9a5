// Command nethttp is examples/hello's GET /hello on net/http, for cmd/compare.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "TCP `address` to listen on")
	flag.Parse()
	ln, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", ln.Addr())
	log.Fatal((&http.Server{Handler: http.HandlerFunc(handle)}).Serve(ln))
}

var (
	body   = []byte("Hello, World!")
	server = []string{"net/http"}
	plain  = []string{"text/plain; charset=utf-8"}
)

func handle(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/hello" {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "allowed here: GET, HEAD", http.StatusMethodNotAllowed)
		return
	}
	header := w.Header()
	header["Server"] = server
	header["Content-Type"] = plain
	w.Write(body)
}
