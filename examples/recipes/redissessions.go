package recipes

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/session"
	"github.com/redis/go-redis/v9"
)

// RedisSessions keeps sessions in Redis, which removes them when they expire. Give Redis a limit of memory (maxmemory) with the
// policy volatile-lru.
type RedisSessions struct{ Client redis.UniversalClient }

// A value is the version and the end in Unix milliseconds, 8 bytes each, and the data behind them.
func redisValue(record session.Record) []byte {
	value := binary.BigEndian.AppendUint64(nil, record.Version)
	value = binary.BigEndian.AppendUint64(value, uint64(record.Expires.UnixMilli()))
	return append(value, record.Data...)
}

func redisKey(id string) string { return "session:" + id }

// Load implements session.Store.
func (s RedisSessions) Load(c *filo.Ctx, id string) (session.Record, error) {
	value, err := s.Client.Get(c.Context(), redisKey(id)).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return session.Record{}, nil
	case err != nil:
		return session.Record{}, err
	case len(value) < 16:
		return session.Record{}, errors.New("not a session: " + redisKey(id))
	}
	return session.Record{
		Version: binary.BigEndian.Uint64(value),
		Expires: time.UnixMilli(int64(binary.BigEndian.Uint64(value[8:]))),
		Data:    value[16:],
	}, nil
}

// saveScript sets a value if the one that is there has the version that is expected: one step, which no other client can
// come between.
var saveScript = redis.NewScript(`
	local kept = redis.call("GET", KEYS[1])
	local version = kept and string.sub(kept, 1, 8) or string.rep("\0", 8)
	if version ~= ARGV[1] then return 0 end
	redis.call("SET", KEYS[1], ARGV[2], "PX", ARGV[3])
	return 1`)

// Save implements session.Store.
func (s RedisSessions) Save(c *filo.Ctx, id string, record session.Record) (bool, error) {
	old := binary.BigEndian.AppendUint64(nil, record.Version)
	record.Version++
	life := max(time.Until(record.Expires).Milliseconds(), 1)
	return saveScript.Run(c.Context(), s.Client, []string{redisKey(id)}, old, redisValue(record), life).Bool()
}

// Delete implements session.Store.
func (s RedisSessions) Delete(c *filo.Ctx, id string) error {
	return s.Client.Del(c.Context(), redisKey(id)).Err()
}
