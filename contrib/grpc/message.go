package grpcfilo

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A message on the wire is a prefix, followed by as many bytes as the prefix says.
const (
	prefixSize     = 5 // flags, and the length in four bytes
	flagCompressed = 1
	flagTrailer    = 0x80 // of gRPC-Web: not a message, but the trailer
)

// pieceSize is how much memory is allocated for a message before its bytes arrive. It is small, since a client can announce a large message and
// send nothing.
const pieceSize = 32 << 10

// pool lends the buffers of messages.
var pool = mem.DefaultBufferPool()

// message is a message that was received or will be sent. Its content is either in plain, or in data and wire.
type message struct {
	flags byte
	plain []byte          // an uncompressed protobuf message, contiguous in memory
	frame *frame          // the memory of plain, and of the prefix before it; nil if plain is a part of the request's body
	data  mem.BufferSlice // uncompressed, in the codec's encoding
	wire  mem.BufferSlice // as on the wire: the same as data, or compressed
}

// dataSize returns the uncompressed size.
func (m *message) dataSize() int { return len(m.plain) + m.data.Len() }

// wireSize returns the size on the wire, without the prefix.
func (m *message) wireSize() int { return len(m.plain) + m.wire.Len() }

// free returns the buffers to their pools.
func (m *message) free() {
	if m.frame != nil {
		m.plain = nil
		frames.Put(m.frame)
	}
	m.data.Free()
	if m.flags == flagCompressed {
		m.wire.Free()
	}
}

// codec encodes and decodes messages. It is an encoding.CodecV2 without its name.
type codec interface {
	Marshal(v any) (mem.BufferSlice, error)
	Unmarshal(data mem.BufferSlice, v any) error
}

// codecOf returns the codec that is registered for a subtype of application/grpc; nil if none is.
func codecOf(subtype string) codec {
	if subtype == "" {
		subtype = grpcproto.Name
	}
	if old := encoding.GetCodec(subtype); old != nil {
		return oldCodec{old}
	}
	if c := encoding.GetCodecV2(subtype); c != nil {
		return c
	}
	return nil
}

// protobuf is grpc-go's own codec for protobuf, or nil if the program has replaced it. This package encodes and decodes small messages of this
// codec itself, without the codec's buffers.
var protobuf = unlessReplaced(encoding.GetCodecV2(grpcproto.Name))

// unlessReplaced returns c if it is grpc-go's own codec for protobuf, otherwise nil. c is nil if the program has registered a codec with the
// older interface, encoding.Codec.
func unlessReplaced(c encoding.CodecV2) codec {
	if t := reflect.TypeOf(c); t == nil || t.Kind() != reflect.Pointer || t.Elem().PkgPath() != "google.golang.org/grpc/encoding/proto" {
		return nil
	}
	return c
}

// frame is memory for a message with its prefix.
type frame []byte

var frames = sync.Pool{New: func() any { return new(frame) }}

// newFrame returns a frame with room for a message of this size.
func newFrame(size int) *frame {
	f := frames.Get().(*frame)
	*f = slices.Grow((*f)[:0], prefixSize+size)[:prefixSize+size]
	return f
}

// encodePlain encodes v if it is a small protobuf message. Otherwise ok is false.
func encodePlain(c codec, v any, limit int) (m message, ok bool) {
	p, isProto := v.(proto.Message)
	if !isProto || c != protobuf {
		return m, false
	}
	size := proto.Size(p)
	if size > min(limit, pieceSize) {
		return m, false
	}
	f := newFrame(size)
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*f)[:prefixSize], p)
	if err != nil { // the caller will call the codec, and return its error
		frames.Put(f)
		return m, false
	}
	*f = b
	m.frame, m.plain = f, b[prefixSize:]
	m.appendPrefix(b[:0])
	return m, true
}

// decode decodes the message.
func (m *message) decode(c codec, v any) error {
	if m.plain == nil {
		return c.Unmarshal(m.data, v)
	}
	if p, ok := v.(proto.Message); ok {
		return proto.Unmarshal(m.plain, p)
	}
	return c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(m.plain)}, v)
}

// oldCodec adapts an encoding.Codec, which has no buffers, to codec.
type oldCodec struct{ encoding.Codec }

// Marshal implements codec.
func (c oldCodec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.Codec.Marshal(v)
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}

// Unmarshal implements codec.
func (c oldCodec) Unmarshal(data mem.BufferSlice, v any) error {
	return c.Codec.Unmarshal(data.Materialize(), v)
}

