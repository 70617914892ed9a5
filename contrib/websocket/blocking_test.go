package websocket_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
)

// acceptOne serves one WebSocket with each driver, passes its connection to serve, and runs a client against it.
func acceptOne(t *testing.T, options websocket.Options, serve func(*websocket.Conn) error, test func(*client), fields ...string) {
	t.Helper()
	u := websocket.New(options)
	for _, m := range modes[2:] {
		t.Run(m.name, func(t *testing.T) {
			served := make(chan error, 1)
			address := serveHandler(t, m.driver, func(c *filo.Ctx) error {
				conn, err := u.Accept(c)
				if err == nil {
					err = serve(conn)
					conn.CloseNow()
				}
				served <- err
				return nil
			})
			test(open(t, address, fields...))
			if err := await(t, served, "the handler"); err != nil {
				t.Error(err)
			}
		})
	}
}

// Reader returns the bytes of a message as they arrive. If a message isn't read to its end, its rest is skipped.
func TestReader(t *testing.T) {
	for _, fields := range [][]string{nil, {offerDeflate}} {
		send := func(payload string) string {
			if fields == nil {
				return frame(binaryOp, payload[:len(payload)/2]) + frame(fin|ping, "") + frame(fin|continuation, payload[len(payload)/2:])
			}
			d := deflated(payload)
			return frame(rsv1|binaryOp, d[:len(d)/2]) + frame(fin|ping, "") + frame(fin|continuation, d[len(d)/2:])
		}
		big := strings.Repeat(long, 500)
		acceptOne(t, websocket.Options{Compression: websocket.CompressionContext, MaxMessageBytes: -1}, func(c *websocket.Conn) error {
			kind, r, err := c.Reader()
			if err != nil {
				return err
			}
			all, err := io.ReadAll(r)
			if err != nil || kind != websocket.Binary || string(all) != big {
				t.Errorf("got %d, %s, %v", kind, short(string(all)), err)
			}
			if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("behind the end: %d, %v", n, err)
			}
			if _, r, err = c.Reader(); err != nil {
				return err
			}
			if _, err := io.ReadFull(r, make([]byte, 10)); err != nil { // the rest of this message isn't read
				return err
			}
			if _, _, err = c.Reader(); err != nil { // this message isn't read
				return err
			}
			kind, all, err = c.Read()
			if err != nil || kind != websocket.Text || string(all) != umlauts {
				t.Errorf("got %d, %s, %v", kind, short(string(all)), err)
			}
			_, _, err = c.Reader()
			if websocket.CloseStatus(err) != 1000 {
				t.Errorf("got %v", err)
			}
			return nil
		}, func(c *client) {
			go io.WriteString(c, send(big)+send(big)+send(long)+frame(fin|text, umlauts)+closeFrame(1000, ""))
			c.wantClose(1000)
			c.wantEnd()
		}, fields...)
	}
}

// If a message is invalid, Read returns the reason. The reader that Reader returns gives the bytes as they arrive, and then the reason.
func TestReaderFails(t *testing.T) {
	for _, test := range []struct {
		says, send string
		code       int
	}{
		{"text that isn't UTF-8", frame(fin|text, "a\xff"), 1007},
		{"text that ends too early", frame(fin|text, "a\xe2\x82"), 1007},
		{"compressed text that isn't UTF-8", frame(fin|rsv1|text, deflated("a\xff")), 1007},
		{"compressed text that ends too early", frame(fin|rsv1|text, deflated("a\xe2\x82")), 1007},
		{"what can't be decompressed", frame(fin|rsv1|binaryOp, "\xff\xff\xff"), 1007},
		{"very many last blocks", frame(fin|rsv1|text, strings.Repeat("\x03\x00", 100)), 1007},
		{"a bomb", frame(fin|rsv1|binaryOp, deflated(strings.Repeat("\x00", 1_000_000))), 1009},
		{"too long", frame(binaryOp, strings.Repeat("x", 900)) + frame(fin|continuation, strings.Repeat("x", 900)), 1009},
		{"another message within it", frame(binaryOp, "a") + frame(fin|text, "b"), 1002},
		{"its end in the middle", frame(binaryOp, "a") + closeFrame(1001, ""), 1001},
	} {
		t.Run(test.says, func(t *testing.T) {
			acceptOne(t, websocket.Options{Compression: websocket.CompressionPerMessage, MaxMessageBytes: 1000}, func(c *websocket.Conn) error {
				_, r, err := c.Reader()
				if err == nil {
					_, err = io.Copy(io.Discard, r)
				}
				if int(websocket.CloseStatus(err)) != test.code {
					t.Errorf("got %v", err)
				}
				if _, _, again := c.Read(); again == nil || again.Error() != err.Error() {
					t.Errorf("then %v, and now %v", err, again)
				}
				return nil
			}, func(c *client) {
				c.send(test.send)
				c.wantClose(test.code)
				c.closeWrite()
				c.wantEnd()
			}, offerDeflate)
		})
	}
}

