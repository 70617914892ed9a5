package websocket_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
	"github.com/filohttp/filo/sse"
)

// broker is an sse.Broker in memory.
type broker struct {
	mu       sync.Mutex
	changed  sync.Cond
	messages []sse.Delivery
	held     map[int]bool // followers that get no messages for now, by their number in the order of arrival
	came     int
	gap      bool // all followers are told of a gap
	err      error
}

func newBroker() *broker {
	b := &broker{held: make(map[int]bool)}
	b.changed.L = &b.mu
	return b
}

func (b *broker) Publish(_ context.Context, topic string, message []byte) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	number := uint64(101 + len(b.messages))
	b.messages = append(b.messages, sse.Delivery{Number: number, Topic: topic, Message: slices.Clone(message)})
	b.changed.Broadcast()
	return number, nil
}

func (b *broker) hold(follower int, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[follower] = held
	b.changed.Broadcast()
}

func (b *broker) Follow(ctx context.Context, receive func(sse.Delivery)) {
	stop := context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changed.Broadcast()
	})
	defer stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	me, next, live := b.came, 0, false
	b.came++
	give := func(d sse.Delivery) {
		b.mu.Unlock()
		defer b.mu.Lock()
		receive(d)
	}
	give(sse.Delivery{Gap: true, Number: 100})
	for ctx.Err() == nil {
		switch {
		case b.held[me]:
			b.changed.Wait()
		case b.gap:
			b.gap = false
			next = len(b.messages)
			give(sse.Delivery{Gap: true, Number: uint64(100 + next)})
		case next < len(b.messages):
			next++
			give(b.messages[next-1])
		case !live:
			live = true
			give(sse.Delivery{Live: true})
		default:
			b.changed.Wait()
		}
	}
}

// instance serves a hub with the broker, and stands for one of several processes. The query of a request says whether its connection joins or
// resumes.
func instance(t *testing.T, m mode, options websocket.HubOptions) (hub *websocket.Hub, address string) {
	t.Helper()
	options.Gap = []byte("gap")
	options.Stamp = func(_ websocket.MessageType, id string, message []byte) []byte {
		if string(message) == "unstampable" {
			panic("Stamp panics")
		}
		return append([]byte(id+" "), message...)
	}
	hub = websocket.NewHub(options)
	t.Cleanup(hub.Stop)
	eventually(t, "the hub to be ready", func() bool { return hub.Ready(t.Context()) == nil })
	return hub, m.serve(t, websocket.Options{
		MaxQueuedBytes: 16 << 10,
		OnOpen: func(r *filo.Ctx, c *websocket.Conn) error {
			c.SetValue(r.Query("topic"))
			return hub.Resume(r.Query("topic"), c, r.Query("after"))
		},
		OnMessage: func(c *websocket.Conn, kind websocket.MessageType, b []byte) error {
			_, err := hub.Broadcast(c.Value().(string), kind, b)
			return err
		},
	})
}

// resume opens a connection whose first messages are those that the client has missed.
func resume(t *testing.T, address, query string) *client {
	t.Helper()
	c := connect(t, address)
	c.send(request("GET /ws?topic=" + query + " HTTP/1.1"))
	c.head()
	return c
}

// Members of a topic get its messages at every instance, and can resume at every instance. They get each message once.
func TestBroker(t *testing.T) {
	for _, m := range modes[:2] {
		t.Run(m.name, func(t *testing.T) {
			b := newBroker()
			options := websocket.HubOptions{Broker: b}
			hub1, one := instance(t, m, options)
			_, two := instance(t, m, options)
			ada, ben, other := join(t, one, "a"), join(t, two, "a"), join(t, two, "b")
			ada.send(frame(fin|text, "hello"))
			ada.want(fin|text, "101 hello")
			ben.want(fin|text, "101 hello")
			ben.send(frame(fin|2, "\xff"))
			ben.want(fin|2, "102 \xff")
			ada.want(fin|2, "102 \xff")
			other.send(frame(fin|text, "to myself"))
			other.want(fin|text, "103 to myself")
			if _, err := hub1.Broadcast("a", websocket.Text, []byte("\xff")); err == nil {
				t.Error("text that isn't UTF-8 was sent")
			}
			if sent, err := hub1.Broadcast("a", websocket.Text, []byte("last")); sent != 0 || err != nil {
				t.Errorf("got %d, %v", sent, err)
			}
			// Clients resume at each instance, even at the instance that was started after these messages.
			_, three := instance(t, m, options)
			for _, address := range []string{one, two, three} {
				c := resume(t, address, "a&after=101")
				c.want(fin|2, "102 \xff")
				c.want(fin|text, "104 last")
			}
			for _, id := range []string{"99", "x", "-1", fmt.Sprint(^uint64(0))} {
				resume(t, three, "a&after="+id).want(fin|text, "gap")
			}
			// If Stamp panics, the message has no ID.
			ada.want(fin|text, "104 last")
			if _, err := hub1.Broadcast("a", websocket.Text, []byte("unstampable")); err != nil {
				t.Fatal(err)
			}
			ada.want(fin|text, "unstampable")
		})
	}
}

