package main

import (
	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
)

// webSocket echoes messages.
var webSocket filo.Handler = websocket.New(websocket.Options{
	OnMessage: func(conn *websocket.Conn, kind websocket.MessageType, message []byte) error {
		return conn.Write(kind, message)
	},
}).Serve
