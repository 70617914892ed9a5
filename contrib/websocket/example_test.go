package websocket_test

import (
	"context"
	"fmt"

	coder "github.com/coder/websocket"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/router"
)

// serveExample serves a router until stop is called.
func serveExample(r *router.Router) (url string, stop func()) {
	s := &filo.Server{Handler: r.Serve}
	ln, err := s.Listen("127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go s.Serve(ln)
	return "ws://" + ln.Addr().String(), func() { s.Shutdown(context.Background()) }
}

// dial opens the client's side of a WebSocket.
func dial(url string) *coder.Conn {
	c, _, err := coder.Dial(context.Background(), url, nil)
	if err != nil {
		panic(err)
	}
	return c
}

func ExampleNew() {
	echo := websocket.New(websocket.Options{
		OnMessage: func(c *websocket.Conn, kind websocket.MessageType, message []byte) error {
			return c.Write(kind, message)
		},
	})
	r := router.New()
	r.GET("/echo", echo.Serve)

	url, stop := serveExample(r)
	defer stop()
	client := dial(url + "/echo")
	defer client.CloseNow()
	client.Write(context.Background(), coder.MessageText, []byte("hello"))
	_, answer, _ := client.Read(context.Background())
	fmt.Println(string(answer))
	// Output: hello
}

func ExampleUpgrader_Accept() {
	upgrader := websocket.New()
	r := router.New()
	r.GET("/count", func(c *filo.Ctx) error {
		conn, err := upgrader.Accept(c)
		if err != nil {
			return err
		}
		defer conn.CloseNow()
		for i := range 3 {
			if err := conn.Write(websocket.Text, fmt.Append(nil, i)); err != nil {
				return err
			}
		}
		return conn.Close(websocket.StatusNormalClosure, "that was all")
	})

	url, stop := serveExample(r)
	defer stop()
	client := dial(url + "/count")
	defer client.CloseNow()
	for {
		_, message, err := client.Read(context.Background())
		if err != nil {
			fmt.Println(coder.CloseStatus(err))
			return
		}
		fmt.Println(string(message))
	}
	// Output:
	// 0
	// 1
	// 2
	// StatusNormalClosure
}

func ExampleHub() {
	var hub websocket.Hub
	chat := websocket.New(websocket.Options{
		OnOpen: func(request *filo.Ctx, c *websocket.Conn) error {
			c.SetValue(request.Query("name"))
			if err := hub.Join(request.Param("room"), c); err != nil {
				return err
			}
			return c.Write(websocket.Text, []byte("welcome"))
		},
		OnMessage: func(c *websocket.Conn, kind websocket.MessageType, message []byte) error {
			_, err := hub.Broadcast("lobby", kind, fmt.Appendf(nil, "%s: %s", c.Value(), message))
			return err
		},
	})
	r := router.New()
	r.GET("/rooms/{room}", chat.Serve)

	url, stop := serveExample(r)
	defer stop()
	ada, bob := dial(url+"/rooms/lobby?name=Ada"), dial(url+"/rooms/lobby?name=Bob")
	defer ada.CloseNow()
	defer bob.CloseNow()
	bob.Read(context.Background()) // the welcome message shows that Bob has joined
	ada.Write(context.Background(), coder.MessageText, []byte("hi, Bob"))
	_, message, _ := bob.Read(context.Background())
	fmt.Println(string(message))
	// Output: Ada: hi, Bob
}
