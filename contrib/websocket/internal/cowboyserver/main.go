// Command cowboyserver serves what the test suites of the web server Cowboy request, on a port of the loopback address, until its standard
// input ends. It prints the port. internal/foreign runs it, for suites that test HTTP/1.1, HTTP/2 and WebSockets over HTTP/2.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/middleware"
)

// piece is the size of each write of a streamed answer, and pieces the number of writes.
const piece, pieces = 100_000, 10

var sockets = websocket.New(websocket.Options{
	OnMessage: func(c *websocket.Conn, kind websocket.MessageType, message []byte) error {
		return c.Write(kind, message)
	},
})

func main() {
	server := &filo.Server{
		Handler:      handle,
		Name:         "Cowboy", // a test expects this name
		MaxBodyBytes: -1,
		// The same timeout as Cowboy's, for which some tests wait.
		ReadHeaderTimeout: 5 * time.Second,
		HTTP2:             filo.HTTP2Options{Unencrypted: true},
		TLSConfig:         &tls.Config{Certificates: certificates()},
		Logger:            slog.New(slog.DiscardHandler), // some tests want handlers to fail
	}
	hosts := flag.String("hosts", "", "the hosts that are served, with commas between; all if empty")
	compress := flag.Bool("compress", false, "compress answers")
	encrypted := flag.Bool("tls", false, "serve over TLS")
	flag.BoolVar(&server.HTTP2.ExtendedConnect, "connect", false, "accept WebSockets over HTTP/2")
	flag.IntVar(&server.HTTP2.MaxConcurrentStreams, "streams", 0, "how many requests a connection of HTTP/2 may have open")
	flag.IntVar(&server.MaxRequestsPerConn, "requests", 0, "how many requests a connection may carry")
	flag.Parse()
	if *hosts != "" {
		server.Handler = middleware.HostCheck(middleware.HostCheckOptions{Hosts: strings.Split(*hosts, ",")})(server.Handler)
	}
	if *compress {
		server.Handler = middleware.Compress()(server.Handler)
	}
	if os.Getenv("FOREIGN_DRIVER") == "blocking" {
		server.Driver = filo.DriverBlocking
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if *encrypted {
			log.Fatal(server.ServeTLS(listener, "", ""))
		}
		log.Fatal(server.Serve(listener))
	}()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	io.Copy(io.Discard, os.Stdin)
}

// certificates returns the certificates of net/http/httptest.
func certificates() []tls.Certificate {
	lender := httptest.NewTLSServer(nil)
	defer lender.Close()
	return lender.TLS.Certificates
}

// handle answers a request like the Cowboy handler whose name the test has put into the path.
func handle(c *filo.Ctx) error {
	path := strings.Split(strings.TrimPrefix(c.Path(), "/"), "/")
	path = append(path, "", "")
	switch path[0] {
	case "":
		return c.Text(200, "Hello world!")
	case "echo", "full":
		return echo(c, path[1], path[2])
	case "delay":
		time.Sleep(500 * time.Millisecond)
		return echo(c, path[2], "")
	case "length":
		n, err := io.Copy(io.Discard, c.BodyReader())
		if err != nil {
			return err
		}
		return c.Text(200, strconv.FormatInt(n, 10))
	case "resp":
		return respond(c, path[1], path[2])
	case "delay_hello":
		time.Sleep(1200 * time.Millisecond)
		return c.Text(200, "Hello world!")
	case "long_polling":
		time.Sleep(600 * time.Millisecond)
		c.Response.SetStatus(299)
		return nil
	case "loop_handler_abort":
		if _, err := io.CopyN(io.Discard, c.BodyReader(), 1000); err != nil {
			return err
		}
		return c.Text(200, "")
	case "send_message":
		// If a test requests this path by mistake, the parent process reports it.
		fmt.Println("reached", c.Request.Header.Get("X-Test-Pid"))
		return c.Text(200, "")
	case "ws":
		return sockets.Serve(c)
	}
	return filo.Error(404, "")
}

// echo answers with a part of the request.
func echo(c *filo.Ctx, key, argument string) error {
	host, port, hasPort := strings.Cut(c.Host(), ":")
	scheme, usual := "http", "80"
	if c.TLS() != nil {
		scheme, usual = "https", "443"
	}
	var value string
	switch key {
	case "method":
		value = c.Method()
	case "path":
		value = c.Path()
	case "qs":
		value = string(c.Request.URI().RawQueryBytes())
	case "host":
		value = host
	case "port":
		value = usual
		if hasPort {
			value = port
		}
	case "uri":
		value = scheme + "://" + strings.ToLower(strings.TrimSuffix(c.Host(), ":"+usual)) + c.Path()
		if query := c.Request.URI().RawQuery(); query != "" {
			value += "?" + query
		}
	case "header":
		value = c.Request.Header.Get(argument)
	case "has_body":
		value = strconv.FormatBool(c.Request.ContentLength() != 0)
	case "body_length":
		value = "undefined"
		if n := c.Request.ContentLength(); n >= 0 {
			value = strconv.FormatInt(n, 10)
		}
	case "read_body":
		body, err := io.ReadAll(c.BodyReader())
		if err != nil {
			return err
		}
		value = string(body)
	default:
		return filo.Error(404, "")
	}
	c.Response.SetBodyString(value)
	return nil
}

// respond answers in the way that the key selects.
func respond(c *filo.Ctx, key, argument string) error {
	status, err := strconv.Atoi(strings.TrimSuffix(argument, "body"))
	if err != nil {
		status = 200
	}
	c.Response.SetStatus(status)
	switch key {
	case "reply2", "push":
	case "reply3":
		c.Response.Header.Set("Content-Type", "text/plain")
	case "reply4":
		c.Response.SetBodyString("OK")
	case "stream_reply2":
		c.Response.Header.Set("Content-Type", "text/plain") // a type that Compress compresses
		stream := c.Stream()
		if err := stream.Flush(); err != nil || argument == "204" {
			return err
		}
		for range pieces {
			if _, err := stream.Write(make([]byte, piece)); err != nil {
				return err
			}
		}
	case "stream_trailers":
		c.Response.Trailer.Set("grpc-status", "0")
		if _, err := c.Stream().WriteString("Hello world!"); err != nil {
			return err
		}
		return c.Stream().Flush()
	case "inform2":
		if err := c.Informational(status); err != nil {
			return err
		}
		c.Response.SetStatus(200)
	case "set_resp_cookie3":
		for _, name := range []string{"my", "your"} {
			if err := c.Response.SetCookie(&filo.Cookie{Name: name + "cookie", Value: name + "value"}); err != nil {
				return err
			}
		}
		c.Response.SetBodyString("OK")
	case "set_resp_header_server":
		c.Response.Header.Set("Server", "nginx")
		c.Response.SetBodyString("OK")
	case "set_resp_headers_http11":
		for name, value := range map[string]string{
			"Connection": "custom-header, close", "Custom-Header": "value", "Keep-Alive": "timeout=5, max=1000",
			"Proxy-Connection": "close", "Transfer-Encoding": "chunked", "Upgrade": "HTTP/1.1",
		} {
			c.Response.Header.Set(name, value)
		}
		c.Response.SetBodyString("OK")
	default:
		return filo.Error(404, "")
	}
	return nil
}
