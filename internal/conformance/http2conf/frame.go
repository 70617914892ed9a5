package http2conf

import (
	"encoding/binary"
	"strings"

	"golang.org/x/net/http2"
)

// preface is what a client sends first on a connection (RFC 9113, section 3.4).
const preface = http2.ClientPreface

// maxFrameSize is the default limit for a frame's payload.
const maxFrameSize = 16384

// defaultWindow is the initial size of every window.
const defaultWindow = 65535

// maxID is both the highest stream number and the largest size of a window.
const maxID = 1<<31 - 1

// Type is the type of a frame.
type Type = http2.FrameType

// These types are defined by RFC 9113, section 6, and RFC 9218, section 7.1.
const (
	typeData           Type = 0x0
	typeHeaders        Type = 0x1
	typePriority       Type = 0x2
	typeReset          Type = 0x3
	typeSettings       Type = 0x4
	typePush           Type = 0x5
	typePing           Type = 0x6
	typeGoAway         Type = 0x7
	typeWindowUpdate   Type = 0x8
	typeContinuation   Type = 0x9
	typePriorityUpdate Type = 0x10
	typeUnknown        Type = 0xfa // no RFC defines it
)

// Flags are the flags of a frame.
type Flags = http2.Flags

// These flags are defined by RFC 9113, section 6.
const (
	endStream  Flags = 0x1
	ack        Flags = 0x1
	endHeaders Flags = 0x4
	padded     Flags = 0x8
	prioritize Flags = 0x20
	whole            = endStream | endHeaders
)

// Code is an error code of RFC 9113, section 7.
type Code = http2.ErrCode

// The table expects or sends these codes.
const (
	noError          Code = 0x0
	protocolError    Code = 0x1
	flowControlError Code = 0x3
	streamClosed     Code = 0x5
	frameSizeError   Code = 0x6
	refusedStream    Code = 0x7
	cancel           Code = 0x8
	compressionError Code = 0x9
)

// Frame is a frame as the client sends it, or bytes that aren't a frame.
type Frame struct {
	Type    Type
	Flags   Flags
	Stream  uint32
	Payload string
	// Raw, if it isn't "", is sent instead of a frame made of the other fields.
	Raw string
}

// Append appends the frame's bytes.
func (f Frame) Append(b []byte) []byte {
	if f.Raw != "" {
		return append(b, f.Raw...)
	}
	n := len(f.Payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(f.Type), byte(f.Flags))
	return append(binary.BigEndian.AppendUint32(b, f.Stream), f.Payload...)
}

// is reports whether f is a frame of type t, false for Raw bytes.
func (f Frame) is(t Type) bool { return f.Raw == "" && f.Type == t }

// frames is short for a list of frames.
type frames = []Frame

func raw(bytes string) Frame { return Frame{Raw: bytes} }

func frame(t Type, flags Flags, stream uint32, payload string) Frame {
	return Frame{Type: t, Flags: flags, Stream: stream, Payload: payload}
}

func data(stream uint32, flags Flags, payload string) Frame {
	return frame(typeData, flags, stream, payload)
}

func headers(stream uint32, flags Flags, block string) Frame {
	return frame(typeHeaders, flags, stream, block)
}

func continuation(stream uint32, flags Flags, block string) Frame {
	return frame(typeContinuation, flags, stream, block)
}

func priority(stream, on uint32) Frame { return frame(typePriority, 0, stream, uint32Of(on)+"\x0f") }

func reset(stream uint32, code Code) Frame {
	return frame(typeReset, 0, stream, uint32Of(uint32(code)))
}

func settings(entries ...string) Frame { return frame(typeSettings, 0, 0, strings.Join(entries, "")) }

func ping(data string) Frame { return frame(typePing, 0, 0, data) }

func goAway(code Code, debug string) Frame {
	return frame(typeGoAway, 0, 0, uint32Of(0)+uint32Of(uint32(code))+debug)
}

func windowUpdate(stream, increment uint32) Frame {
	return frame(typeWindowUpdate, 0, stream, uint32Of(increment))
}

func priorityUpdate(stream uint32, value string) Frame {
	return frame(typePriorityUpdate, 0, 0, uint32Of(stream)+value)
}

func uint32Of(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// These settings are defined by RFC 9113, section 6.5.2, RFC 8441, section 3, and RFC 9218, section 2.1.
const (
	settingTableSize       = 0x1
	settingPush            = 0x2
	settingMaxStreams      = 0x3
	settingInitialWindow   = 0x4
	settingMaxFrameSize    = 0x5
	settingExtendedConnect = 0x8
	settingNoPriorities    = 0x9
)

// setting is an entry of SETTINGS.
func setting(id uint16, value uint32) string {
	return string(binary.BigEndian.AppendUint16(nil, id)) + uint32Of(value)
}

// block returns a field block for fields in the form "name: value". It uses literals without indexing and without Huffman code, so that a
// field can have any bytes.
func block(fields ...string) string {
	var b strings.Builder
	for _, field := range fields {
		at := strings.Index(field[1:], ": ") + 1 // pseudo-header fields begin with a colon
		b.WriteByte(0)
		b.WriteString(text(field[:at]) + text(field[at+2:]))
	}
	return b.String()
}

// text encodes a string for a field block, without Huffman code (RFC 7541, section 5.2).
func text(s string) string { return integer(0, 7, len(s)) + s }

// integer encodes n with a prefix of the given number of bits, and takes the other bits of the first byte from first (RFC 7541, section 5.1).
func integer(first byte, bits uint, n int) string {
	most := 1<<bits - 1
	if n < most {
		return string([]byte{first | byte(n)})
	}
	b := []byte{first | byte(most)}
	for n -= most; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return string(append(b, byte(n)))
}

// Most requests have one of these field blocks.
var (
	getBlock  = block(":method: GET", ":scheme: https", ":path: /hello", ":authority: a")
	postBlock = block(":method: POST", ":scheme: https", ":path: /echo", ":authority: a")
)

// get returns a complete request, whose answer is hello.
func get(stream uint32) Frame { return headers(stream, whole, getBlock) }

// getWith returns the request of get with more fields.
func getWith(stream uint32, fields ...string) Frame {
	return headers(stream, whole, getBlock+block(fields...))
}

// post returns the HEADERS of a request whose content follows. The answer repeats the content.
func post(stream uint32) Frame { return headers(stream, endHeaders, postBlock) }

// postWith returns the HEADERS of post with more fields.
func postWith(stream uint32, fields ...string) Frame {
	return headers(stream, endHeaders, postBlock+block(fields...))
}

// holdBlock is the field block of a request that isn't answered until its stream has ended.
var holdBlock = block(":method: POST", ":scheme: https", ":path: /hold", ":authority: a")
