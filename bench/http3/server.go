package main

import (
	"cmp"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/quic-go/quic-go/http3"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bench/internal/site"
	http3filo "github.com/filohttp/filo/contrib/http3"
)

// The paths of resources. downPath followed by a number answers with that many bytes, upPath with the length of the request's body. All other paths
// answer with site.Greeting.
const (
	downPath = "/down/"
	upPath   = "/up"
)

// part is one write of a large answer.
var part = make([]byte, 64<<10)

// servers print "h3" or "h2" before their address, for the client.
var servers = map[string]func() (string, func() error, error){
	"quic-go":    byUDP(serveQUICGo),
	"filo":       byUDP(serveFilo),
	"filo-http2": serveHTTP2,
}

func byUDP(serve func(net.PacketConn) error) func() (string, func() error, error) {
	return func() (address string, serves func() error, err error) {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return "", nil, err
		}
		return "h3 " + packets.LocalAddr().String(), func() error { return serve(packets) }, nil
	}
}

func serveQUICGo(packets net.PacketConn) error {
	s := &http3.Server{Handler: http.HandlerFunc(answerNetHTTP), TLSConfig: secured()}
	return s.Serve(packets)
}

// serveFilo serves HTTP/1.1 and HTTP/2 on the same port, as programs do.
func serveFilo(packets net.PacketConn) error {
	s := filoServer()
	go s.ListenAndServeTLS(packets.LocalAddr().String(), "", "")
	return http3filo.Serve(s, packets)
}

func serveHTTP2() (address string, serve func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return "h2 " + listener.Addr().String(), func() error { return filoServer().ServeTLS(listener, "", "") }, nil
}

func secured() *tls.Config { return (&site.Flags{Secure: true, HTTP2: true}).TLS() }

func filoServer() *filo.Server {
	return &filo.Server{Handler: answer, TLSConfig: secured(), MaxBodyBytes: -1, Logger: slog.New(slog.DiscardHandler)}
}

// answer is the handler for filo.
func answer(c *filo.Ctx) error {
	if size, ok := strings.CutPrefix(c.Path(), downPath); ok {
		c.Response.Header.Set("Content-Length", size)
		return down(c.Stream(), size)
	}
	if c.Path() == upPath {
		n, err := io.Copy(io.Discard, c.BodyReader())
		return cmp.Or(err, c.Text(200, strconv.FormatInt(n, 10)))
	}
	return c.Text(200, site.Greeting)
}

// answerNetHTTP is the handler for net/http. It sends the same answers as answer.
func answerNetHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["Content-Type"] = textType
	if size, ok := strings.CutPrefix(r.URL.Path, downPath); ok {
		w.Header().Set("Content-Length", size)
		down(w, size)
		return
	}
	if r.URL.Path == upPath {
		n, _ := io.Copy(io.Discard, r.Body) // if reading fails, the client sees that the number is wrong
		io.WriteString(w, strconv.FormatInt(n, 10))
		return
	}
	io.WriteString(w, site.Greeting)
}

var textType = []string{site.TextType}

func down(w io.Writer, size string) error {
	left, err := strconv.Atoi(size)
	for ; err == nil && left > 0; left -= len(part) {
		_, err = w.Write(part[:min(left, len(part))])
	}
	return err
}
