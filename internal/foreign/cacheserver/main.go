// Command cacheserver proxies another server through middleware/cache, on a port of the loopback address, until its standard input ends. Its
// argument is the other server's URL. It prints the port. internal/foreign runs it for cache-tests.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/cache"
	"github.com/filohttp/filo/proxy"
)

func main() {
	log.SetOutput(io.Discard) // don't log the other server's failures, which some tests provoke
	p := proxy.New(proxy.Options{Upstreams: []string{os.Args[1]}, PreserveHost: true, MaxFailures: -1})
	server := &filo.Server{Handler: cache.New(cache.Options{TargetedFields: []string{"CDN-Cache-Control"}})(p.Serve)}
	if os.Getenv("FOREIGN_DRIVER") == "blocking" {
		server.Driver = filo.DriverBlocking
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	go func() { fail(server.Serve(listener)) }()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	io.Copy(io.Discard, os.Stdin)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "cacheserver:", err)
	os.Exit(1)
}
