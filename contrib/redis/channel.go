package redisfilo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/sse"
	"github.com/redis/go-redis/v9"
)

// Channel is a broker for the hubs of package sse and of contrib/websocket. It uses Redis pub/sub, which stores no messages; each hub keeps
// its own history. So a client can resume only at an instance that has been connected to Redis ever since the client left; at any other
// instance the client gets a gap. A hub's Channel permanently holds one connection, in addition to go-redis's PoolSize.
type Channel struct {
	follower
	name, last, once string
}

// Channel returns the broker with this name. Hubs that use the same name, in any process, get each other's messages.
func (r *Redis) Channel(name string) *Channel {
	key := r.key("channel", "{"+name+"}")
	return &Channel{follower: newFollower(r, "channel/"+name), name: key, last: key + ":last", once: key + ":once:"}
}

// sendMessage publishes a message with its number and the number of its predecessor. The number is chosen as in appendMessage. ARGV[5] is a
// number that the message's number must exceed.
var sendMessage = redis.NewScript(`
local was = redis.call("GET", KEYS[2])
if was then return was end
local time = redis.call("TIME")
local previous = redis.call("GET", KEYS[1]) or "0"
local number = math.max(tonumber(time[1]) * 1000000 + tonumber(time[2]), tonumber(ARGV[5]) + 1, tonumber(previous) + 1)
number = string.format("%.0f", number)
redis.call("SET", KEYS[1], number)
redis.call("SET", KEYS[2], number, "EX", 60)
redis.call("PUBLISH", ARGV[1], table.concat({number, previous, ARGV[2], #ARGV[3], ARGV[3] .. ARGV[4]}, " "))
return number`)

// Publish implements sse.Broker.
func (c *Channel) Publish(ctx context.Context, topic string, message []byte) (number uint64, err error) {
	return c.send(ctx, kindMessage, topic, message, 0)
}

func (c *Channel) send(ctx context.Context, kind, topic string, message []byte, above uint64) (number uint64, err error) {
	keys := []string{c.last, c.once + rand.Text()}
	err = c.call(ctx, writing, func(ctx context.Context) (err error) {
		number, err = sendMessage.Run(ctx, c.client, keys, c.name, kind, topic, message, above).Uint64()
		return err
	})
	return number, err
}

// Follow implements sse.Broker.
func (c *Channel) Follow(ctx context.Context, receive func(sse.Delivery)) {
	s := &subscription{Channel: c}
	defer s.end()
	c.follow(ctx, s.step, receive)
}

// subscription is a connection that receives messages. At intervals it asks Redis for the number of the last message, and then sends a ping.
// If that message hasn't arrived before the pong, it is lost.
type subscription struct {
	*Channel
	pubsub *redis.PubSub // nil while there is no connection
	stop   func() bool   // cancels the AfterFunc that closes the connection when the context ends
	pinger *time.Timer
	sent   atomic.Uint64 // the number of the last message when the last ping was sent
}

// pingInterval is the time between two pings, and so about the time after which the loss of a message is noticed.
const pingInterval = time.Second

// step passes the messages that arrive next to the reader.
func (s *subscription) step(ctx context.Context, f *reader) error {
	if s.pubsub == nil {
		if err := s.begin(ctx, f); err != nil {
			s.end()
			return err
		}
	}
	arrived, err := s.pubsub.ReceiveTimeout(ctx, pingInterval+2*s.options.Timeout)
	if err == nil {
		switch arrived := arrived.(type) {
		case *redis.Message:
			var e entry
			if e, err = parsePayload(arrived.Payload); err == nil {
				err = f.take(e)
			}
		case *redis.Pong:
			err = s.check(ctx, f, s.sent.Load())
			s.pinger.Reset(pingInterval)
		}
	}
	if err != nil {
		s.end()
	}
	return err
}

// begin subscribes, and tells the reader which messages it may have missed while it wasn't subscribed.
func (s *subscription) begin(ctx context.Context, f *reader) error {
	pubsub := s.client.Subscribe(ctx, s.name)
	s.pubsub = pubsub
	s.stop = context.AfterFunc(ctx, func() { pubsub.Close() }) // a read ignores the context
	if _, err := pubsub.ReceiveTimeout(ctx, s.options.Timeout); err != nil {
		return err
	}
	last, err := s.newest(ctx)
	if err != nil {
		return err
	}
	if last == 0 && !f.started {
		if last, err = s.send(ctx, kindMark, "", nil, 0); err != nil {
			return err
		}
	}
	if !f.started {
		f.started = true
		f.gap(last)
		f.goLive()
	}
	if err := s.check(ctx, f, last); err != nil {
		return err
	}
	s.pinger = time.AfterFunc(pingInterval, func() {
		if last, err := s.newest(ctx); err == nil {
			s.sent.Store(last)
			pubsub.Ping(ctx) // without a pong, the reader closes the connection
		}
	})
	return nil
}

// check compares the number of a message that must have arrived with the last number that the reader has received. If the reader's number is
// higher than the last number in Redis, Redis has lost its data. check then sends a mark with a still higher number, so that numbers continue to rise.
func (s *subscription) check(ctx context.Context, f *reader, sent uint64) error {
	if sent > f.last {
		f.gap(sent)
	}
	if sent >= f.last {
		return nil
	}
	last, err := s.newest(ctx)
	if err == nil && last < f.last {
		_, err = s.send(ctx, kindMark, "", nil, f.last)
	}
	return err
}

// newest returns the number of the last message, or 0 if there was none.
func (s *subscription) newest(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	last, err := s.client.Get(ctx, s.last).Uint64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return last, err
}

// end closes the connection.
func (s *subscription) end() {
	if s.pinger != nil {
		s.pinger.Stop()
		s.pinger = nil
	}
	if s.pubsub != nil {
		s.stop()
		s.pubsub.Close()
		s.pubsub = nil
	}
}

// parsePayload parses what sendMessage has sent.
func parsePayload(payload string) (e entry, err error) {
	parts := strings.SplitN(payload, " ", 5)
	if len(parts) == 5 {
		var size uint64
		numbers := [...]struct {
			to   *uint64
			text string
		}{{&e.number, parts[0]}, {&e.previous, parts[1]}, {&size, parts[3]}}
		for _, n := range numbers {
			if *n.to, err = strconv.ParseUint(n.text, 10, 64); err != nil {
				break
			}
		}
		if err == nil && size <= uint64(len(parts[4])) {
			e.kind, e.topic, e.message = parts[2], parts[4][:size], []byte(parts[4][size:])
			return e, nil
		}
	}
	return e, fmt.Errorf("redisfilo: a message of %d bytes isn't one of a broker's", len(payload))
}
