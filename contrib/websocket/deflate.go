package websocket

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

const (
	// maxWindow is the maximum distance of a reference in DEFLATE.
	maxWindow = 32 << 10
	// deflateDictionary is how many bytes of earlier messages the compressor uses as a dictionary.
	deflateDictionary = 8 << 10
)

// syncTail is the end of every compressed message. It isn't sent (RFC 7692, section 7.2.1).
const syncTail = "\x00\x00\xff\xff"

// inflateTail is appended to a compressed message: the bytes that its sender left out, and an empty last block.
const inflateTail = syncTail + "\x01\x00\x00\xff\xff"

// maxFinals is the maximum number of final blocks before the end of a message: each of them costs time.
const maxFinals = 16

var errInflate = failure(StatusInvalidPayload, "a compressed message is malformed")

// contexts holds the last bytes of earlier messages, to which messages may refer if that was negotiated.
type contexts struct {
	sent, received []byte
}

// remember adds b to the end of a context, and keeps its last size bytes.
func remember(kept, b []byte, size int) []byte {
	if len(b) >= size {
		return append(kept[:0], b[len(b)-size:]...)
	}
	if over := len(kept) + len(b) - size; over > 0 {
		kept = kept[:copy(kept, kept[over:])]
	}
	return append(kept, b...)
}

// appendDeflated appends b, compressed as a message. The compressor keeps no state: it refers to earlier messages only by the dictionary.
func appendDeflated(dst *buffer, b, dictionary []byte) {
	flate.StatelessDeflate(dst, b, false, dictionary) // it fails only if dst fails
	dst.b = dst.b[:len(dst.b)-len(syncTail)]
}

// inflater is a reusable decompressor.
type inflater struct {
	source bytes.Reader
	flate  io.ReadCloser
}

var inflaters = sync.Pool{New: func() any {
	i := new(inflater)
	i.flate = flate.NewReader(&i.source)
	return i
}}

// inflate decompresses the message in b, and appends the result to dst: at most limit bytes, unless limit is negative. It also appends
// inflateTail to b.
func inflate(dst, b *buffer, dictionary []byte, limit int64) error {
	i := inflaters.Get().(*inflater)
	defer func() {
		i.source.Reset(nil)
		inflaters.Put(i)
	}()
	b.b = append(b.b, inflateTail...)
	i.source.Reset(b.b)
	window := dictionary
	for finals := 0; i.source.Len() > 0; finals++ { // a final block may come before the end (section 7.2.3.4)
		if finals > maxFinals {
			return errInflate
		}
		if err := i.flate.(flate.Resetter).Reset(&i.source, window); err != nil {
			return errInflate
		}
		if err := i.copyTo(dst, limit); err != nil {
			return err
		}
		if i.source.Len() > 0 {
			window = remember(bytes.Clone(dictionary), dst.b, maxWindow)
		}
	}
	return nil
}

// copyTo decompresses up to the end of the next final block.
func (i *inflater) copyTo(dst *buffer, limit int64) error {
	for {
		if cap(dst.b)-len(dst.b) < bytes.MinRead {
			dst.b = append(make([]byte, 0, 2*cap(dst.b)+bytes.MinRead), dst.b...)
		}
		n, err := i.flate.Read(dst.b[len(dst.b):cap(dst.b)])
		dst.b = dst.b[:len(dst.b)+n]
		switch {
		case limit >= 0 && int64(len(dst.b)) > limit:
			return errTooBig
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errInflate
		}
	}
}