// Writer sends a message in fragments. Control frames may be sent between the fragments, but no other messages.
func TestWriter(t *testing.T) {
	for _, fields := range [][]string{nil, {offerDeflate}} {
		big := strings.Repeat(long, 100)
		acceptOne(t, websocket.Options{Compression: websocket.CompressionContext}, func(c *websocket.Conn) error {
			for range 2 {
				w, err := c.Writer(websocket.Text)
				if err != nil {
					return err
				}
				written := make(chan error, 1)
				go func() { written <- c.Write(websocket.Text, []byte("behind")) }()
				for piece := []byte(big); len(piece) > 0; piece = piece[min(len(piece), 7001):] {
					if _, err := w.Write(piece[:min(len(piece), 7001)]); err != nil {
						return err
					}
				}
				if err := c.Ping(); err != nil {
					return err
				}
				if err := errors.Join(w.Close(), <-written); err != nil {
					return err
				}
				if err := w.Close(); err == nil {
					t.Error("Close twice succeeded")
				}
			}
			w, err := c.Writer(websocket.Binary)
			if err != nil {
				return err
			}
			return errors.Join(w.Close(), c.Close(1000, ""))
		}, func(c *client) {
			var context string
			for range 2 {
				var message bytes.Buffer
				frames, pings := 0, 0
				compressed := false
				for last := false; !last; {
					first, payload, err := c.receive()
					switch {
					case err != nil:
						c.t.Fatal(err)
					case first&0x0f == ping:
						pings++
						continue
					case (first&0x0f == text) != (frames == 0), first&rsv1 != 0 && frames > 0:
						c.t.Fatalf("frame %d is %#x", frames, first)
					}
					compressed = compressed || first&rsv1 != 0
					message.WriteString(payload)
					frames++
					last = first&fin != 0
				}
				got := message.String()
				if compressed != (fields != nil) {
					c.t.Fatalf("compressed: %t", compressed)
				}
				if compressed {
					got = inflated(c.t, got, context)
					context += got
				}
				if got != big || frames < 5 || pings != 1 {
					c.t.Fatalf("got %s in %d frames, and %d pings", short(got), frames, pings)
				}
				c.want(fin|text, "behind")
			}
			if first, payload, err := c.receive(); err != nil || first&^rsv1 != fin|binaryOp || strings.Trim(payload, "\x00") != "" {
				c.t.Fatalf("got %#x %q, %v", first, payload, err)
			}
			c.want(fin|closeOp, closePayload(1000, ""))
			c.send(closeFrame(1000, ""))
			c.wantEnd()
		}, fields...)
	}
}

