package websocket_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/internal/h2test"
)

// With FILO_PROTOCOL=http2 the package's other tests also run over HTTP/2. The tests of this file need several WebSockets on one connection,
// or small windows.

// Many WebSockets share a connection. Each WebSocket gets only its own messages, which arrive complete even with small windows. When one
// ends, the other WebSockets continue.
func TestHTTP2(t *testing.T) {
	big := strings.Repeat("0123456789", 20_000)
	inModes(t, websocket.Options{Compression: websocket.CompressionPerMessage}, func(t *testing.T, address string) {
		c := connect(t, address)
		connection, err := h2test.New(c.Conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
		if err != nil {
			t.Fatal(err)
		}
		var clients []*client
		for range 5 {
			clients = append(clients, openStream(t, connection, "/ws"), openStream(t, connection, "/ws", offerDeflate))
		}
		for i, c := range clients {
			own := fmt.Sprint(i)
			go c.send(frame(binaryOp, big) + frame(0, big) + frame(fin|ping, own) + frame(fin|continuation, own))
		}
		for i, c := range clients {
			own := fmt.Sprint(i)
			c.want(fin|pong, own)
			first, got, err := c.receive()
			if first == fin|rsv1|binaryOp {
				got = inflated(t, got, "")
			}
			if want := big + big + own; got != want || err != nil || (first == fin|rsv1|binaryOp) != (i%2 == 1) {
				t.Errorf("%d: %#x, %s, %v", i, first, short(got), err)
			}
		}
		for i, c := range clients {
			switch i % 3 {
			case 0:
				c.send(closeFrame(1000, ""))
				c.wantClose(1000)
				c.wantEnd()
			case 1:
				c.send(frame(fin|3, ""))
				c.wantClose(1002)
			case 2:
				c.Conn.(*h2test.Stream).Reset(http2.ErrCodeCancel)
				continue
			}
			c.Close()
		}
		last := openStream(t, connection, "/ws")
		last.send(frame(fin|text, "fine"))
		last.want(fin|text, "fine")
	})
}

// A handshake is refused as over HTTP/1.1, and the other streams of the connection continue.
func TestHTTP2Refusals(t *testing.T) {
	u := websocket.New(websocket.Options{OnMessage: echo, Subprotocols: []string{"chat"}})
	for _, driver := range []filo.Driver{filo.DriverLoop, filo.DriverBlocking} {
		connection := speakHTTP2(connect(t, serveHandler(t, driver, u.Serve)))
		sibling := openStream(t, connection, "/ws", "Sec-WebSocket-Protocol: chat")
		if got := sibling.Conn.(*h2test.Stream).Field("sec-websocket-protocol"); got != "chat" {
			t.Errorf("the subprotocol %q", got)
		}
		for _, test := range []struct {
			says, protocol string
			fields         []string
			status         int
		}{
			{"another protocol", "connect-udp", []string{"sec-websocket-version", "13"}, 426},
			{"no version", "websocket", nil, 426},
			{"another version", "websocket", []string{"sec-websocket-version", "12"}, 426},
			{"another origin", "websocket", []string{"sec-websocket-version", "13", "origin", "http://evil.test"}, 403},
			{"wrong extensions", "websocket", []string{"sec-websocket-version", "13", "sec-websocket-extensions", "="}, 400},
			{"its own origin", "websocket", []string{"sec-websocket-version", "13", "origin", "http://filo.test"}, 200},
		} {
			s := connection.Connect(test.protocol, "/ws", test.fields...)
			if status, err := s.Status(); status != test.status || err != nil {
				t.Errorf("%s: %d, %v; want %d", test.says, status, err, test.status)
			}
			s.Close()
			sibling.send(frame(fin|text, test.says))
			sibling.want(fin|text, test.says)
		}
		if status, _, err := connection.Get("/ws"); status != 426 || err != nil {
			t.Errorf("a plain GET: %d, %v", status, err)
		}
	}
}
