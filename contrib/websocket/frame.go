package websocket

import (
	"encoding/binary"

	"github.com/gobwas/ws"
)

const (
	// maxHeader is the length of the longest header of a frame, in bytes (RFC 6455, section 5.2).
	maxHeader = 14
	// maxServerHeader is the length of the longest header of a frame that isn't masked.
	maxServerHeader = 10
	// maxControl is the maximum length of a control frame's payload (section 5.5).
	maxControl = 125
)

// Bits of the first two bytes of a frame.
const (
	bitFin    = 0x80
	bitRSV1   = 0x40
	bitsRSV23 = 0x30
	bitMask   = 0x80
)

// header is the header of a client's frame.
type header struct {
	opcode ws.OpCode
	fin    bool
	rsv1   bool
	mask   [4]byte
	length int64
}

// Violations of the framing, which fail the connection.
var (
	errReservedBits   = violation("a reserved bit is set")
	errReservedOpcode = violation("the opcode is reserved")
	errUnmasked       = violation("a client's frame must be masked")
	errLongControl    = violation("a control frame is too long")
	errSplitControl   = violation("a control frame is fragmented")
	errLengthEncoding = violation("a length isn't encoded in the fewest bytes")
	errLengthBit      = violation("the highest bit of a length is set")
)

// parseHeader parses the header of a client's frame at the beginning of b. The header's size is n, or 0 if the header is incomplete. It
// reports an error in the first two bytes as soon as these have arrived. deflate says whether RSV1 is allowed.
func parseHeader(b []byte, deflate bool) (h header, n int, err error) {
	if len(b) < 2 {
		return h, 0, nil
	}
	first, second := b[0], b[1]
	h = header{opcode: ws.OpCode(first & 0x0f), fin: first&bitFin != 0, rsv1: first&bitRSV1 != 0, length: int64(second &^ bitMask)}
	if err := h.check(first, second, deflate); err != nil {
		return h, 0, err
	}
	n = headerSize(second)
	if len(b) < n {
		return h, 0, nil
	}
	switch h.length {
	case 126:
		h.length = int64(binary.BigEndian.Uint16(b[2:]))
		if h.length < 126 {
			return h, 0, errLengthEncoding
		}
	case 127:
		length := binary.BigEndian.Uint64(b[2:])
		switch {
		case length>>63 != 0:
			return h, 0, errLengthBit
		case length <= 0xffff:
			return h, 0, errLengthEncoding
		}
		h.length = int64(length)
	}
	copy(h.mask[:], b[n-4:n])
	return h, n, nil
}

// check checks the first two bytes of the header.
func (h *header) check(first, second byte, deflate bool) error {
	switch {
	case first&bitsRSV23 != 0:
		return errReservedBits
	case h.opcode.IsReserved():
		return errReservedOpcode
	case h.rsv1 && (!deflate || h.opcode.IsControl() || h.opcode == ws.OpContinuation):
		return errReservedBits // RFC 7692, section 6: only a message's first frame says that it is compressed
	case second&bitMask == 0:
		return errUnmasked
	case h.opcode.IsControl() && h.length > maxControl:
		return errLongControl
	case h.opcode.IsControl() && !h.fin:
		return errSplitControl
	}
	return nil
}

// headerSize returns the size of a masked header, which its second byte determines.
func headerSize(second byte) int {
	switch second &^ bitMask {
	case 126:
		return 2 + 2 + 4
	case 127:
		return 2 + 8 + 4
	}
	return 2 + 4
}

// appendHeader appends the header of a frame that is sent to a client. Such a frame isn't masked (section 5.1). first is the opcode and the
// flags of the first byte.
func appendHeader(dst []byte, first byte, length int) []byte {
	switch {
	case length <= 125:
		return append(dst, first, byte(length))
	case length <= 0xffff:
		return binary.BigEndian.AppendUint16(append(dst, first, 126), uint16(length))
	}
	return binary.BigEndian.AppendUint64(append(dst, first, 127), uint64(length))
}