// A Writer may have sent a part of a text before it notices that the text isn't UTF-8. The part can't be withdrawn, so the connection is
// closed with the code of an error.
func TestWriterBadText(t *testing.T) {
	for _, payload := range []string{"a\xff", "a\xe2\x82"} {
		acceptOne(t, websocket.Options{CloseTimeout: 10 * time.Millisecond}, func(c *websocket.Conn) error {
			w, err := c.Writer(websocket.Text)
			if err != nil {
				return err
			}
			_, err = w.Write([]byte(payload))
			if err = errors.Join(err, w.Close()); err == nil {
				t.Error("it was sent")
			}
			c.Read()
			return nil
		}, func(c *client) {
			c.wantClose(1011)
			c.wantEnd()
		})
	}
}

// Close sends a close frame, discards messages until the client has answered, and then returns. A waiting Read returns, too.
func TestCloseWaits(t *testing.T) {
	acceptOne(t, websocket.Options{}, func(c *websocket.Conn) error {
		read := make(chan error, 1)
		go func() {
			_, _, err := c.Read()
			read <- err
		}()
		if err := c.Close(4000, "enough"); err != nil {
			t.Errorf("Close: %v", err)
		}
		var closed *websocket.CloseError
		if err := await(t, read, "Read"); !errors.As(err, &closed) || !closed.Local || closed.Code != 4000 {
			t.Errorf("Read: %v", err)
		}
		return nil
	}, func(c *client) {
		c.want(fin|closeOp, closePayload(4000, "enough"))
		c.send(frame(fin|text, "dropped") + frame(text, "dropped") + frame(fin|ping, "too") + closeFrame(4000, ""))
		c.wantEnd()
	})
}

// Close cuts a message that another goroutine reads from a Reader: the goroutine gets an error, neither bytes of something else nor the end.
func TestCloseCutsMessage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var digits strings.Builder
	for range 200_000 {
		digits.WriteByte('0' + byte(random.IntN(10)))
	}
	payload := digits.String()
	for _, fields := range [][]string{nil, {offerDeflate}} {
		first, sent := byte(binaryOp), payload
		if fields != nil {
			first, sent = rsv1|binaryOp, deflated(payload)
		}
		for _, complete := range []bool{false, true} {
			acceptOne(t, websocket.Options{Compression: websocket.CompressionContext}, func(c *websocket.Conn) error {
				_, r, err := c.Reader()
				if err != nil {
					return err
				}
				if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
					return err
				}
				if err := c.Close(4000, ""); err != nil {
					t.Errorf("Close: %v", err)
				}
				rest, err := io.ReadAll(r)
				if websocket.CloseStatus(err) != 4000 {
					t.Errorf("got %v", err)
				}
				if fields == nil && len(rest) > 0 {
					t.Errorf("got %s", short(string(rest)))
				}
				return nil
			}, func(c *client) {
				c.send(frame(first, sent[:len(sent)/2]))
				c.wantClose(4000)
				if complete {
					c.send(frame(fin|continuation, sent[len(sent)/2:]))
				}
				c.send(frame(fin|ping, strings.Repeat("x", 100)) + closeFrame(4000, ""))
				c.wantEnd()
			}, fields...)
		}
	}
}

// Methods for connections opened by Serve fail on connections opened by Accept, and vice versa.
func TestWrongMode(t *testing.T) {
	acceptOne(t, websocket.Options{}, func(c *websocket.Conn) error {
		m, _ := websocket.NewPreparedMessage(websocket.Text, nil)
		if c.Send(m) == nil || new(websocket.Hub).Join("topic", c) == nil {
			t.Error("a connection of Accept has a queue")
		}
		return nil
	}, func(c *client) { c.wantEnd() })
	done := make(chan bool, 1)
	c := open(t, modes[0].serve(t, websocket.Options{OnMessage: func(c *websocket.Conn, _ websocket.MessageType, _ []byte) error {
		_, _, read := c.Read()
		_, _, reader := c.Reader()
		_, writer := c.Writer(websocket.Text)
		done <- read != nil && reader != nil && writer != nil
		return nil
	}}))
	c.send(frame(fin|text, ""))
	if !await(t, done, "OnMessage") {
		t.Error("a connection of Serve can be read")
	}
}
