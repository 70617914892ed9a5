// Package http2 implements the parts of an HTTP/2 server (RFC 9113) that need no connection: frames, settings, the states of streams,
// windows, limits, the rules for fields, and priorities (RFC 9218). Its functions read and append bytes. They don't block, start goroutines
// or read the clock. The types have no locks: each value belongs to a connection or stream, whose lock or owner guards it.
//
// A frame is processed as follows. Reader.Next reads it from the input, and Earned.Cost returns how many glitches it costs. EventOf turns
// the frame of a stream into an Event, and State.Step returns what the event means. Table finds the stream, which has a State; IDs returns
// the state of a stream that isn't in the table. DATA is counted against both ReceiveWindows and the Content. HEADERS either begins a
// request, which IDs.Open and Counts.Enter must admit, or is a trailer section. The Decoder decodes the field block into a Head. State.Ends
// says whether a fault ends the stream or the connection.
package http2

import "encoding/binary"

const (
	// Preface is the text that a client sends before its first frame (RFC 9113, section 3.4).
	Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	// FrameHeaderLen is the length of a frame's header (RFC 9113, section 4.1).
	FrameHeaderLen = 9
	// MaxFrameSize bounds the payload of frames in both directions. Each peer must accept frames of this size (RFC 9113, section 6.5.2), and
	// larger frames would hold up other streams for longer.
	MaxFrameSize = 16 << 10
	// maxID is the highest stream number.
	maxID = 1<<31 - 1
)

// FrameType is the type of a frame.
type FrameType uint8

// The types of RFC 9113, section 6, and of RFC 9218, section 7.1.
const (
	FrameData           FrameType = 0x0
	FrameHeaders        FrameType = 0x1
	FramePriority       FrameType = 0x2
	FrameReset          FrameType = 0x3 // RST_STREAM
	FrameSettings       FrameType = 0x4
	FramePush           FrameType = 0x5 // PUSH_PROMISE
	FramePing           FrameType = 0x6
	FrameGoAway         FrameType = 0x7
	FrameWindowUpdate   FrameType = 0x8
	FrameContinuation   FrameType = 0x9
	FramePriorityUpdate FrameType = 0x10
)

// Flags are the flags of a frame. Flags that a type doesn't have are ignored (RFC 9113, section 4.1).
type Flags uint8

// The flags, and the frame types that have them.
const (
	FlagEndStream  Flags = 0x1  // of DATA and HEADERS
	FlagAck        Flags = 0x1  // of SETTINGS and PING
	FlagEndHeaders Flags = 0x4  // of HEADERS and CONTINUATION
	FlagPadded     Flags = 0x8  // of DATA and HEADERS
	FlagPriority   Flags = 0x20 // of HEADERS
)

// Has reports whether one of the flags f is set.
func (g Flags) Has(f Flags) bool { return g&f != 0 }

// Frame is a received frame or, for DATA and unknown types, a part of one, which is called a piece.
type Frame struct {
	// Payload is the part of the payload that isn't padding and isn't in another field: the data, the field block's fragment, the entries of
	// SETTINGS, PING's 8 bytes, GOAWAY's debug data, or the value of PRIORITY_UPDATE. It is a slice of the bytes that were passed to Next.
	Payload []byte
	// Size is how many bytes of the payload of DATA this piece holds, including padding. They count against the windows (RFC 9113, section
	// 6.1).
	Size int
	// Length is the length of the whole frame's payload.
	Length int
	Stream uint32
	// Value is the increment of WINDOW_UPDATE, the error code of RST_STREAM or GOAWAY, or the stream to which PRIORITY_UPDATE applies.
	Value uint32
	Type  FrameType
	// Flags are the frame's flags. If a frame is read in pieces, only the last piece has FlagEndStream.
	Flags Flags
	// Follows says that this isn't the first piece of its frame.
	Follows bool
}

// EndStream reports whether the client's side of the stream ends with the frame, which is DATA or HEADERS.
func (f *Frame) EndStream() bool { return f.Flags.Has(FlagEndStream) }

// Ack reports whether the frame, which is SETTINGS or PING, acknowledges one that the server has sent.
func (f *Frame) Ack() bool { return f.Flags.Has(FlagAck) }

