package redisfilo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo/sse"
	"github.com/redis/go-redis/v9"
)

// StreamOptions configures a Stream. The zero value has safe defaults.
type StreamOptions struct {
	// MaxLen is about how many messages Redis keeps, of all topics together, 10,000 if 0. An instance reads them when it starts, so that it
	// knows what clients may have missed.
	MaxLen int
}

// Stream is a broker for the hubs of package sse and of contrib/websocket. It uses a Redis stream, so clients can resume at any instance. A
// hub's Stream permanently holds one of the go-redis client's connections, on which it waits for messages: add one for each hub to go-redis's
// PoolSize.
type Stream struct {
	follower
	key, once string
	maxLen    int
}

// Stream returns the broker with this name. Hubs that use the same name, in any process, get each other's messages.
func (r *Redis) Stream(name string, options ...StreamOptions) *Stream {
	var o StreamOptions
	if len(options) > 1 {
		panic("redisfilo: Stream takes one StreamOptions at most: set all of them in one")
	}
	if len(options) == 1 {
		o = options[0]
	}
	if o.MaxLen < 0 {
		panic("redisfilo: StreamOptions.MaxLen must not be negative")
	}
	if o.MaxLen == 0 {
		o.MaxLen = 10_000
	}
	// In a cluster, the braces put both keys on one node, because a script needs them together.
	key := r.key("stream", "{"+name+"}")
	return &Stream{follower: newFollower(r, "stream/"+name), key: key, once: key + ":once:", maxLen: o.MaxLen}
}

// appendMessage appends a message. Its number is the time in microseconds, or the last message's number plus one, whichever is greater. The
// message names its predecessor, so that readers notice whether they have missed messages. ARGV[5] is a number that the message's number must
// exceed. If go-redis repeats the command because it doesn't know whether it has arrived, the message is still appended only once.
var appendMessage = redis.NewScript(`
local was = redis.call("GET", KEYS[2])
if was then return was end
local time = redis.call("TIME")
local number = math.max(tonumber(time[1]) * 1000000 + tonumber(time[2]), tonumber(ARGV[5]) + 1)
local previous = "0"
local last = redis.call("XREVRANGE", KEYS[1], "+", "-", "COUNT", 1)
if last[1] then
	previous = string.match(last[1][1], "^%d+")
	number = math.max(number, tonumber(previous) + 1)
end
number = string.format("%.0f", number)
redis.call("XADD", KEYS[1], "MAXLEN", "~", ARGV[1], number .. "-0", "p", previous, "k", ARGV[2], "t", ARGV[3], "m", ARGV[4])
redis.call("SET", KEYS[2], number, "EX", 60)
return number`)

// The kinds of messages in a stream.
const (
	kindMessage = "m"
	kindMark    = "-" // has no content, only a number
)

// Publish implements sse.Broker.
func (s *Stream) Publish(ctx context.Context, topic string, message []byte) (number uint64, err error) {
	return s.append(ctx, kindMessage, topic, message, 0)
}

func (s *Stream) append(ctx context.Context, kind, topic string, message []byte, above uint64) (number uint64, err error) {
	keys := []string{s.key, s.once + rand.Text()}
	err = s.call(ctx, writing, func(ctx context.Context) (err error) {
		number, err = appendMessage.Run(ctx, s.client, keys, s.maxLen, kind, topic, message, above).Uint64()
		return err
	})
	return number, err
}

const (
	// blockTime is how long Redis waits for a message before it answers that there is none.
	blockTime = time.Second
	// readCount is how many messages are read at once.
	readCount = 256
)

// Follow implements sse.Broker.
func (s *Stream) Follow(ctx context.Context, receive func(sse.Delivery)) {
	s.follow(ctx, s.step, receive)
}

// step passes the next messages to the reader. The reader goes live when no stored messages are left.
func (s *Stream) step(ctx context.Context, f *reader) error {
	if !f.started {
		return s.start(ctx, f)
	}
	block := blockTime
	if !f.live {
		block = -1
	}
	messages, err := s.read(ctx, f.last, block)
	if err != nil {
		return err
	}
	if len(messages) == 0 {
		if !f.live {
			f.goLive()
		}
		return s.verify(ctx, f)
	}
	taken := f.last
	for _, message := range messages {
		e, invalid := parseEntry(message)
		if invalid != nil {
			err = invalid
			continue
		}
		if err := f.take(e); err != nil {
			return err
		}
	}
	if f.last > taken {
		return nil
	}
	return err // no broker has written any of the entries: wait before reading again
}

// start makes the reader begin with the oldest message. To an empty stream it appends a mark, so that IDs from before the mark are recognized
// as too old.
func (s *Stream) start(ctx context.Context, f *reader) error {
	limited, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	oldest, err := s.client.XRangeN(limited, s.key, "-", "+", 1).Result()
	if err != nil {
		return err
	}
	if len(oldest) == 0 {
		_, err := s.append(ctx, kindMark, "", nil, 0)
		return err // the next attempt finds the mark
	}
	m, err := parseEntry(oldest[0])
	if err != nil {
		return err
	}
	missing := m.previous
	if missing == 0 { // older IDs are from before a loss of Redis's data
		missing = m.number - 1
	}
	f.gap(missing)
	f.last, f.started = m.previous, true
	return nil
}

// read returns the messages after the one with this number, and waits for one if there is none.
func (s *Stream) read(ctx context.Context, last uint64, block time.Duration) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, max(block, 0)+s.options.Timeout)
	defer cancel()
	streams, err := s.client.XRead(ctx, &redis.XReadArgs{
		Streams: []string{s.key, strconv.FormatUint(last, 10) + "-0"}, Count: readCount, Block: block,
	}).Result()
	if errors.Is(err, redis.Nil) || err == nil && len(streams) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return streams[0].Messages, nil
}

// verify checks whether Redis has lost messages that the reader has received. If so, it appends a mark with a higher number, so that numbers
// continue to rise. The mark's predecessor shows every reader that messages are missing.
func (s *Stream) verify(ctx context.Context, f *reader) error {
	limited, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	newest, err := s.client.XRevRangeN(limited, s.key, "+", "-", 1).Result()
	if err != nil {
		return err
	}
	if len(newest) > 0 {
		m, err := parseEntry(newest[0])
		if err != nil || m.number >= f.last {
			return err
		}
	}
	_, err = s.append(ctx, kindMark, "", nil, f.last)
	return err
}

// entry is a message in the form in which Redis stores or sends it.
type entry struct {
	number, previous uint64
	kind, topic      string
	message          []byte
}

func parseEntry(message redis.XMessage) (e entry, err error) {
	number, rest, _ := strings.Cut(message.ID, "-")
	previous, _ := message.Values["p"].(string)
	e.kind, _ = message.Values["k"].(string)
	e.topic, _ = message.Values["t"].(string)
	text, _ := message.Values["m"].(string)
	e.message = []byte(text)
	var failed error
	if e.number, err = strconv.ParseUint(number, 10, 64); err == nil {
		e.previous, failed = strconv.ParseUint(previous, 10, 64)
	}
	if err != nil || failed != nil || rest != "0" {
		return e, fmt.Errorf("redisfilo: the entry %q isn't one of a broker's", message.ID)
	}
	return e, nil
}
