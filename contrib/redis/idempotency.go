package redisfilo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/middleware/idempotency"
	"github.com/redis/go-redis/v9"
)

// Idempotency returns an idempotency.Store. With Open, a request whose key can't be claimed is executed anyway, and so perhaps twice. If an
// answer can't be stored, its request doesn't fail, and its key is free again after MaxRun of idempotency.Options. With Refuse, a request is
// refused if Redis answers its claim too late; the key is then released in the background. There is no quota for each scope.
func (r *Redis) Idempotency(when WhenDown) idempotency.Store {
	return &keys{store: r.store("idempotency", writing), when: when}
}

type keys struct {
	*store
	when WhenDown

	undoing atomic.Int32 // the number of claims that are being undone
}

const (
	// maxUndoing is the maximum number of claims that are being undone at once.
	maxUndoing = 1000
	// maxTravel is how long after its call a claim may still arrive at Redis. A claim that arrives later isn't undone.
	maxTravel = 3 * time.Second
)

// A value in Redis consists of the claim's length in a byte, the claim, the fingerprint, the time of expiry in milliseconds since 1970, and,
// once the request is done, a byte 1 and the answer.

func keyValue(record idempotency.Record) []byte {
	value := append([]byte{byte(len(record.Claim))}, record.Claim...)
	value = append(value, record.Fingerprint[:]...)
	value = binary.BigEndian.AppendUint64(value, uint64(record.Expires.UnixMilli()))
	if record.Response != nil {
		value = append(append(value, 1), record.Response...)
	}
	return value
}

func parseKeyValue(value []byte) (record idempotency.Record, ok bool) {
	if len(value) == 0 || len(value) < 1+int(value[0])+32+8 {
		return record, false
	}
	size := int(value[0])
	record.Claim = string(value[1 : 1+size])
	value = value[1+size:]
	copy(record.Fingerprint[:], value)
	record.Expires = time.UnixMilli(int64(binary.BigEndian.Uint64(value[32:])))
	if value = value[40:]; len(value) > 0 {
		record.Response = value[1:]
	}
	return record, true
}

// claimKey sets a value if there is none, and returns the value that was there.
var claimKey = redis.NewScript(`
local kept = redis.call("GET", KEYS[1])
if not kept then redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2]) end
return kept`)

// Claim implements idempotency.Store.
func (k *keys) Claim(c *filo.Ctx, key string, record idempotency.Record) (idempotency.Record, bool, error) {
	var kept string
	sent := false
	err := k.ask(c, writing, k.when, func(ctx context.Context) (err error) {
		sent = true
		kept, err = claimKey.Run(ctx, k.client, []string{k.key("idempotency", key)}, keyValue(record), milliseconds(record.Expires)).Text()
		return err
	})
	switch {
	case errors.Is(err, redis.Nil), k.when.open(err):
		return record, true, nil
	case err != nil:
		if sent && !isReply(err) {
			k.undo(key, record)
		}
		return idempotency.Record{}, false, err
	}
	found, ok := parseKeyValue([]byte(kept))
	if !ok {
		return idempotency.Record{}, false, fmt.Errorf("redisfilo: the value of %q isn't an idempotency key", k.key("idempotency", key))
	}
	// The record that was found may be this claim's own: go-redis repeats a command whose answer was lost.
	return found, found.Claim == record.Claim, nil
}

// completeKey replaces the value if it has this claim, or if it no longer exists.
var completeKey = redis.NewScript(`
local kept = redis.call("GET", KEYS[1])
if kept and string.sub(kept, 2, 1 + string.byte(kept)) ~= ARGV[1] then return 0 end
redis.call("SET", KEYS[1], ARGV[2], "PX", ARGV[3])
return 1`)

// Complete implements idempotency.Store.
func (k *keys) Complete(c *filo.Ctx, key string, record idempotency.Record) (kept bool, err error) {
	err = k.call(c.Context(), writing, func(ctx context.Context) (err error) {
		kept, err = completeKey.Run(ctx, k.client, []string{k.key("idempotency", key)},
			record.Claim, keyValue(record), milliseconds(record.Expires)).Bool()
		return err
	})
	return kept || k.when.open(err), k.unlessOpen(err)
}

// releaseKey removes the value if it has this claim, and returns how many values it has removed.
var releaseKey = redis.NewScript(`
local kept = redis.call("GET", KEYS[1])
if kept and string.sub(kept, 2, 1 + string.byte(kept)) == ARGV[1] then return redis.call("DEL", KEYS[1]) end
return 0`)

// Release implements idempotency.Store.
func (k *keys) Release(c *filo.Ctx, key, claim string) error {
	_, err := k.release(c.Context(), key, claim)
	return k.unlessOpen(err)
}

func (k *keys) release(ctx context.Context, key, claim string) (released bool, err error) {
	err = k.call(ctx, writing, func(ctx context.Context) (err error) {
		released, err = releaseKey.Run(ctx, k.client, []string{k.key("idempotency", key)}, claim).Bool()
		return err
	})
	return released, err
}

// undo releases the key of a request that was refused because its claim got no answer in time. Redis may have stored the claim, or may
// receive it only after the first attempt to release it. Without undo, repetitions of the request would get 409 until the claim expires.
func (k *keys) undo(key string, record idempotency.Record) {
	if k.undoing.Add(1) > maxUndoing {
		k.undoing.Add(-1)
		return
	}
	k.undoAfter(retryInterval, key, record)
}

func (k *keys) undoAfter(pause time.Duration, key string, record idempotency.Record) {
	time.AfterFunc(pause, func() {
		released, err := k.release(context.Background(), key, record.Claim)
		if released || err == nil && pause > maxTravel || errors.Is(err, redis.ErrClosed) || time.Now().After(record.Expires) {
			k.undoing.Add(-1)
			return
		}
		k.undoAfter(2*pause, key, record)
	})
}

// unlessOpen returns err, or nil if the request goes on despite err.
func (k *keys) unlessOpen(err error) error {
	if k.when.open(err) {
		return nil
	}
	return err
}