// ReadPreface reports whether b begins with the client's preface. If it returns false and NoFault, it needs more bytes.
func ReadPreface(b []byte) (bool, Fault) {
	n := min(len(b), len(Preface))
	if string(b[:n]) != Preface[:n] {
		return false, FaultPreface
	}
	return n == len(Preface), NoFault
}

// Reader parses frames from the bytes after the preface. It holds no buffer, only the state that depends on earlier frames: the caller keeps
// the bytes that Next hasn't consumed. The zero value is ready for a connection's first frame.
//
// Next returns DATA and frames of unknown types in pieces, as their bytes arrive. It returns all other frames whole, so the caller must be
// able to keep FrameHeaderLen+MaxFrameSize bytes.
type Reader struct {
	length  int32 // payload length of the frame that is read in pieces
	left    int32 // how many bytes of that frame will still arrive, including padding
	padding int32 // how many of the bytes counted by left are padding
	stream  uint32
	block   uint32 // the stream of an incomplete field block, 0 for none
	kind    FrameType
	flags   Flags
	begun   bool // the first frame was received
}

// InBlock reports whether a field block is incomplete, so that CONTINUATION must follow.
func (r *Reader) InBlock() bool { return r.block != 0 }

// Next parses the frame at the start of b, or a piece of it, into f, and returns how many bytes of b it has consumed. If it returns 0 and
// NoFault, it needs more bytes.
//
// A fault for which OfStream returns false ends the connection. With other faults f is valid, and its bytes are consumed. Even then a field
// block must be decoded, since the client's later blocks depend on it (RFC 9113, section 4.3).
func (r *Reader) Next(f *Frame, b []byte) (int, Fault) {
	if r.left > 0 {
		return r.piece(f, b, 0, true), NoFault
	}
	if len(b) < FrameHeaderLen {
		return 0, NoFault
	}
	length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	*f = Frame{Length: length, Type: FrameType(b[3]), Flags: Flags(b[4]), Stream: binary.BigEndian.Uint32(b[5:]) & maxID}
	if fault := r.admit(f); fault != NoFault {
		return 0, fault
	}
	if f.Type == FrameData || !f.known() {
		return r.beginPieces(f, b, length)
	}
	end := FrameHeaderLen + length
	if len(b) < end {
		return 0, NoFault
	}
	f.Payload = b[FrameHeaderLen:end:end]
	return end, r.parse(f)
}

// known reports whether the server knows the frame's type.
func (f *Frame) known() bool { return f.Type <= FrameContinuation || f.Type == FramePriorityUpdate }

// lengths has the shortest and the longest payload of each type. It allows any length for PRIORITY, since a wrong length there is a fault of
// the stream alone: see parse.
var lengths = [FrameContinuation + 1]struct{ least, most int }{
	FrameData:         {0, MaxFrameSize},
	FrameHeaders:      {0, MaxFrameSize},
	FramePriority:     {0, MaxFrameSize},
	FrameReset:        {4, 4},
	FrameSettings:     {0, MaxFrameSize},
	FramePush:         {0, MaxFrameSize},
	FramePing:         {8, 8},
	FrameGoAway:       {8, MaxFrameSize},
	FrameWindowUpdate: {4, 4},
	FrameContinuation: {0, MaxFrameSize},
}

// admit checks a frame's header: whether it is valid, and whether such a frame is allowed here. So an invalid frame is refused before its
// payload arrives.
func (r *Reader) admit(f *Frame) Fault {
	length := f.Length
	if !r.begun && (f.Type != FrameSettings || f.Ack()) {
		return FaultFirstFrame
	}
	if r.block != 0 && (f.Type != FrameContinuation || f.Stream != r.block) {
		return FaultInBlock
	}
	// RFC 9113, section 4.2, allows a server to end only the stream if some types of frames are too long. But then the server would have to
	// discard up to 16 MB.
	if length > MaxFrameSize {
		return FaultFrameSize
	}
	switch f.Type {
	case FrameData, FrameHeaders, FramePriority, FrameReset, FrameContinuation:
		if f.Stream == 0 {
			return FaultNoStream
		}
	case FrameSettings, FramePing, FrameGoAway, FramePriorityUpdate:
		if f.Stream != 0 {
			return FaultStreamGiven
		}
	}
	switch {
	case f.Type == FramePush:
		return FaultPush
	case f.Type == FrameContinuation && r.block == 0:
		return FaultContinuation
	case f.Type == FrameSettings && (length%settingLen != 0 || f.Ack() && length > 0):
		return FaultLength
	case f.Type == FramePriorityUpdate && length < 4:
		return FaultLength
	case f.Type <= FrameContinuation && (length < lengths[f.Type].least || length > lengths[f.Type].most):
		return FaultLength
	}
	r.begun = true
	return NoFault
}

