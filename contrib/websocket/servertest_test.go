package websocket_test

import (
	"testing"

	coder "github.com/coder/websocket"

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
