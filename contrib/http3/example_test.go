package http3filo_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/quic-go/quic-go/http3"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/http3"
)

// One handler serves HTTP/2 and HTTP/3 on the same port.
func Example() {
	certified := httptest.NewTLSServer(nil) // for its certificate
	defer certified.Close()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	port := listener.Addr().(*net.TCPAddr).Port
	s := &filo.Server{
		Handler:   http3filo.AltSvc(port)(func(c *filo.Ctx) error { return c.Text(200, "by "+c.Request.Proto()) }),
		TLSConfig: &tls.Config{Certificates: certified.TLS.Certificates},
	}
	served := make(chan error, 1)
	go s.ServeTLS(listener, "", "")
	go func() { served <- http3filo.ListenAndServe(s, listener.Addr().String()) }()

	roots := certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	transport := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}}
	client := http.Client{Transport: transport}
	response, err := client.Get("https://" + listener.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _ := io.ReadAll(response.Body)
	fmt.Println(response.StatusCode, string(text))
	transport.Close()

	s.Shutdown(context.Background())
	fmt.Println(<-served)
	// Output:
	// 200 by HTTP/3.0
	// filo: server closed
}
