package openloop

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
)

const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10

	// websocketKey is the client's nonce. A fixed one serves: no proxy is to be kept from mistaking the traffic.
	websocketKey = "ZmlsbyBvcGVuLWxvb3AgIQ=="
)

// websocketMask is what client frames are masked with, fixed for the same reason.
var websocketMask = [4]byte{0x3a, 0xc5, 0x96, 0x0f}

// acceptValue is what a server answers to a key (RFC 6455, section 4.2.2).
func acceptValue(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// clientFrame returns a message as one masked frame (RFC 6455, section 5.2).
func clientFrame(opcode byte, message []byte) []byte {
	frame := []byte{0x80 | opcode}
	switch n := len(message); {
	case n < 126:
		frame = append(frame, 0x80|byte(n))
	case n <= 0xffff:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(n))
	}
	frame = append(frame, websocketMask[:]...)
	for i, c := range message {
		frame = append(frame, c^websocketMask[i&3])
	}
	return frame
}

// frameReader takes a server's frames apart: whole messages of one opcode. Pings and pongs are passed over without an
// answer, for a run is shorter than servers wait for one.
type frameReader struct {
	opcode  byte
	header  [10]byte
	have    int   // bytes of the header
	inside  bool  // the payload
	control bool  // of a ping or pong
	left    int64 // of the payload
}

// next is parser.next for frames.
func (f *frameReader) next(data []byte) (n int, body []byte, done bool, err error) {
	if !f.inside {
		for n < len(data) && !f.inside {
			f.header[f.have] = data[n]
			f.have++
			n++
			if err := f.begin(); err != nil {
				return n, nil, false, err
			}
		}
		return n, nil, f.end(), nil
	}
	n = int(min(int64(len(data)), f.left))
	f.left -= int64(n)
	if !f.control {
		body = data[:n]
	}
	return n, body, f.end(), nil
}

// begin looks whether the header is whole, and if so whether it is one that may come.
func (f *frameReader) begin() error {
	if f.have < 2 {
		return nil
	}
	opcode, length := f.header[0]&0xf, f.header[1]
	f.control = opcode == opPing || opcode == opPong
	switch {
	case f.header[0]&0xf0 != 0x80 || opcode != f.opcode && !f.control:
		return malformed("a frame begins with %#x", f.header[0])
	case length&0x80 != 0:
		return malformed("a frame of the server is masked")
	case f.control && length > 125:
		return malformed("a ping or pong has more than 125 bytes")
	}
	switch size := int64(length); {
	case size < 126:
		f.left = size
	case size == 126:
		if f.have < 4 {
			return nil
		}
		f.left = int64(binary.BigEndian.Uint16(f.header[2:]))
	default:
		if f.have < 10 {
			return nil
		}
		if f.left = int64(binary.BigEndian.Uint64(f.header[2:])); f.left < 0 {
			return malformed("a frame is longer than 63 bits can say")
		}
	}
	f.inside, f.have = true, 0
	return nil
}

// end ends a frame of which everything has come. It reports whether it was a message.
func (f *frameReader) end() bool {
	if !f.inside || f.left > 0 {
		return false
	}
	f.inside = false
	return !f.control
}