// beginPieces begins a frame that is read in pieces, and reads its first piece.
func (r *Reader) beginPieces(f *Frame, b []byte, length int) (int, Fault) {
	header, padding := FrameHeaderLen, 0
	if f.Type == FrameData && f.Flags.Has(FlagPadded) {
		if length == 0 {
			return 0, FaultLength
		}
		if len(b) == FrameHeaderLen {
			return 0, NoFault
		}
		header++
		if padding = int(b[FrameHeaderLen]); padding >= length {
			return 0, FaultPadding
		}
	}
	r.stream, r.kind, r.flags = f.Stream, f.Type, f.Flags
	r.length, r.left, r.padding = int32(length), int32(FrameHeaderLen+length-header), int32(padding)
	n := r.piece(f, b, header, false)
	if n == 0 {
		r.left = 0 // only the header has arrived; Next will parse it again
		return 0, NoFault
	}
	f.Size += header - FrameHeaderLen
	return n, NoFault
}

// piece reads the piece of a frame at b[start:]. A piece must contain a byte of data or be the last one of its frame. Otherwise the caller
// might mistake a piece without data for a frame without data.
func (r *Reader) piece(f *Frame, b []byte, start int, follows bool) int {
	left, data := int(r.left), int(r.left-r.padding)
	n := min(len(b)-start, left)
	if n < left {
		if n = min(n, data); n <= 0 {
			return 0
		}
	}
	*f = Frame{Type: r.kind, Flags: r.flags, Stream: r.stream, Size: n, Length: int(r.length), Follows: follows}
	if n < left {
		f.Flags &^= FlagEndStream
	}
	end := start + min(n, data)
	f.Payload = b[start:end:end]
	r.left -= int32(n)
	return start + n
}

// parse checks and parses the payload of a frame that has arrived completely.
func (r *Reader) parse(f *Frame) Fault {
	switch f.Type {
	case FrameHeaders:
		return r.parseHeaders(f)
	case FrameContinuation:
		if f.Flags.Has(FlagEndHeaders) {
			r.block = 0
		}
	case FramePriority:
		if len(f.Payload) != priorityLen {
			return FaultPriorityLength
		}
		return dependency(f)
	case FrameReset:
		f.Value = binary.BigEndian.Uint32(f.Payload)
	case FrameGoAway:
		// The first 4 bytes name the last of the server's streams that the client will serve. They don't matter, since this server opens no
		// streams.
		f.Value, f.Payload = binary.BigEndian.Uint32(f.Payload[4:]), f.Payload[8:]
	case FrameWindowUpdate:
		f.Value = binary.BigEndian.Uint32(f.Payload) & (1<<31 - 1)
		switch {
		case f.Value > 0:
		case f.Stream == 0:
			return FaultConnectionIncrement
		default:
			return FaultIncrement
		}
	case FramePriorityUpdate:
		f.Value, f.Payload = binary.BigEndian.Uint32(f.Payload)&maxID, f.Payload[4:]
	}
	return NoFault
}

// parseHeaders removes the padding and the priority of RFC 7540 from the payload of HEADERS. The priority isn't used (RFC 9113, section
// 5.3.2).
func (r *Reader) parseHeaders(f *Frame) Fault {
	padding := 0
	if f.Flags.Has(FlagPadded) {
		if len(f.Payload) == 0 {
			return FaultLength
		}
		padding, f.Payload = int(f.Payload[0]), f.Payload[1:]
	}
	fault := NoFault
	if f.Flags.Has(FlagPriority) {
		if len(f.Payload) < priorityLen {
			return FaultLength
		}
		fault = dependency(f)
		f.Payload = f.Payload[priorityLen:]
	}
	if padding > len(f.Payload) {
		return FaultPadding
	}
	f.Payload = f.Payload[:len(f.Payload)-padding]
	if !f.Flags.Has(FlagEndHeaders) {
		r.block = f.Stream
	}
	return fault
}

