package http3filo

import (
	"bufio"
	"encoding/binary"
	"io"
)

// frameType is the type of a frame (RFC 9114, section 7.2).
type frameType uint64

const (
	frameData     frameType = 0
	frameHeaders  frameType = 1
	frameCancel   frameType = 3 // CANCEL_PUSH
	frameSettings frameType = 4
	frameGoAway   frameType = 7
	frameMaxPush  frameType = 0xd // MAX_PUSH_ID
)

// The types of one-way streams (RFC 9114, section 6.2, and RFC 9204, section 4.2).
const (
	streamControl = iota
	streamPush
	streamEncoder
	streamDecoder
)

const (
	// settingMaxFields is the identifier of SETTINGS_MAX_FIELD_SECTION_SIZE.
	settingMaxFields = 6
	// http2Settings has a bit for each identifier of HTTP/2 that is forbidden in HTTP/3 (RFC 9114, section 7.2.4.1).
	http2Settings = 1<<0 | 1<<2 | 1<<3 | 1<<4 | 1<<5
	// maxSettings is how many bytes of settings a client may send.
	maxSettings = 4 << 10
)

// onRequests has a bit for each frame type below 64 that is forbidden on a request's stream. onControl has a bit for each type that is forbidden
// on the client's control stream after the first SETTINGS. Frame types that only HTTP/2 has are forbidden on both (RFC 9114, section 11.2.1).
const (
	http2Frames = 1<<2 | 1<<6 | 1<<8 | 1<<9
	onRequests  = http2Frames | 1<<frameCancel | 1<<frameSettings | 1<<5 | 1<<frameGoAway | 1<<frameMaxPush
	onControl   = http2Frames | 1<<frameData | 1<<frameHeaders | 1<<frameSettings | 1<<5
)

func (t frameType) in(set uint64) bool { return t < 64 && set&(1<<t) != 0 }

// readFrame reads a frame's type and length. The error is io.EOF if the stream ends before the frame.
func readFrame(in *bufio.Reader) (kind frameType, length uint64, err error) {
	first, err := readInt(in)
	if err != nil {
		return 0, 0, err
	}
	length, err = readInt(in)
	return frameType(first), length, cutOff(err)
}

// readInt reads a variable-length integer (RFC 9000, section 16).
func readInt(in *bufio.Reader) (v uint64, err error) {
	first, err := in.ReadByte()
	if err != nil {
		return 0, err
	}
	v = uint64(first & 0x3f)
	for range 1<<(first>>6) - 1 {
		b, err := in.ReadByte()
		if err != nil {
			return 0, cutOff(err)
		}
		v = v<<8 | uint64(b)
	}
	return v, nil
}

// readID reads the content of a frame that consists of one integer.
func readID(in *bufio.Reader, length uint64) (uint64, error) {
	if length == 0 {
		return 0, errBadFrame
	}
	if first, err := in.Peek(1); err == nil && length != 1<<(first[0]>>6) {
		return 0, errBadFrame
	}
	id, err := readInt(in)
	return id, cutOff(err)
}

// readSettings reads and checks the content of SETTINGS. It ignores the values, which are about features that this server doesn't use.
func readSettings(in *bufio.Reader, length uint64) error {
	if length > maxSettings {
		return errExcessiveLoad
	}
	in = bufio.NewReaderSize(io.LimitReader(in, int64(length)), 16)
	for seen := make(map[uint64]bool); ; {
		id, err := readInt(in)
		if err == io.EOF {
			return nil
		}
		if err == nil {
			_, err = readInt(in)
		}
		switch {
		case err != nil:
			return cutOff(err)
		case seen[id], id < 64 && http2Settings&(1<<id) != 0:
			return errSettings
		}
		seen[id] = true
	}
}

// skip reads and discards the content of a frame.
func skip(in *bufio.Reader, length uint64) error {
	_, err := io.CopyN(io.Discard, in, int64(length))
	return cutOff(err)
}

// cutOff returns errBadFrame for the error of a stream that ends within a frame.
func cutOff(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errBadFrame
	}
	return err
}

// appendFrame appends a frame's type and length.
func appendFrame(b []byte, kind frameType, length int) []byte {
	return appendInt(appendInt(b, uint64(kind)), uint64(length))
}

// appendInt appends a variable-length integer.
func appendInt(b []byte, v uint64) []byte {
	switch {
	case v < 1<<6:
		return append(b, byte(v))
	case v < 1<<14:
		return binary.BigEndian.AppendUint16(b, uint16(v)|1<<14)
	}
	return binary.BigEndian.AppendUint64(b, v|3<<62)
}
