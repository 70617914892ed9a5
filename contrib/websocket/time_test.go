package websocket_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
)

// A message that arrives slowly must be complete within ReadTimeout after its first byte, whatever other frames arrive in between.
func TestSlowMessage(t *testing.T) {
	for _, start := range []string{"\x81", frame(fin|text, "abc")[:7], frame(text, "abc"), frame(fin|ping, "abc")[:8]} {
		inModes(t, websocket.Options{ReadTimeout: 50 * time.Millisecond}, func(t *testing.T, address string) {
			c := open(t, address)
			c.send(frame(fin|text, "first"))
			c.want(fin|text, "first")
			c.send(start)
			c.wantClose(1008)
			c.closeWrite()
			c.wantEnd()
		})
	}
	inModes(t, websocket.Options{ReadTimeout: 50 * time.Millisecond}, func(t *testing.T, address string) {
		c := open(t, address)
		c.send(frame(text, "a"))
		for { // pings and fragments don't extend the time
			io.WriteString(c, frame(fin|ping, "p")+frame(continuation, "b"))
			first, payload, err := c.receive()
			if err != nil {
				t.Fatal(err)
			}
			if first == fin|closeOp {
				if payload[:2] != closePayload(1008, "") {
					t.Errorf("got %q", payload)
				}
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// A silent client is sent a ping. Its connection stays open as long as the client answers with any frame, and ends when it doesn't.
func TestKeepAlive(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel() // connections opened by Serve are checked once a second
			// A busy machine may stall for longer than a short PongTimeout. So the test is repeated with longer ones, to show that a client
			// that answers keeps its connection.
			for timeout := 60 * time.Millisecond; ; timeout *= 6 {
				c := open(t, m.serve(t, websocket.Options{OnMessage: echo, PingInterval: timeout / 3, PongTimeout: timeout}))
				err := answerPings(c, 4)
				if err == nil {
					c.wantEnd()
					return
				}
				if timeout > 10*time.Second {
					t.Fatalf("a client that answers each ping: %v", err)
				}
			}
		})
	}
}

// answerPings answers n pings, alternately by pongs and by messages, and then waits for one more ping. It returns an error if a ping is
// missing.
func answerPings(c *client, n int) error {
	for i := range n {
		if err := c.check(fin|ping, ""); err != nil {
			return err
		}
		if i%2 == 0 {
			io.WriteString(c, frame(fin|pong, ""))
			continue
		}
		io.WriteString(c, frame(fin|text, "hello"))
		if err := c.check(fin|text, "hello"); err != nil {
			return err
		}
	}
	return c.check(fin|ping, "")
}

// A client need only answer a ping that was sent. While another goroutine sends on the connection, no ping can be sent.
func TestPingNotSent(t *testing.T) {
	const hour = time.Hour
	for _, m := range modes[:2] {
		looked := make(chan error, 3)
		address := m.serve(t, websocket.Options{PingInterval: hour, PongTimeout: hour,
			OnMessage: func(c *websocket.Conn, _ websocket.MessageType, _ []byte) error {
				at := websocket.Now()
				release := c.Hold()
				looked <- c.LookSilence(at + hour)
				looked <- c.LookSilence(at + 2*hour)
				release()
				looked <- c.LookSilence(at + 3*hour)
				return nil
			}})
		c := open(t, address)
		c.send(frame(fin|text, ""))
		for range cap(looked) {
			if err := await(t, looked, "a look"); err != nil {
				t.Fatalf("%s: got %v", m.name, err)
			}
		}
		c.want(fin|ping, "")
	}
}

// If a connection opened by Accept can't send its ping at once, PongTimeout begins when the ping was sent.
func TestPingSentLate(t *testing.T) {
	acceptOne(t, websocket.Options{PingInterval: 1}, func(c *websocket.Conn) error {
		release := c.Hold()
		released := make(chan time.Duration, 1)
		at := websocket.Now()
		go func() {
			released <- websocket.Now()
			release()
		}()
		err := c.LookSilence(at)
		if pinged := c.Pinged(); err != nil || pinged < <-released {
			t.Errorf("pinged at %v, before another goroutine let it be sent; %v", pinged, err)
		}
		return nil
	}, func(c *client) { c.want(fin|ping, "") })
}

// Without PongTimeout a client gets pings, but needn't answer them.
func TestPingsOnly(t *testing.T) {
	options := websocket.Options{PingInterval: 10 * time.Millisecond, PongTimeout: -1}
	inModes(t, options, func(t *testing.T, address string) {
		t.Parallel()
		c := open(t, address)
		for range 5 {
			c.want(fin|ping, "")
		}
	})
}

// If PingInterval is negative, nothing is sent to a silent client.
func TestNoPings(t *testing.T) {
	inModes(t, websocket.Options{PingInterval: -1, ReadTimeout: -1, WriteTimeout: -1}, func(t *testing.T, address string) {
		c := open(t, address)
		c.send(frame(fin|text, "hello")[:8])
		c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
		if _, err := c.in.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// If a client sends messages but doesn't read, a Write that waits for the client fails after WriteTimeout, and the connection ends.
func TestClientStopsReading(t *testing.T) {
	big := strings.Repeat("x", 60_000)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			options, ended := closes()
			options.WriteTimeout = 100 * time.Millisecond
			m.small = true
			if handler := m.handler; strings.HasPrefix(m.name, "Accept") {
				errs := make(chan error, 10)
				ended = errs
				m.handler = func(u *websocket.Upgrader) filo.Handler {
					h := handler(u)
					return func(c *filo.Ctx) error {
						errs <- h(c)
						return nil
					}
				}
			}
			address := m.serve(t, options)
			c := open(t, address)
			go func() {
				for {
					if _, err := io.WriteString(c, frame(fin|binaryOp, big)); err != nil {
						return
					}
				}
			}()
			if err := await(t, ended, "the end"); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			// Other clients are served as before.
			other := open(t, address)
			other.send(frame(fin|text, "fine"))
			other.want(fin|text, "fine")
		})
	}
}

// Answers to messages that arrived together are sent together. But if OnMessage takes long, the first answers are sent before the last
// answers are ready.
func TestAnswersDontWait(t *testing.T) {
	for _, m := range modes[:2] {
		released := make(chan bool)
		address := m.serve(t, websocket.Options{OnMessage: func(c *websocket.Conn, kind websocket.MessageType, b []byte) error {
			err := c.Write(kind, b)
			if string(b) == "wait" {
				<-released
			}
			return err
		}})
		c := open(t, address)
		c.send(frame(fin|text, "1") + frame(fin|text, "wait") + frame(fin|text, "2"))
		c.want(fin|text, "1")
		c.want(fin|text, "wait")
		close(released)
		c.want(fin|text, "2")
	}
}

// OnMessage finds the value that OnOpen has stored, and isn't called before OnOpen has returned.
func TestOnOpen(t *testing.T) {
	for _, m := range modes[:2] {
		address := m.serve(t, websocket.Options{
			Subprotocols: []string{"chat"},
			OnOpen: func(r *filo.Ctx, c *websocket.Conn) error {
				if r.Query("who") == "nobody" {
					return &websocket.CloseError{Code: websocket.StatusPolicyViolation, Reason: "who are you?"}
				}
				c.SetValue(r.Query("who"))
				return c.Write(websocket.Text, []byte("welcome to "+c.Subprotocol()))
			},
			OnMessage: func(c *websocket.Conn, kind websocket.MessageType, _ []byte) error {
				return c.Write(kind, []byte(c.Value().(string)))
			}})
		c := connect(t, address)
		c.send(request("GET /ws?who=gopher HTTP/1.1", "+Sec-WebSocket-Protocol: chat") + frame(fin|text, ""))
		c.head()
		c.want(fin|text, "welcome to chat")
		c.want(fin|text, "gopher")
		c = connect(t, address)
		c.send(request("GET /ws?who=nobody HTTP/1.1"))
		c.head()
		c.wantClose(1008)
		c.send(closeFrame(1008, ""))
		c.wantEnd()
	}
}
