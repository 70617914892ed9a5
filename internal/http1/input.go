package http1

import (
	"github.com/filohttp/filo/internal/lend"
	"github.com/filohttp/filo/internal/race"
)

const (
	// ReadBufferSize is the size of a connection's first read buffer. Most requests fit into it, head and body together.
	ReadBufferSize = 4 << 10
	// maxKeptReadBuffer is the size of the largest read buffer that a worker keeps between connections.
	maxKeptReadBuffer = 32 << 10
)

// Input is a buffer of received bytes. Its first bytes are lent to the handler of the current request, and must not move. The bytes after
// them are unread: they haven't been consumed.
type Input struct {
	buf    []byte // its length is its capacity
	pinned int    // buf[:pinned] is lent
	r, w   int    // buf[r:w] hasn't been consumed
	// outgrown holds the lent parts of earlier buffers, in builds with the race detector, so that Poison can overwrite them.
	outgrown [][]byte
}

// Len returns the number of bytes that haven't been consumed.
func (in *Input) Len() int { return in.w - in.r }

// Unread returns the bytes that haven't been consumed. The slice is valid until Space is called.
func (in *Input) Unread() []byte { return in.buf[in.r:in.w:in.w] }

// Advance consumes n bytes.
func (in *Input) Advance(n int) { in.r += n }

// Pin lends all consumed bytes, until Unpin.
func (in *Input) Pin() { in.pinned = in.r }

// Unpin ends the loan: the lent bytes may be overwritten from then on.
func (in *Input) Unpin() {
	in.pinned = 0
	if in.r == in.w {
		in.r, in.w = 0, 0
	}
}

// Room returns how many bytes, including the unread bytes, fit into the buffer without moving any.
func (in *Input) Room() int { return max(len(in.buf), ReadBufferSize) - in.r }

// Space returns a slice for the next received bytes. If there is no room, it moves the unread bytes to the end of the lent bytes. If that
// makes no room, it copies all bytes to a buffer of twice the size; the lent bytes remain valid in the old buffer.
func (in *Input) Space() []byte {
	if in.r == in.w {
		in.r, in.w = in.pinned, in.pinned
	}
	if in.w < len(in.buf) {
		return in.buf[in.w:]
	}
	if in.r > in.pinned {
		in.w = in.pinned + copy(in.buf[in.pinned:], in.buf[in.r:in.w])
		in.r = in.pinned
		return in.buf[in.w:]
	}
	grown := make([]byte, max(2*len(in.buf), ReadBufferSize))
	copy(grown, in.buf[:in.w])
	if race.Enabled {
		in.outgrown = append(in.outgrown, in.buf[:in.pinned])
	}
	in.buf = grown
	return in.buf[in.w:]
}

// Received records that n bytes were stored in the slice that Space has returned.
func (in *Input) Received(n int) { in.w += n }

// Reset empties the buffer for another connection.
func (in *Input) Reset() {
	in.pinned, in.r, in.w = 0, 0, 0
	if len(in.buf) > maxKeptReadBuffer {
		in.buf = nil
	}
}

// Save stores a copy of b in an empty input. It allocates a small buffer, which has room for as many bytes again.
func (in *Input) Save(b []byte) {
	in.buf = make([]byte, max(512, 2*len(b)))
	in.w = copy(in.buf, b)
}

// Enlarge replaces the buffer with one of maxKeptReadBuffer bytes, for a client that sends more at once than the first buffer holds. It does
// nothing while bytes are lent.
func (in *Input) Enlarge() {
	if len(in.buf) >= maxKeptReadBuffer || in.pinned > 0 {
		return
	}
	enlarged := make([]byte, maxKeptReadBuffer)
	in.w = copy(enlarged, in.buf[in.r:in.w])
	in.buf, in.r = enlarged, 0
}

// TakeOver moves source's unread bytes to in, which must be empty. It moves source's buffer instead of copying the bytes if in has no
// buffer, or one that is too small.
func (in *Input) TakeOver(source *Input) {
	if unread := source.Unread(); len(unread) > max(len(in.buf), ReadBufferSize) || len(in.buf) == 0 && len(source.buf) >= ReadBufferSize {
		*in = *source
	} else if len(unread) > 0 {
		in.Received(copy(in.Space(), unread))
	}
	*source = Input{}
}

// Poison overwrites the lent bytes, in builds with the race detector.
func (in *Input) Poison() {
	lend.Poison(in.buf[:in.pinned])
	for _, old := range in.outgrown {
		lend.Poison(old)
	}
	in.outgrown = nil
}
