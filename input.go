package filo

import "github.com/filohttp/filo/internal/lend"

const (
	// readBufferSize is what a connection reads into at first: most request heads with their bodies fit.
	readBufferSize = 4 << 10
	// maxKeptReadBuffer is how large a read buffer a worker keeps between connections.
	maxKeptReadBuffer = 32 << 10
)

// inputBuffer holds what was received: first the bytes that the current request lends to its handler, which must
// stay where they are, then those that nobody has taken yet.
type inputBuffer struct {
	buf    []byte // its length is its capacity
	pinned int    // buf[:pinned] is lent
	r, w   int    // buf[r:w] hasn't been taken
	// outgrown are the buffers before buf, parts of which are still lent. They are kept only to be poisoned.
	outgrown [][]byte
}

func (in *inputBuffer) len() int       { return in.w - in.r }
func (in *inputBuffer) unread() []byte { return in.buf[in.r:in.w:in.w] }
func (in *inputBuffer) advance(n int)  { in.r += n }

// pin lends everything up to here until unpin.
func (in *inputBuffer) pin() { in.pinned = in.r }

// unpin takes the lent bytes back.
func (in *inputBuffer) unpin() {
	in.pinned = 0
	if in.r == in.w {
		in.r, in.w = 0, 0
	}
}

// room returns how many bytes, unread ones included, fit without moving any.
func (in *inputBuffer) room() int { return max(len(in.buf), readBufferSize) - in.r }

// space returns where to receive the next bytes. It makes room by moving the unread bytes down to the lent ones, or
// else into a buffer of twice the size; lent bytes stay valid in the old one.
func (in *inputBuffer) space() []byte {
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
	grown := make([]byte, max(2*len(in.buf), readBufferSize))
	copy(grown, in.buf[:in.w])
	if lend.RaceEnabled {
		in.outgrown = append(in.outgrown, in.buf[:in.pinned])
	}
	in.buf = grown
	return in.buf[in.w:]
}

// received notes that n bytes came into space.
func (in *inputBuffer) received(n int) { in.w += n }

// reset empties the buffer for another connection.
func (in *inputBuffer) reset() {
	in.pinned, in.r, in.w = 0, 0, 0
	if len(in.buf) > maxKeptReadBuffer {
		in.buf = nil
	}
}
