package websocket_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/sse"
)

// hubServer serves connections that join the topic that the query names. Their messages are broadcast on that topic.
func hubServer(t *testing.T, m mode, hub *websocket.Hub, options websocket.Options) (address string, ended <-chan error) {
	errs := make(chan error, 1000)
	options.OnOpen = func(r *filo.Ctx, c *websocket.Conn) error {
		topic := r.Query("topic")
		c.SetValue(topic)
		return hub.Join(topic, c)
	}
	options.OnMessage = func(c *websocket.Conn, kind websocket.MessageType, b []byte) error {
		topic := c.Value().(string)
		if string(b) == "leave" {
			hub.Leave(topic, c)
			return nil
		}
		_, err := hub.Broadcast(topic, kind, b)
		return err
	}
	options.OnClose = func(_ *websocket.Conn, err error) { errs <- err }
	return m.serve(t, options), errs
}

// join opens a connection that is a member of the topic.
func join(t *testing.T, address, topic string, edits ...string) *client {
	t.Helper()
	c := connect(t, address)
	if overHTTP2 {
		c = openStream(t, speakHTTP2(c), "/ws?topic="+topic, edits...)
	} else {
		c.send(request("GET /ws?topic="+topic+" HTTP/1.1", edits...))
		c.head()
	}
	c.send(frame(fin|ping, "in"))
	c.want(fin|pong, "in")
	return c
}

// A message is sent to all members of its topic and to nobody else, compressed for those members that have negotiated compression.
func TestHub(t *testing.T) {
	for _, m := range modes[:2] {
		for _, compression := range []websocket.Compression{websocket.CompressionPerMessage, websocket.CompressionContext} {
			t.Run(fmt.Sprint(m.name, compression), func(t *testing.T) {
				var hub websocket.Hub
				address, ended := hubServer(t, m, &hub, websocket.Options{Compression: compression, CompressionMinimum: 100})
				plain, compressed := join(t, address, "a"), join(t, address, "a", "+"+strings.TrimSpace(offerDeflate))
				other := join(t, address, "b")
				if a, b, none := hub.Len("a"), hub.Len("b"), hub.Len("c"); a != 2 || b != 1 || none != 0 {
					t.Errorf("%d, %d and %d members", a, b, none)
				}
				context := ""
				for i := range 3 {
					message := fmt.Sprint(i, long)
					plain.send(frame(fin|text, message))
					plain.want(fin|text, message)
					first, payload, err := compressed.receive()
					switch {
					case err == nil && first == fin|rsv1|text && inflated(t, payload, context) == message:
						if compression == websocket.CompressionContext {
							context += message
						}
					case err == nil && first == fin|text && payload == message && compression == websocket.CompressionContext:
						// The worker that sent the pong still held the connection, so the message was sent uncompressed. Such a message
						// isn't added to the compression context.
					default:
						t.Fatalf("got %#x %s, %v", first, short(payload), err)
					}
				}
				plain.send(frame(fin|text, "short"))
				plain.want(fin|text, "short")
				compressed.want(fin|text, "short")
				other.send(frame(fin|text, "to myself"))
				other.want(fin|text, "to myself")

				plain.send(frame(fin|text, "leave"))
				eventually(t, "it to leave", func() bool { return hub.Len("a") == 1 })
				compressed.Close()
				await(t, ended, "OnClose")
				eventually(t, "the other to go", func() bool { return hub.Len("a") == 0 })
				if sent, err := hub.Broadcast("a", websocket.Text, nil); sent != 0 || err != nil {
					t.Errorf("sent to %d, %v", sent, err)
				}
				if _, err := hub.Broadcast("b", websocket.Text, []byte("\xff")); err == nil {
					t.Error("text that isn't UTF-8 was sent")
				}
				if err := hub.Close("b", 4001, "closed"); err != nil || hub.Close("b", 1005, "") == nil {
					t.Error(err)
				}
				other.wantClose(4001)
			})
		}
	}
}

// Close closes the connections of all members at once, even if a Write waits for one of the clients.
func TestHubCloseWaitsForNoMember(t *testing.T) {
	for _, m := range modes[:2] {
		t.Run(m.name, func(t *testing.T) {
			var hub websocket.Hub
			opened := make(chan *websocket.Conn, 1)
			address := m.serve(t, websocket.Options{WriteTimeout: -1, OnMessage: echo, OnOpen: func(_ *filo.Ctx, c *websocket.Conn) error {
				opened <- c
				return hub.Join("a", c)
			}})
			slow := open(t, address)
			conn := await(t, opened, "the connection")
			var others []*client
			for range 8 {
				others = append(others, open(t, address))
				await(t, opened, "a connection")
			}
			var group sync.WaitGroup
			group.Go(func() { conn.Write(websocket.Binary, make([]byte, 64<<20)) })
			eventually(t, "the Write to wait", conn.Waits)
			group.Go(func() { hub.Close("a", 4000, "") })
			for _, c := range others {
				c.wantClose(4000)
			}
			if !conn.Waits() {
				t.Error("the others have waited for the slow member")
			}
			slow.Close()
			group.Wait()
		})
	}
}

