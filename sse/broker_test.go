package sse_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/sse"
)

// broker is a Broker in memory.
type broker struct {
	mu       sync.Mutex
	changed  sync.Cond
	messages []sse.Delivery
	last     uint64
	err      error
	held     map[int]bool // followers that get nothing, by their numbers in the order of their Follow calls
	gaps     map[int]bool // followers that have lost all messages that they haven't received yet
	came     int
}

func newBroker() *broker {
	b := &broker{last: 1000, held: make(map[int]bool), gaps: make(map[int]bool)}
	b.changed.L = &b.mu
	return b
}

func (b *broker) Publish(_ context.Context, topic string, message []byte) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	b.last++
	b.messages = append(b.messages, sse.Delivery{Number: b.last, Topic: topic, Message: slices.Clone(message)})
	b.changed.Broadcast()
	return b.last, nil
}

func (b *broker) set(values map[int]bool, follower int, value bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	values[follower] = value
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
	me := b.came
	b.came++
	next, live := 0, false
	give := func(d sse.Delivery) {
		b.mu.Unlock()
		defer b.mu.Lock()
		receive(d)
	}
	give(sse.Delivery{Gap: true, Number: 1000})
	for ctx.Err() == nil {
		switch {
		case b.held[me]:
			b.changed.Wait()
		case b.gaps[me]:
			b.gaps[me] = false
			next = len(b.messages)
			give(sse.Delivery{Gap: true, Number: b.last})
		case next < len(b.messages):
			d := b.messages[next]
			d.Message = slices.Clone(d.Message)
			next++
			give(d)
		case !live:
			live = true
			give(sse.Delivery{Live: true})
		default:
			b.changed.Wait()
		}
	}
}

// instance returns a hub that uses the broker, and a server for it.
func instance(t *testing.T, b *broker, options sse.HubOptions) (*sse.Hub, *host) {
	t.Helper()
	options.Broker = b
	hub := sse.NewHub(options)
	t.Cleanup(func() { hub.Close() })
	poll(t, "the hub to be ready", func() bool { return hub.Ready(t.Context()) == nil })
	return hub, serve(t, &filo.Server{Handler: serveTopics(hub), Logger: quiet}, false)
}

// A client gets each event once, whatever instance it is published at and whatever instance the client connects to. An event has the
// same ID at all instances.
func TestBroker(t *testing.T) {
	b := newBroker()
	hub1, one := instance(t, b, sse.HubOptions{})
	hub2, two := instance(t, b, sse.HubOptions{})
	at1, at2 := one.subscribe(t, "a,b", ""), two.subscribe(t, "a", "")
	first := publish(t, hub1, "a", "1")
	publish(t, hub2, "b", "2")
	publish(t, hub2, "a", "3")
	at1.want(t, "1", "2", "3")
	at2.want(t, "1", "3")
	if first != "1001" || at1.lastID != "1003" || at2.lastID != "1003" {
		t.Errorf("the IDs are %q, %q and %q", first, at1.lastID, at2.lastID)
	}
	// A client also gets the events from an instance that was started after they were published.
	hub3, three := instance(t, b, sse.HubOptions{})
	moved := three.subscribe(t, "a,b", first)
	moved.want(t, "2", "3")
	publish(t, hub3, "b", "4")
	moved.want(t, "4")
	at1.want(t, "4")
	if got := three.subscribe(t, "a", "999"); got.expect("") != nil || got.lastID != "1004" {
		t.Errorf("an ID from before what the broker has kept leads to %q", got.lastID)
	}
}

// A client may come from an instance that is ahead of this one. Such a client gets no event twice, and no gap event.
func TestBrokerAhead(t *testing.T) {
	b := newBroker()
	hub, one := instance(t, b, sse.HubOptions{})
	_, two := instance(t, b, sse.HubOptions{})
	client := one.subscribe(t, "a", "")
	b.set(b.held, 1, true)
	for _, data := range []string{"1", "2", "3"} {
		publish(t, hub, "a", data)
	}
	client.want(t, "1", "2")
	client, err := two.again(t, client, "a")
	if err != nil {
		t.Fatal(err)
	}
	b.set(b.held, 1, false)
	client.want(t, "3")
}

// If a client sends an ID that no event of this broker has, perhaps from an earlier broker, the hub notices at the next heartbeat.
func TestBrokerUnknownID(t *testing.T) {
	b := newBroker()
	hub, one := instance(t, b, sse.HubOptions{Heartbeat: 50 * time.Millisecond})
	client := one.subscribe(t, "a", "99999999")
	if got, err := client.next(); err != nil || got.kind != "reset" || got.id != "1000" {
		t.Fatalf("got %q, %v", got, err)
	}
	publish(t, hub, "a", "1")
	client.want(t, "1")
}

// When messages of the broker are missing, subscribers get the gap event, and so do clients that reconnect with earlier IDs.
func TestBrokerGap(t *testing.T) {
	b := newBroker()
	hub, one := instance(t, b, sse.HubOptions{})
	client := one.subscribe(t, "a", "")
	id := publish(t, hub, "a", "1")
	client.want(t, "1")
	b.set(b.held, 0, true)
	publish(t, hub, "a", "lost")
	b.set(b.gaps, 0, true)
	b.set(b.held, 0, false)
	if got, err := client.next(); err != nil || got.kind != "reset" || got.id != "1002" {
		t.Fatalf("got %q, %v", got, err)
	}
	late := one.subscribe(t, "a", id)
	if got, err := late.next(); err != nil || got.kind != "reset" {
		t.Fatalf("got %q, %v", got, err)
	}
	publish(t, hub, "a", "2")
	client.want(t, "2")
	late.want(t, "2")
}

// Clients are refused until the broker has been reached for the first time. If the broker fails later, only Publish fails.
func TestBrokerDown(t *testing.T) {
	b := newBroker()
	b.held[0] = true
	hub := sse.NewHub(sse.HubOptions{Broker: b})
	h := serve(t, &filo.Server{Handler: serveTopics(hub), Logger: quiet}, false)
	if got := h.get(t, "/topics/a").response.StatusCode; got != 503 || hub.Ready(t.Context()) == nil {
		t.Errorf("got %d, %v", got, hub.Ready(t.Context()))
	}
	b.set(b.held, 0, false)
	poll(t, "the hub to be ready", func() bool { return hub.Ready(t.Context()) == nil })
	client := h.subscribe(t, "a", "")
	down := errors.New("down")
	b.mu.Lock()
	b.err = down
	b.mu.Unlock()
	if _, err := hub.Publish("a", sse.Event{Data: "1"}); !errors.Is(err, down) {
		t.Errorf("got %v", err)
	}
	b.mu.Lock()
	b.err = nil
	b.mu.Unlock()
	publish(t, hub, "a", "2")
	client.want(t, "2")
	hub.Close()
	client.wantEnd(t, false)
	if _, err := hub.Publish("a", sse.Event{Data: "3"}); err != sse.ErrHubClosed {
		t.Errorf("got %v", err)
	}
}
