// Package budget bounds the memory that a server holds for all of its clients together: Bodies bounds the memory of request bodies, and Answers the
// memory of answers that wait to be sent. The package only counts. Its callers refuse bytes for which there is no room.
package budget

import (
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
)

// Bodies counts the bytes of the request bodies that a server holds. These bytes are in the buffers of bodies that handlers read as a whole, each
// counted by a Room, and in queues that handlers haven't read yet, counted for each client.
//
// A body is silent if it takes up room while its handler waits for the next byte. When there is no room left, the body whose client has
// been silent for the longest is cut off. So clients that send nearly all of their bodies, and then nothing, don't shut out others. The map of silent
// bodies needs no limit of its own, because each of these bodies takes up room.
type Bodies struct {
	limit int64 // negative: none; immutable
	used  atomic.Int64

	mu     race.Mutex[race.OfBodies]
	silent map[*Room]silentBody
	next   clock.Time // the time before which no search is made; set by a search that has found no silent body
}

// Room is the room that the buffer of one body takes up. Goroutines other than the reader of the body may change only the field bytes.
type Room struct {
	bytes  atomic.Int64 // 0 when the body was cut off to make room for others
	silent bool         // the room is in Bodies.silent
}

// Bytes returns how many bytes of room the buffer takes up.
func (r *Room) Bytes() int64 { return r.bytes.Load() }

// Silent is a body whose client may be silent.
type Silent interface {
	// CutBody ends the wait for the body's next bytes, and calls Bodies.Pass. It reports false if the handler no longer waits.
	CutBody(room *Room) bool
}

type silentBody struct {
	body  Silent
	since clock.Time
}

const (
	// silentTime is how long a client must have sent nothing before it is cut off.
	silentTime = time.Second
	// silentRest is the time between two searches that find no silent body.
	silentRest = 5 * time.Millisecond
)

// Once half of the limit is used, the queues of one client may use at most 1/clientShare of the limit.
const clientShare = 32

// SetLimit sets how many bytes there is room for, negative for any number. It must be called before any other method.
func (b *Bodies) SetLimit(limit int64) { b.limit = limit }

// Limit returns how many bytes there is room for.
func (b *Bodies) Limit() int64 { return b.limit }

// Used returns how many bytes are counted.
func (b *Bodies) Used() int64 { return b.used.Load() }

// hasRoom reports whether a request may take n more bytes; own is how many it already holds. A request may always take more if no other request holds
// bytes, so that a body over the limit isn't refused for ever.
func (b *Bodies) hasRoom(used, own, n int64) bool {
	return b.limit < 0 || used+n <= b.limit || used <= own
}

// HasRoom reports whether Take would succeed. It reserves nothing: a client that only announces a length must not take room from others.
func (b *Bodies) HasRoom(room *Room, queued, n int64) bool {
	return b.hasRoom(b.used.Load(), room.Bytes()+queued, n)
}

// Take reserves n more bytes for the buffer of a body. queued is how many bytes of that body wait in a queue. Take reports false if there is no room.
func (b *Bodies) Take(room *Room, queued, n int64) bool {
	for own := room.Bytes() + queued; ; {
		used := b.used.Load()
		if !b.hasRoom(used, own, n) {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			room.bytes.Add(n)
			return true
		}
	}
}

// Add counts n more bytes of the buffer, whether there is room for them or not.
func (b *Bodies) Add(room *Room, n int64) {
	b.used.Add(n)
	room.bytes.Add(n)
}

// Give gives back the room of n bytes of the buffer, or all of the buffer's room if that is less.
func (b *Bodies) Give(room *Room, n int64) {
	for {
		bytes := room.bytes.Load()
		n = min(n, bytes)
		if room.bytes.CompareAndSwap(bytes, bytes-n) {
			b.used.Add(-n)
			return
		}
	}
}

// Pass frees the room of a body that is cut off, for other bodies, shortly before its handler releases the buffer.
func (b *Bodies) Pass(room *Room) { b.used.Add(-room.bytes.Swap(0)) }

// MayQueue reports whether a client's queues have room for n more bytes; client counts the bytes in them.
func (b *Bodies) MayQueue(client *atomic.Int64, n int) bool {
	if b.limit < 0 {
		return true
	}
	used := b.used.Load() + int64(n)
	return used <= b.limit/2 || used <= b.limit && client.Load()+int64(n) <= b.limit/clientShare
}

// IsFull reports whether there is no room for n more bytes of any body.
func (b *Bodies) IsFull(n int) bool { return b.limit >= 0 && b.used.Load()+int64(n) > b.limit }

// Queue counts n more bytes in the queues of a client; n may be negative.
func (b *Bodies) Queue(client *atomic.Int64, n int64) {
	client.Add(n)
	b.used.Add(n)
}

// BeginSilence records when the handler of a body began to wait, if its buffer takes up room. The caller must call EndSilence when the wait ends.
func (b *Bodies) BeginSilence(room *Room, body Silent, since clock.Time) {
	if room.Bytes() == 0 || room.silent {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.silent == nil {
		b.silent = make(map[*Room]silentBody)
	}
	b.silent[room], room.silent = silentBody{body, since}, true
}

// EndSilence records that the handler no longer waits.
func (b *Bodies) EndSilence(room *Room) {
	if !room.silent {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.silent, room)
	room.silent = false
}

// CutSilent makes room by cutting off a body whose client is silent. It reports false if it finds none. The caller must not hold a connection's lock.
func (b *Bodies) CutSilent(now clock.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now < b.next {
		return false
	}
	for {
		var first *Room
		for room, body := range b.silent {
			if now.Sub(body.since) >= silentTime && (first == nil || body.since < b.silent[first].since) {
				first = room
			}
		}
		if first == nil {
			b.next = now.Add(silentRest)
			return false
		}
		body := b.silent[first].body
		delete(b.silent, first)
		if body.CutBody(first) {
			return true
		}
	}
}

// Silents returns how many bodies have been silent for at least minSilence at the moment now.
func (b *Bodies) Silents(now clock.Time, minSilence time.Duration) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, each := range b.silent {
		if now.Sub(each.since) >= minSilence {
			n++
		}
	}
	return n
}