// Members of a topic get its messages in the same order, whoever sends them. A member that doesn't read is dropped, which doesn't affect
// other members.
func TestHubOrderAndSlowClient(t *testing.T) {
	const members, senders, messages = 10, 4, 50
	for _, m := range modes[:2] {
		t.Run(m.name, func(t *testing.T) {
			var hub websocket.Hub
			m.small = true
			address, ended := hubServer(t, m, &hub, websocket.Options{MaxQueuedBytes: 128 << 10})
			clients := make([]*client, members)
			for i := range clients {
				clients[i] = join(t, address, "a")
			}
			slow := join(t, address, "a") // this client doesn't read any more
			if socket, ok := slow.Conn.(*net.TCPConn); ok {
				socket.SetReadBuffer(4 << 10)
			}
			payload := make([]byte, 8<<10)
			turns := make(chan bool, 8) // limits how far the senders may be ahead of the slowest client that reads
			var senderGroup, clientGroup sync.WaitGroup
			for s := range senders {
				senderGroup.Go(func() {
					message := append([]byte(nil), payload...)
					for i := range messages {
						turns <- true
						binary.BigEndian.PutUint64(message, uint64(s)<<32|uint64(i))
						hub.Broadcast("a", websocket.Binary, message)
					}
				})
			}
			orders := make([][]uint64, members)
			var received [senders * messages]atomic.Int32
			for i, c := range clients {
				clientGroup.Go(func() {
					for n := range senders * messages {
						_, got, err := c.receive()
						if err != nil {
							t.Errorf("client %d, message %d: %v", i, n, err)
							return
						}
						orders[i] = append(orders[i], binary.BigEndian.Uint64([]byte(got)))
						if received[n].Add(1) == members {
							<-turns
						}
					}
				})
			}
			senderGroup.Wait()
			clientGroup.Wait()
			for i := range orders {
				if fmt.Sprint(orders[i]) != fmt.Sprint(orders[0]) {
					t.Errorf("client %d got another order", i)
				}
			}
			if err := await(t, ended, "OnClose of the slow one"); !errors.Is(err, filo.ErrQueueFull) {
				t.Errorf("got %v", err)
			}
			if n := hub.Len("a"); n != members {
				t.Errorf("%d members", n)
			}
			if got := hub.Stats(); got != (sse.HubStats{Subscribers: members, Topics: 1, Events: senders * messages, Dropped: 1}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Many goroutines may call Write, Send, Ping and Close at once, while messages arrive. Each frame is sent whole.
func TestConcurrentUse(t *testing.T) {
	for _, m := range modes[:2] {
		t.Run(m.name, func(t *testing.T) {
			opened := make(chan *websocket.Conn, 1)
			options := websocket.Options{OnMessage: echo, Compression: websocket.CompressionContext, CompressionMinimum: 1,
				MaxQueuedBytes: 32 << 20, WriteTimeout: testTimeout}
			options.OnOpen = func(_ *filo.Ctx, c *websocket.Conn) error {
				opened <- c
				return nil
			}
			client := open(t, m.serve(t, options), offerDeflate)
			c := await(t, opened, "OnOpen")
			const each = 50
			shared, _ := websocket.NewPreparedMessage(websocket.Text, []byte("shared "+long))
			var group sync.WaitGroup
			for i := range 4 {
				group.Go(func() {
					for j := range each {
						if err := c.Write(websocket.Text, fmt.Appendf(nil, "%d %d %s", i, j, strings.Repeat(long, i*20))); err != nil {
							t.Error(err)
						}
						if err := c.Send(shared); err != nil {
							t.Error(err)
						}
						c.Ping()
					}
				})
			}
			go func() {
				for j := range each {
					client.send(strings.Repeat(frame(fin|text, fmt.Sprintf("%d %d ", 9, j)), 3))
				}
			}()
			go func() {
				group.Wait()
				eventually(t, "the echoes", func() bool { return c.Ping() == nil && client.echoed.Load() == 3*each })
				c.Close(1000, "")
			}()
			next := map[int]int{}
			context := ""
			for {
				first, payload, err := client.receive()
				if err != nil {
					t.Fatal(err)
				}
				if first&rsv1 != 0 {
					payload = inflated(t, payload, context)
					context += payload
					context = context[max(0, len(context)-32<<10):]
				}
				var who, n int
				switch fmt.Sscanf(payload, "%d %d", &who, &n); {
				case first == fin|closeOp:
					if next[0] != each || next[1] != each || next[2] != each || next[3] != each || next[9] != 3*each || next[-1] != 4*each {
						t.Errorf("got %v", next)
					}
					return
				case first == fin|ping:
				case strings.HasPrefix(payload, "shared "):
					next[-1]++
				case who == 9:
					next[who]++
					client.echoed.Add(1)
				case n != next[who]:
					t.Fatalf("message %d of %d, want %d", n, who, next[who])
				default:
					next[who]++
				}
			}
		})
	}
}
