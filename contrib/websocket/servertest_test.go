package websocket_test

import (
	"bufio"
	"io"
	"testing"
	"testing/synctest"
	"time"

	coder "github.com/coder/websocket"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// A WebSocket client that accepts an http.Client can test a WebSocket without a port, as the guide says.
func TestInMemory(t *testing.T) {
	chat := websocket.New(websocket.Options{
		OnMessage: func(conn *websocket.Conn, kind websocket.MessageType, message []byte) error {
			return conn.Write(kind, message)
		},
	})
	r := router.New()
	r.GET("/chat", chat.Serve)
	server := servertest.New(t, r.Serve)
	conn, _, err := coder.Dial(t.Context(), server.URL+"/chat", &coder.DialOptions{HTTPClient: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(t.Context(), coder.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if kind, text, err := conn.Read(t.Context()); kind != coder.MessageText || string(text) != "hello" || err != nil {
		t.Errorf("got %v %q, %v", kind, text, err)
	}
}

// openInMemory opens a WebSocket on a server in memory. In a bubble of testing/synctest the connection's time-outs are the bubble's.
func openInMemory(t *testing.T, h filo.Handler) *client {
	t.Helper()
	conn := servertest.NewServer(t, &filo.Server{Handler: h, Logger: quiet}).Dial(t)
	c := &client{Conn: conn, t: t, in: bufio.NewReader(conn)}
	c.send(handshake + "\r\n")
	c.head()
	return c
}

// ReadTimeout limits the client. So the time in which the application handles one message doesn't count for the next message, which has
// begun to arrive meanwhile.
func TestSlowApplication(t *testing.T) {
	const slow = 2 * websocket.DefaultReadTimeout
	u := websocket.New(websocket.Options{OnMessage: func(c *websocket.Conn, kind websocket.MessageType, message []byte) error {
		time.Sleep(slow)
		return c.Write(kind, message)
	}})
	acceptedBy := func(read func(*websocket.Conn) error) filo.Handler {
		return func(c *filo.Ctx) error {
			conn, err := u.Accept(c)
			if err != nil {
				return err
			}
			defer conn.CloseNow()
			for err == nil {
				if err = read(conn); err == nil {
					time.Sleep(slow)
					err = conn.Write(websocket.Text, []byte("read"))
				}
			}
			return err
		}
	}
	for name, h := range map[string]filo.Handler{
		"Serve": u.Serve,
		"Read": acceptedBy(func(c *websocket.Conn) error {
			_, _, err := c.Read()
			return err
		}),
		"Reader": acceptedBy(func(c *websocket.Conn) error {
			_, r, err := c.Reader()
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			return err
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openInMemory(t, h)
				second := frame(fin|text, "read")
				c.send(frame(fin|text, "read") + second[:8])
				c.want(fin|text, "read")
				time.Sleep(time.Second)
				c.send(second[8:])
				c.want(fin|text, "read")
			})
		})
	}
}
