package websocket_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/internal/tcptest"
)

// closes returns options whose OnClose sends its error to the channel.
func closes() (options websocket.Options, ended <-chan error) {
	errs := make(chan error, 10)
	return websocket.Options{OnMessage: echo, OnClose: func(_ *websocket.Conn, err error) { errs <- err }}, errs
}

var errUser = errors.New("the user's error")

// OnClose is called once, with the error that has ended the connection.
func TestOnClose(t *testing.T) {
	refuse := func(c *websocket.Conn, _ websocket.MessageType, m []byte) error {
		switch string(m) {
		case "close":
			return &websocket.CloseError{Code: 4321, Reason: strings.Repeat("ü", 100)}
		case "wrong code":
			return &websocket.CloseError{Code: 1006}
		case "error":
			return errUser
		case "panic":
			panic("in OnMessage")
		case "Close":
			return c.Close(websocket.StatusGoingAway, "so long")
		case "CloseNow":
			return c.CloseNow()
		}
		return c.Write(websocket.Binary, m)
	}
	for _, test := range []struct {
		says   string
		send   string
		code   int // of the close frame that the client receives; 0 is none
		answer bool
		want   func(error) bool
	}{
		{"the client closes", closeFrame(4000, "bye"), 4000, false, func(err error) bool {
			var closed *websocket.CloseError
			return errors.As(err, &closed) && closed.Code == 4000 && closed.Reason == "bye" && !closed.Local
		}},
		{"the client closes without a code", frame(fin|closeOp, ""), 0, false, func(err error) bool { return websocket.CloseStatus(err) == 1005 }},
		{"the client violates the protocol", frame(fin|3, ""), 1002, false, func(err error) bool {
			var closed *websocket.CloseError
			return errors.As(err, &closed) && closed.Code == 1002 && closed.Local
		}},
		{"OnMessage returns a CloseError", frame(fin|text, "close"), 4321, true, func(err error) bool { return websocket.CloseStatus(err) == 4321 }},
		{"one with a code that can't be sent", frame(fin|text, "wrong code"), 1011, true, func(err error) bool { return err != nil }},
		{"OnMessage returns another error", frame(fin|text, "error"), 1011, true, func(err error) bool { return errors.Is(err, errUser) }},
		{"OnMessage panics", frame(fin|text, "panic"), 1011, false, func(err error) bool { return websocket.CloseStatus(err) == 1011 }},
		{"Close is called", frame(fin|text, "Close"), 1001, true, func(err error) bool { return websocket.CloseStatus(err) == 1001 }},
		{"CloseNow is called", frame(fin|text, "CloseNow"), 0, false, func(err error) bool { return errors.Is(err, websocket.ErrClosed) }},
	} {
		t.Run(test.says, func(t *testing.T) {
			for _, m := range modes[:2] {
				options, ended := closes()
				options.OnMessage = refuse
				c := open(t, m.serve(t, options))
				c.send(frame(fin|binaryOp, "first"))
				c.want(fin|binaryOp, "first")
				c.send(test.send)
				if test.code != 0 {
					c.wantClose(test.code)
				}
				if test.answer {
					c.send(frame(fin|text, "is dropped") + closeFrame(test.code, ""))
					c.wantEnd()
				}
				c.Close()
				if err := await(t, ended, "OnClose"); !test.want(err) {
					t.Errorf("%s: got %v", m.name, err)
				}
				select {
				case err := <-ended:
					t.Errorf("%s: once more, with %v", m.name, err)
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
}

// A client that leaves without a close frame ends the connection, too, even in the middle of a frame.
func TestNoClose(t *testing.T) {
	for _, send := range []string{"", "\x81", frame(fin|text, "abc")[:8], frame(text, "abc"), frame(fin|ping, "abc")[:7]} {
		for _, m := range modes[:2] {
			options, ended := closes()
			c := open(t, m.serve(t, options))
			c.send(send)
			c.Close()
			err := await(t, ended, "OnClose")
			if websocket.CloseStatus(err) != websocket.StatusAbnormalClosure {
				t.Errorf("%s, after %q: got %v", m.name, send, err)
			}
		}
	}
}

// If the client doesn't answer a close frame, the connection is closed after a time.
func TestCloseTimeout(t *testing.T) {
	for _, m := range modes[:2] {
		options, ended := closes()
		options.CloseTimeout = 20 * time.Millisecond
		options.OnMessage = func(c *websocket.Conn, _ websocket.MessageType, _ []byte) error { return c.Close(1000, "") }
		c := open(t, m.serve(t, options))
		c.send(frame(fin|text, "a"))
		c.want(fin|closeOp, closePayload(1000, ""))
		c.wantEnd()
		if err := await(t, ended, "OnClose"); websocket.CloseStatus(err) != 1000 {
			t.Errorf("%s: got %v", m.name, err)
		}
	}
}

// A client that has received the close frame for its error and does nothing is disconnected after a short time. Bytes that it sends within
// that time don't make the system reset the connection, so the client can read the reason.
func TestFailedClientLingers(t *testing.T) {
	inModes(t, websocket.Options{MaxMessageBytes: 1000, CloseTimeout: 10 * time.Second}, func(t *testing.T, address string) {
		t.Parallel()
		c := open(t, address)
		c.send(frame(fin|binaryOp, strings.Repeat("x", 300_000)))
		c.wantClose(1009)
		c.wantEnd()
	})
}

// Writes after the end of a connection fail with the error that has ended it.
func TestWriteAfterClose(t *testing.T) {
	for _, m := range modes[:2] {
		opened := make(chan *websocket.Conn, 1)
		options, ended := closes()
		options.OnOpen = func(_ *filo.Ctx, c *websocket.Conn) error {
			opened <- c
			return nil
		}
		client := open(t, m.serve(t, options))
		c := await(t, opened, "OnOpen")
		client.send(closeFrame(4000, ""))
		await(t, ended, "OnClose")
		prepared, _ := websocket.NewPreparedMessage(websocket.Text, []byte("a"))
		for what, err := range map[string]error{"Write": c.Write(websocket.Text, nil), "Send": c.Send(prepared), "Ping": c.Ping(), "Close": c.Close(1000, "")} {
			if !errors.Is(err, websocket.ErrClosed) || websocket.CloseStatus(err) != 4000 {
				t.Errorf("%s, %s: got %v", m.name, what, err)
			}
		}
	}
}

// A message that can't be sent is refused, and the connection stays open.
func TestWriteRefuses(t *testing.T) {
	for _, m := range modes {
		check := func(c *websocket.Conn) {
			for says, err := range map[string]error{
				"text that isn't UTF-8": c.Write(websocket.Text, []byte("\xff")),
				"no type":               c.Write(0, nil),
				"a type of frames":      c.Write(8, nil),
				"status 1005":           c.Close(1005, ""),
				"status 1006":           c.Close(1006, ""),
				"status 999":            c.Close(999, ""),
				"status 5000":           c.Close(5000, ""),
			} {
				if err == nil || errors.Is(err, websocket.ErrClosed) {
					t.Errorf("%s: %s: got %v", m.name, says, err)
				}
			}
		}
		u := websocket.New(websocket.Options{OnMessage: func(c *websocket.Conn, kind websocket.MessageType, b []byte) error {
			check(c)
			return c.Write(kind, b)
		}})
		client := open(t, serveHandler(t, m.driver, func(c *filo.Ctx) error {
			if strings.HasPrefix(m.name, "Serve") {
				return u.Serve(c)
			}
			conn, err := u.Accept(c)
			if err != nil {
				return err
			}
			check(conn)
			kind, b, err := conn.Read()
			conn.Write(kind, b)
			return err
		}))
		client.send(frame(fin|text, "fine"))
		client.want(fin|text, "fine")
	}
}

// At Shutdown the server tells its clients that it is going away, and waits until their connections have ended.
func TestShutdown(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			options, ended := closes()
			options.CloseTimeout = testTimeout
			address, shutdown := serveUntil(t, m.driver, m.handler(websocket.New(options)))
			var clients []*client
			for i := range 5 {
				c := open(t, address)
				if i == 1 {
					c.send(frame(text, "within a message"))
				}
				c.send(frame(fin|ping, ""))
				c.want(fin|pong, "")
				clients = append(clients, c)
			}
			done := make(chan error, 1)
			go func() { done <- shutdown(t.Context()) }()
			for i, c := range clients {
				c.wantClose(1001)
				if i != 2 { // this client doesn't answer
					c.send(closeFrame(1001, ""))
					c.wantEnd()
				} else if overHTTP2 && strings.HasPrefix(m.name, "Accept") {
					c.Close() // Shutdown waits for this connection
				}
			}
			if err := await(t, done, "Shutdown"); err != nil {
				t.Error(err)
			}
			if strings.HasPrefix(m.name, "Serve") {
				for range clients {
					if err := await(t, ended, "OnClose"); websocket.CloseStatus(err) != 1001 {
						t.Errorf("got %v", err)
					}
				}
			}
		})
	}
}

// serveUntil serves until shutdown is called.
func serveUntil(t *testing.T, driver filo.Driver, h filo.Handler) (address string, shutdown func(context.Context) error) {
	s := &filo.Server{Handler: h, Driver: driver, Logger: quiet, HTTP2: extendedConnect}
	ln, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(ln)
	t.Cleanup(func() { s.Close() })
	return ln.Addr().String(), s.Shutdown
}

// Incomplete messages of all connections together may have MaxBufferedBytes. They count until they are complete, or their connection ends.
func TestMaxBufferedBytes(t *testing.T) {
	inModes(t, websocket.Options{MaxBufferedBytes: 100_000}, func(t *testing.T, address string) {
		half := strings.Repeat("x", 60_000)
		hold := func() (c *client, held bool) {
			c = open(t, address)
			c.send(frame(text, half) + frame(fin|ping, "held"))
			first, payload, err := c.receive()
			if err != nil {
				t.Fatal(err)
			}
			if first == fin|closeOp && payload[:2] == closePayload(1013, "") {
				return c, false
			}
			if first != fin|pong {
				t.Fatalf("got %#x %s", first, short(payload))
			}
			return c, true
		}
		for _, end := range []func(c *client){
			func(c *client) {
				c.send(frame(fin|continuation, "end"))
				c.want(fin|text, half+"end")
			},
			func(c *client) {
				c.send(closeFrame(1001, ""))
				c.wantClose(1001)
			},
			func(c *client) {
				c.send(frame(fin|text, "a message within another"))
				c.wantClose(1002)
			},
			func(c *client) { c.Close() },
		} {
			var c *client
			eventually(t, "room for a message", func() (held bool) {
				c, held = hold()
				return held
			})
			if _, held := hold(); held {
				t.Fatal("two messages have room")
			}
			end(c)
		}
		eventually(t, "room for a message", func() (held bool) {
			_, held = hold()
			return held
		})
	})
}

// records receives the records that a server logs.
type records chan string

// Write implements io.Writer.
func (r records) Write(b []byte) (int, error) {
	r <- string(b)
	return len(b), nil
}

// A panic of OnClose is logged, and ends nothing but the call, even if no function of the connection was running.
func TestOnClosePanics(t *testing.T) {
	for _, m := range modes[:2] {
		logged := make(records, 10)
		logger := slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelError}))
		address := tcptest.Serve(t, &filo.Server{Driver: m.driver, HTTP2: extendedConnect, Logger: logger,
			Handler: websocket.New(websocket.Options{
				OnMessage: func(c *websocket.Conn, _ websocket.MessageType, _ []byte) error {
					return c.CloseNow()
				},
				OnClose: func(*websocket.Conn, error) { panic("OnClose panics") },
			}).Serve})
		open(t, address).send(frame(fin|text, ""))
		if record := await(t, logged, "a record"); !strings.Contains(record, "OnClose panics") {
			t.Errorf("%s: got %s", m.name, record)
		}
		open(t, address)
	}
}
