package websocket_test

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/filohttp/filo/contrib/websocket"
)

// wrapper is a minimal wrapper with which net/http middleware may replace a ResponseWriter.
type wrapper struct{ http.ResponseWriter }

func (w *wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A WebSocket is served in the same way by filo, behind net/http middleware, and in net/http's own server, including the shutdown.
func TestNetHTTP(t *testing.T) {
	wraps := adaptor.Middleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&wrapper{w}, r) })
	})
	u := websocket.New(websocket.Options{OnMessage: echo, Subprotocols: []string{"chat"}})
	foreign := &filo.Server{Handler: u.Serve, Logger: quiet}
	s := httptest.NewServer(adaptor.ToHTTPServer(foreign))
	defer s.Close()
	for name, address := range map[string]string{
		"plain":    serveHandler(t, filo.DriverLoop, u.Serve),
		"behind":   serveHandler(t, filo.DriverLoop, wraps(u.Serve)),
		"net/http": s.Listener.Addr().String(),
	} {
		c, r := shake(t, address)
		response, err := http.ReadResponse(r, nil)
		if err != nil || response.StatusCode != 101 || response.Header.Get("Sec-Websocket-Protocol") != "chat" {
			t.Fatalf("%s: %v, %v", name, response, err)
		}
		c.in = r
		c.send(frame(fin|text, "hello"))
		c.want(fin|text, "hello")
		if name == "net/http" {
			done := make(chan error)
			go func() { done <- foreign.Shutdown(t.Context()) }()
			c.wantClose(1001)
			c.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
			continue
		}
		c.send(closeFrame(1000, ""))
		c.wantClose(1000)
		c.wantEnd()
	}
}

// shake sends a handshake.
func shake(t *testing.T, address string) (*client, *bufio.Reader) {
	c := connect(t, address)
	if _, err := c.Write([]byte(handshake + "Sec-WebSocket-Protocol: chat\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(net.Conn(c.Conn))
}
