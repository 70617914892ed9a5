package recipes

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/sse"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATSBroker is an sse.Broker that uses a stream of NATS JetStream: create one with NewNATSBroker, and set it as Broker in sse.HubOptions. The stream
// keeps the messages that clients may have missed, so limit how many it keeps. Don't publish anything else to it.
type NATSBroker struct {
	js   jetstream.JetStream
	name string
	base atomic.Uint64 // when the stream was created, in microseconds since 1970; added to sequence numbers, so that those of a new stream are greater
}

// NewNATSBroker returns a broker that uses the JetStream stream called name. It creates the stream if there is none.
func NewNATSBroker(ctx context.Context, js jetstream.JetStream, name string) (*NATSBroker, error) {
	_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, MaxMsgs: 10_000, MaxAge: time.Hour})
	return &NATSBroker{js: js, name: name}, err
}

// timeout is how long NATS may take to answer.
const timeout = 2 * time.Second

// Publish implements sse.Broker.
func (b *NATSBroker) Publish(ctx context.Context, topic string, message []byte) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if b.base.Load() == 0 {
		if _, err := b.stream(ctx); err != nil {
			return 0, err
		}
	}
	ack, err := b.js.PublishMsg(ctx, &nats.Msg{Subject: b.name, Header: nats.Header{"Topic": {topic}}, Data: message})
	if err != nil {
		return 0, err
	}
	return b.base.Load() + ack.Sequence, nil
}

// stream returns the stream with its current state.
func (b *NATSBroker) stream(ctx context.Context) (jetstream.Stream, error) {
	stream, err := b.js.Stream(ctx, b.name)
	if err == nil {
		b.base.Store(uint64(stream.CachedInfo().Created.UnixMicro()))
	}
	return stream, err
}

// Follow implements sse.Broker.
func (b *NATSBroker) Follow(ctx context.Context, receive func(sse.Delivery)) {
	f := &natsFollower{NATSBroker: b, receive: receive}
	for ctx.Err() == nil {
		f.follow(ctx) // returns after an error
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

type natsFollower struct {
	*NATSBroker
	receive func(sse.Delivery)
	base    uint64 // base of the stream that it has followed
	last    uint64 // sequence number of the last message of that stream
	live    bool
}

func (f *natsFollower) follow(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	stream, err := f.stream(limited)
	cancel()
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	if base := f.NATSBroker.base.Load(); base != f.base { // the first stream, or another one
		f.base, f.last = base, max(info.State.FirstSeq, 1)-1
		f.receive(sse.Delivery{Gap: true, Number: f.base + f.last})
	}
	if info.State.LastSeq <= f.last {
		f.goLive()
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: f.last + 1,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		message, err := messages.Next()
		if err != nil {
			return err
		}
		meta, err := message.Metadata()
		if err != nil {
			return err
		}
		sequence := meta.Sequence.Stream
		if sequence <= f.last {
			continue
		}
		if sequence > f.last+1 { // the stream has dropped the messages between
			f.receive(sse.Delivery{Gap: true, Number: f.base + sequence - 1})
		}
		f.last = sequence
		f.receive(sse.Delivery{Number: f.base + sequence, Topic: message.Headers().Get("Topic"), Message: message.Data()})
		if meta.NumPending == 0 {
			f.goLive()
		}
	}
}

// goLive tells the hub, once, that all stored messages have been delivered.
func (f *natsFollower) goLive() {
	if !f.live {
		f.live = true
		f.receive(sse.Delivery{Live: true})
	}
}