// encode encodes v as a message, which the caller must free.
func encode(c codec, v any, compressor encoding.Compressor, limit int) (m message, err error) {
	if compressor == nil {
		if m, ok := encodePlain(c, v, limit); ok {
			return m, nil
		}
	}
	if m.data, err = c.Marshal(v); err != nil {
		return m, status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	m.wire = m.data
	if compressor != nil && m.data.Len() > 0 {
		var wire mem.BufferSlice // not m.wire, whose address would move each message to the heap
		err = compress(compressor, m.data, &wire)
		m.flags, m.wire = flagCompressed, wire
		if err != nil {
			m.free()
			return m, status.Errorf(codes.Internal, "grpc: error while compressing: %v", err)
		}
	}
	if size := m.wire.Len(); int64(size) > min(int64(limit), math.MaxUint32) {
		m.free()
		return m, status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", size, limit)
	}
	return m, nil
}

// compress appends the compressed data to out.
func compress(compressor encoding.Compressor, data mem.BufferSlice, out *mem.BufferSlice) error {
	w, err := compressor.Compress(mem.NewWriter(out, pool))
	if err != nil {
		return err
	}
	for _, b := range data {
		if _, err := w.Write(b.ReadOnlyData()); err != nil {
			return err
		}
	}
	return w.Close()
}

// appendPrefix appends the message's prefix.
func (m *message) appendPrefix(b []byte) []byte {
	return binary.BigEndian.AppendUint32(append(b, m.flags), uint32(m.wireSize()))
}

// deadlineReader is a reader of a streamed body.
type deadlineReader interface {
	io.Reader
	// SetReadDeadline sets a deadline for the reader's later reads, in place of the server's limits for bodies.
	SetReadDeadline(until time.Time) error
}

// receiver reads the messages of a request.
type receiver struct {
	source       io.Reader     // &whole or ahead; nil before the first read
	body         []byte        // the whole body; nil if it is streamed
	whole        bytes.Reader  // reads body
	ahead        *bufio.Reader // reads a streamed body; nil otherwise
	encodingName string
	plain        bool // the codec is grpc-go's own codec for protobuf
	limit        int  // the maximum size of a message, on the wire and decompressed
	received     bool

	from     deadlineReader // ahead reads from it; nil if the body isn't streamed
	until    time.Time      // when the call must have received everything
	patience time.Duration  // how long the client may take for a piece of a message
	mayIdle  bool           // between messages the client may be silent until the time until
	hurries  bool           // the deadline that from has is for a piece
}

// await sets the deadline for the next n bytes, unless they have arrived already. These bytes either begin a message or are a piece of one.
func (r *receiver) await(n int, begins bool) error {
	if r.ahead == nil || r.ahead.Buffered() >= n {
		return nil
	}
	if begins && r.mayIdle {
		if !r.hurries {
			return nil
		}
		r.hurries = false
		return r.from.SetReadDeadline(r.until)
	}
	r.hurries = true
	until := time.Now().Add(r.patience)
	if r.until.Before(until) {
		until = r.until
	}
	return r.from.SetReadDeadline(until)
}

// take returns the next n bytes, which are valid until the next call. If the body is streamed, n is at most readAhead.
func (r *receiver) take(n int) (b []byte, err error) {
	if r.ahead != nil {
		b, err = r.ahead.Peek(n)
		r.ahead.Discard(len(b)) // it can't fail: the bytes are buffered
	} else {
		start := len(r.body) - r.whole.Len()
		b = r.body[start:min(start+n, len(r.body))]
		r.whole.Seek(int64(len(b)), io.SeekCurrent)
		if len(b) < n {
			err = io.EOF
		}
	}
	if err == io.EOF && len(b) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// receive reads the next message, which the caller must free. The error is io.EOF at the end of the request.
func (r *receiver) receive() (m message, err error) {
	if err := r.await(prefixSize, true); err != nil {
		return m, err
	}
	prefix, err := r.take(prefixSize)
	if err != nil {
		return m, cutOff(err)
	}
	flags, size := prefix[0], int64(binary.BigEndian.Uint32(prefix[1:]))
	if size > int64(r.limit) {
		return m, status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", size, r.limit)
	}
	compressor, err := compressorFor(flags, r.encodingName)
	if err != nil {
		return m, err
	}
	if compressor == nil && r.plain {
		if ok, err := r.receivePlain(&m, int(size)); ok || err != nil {
			return m, err
		}
	}
	if m.data, err = r.readPieces(int(size)); err != nil {
		return m, err
	}
	m.wire = m.data
	if compressor == nil {
		return m, nil
	}
	m.flags = flagCompressed
	if m.data, err = decompress(compressor, m.wire, r.limit); err != nil {
		m.wire.Free()
	}
	return m, err
}

// receivePlain receives an uncompressed message. It doesn't copy the message if it is small or the whole body is in memory. It reports false, and
// reads nothing, if the message is empty or large.
func (r *receiver) receivePlain(m *message, size int) (ok bool, err error) {
	if size == 0 || r.ahead != nil && size > pieceSize {
		return false, nil
	}
	if err := r.await(size, false); err != nil {
		return false, err
	}
	if r.ahead == nil || size <= readAhead {
		m.plain, err = r.take(size)
		return true, cutOffWithin(err)
	}
	f := newFrame(size)
	if _, err := io.ReadFull(r.source, (*f)[prefixSize:]); err != nil {
		frames.Put(f)
		return false, cutOffWithin(err)
	}
	m.frame, m.plain = f, (*f)[prefixSize:]
	return true, nil
}

// cutOffWithin is cutOff for reading the bytes after a prefix: there, io.EOF also means that the message is cut off.
func cutOffWithin(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return cutOff(err)
}

// cutOff turns the error of reading a whole prefix or message into the call's error.
func cutOff(err error) error {
	if err == io.ErrUnexpectedEOF {
		return status.Error(codes.Internal, "grpc: the request ends within a message")
	}
	return err
}

// compressorFor returns the compressor that decompresses a message with these flags; nil if the message isn't compressed.
func compressorFor(flags byte, name string) (encoding.Compressor, error) {
	switch {
	case flags == 0:
		return nil, nil
	case flags != flagCompressed:
		return nil, status.Errorf(codes.Internal, "grpc: received unexpected payload format %d", flags)
	case isIdentity(name):
		return nil, status.Error(codes.Internal, "grpc: compressed flag set with identity or empty encoding")
	}
	c := encoding.GetCompressor(name)
	if c == nil {
		return nil, unknownEncoding(name)
	}
	return c, nil
}

func isIdentity(encodingName string) bool {
	return encodingName == "" || encodingName == encoding.Identity
}

func unknownEncoding(name string) error {
	return status.Errorf(codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", name)
}

// acceptedEncodings returns the value of grpc-accept-encoding, which lists the supported encodings for a client that has used an unknown one.
// grpc-go's registry of compressors can't be listed, so compressors with unusual names are missing.
func acceptedEncodings() string {
	names := encoding.Identity
	for _, name := range [...]string{"gzip", "deflate", "snappy", "zstd"} {
		if encoding.GetCompressor(name) != nil {
			names += "," + name
		}
	}
	return names
}

// readPieces reads size bytes, and allocates memory in pieces as the bytes arrive.
func (r *receiver) readPieces(size int) (data mem.BufferSlice, err error) {
	for size > 0 {
		buffer := newBuffer(min(size, pieceSize))
		data = append(data, buffer)
		n := 0
		if err = r.await(buffer.Len(), false); err == nil {
			n, err = io.ReadFull(r.source, buffer.ReadOnlyData())
		}
		if size -= n; err != nil {
			data.Free()
			return nil, cutOffWithin(err)
		}
	}
	return data, nil
}

// newBuffer returns a buffer of the size. Small buffers don't come from the pool, which wouldn't take them back.
func newBuffer(size int) mem.Buffer {
	if mem.IsBelowBufferPoolingThreshold(size) {
		return make(mem.SliceBuffer, size)
	}
	return mem.NewBuffer(pool.Get(size), pool)
}

// decompress decompresses the message. It fails if the result is longer than limit bytes.
func decompress(compressor encoding.Compressor, wire mem.BufferSlice, limit int) (data mem.BufferSlice, err error) {
	source := wire.Reader()
	defer source.Close()
	r, err := compressor.Decompress(source)
	if err == nil {
		if closer, ok := r.(io.Closer); ok {
			defer closer.Close()
		}
		data, err = mem.ReadAll(io.LimitReader(r, int64(limit)+1), pool)
	}
	switch {
	case err != nil:
		data.Free()
		return nil, status.Errorf(codes.Internal, "grpc: failed to decompress the received message: %v", err)
	case data.Len() > limit:
		data.Free()
		return nil, status.Errorf(codes.ResourceExhausted, "grpc: received message after decompression larger than max %d", limit)
	}
	return data, nil
}