// priorityLen is the length of a priority of RFC 7540.
const priorityLen = 5

// dependency checks the priority at the beginning of the payload: a stream can't depend on itself.
func dependency(f *Frame) Fault {
	if binary.BigEndian.Uint32(f.Payload)&maxID == f.Stream {
		return FaultSelfDependency
	}
	return NoFault
}

// AppendFrameHeader appends the header of a frame with a payload of length bytes, which is at most MaxFrameSize.
func AppendFrameHeader(b []byte, length int, kind FrameType, flags Flags, stream uint32) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

// AppendReset appends RST_STREAM.
func AppendReset(b []byte, stream uint32, code ErrCode) []byte {
	return binary.BigEndian.AppendUint32(AppendFrameHeader(b, 4, FrameReset, 0, stream), uint32(code))
}

// AppendSettingsAck appends the answer to SETTINGS.
func AppendSettingsAck(b []byte) []byte { return AppendFrameHeader(b, 0, FrameSettings, FlagAck, 0) }

// AppendPing appends PING. The answer to a PING has the same data, and FlagAck.
func AppendPing(b []byte, flags Flags, data [8]byte) []byte {
	return append(AppendFrameHeader(b, 8, FramePing, flags, 0), data[:]...)
}

// AppendGoAway appends GOAWAY, which says that the server serves no stream with a number above last. The text helps to debug the client. At
// most 1,000 bytes of it are sent.
func AppendGoAway(b []byte, last uint32, code ErrCode, text string) []byte {
	text = text[:min(len(text), 1000)]
	b = AppendFrameHeader(b, 8+len(text), FrameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, last)
	return append(binary.BigEndian.AppendUint32(b, uint32(code)), text...)
}

// AppendWindowUpdate appends WINDOW_UPDATE. On stream 0 it is for the connection. The increment must be over 0.
func AppendWindowUpdate(b []byte, stream, increment uint32) []byte {
	return binary.BigEndian.AppendUint32(AppendFrameHeader(b, 4, FrameWindowUpdate, 0, stream), increment)
}

// BeginHeaders appends room for a frame header. The caller then appends the field block, and calls EndHeaders, which divides the block into
// frames.
func BeginHeaders(b []byte) []byte { return append(b, make([]byte, FrameHeaderLen)...) }

// EndHeaders turns the field block that was appended after BeginHeaders at b[start:] into HEADERS and, if the block is too long for one
// frame, CONTINUATION.
func EndHeaders(b []byte, start int, stream uint32, endStream bool) []byte {
	flags := Flags(0)
	if endStream {
		flags = FlagEndStream
	}
	length := len(b) - start - FrameHeaderLen
	if length <= MaxFrameSize {
		AppendFrameHeader(b[:start], length, FrameHeaders, flags|FlagEndHeaders, stream)
		return b
	}
	// Move the fragments apart to make room for frame headers, beginning with the last fragment.
	more := (length - 1) / MaxFrameSize
	b = append(b, make([]byte, more*FrameHeaderLen)...)
	block := b[start+FrameHeaderLen:]
	for i := more; i > 0; i-- {
		from, to := i*MaxFrameSize, min((i+1)*MaxFrameSize, length)
		at := from + i*FrameHeaderLen
		copy(block[at:], block[from:to])
		flag := Flags(0)
		if i == more {
			flag = FlagEndHeaders
		}
		AppendFrameHeader(block[:at-FrameHeaderLen], to-from, FrameContinuation, flag, stream)
	}
	AppendFrameHeader(b[:start], MaxFrameSize, FrameHeaders, flags, stream)
	return b
}

// AppendData appends as many DATA frames as the payload needs, and one frame if the payload is empty.
func AppendData(b []byte, stream uint32, payload []byte, endStream bool) []byte {
	for {
		n, flags := min(len(payload), MaxFrameSize), Flags(0)
		if endStream && n == len(payload) {
			flags = FlagEndStream
		}
		b = append(AppendFrameHeader(b, n, FrameData, flags, stream), payload[:n]...)
		if payload = payload[n:]; len(payload) == 0 {
			return b
		}
	}
}
