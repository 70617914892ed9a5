// Command h2server serves HTTP/2 on two ports of the loopback address, without and with TLS, until its standard input ends. It prints
// the ports. internal/foreign runs it for h2spec.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/filohttp/filo/internal/foreign/standin"
)

func main() {
	config := &http.Server{
		Handler:   http.HandlerFunc(answer),
		TLSConfig: &tls.Config{Certificates: certificates()},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	server := newServer(config)
	clear, encrypted := listen(), listen()
	go func() { log.Fatal(server.Serve(clear)) }()
	go func() { log.Fatal(server.ServeTLS(encrypted, "", "")) }()
	fmt.Println(port(clear), port(encrypted))
	io.Copy(io.Discard, os.Stdin)
}

// newServer returns the server that h2spec tests: filo's, or net/http's if standin.Native is set.
func newServer(config *http.Server) interface {
	Serve(net.Listener) error
	ServeTLS(listener net.Listener, certFile, keyFile string) error
} {
	if !standin.Native {
		return standin.NewHTTP2(config)
	}
	config.Protocols = new(http.Protocols)
	config.Protocols.SetHTTP1(true)
	config.Protocols.SetHTTP2(true)
	config.Protocols.SetUnencryptedHTTP2(true)
	return config
}

// answer reads a request's body and answers with a few bytes. Some cases of h2spec receive them piece by piece, through small windows.
func answer(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	io.WriteString(w, "Hello, World!")
}

// certificates returns the certificates of net/http/httptest.
func certificates() []tls.Certificate {
	lender := httptest.NewTLSServer(nil)
	defer lender.Close()
	return lender.TLS.Certificates
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func port(listener net.Listener) int { return listener.Addr().(*net.TCPAddr).Port }
