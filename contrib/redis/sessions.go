package redisfilo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/session"
	"github.com/redis/go-redis/v9"
)

// Sessions returns a session.Store. With Open, a request whose session can't be loaded is served as if it came from a visitor without a
// session. Failing to save a changed session, or to end one, is always an error, since a logout must not seem to have succeeded when it hasn't.
func (r *Redis) Sessions(when WhenDown) session.Store {
	return &sessions{r.store("sessions", reading, writing), when}
}

type sessions struct {
	*store
	when WhenDown
}

// sessionHead is the length of the head of a session's value: its version, and its time of expiry in milliseconds since 1970, 8 bytes each.
const sessionHead = 16

// Load implements session.Store.
func (s *sessions) Load(c *filo.Ctx, id string) (record session.Record, err error) {
	var value []byte
	err = s.ask(c, reading, s.when, func(ctx context.Context) (err error) {
		value, err = s.client.Get(ctx, s.key("session", id)).Bytes()
		return err
	})
	switch {
	case errors.Is(err, redis.Nil):
		return session.Record{}, nil
	case s.when.open(err):
		return session.Record{Unknown: err}, nil
	case err != nil:
		return session.Record{}, err
	case len(value) < sessionHead:
		return session.Record{}, fmt.Errorf("redisfilo: the value of %q isn't a session", s.key("session", id))
	}
	return session.Record{
		Version: binary.BigEndian.Uint64(value),
		Expires: time.UnixMilli(int64(binary.BigEndian.Uint64(value[8:]))),
		Data:    value[sessionHead:],
	}, nil
}

// saveSession sets a value if the stored value has the expected version. It also succeeds if the stored value already equals the new value:
// go-redis repeats a command whose reply was lost, so the first attempt has set the value.
var saveSession = redis.NewScript(`
local kept = redis.call("GET", KEYS[1])
if kept == ARGV[2] then return 1 end
local version = kept and string.sub(kept, 1, 8) or string.rep("\0", 8)
if version ~= ARGV[1] then return 0 end
redis.call("SET", KEYS[1], ARGV[2], "PX", ARGV[3])
return 1`)

// Save implements session.Store.
func (s *sessions) Save(c *filo.Ctx, id string, record session.Record) (saved bool, err error) {
	old := binary.BigEndian.AppendUint64(nil, record.Version)
	value := binary.BigEndian.AppendUint64(nil, record.Version+1)
	value = binary.BigEndian.AppendUint64(value, uint64(record.Expires.UnixMilli()))
	value = append(value, record.Data...)
	err = s.ask(c, writing, Refuse, func(ctx context.Context) (err error) {
		saved, err = saveSession.Run(ctx, s.client, []string{s.key("session", id)}, old, value, milliseconds(record.Expires)).Bool()
		return err
	})
	return saved, err
}

// Delete implements session.Store.
func (s *sessions) Delete(c *filo.Ctx, id string) error {
	return s.ask(c, writing, Refuse, func(ctx context.Context) error { return s.client.Del(ctx, s.key("session", id)).Err() })
}

// milliseconds returns the time left, but at least the shortest lifetime that Redis accepts for a key.
func milliseconds(until time.Time) int64 { return max(time.Until(until).Milliseconds(), 1) }
