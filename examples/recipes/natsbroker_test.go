package recipes

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo/sse"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startNATS starts a NATS server in this process, and returns a connection to it.
func startNATS(t *testing.T) jetstream.JetStream {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server isn't ready")
	}
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// deliveries records what a follower has received.
type deliveries struct {
	mu    sync.Mutex
	texts []string
	last  uint64
}

func (d *deliveries) receive(got sse.Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case got.Gap:
		d.texts = append(d.texts, "gap")
	case got.Live:
		d.texts = append(d.texts, "live")
	default:
		d.texts = append(d.texts, got.Topic+":"+string(got.Message))
		d.last = got.Number
	}
}

func (d *deliveries) want(t *testing.T, want string) {
	t.Helper()
	var got string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		d.mu.Lock()
		got = strings.Join(d.texts, " ")
		d.mu.Unlock()
		if got == want {
			return
		}
	}
	t.Fatalf("got %q, want %q", got, want)
}

// Each process gets each message, with the number that Publish has returned. A process that starts later gets the messages that the stream has kept,
// and a gap for the messages before them. The numbers of a new stream are greater than those of the old one.
func TestNATSBroker(t *testing.T) {
	js := startNATS(t)
	var brokers [2]*NATSBroker
	for i := range brokers {
		var err error
		if brokers[i], err = NewNATSBroker(t.Context(), js, "NEWS"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	follow := func(b *NATSBroker) *deliveries {
		d := new(deliveries)
		followers.Go(func() { b.Follow(ctx, d.receive) })
		return d
	}
	publish := func(b *NATSBroker, topic, message string) uint64 {
		number, err := b.Publish(ctx, topic, []byte(message))
		if err != nil {
			t.Fatal(err)
		}
		return number
	}
	one := follow(brokers[0])
	one.want(t, "gap live")
	publish(brokers[0], "a", "1")
	publish(brokers[1], "b", "2 \n\x00")
	number := publish(brokers[0], "a", "3")
	one.want(t, "gap live a:1 b:2 \n\x00 a:3")
	if one.last != number {
		t.Errorf("the number is %d for the publisher, and %d for the follower", number, one.last)
	}
	two := follow(brokers[1])
	two.want(t, "gap a:1 b:2 \n\x00 a:3 live")

	stream, err := js.Stream(ctx, "NEWS")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(3)); err != nil {
		t.Fatal(err)
	}
	late := follow(brokers[0])
	late.want(t, "gap a:3 live")

	if err := js.DeleteStream(ctx, "NEWS"); err != nil {
		t.Fatal(err)
	}
	again := recreated(t, js)
	if next := publish(again, "c", "4"); next <= number {
		t.Errorf("the number %d comes after %d", next, number)
	}
	follow(again).want(t, "gap c:4 live")
}

// recreated returns a broker with a new stream in place of a deleted one. It retries, since the server can't create the new stream's files while it
// is still removing those of the old one.
func recreated(t *testing.T, js jetstream.JetStream) *NATSBroker {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		b, err := NewNATSBroker(t.Context(), js, "NEWS")
		if err == nil {
			return b
		}
		if failed := new(jetstream.APIError); !errors.As(err, &failed) || failed.ErrorCode != jetstream.ErrorCode(server.JSStreamCreateErrF) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// The broker works with hubs.
func TestNATSHub(t *testing.T) {
	b, err := NewNATSBroker(t.Context(), startNATS(t), "NEWS")
	if err != nil {
		t.Fatal(err)
	}
	hub := sse.NewHub(sse.HubOptions{Broker: b})
	defer hub.Close()
	id, err := hub.Publish("a", sse.Event{Data: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); hub.LastEventID() != id; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the event doesn't come back")
		}
	}
}
