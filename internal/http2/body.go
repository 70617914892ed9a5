package http2

import (
	"slices"
	"sync"

	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/race"
)

// A BodyQueue holds the bytes of a body that have arrived and haven't been read. A short body is contiguous, in memory that the queue keeps.
// The rest of a longer body is stored in chunks: the queue takes them from a pool as bytes arrive, and returns them as bytes are read. So
// the bytes of a long body are never moved within the queue, however far its reader is behind, and the queue takes little more memory than
// the unread bytes.
type BodyQueue struct {
	short []byte      // short[read:] is read before the chunks
	long  *bodyChunks // nil if there are no chunks
	read  int32
}

// bodyChunks holds the chunks of a BodyQueue: there is at least one, and the first has unread bytes.
type bodyChunks struct {
	chunks    []*bodyChunk
	read, end int // where the unread bytes begin in the first chunk, and end in the last one
}

const (
	maxShortBody  = 16 << 10
	bodyChunkSize = 16 << 10
)

type bodyChunk [bodyChunkSize]byte

var freeChunks = sync.Pool{New: func() any { return new(bodyChunk) }}

// Len returns the number of unread bytes.
func (q *BodyQueue) Len() int {
	n := len(q.short) - int(q.read)
	if l := q.long; l != nil {
		n += (len(l.chunks)-1)*bodyChunkSize + l.end - l.read
	}
	return n
}

// Size returns how much memory the queue holds, in bytes.
func (q *BodyQueue) Size() int {
	size := cap(q.short)
	if q.long != nil {
		size += len(q.long.chunks) * bodyChunkSize
	}
	return size
}

// Append adds a copy of b.
func (q *BodyQueue) Append(b []byte) {
	if q.long == nil {
		if int(q.read) == len(q.short) || int(q.read) > len(q.short)/2 && len(q.short)+len(b) > cap(q.short) {
			q.short, q.read = q.short[:copy(q.short, q.short[q.read:])], 0
		}
		if len(q.short)+len(b) <= maxShortBody {
			q.short = append(q.short, b...)
			return
		}
		q.long = &bodyChunks{end: bodyChunkSize}
	}
	l := q.long
	for len(b) > 0 {
		if l.end == bodyChunkSize {
			l.chunks, l.end = append(l.chunks, freeChunks.Get().(*bodyChunk)), 0
		}
		n := copy(l.chunks[len(l.chunks)-1][l.end:], b)
		l.end += n
		b = b[n:]
	}
}

// Read moves unread bytes to p, and returns their number.
func (q *BodyQueue) Read(p []byte) (n int) {
	n = copy(p, q.short[q.read:])
	q.read += int32(n)
	for l := q.long; l != nil && n < len(p); {
		first, end := l.chunks[0], bodyChunkSize
		if len(l.chunks) == 1 {
			end = l.end
		}
		m := copy(p[n:], first[l.read:end])
		n += m
		if l.read += m; l.read < end {
			break
		}
		freeChunks.Put(first)
		if l.chunks, l.read = slices.Delete(l.chunks, 0, 1), 0; len(l.chunks) == 0 {
			q.long, l = nil, nil
		}
	}
	return n
}

// Whole returns all unread bytes if they are contiguous, and counts them as read. The slice is valid until Reset.
func (q *BodyQueue) Whole() (b []byte, ok bool) {
	if q.long != nil {
		return nil, false
	}
	b = q.short[q.read:len(q.short):len(q.short)]
	q.read = int32(len(q.short))
	return b, true
}

// Reset empties the queue for another body.
func (q *BodyQueue) Reset() {
	if race.Enabled {
		lend.Poison(q.short[:cap(q.short)])
	}
	q.dropLong()
	q.short, q.read = q.short[:0], 0
}

// Drop empties the queue, and releases its memory.
func (q *BodyQueue) Drop() {
	q.dropLong()
	q.short, q.read = nil, 0
}

func (q *BodyQueue) dropLong() {
	if q.long == nil {
		return
	}
	for _, chunk := range q.long.chunks {
		freeChunks.Put(chunk)
	}
	q.long = nil
}
