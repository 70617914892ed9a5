package websocket_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	coder "github.com/coder/websocket"

	"github.com/filohttp/filo/contrib/websocket"
)

// The client of another implementation works with this server, with and without compression.
func TestCoderClient(t *testing.T) {
	for _, theirs := range []coder.CompressionMode{coder.CompressionDisabled, coder.CompressionNoContextTakeover, coder.CompressionContextTakeover} {
		for _, ours := range []websocket.Compression{websocket.CompressionOff, websocket.CompressionPerMessage, websocket.CompressionContext} {
			t.Run(fmt.Sprint(theirs, ours), func(t *testing.T) {
				inModes(t, websocket.Options{Compression: ours, Subprotocols: []string{"chat"}}, func(t *testing.T, address string) {
					ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
					defer cancel()
					c, response, err := coder.Dial(ctx, "ws://"+address+"/ws", &coder.DialOptions{CompressionMode: theirs, Subprotocols: []string{"chat"}, CompressionThreshold: 1})
					if err != nil {
						t.Fatal(err)
					}
					negotiated := response.Header.Get("Sec-WebSocket-Extensions") != ""
					if want := theirs != coder.CompressionDisabled && ours != websocket.CompressionOff; negotiated != want || c.Subprotocol() != "chat" {
						t.Errorf("compression: %t, want %t; subprotocol %q", negotiated, want, c.Subprotocol())
					}
					c.SetReadLimit(-1)
					for i := range 20 {
						message := fmt.Sprint(i, strings.Repeat(umlauts, i*i*10))
						kind := coder.MessageText
						if i%3 == 2 {
							kind = coder.MessageBinary
						}
						if err := c.Write(ctx, kind, []byte(message)); err != nil {
							t.Fatal(err)
						}
						gotKind, got, err := c.Read(ctx)
						if err != nil || gotKind != kind || string(got) != message {
							t.Fatalf("got %v, %s, %v; want %s", gotKind, short(string(got)), err, short(message))
						}
					}
					if err := c.Close(coder.StatusNormalClosure, "done"); err != nil {
						t.Errorf("Close: %v", err)
					}
				})
			})
		}
	}
}