// A client that moves to an instance that has received fewer messages so far gets no message twice.
func TestBrokerAhead(t *testing.T) {
	b := newBroker()
	hub, one := instance(t, modes[0], websocket.HubOptions{Broker: b})
	_, two := instance(t, modes[0], websocket.HubOptions{Broker: b})
	c := join(t, one, "a")
	b.hold(1, true)
	for i := range 3 {
		if _, err := hub.Broadcast("a", websocket.Text, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	c.want(fin|text, "101 0")
	c.want(fin|text, "102 1")
	c = resume(t, two, "a&after=102")
	c.send(frame(fin|ping, "in"))
	c.want(fin|pong, "in")
	b.hold(1, false)
	c.want(fin|text, "103 2")
}

// Clients get the message Gap if the broker reports a gap, if the history is too short, or if they have missed too many messages. If the
// broker fails, Broadcast fails.
func TestBrokerGap(t *testing.T) {
	b := newBroker()
	hub, address := instance(t, modes[0], websocket.HubOptions{Broker: b, HistoryMessages: 3})
	c := join(t, address, "a")
	for i := range 5 {
		if _, err := hub.Broadcast("a", websocket.Text, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		c.want(fin|text, fmt.Sprint(101+i, " ", i))
	}
	resume(t, address, "a&after=102").want(fin|text, "103 2")
	resume(t, address, "a&after=101").want(fin|text, "gap")
	if _, err := hub.Broadcast("a", websocket.Text, []byte(strings.Repeat("x", 9<<10))); err != nil {
		t.Fatal(err)
	}
	c.want(fin|text, "106 "+strings.Repeat("x", 9<<10))
	resume(t, address, "a&after=105").want(fin|text, "gap")

	b.mu.Lock()
	b.gap = true
	b.changed.Broadcast()
	b.mu.Unlock()
	c.want(fin|text, "gap")
	resume(t, address, "a&after=105").want(fin|text, "gap")

	down := errors.New("down")
	b.mu.Lock()
	b.err = down
	b.mu.Unlock()
	if _, err := hub.Broadcast("a", websocket.Text, nil); !errors.Is(err, down) {
		t.Errorf("got %v", err)
	}
}

// Clients that resume while messages are sent get each message once and in order.
func TestResumeRace(t *testing.T) {
	const messages = 300
	b := newBroker()
	hub, address := instance(t, modes[0], websocket.HubOptions{Broker: b})
	if _, err := hub.Broadcast("a", websocket.Text, []byte("first")); err != nil {
		t.Fatal(err)
	}
	resume(t, address, "a&after=100").want(fin|text, "101 first")
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range messages {
			hub.Broadcast("a", websocket.Text, fmt.Append(nil, i))
		}
	}()
	for range 10 {
		c := resume(t, address, "a&after=101")
		for i := range messages {
			c.want(fin|text, fmt.Sprint(102+i, " ", i))
		}
	}
	<-sent
}

func TestNewHubPanics(t *testing.T) {
	for want, f := range map[string]func(){
		"needs a Broker": func() { websocket.NewHub(websocket.HubOptions{}) },
		"negative":       func() { websocket.NewHub(websocket.HubOptions{Broker: newBroker(), HistoryBytes: -1}) },
		"Gap":            func() { websocket.NewHub(websocket.HubOptions{Broker: newBroker(), Gap: []byte("\xff")}) },
		"Resume":         func() { new(websocket.Hub).Resume("a", nil, "1") },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("%s: got %q", want, got)
				}
			}()
			f()
		}()
	}
}
