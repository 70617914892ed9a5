package http2

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// huffmanSymbols lists, for each code length in bits, the bytes whose codes have that length (RFC 7541, appendix B). The code is canonical:
// codes are assigned in ascending order, first by length and then by the value of the byte. So the lengths determine the codes. EOS isn't
// listed: it is the last code of 30 bits, all ones, and no string may contain it.
var huffmanSymbols = [huffmanMaxBits + 1]string{
	5:  "012aceiost",
	6:  " %-./3456789=A_bdfghlmnpru",
	7:  ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
	8:  "&*,;XZ",
	10: "!\"()?",
	11: "'+|",
	12: "#>",
	13: "\x00$@[]~",
	14: "^}",
	15: "<`{",
	19: "\\\xc3\xd0",
	20: "\x80\x82\x83\xa2\xb8\xc2\xe0\xe2",
	21: "\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6",
	22: "\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9",
	23: "\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf\xc5\xe7\xef",
	24: "\t\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed",
	25: "\xc7\xcf\xea\xeb",
	26: "\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff",
	27: "\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe",
	28: "\x02\x03\x04\x05\x06\a\b\v\f\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f\xdc\xf9",
	30: "\n\r\x16",
}

const (
	huffmanMinBits = 5
	huffmanMaxBits = 30
	// huffmanLookup is how many bits the decoder looks up in its table at once: they hold one or two of the common symbols.
	huffmanLookup = 11
)

// huffmanCode is the code of a byte. The code is in the lowest bits.
type huffmanCode struct {
	code uint32
	bits uint8
}

// huffmanStep is an entry of the decoder's table: the one or two symbols with which the looked-up bits begin. It is 0 if they begin with a
// code of more than huffmanLookup bits.
type huffmanStep uint32

func oneHuffmanStep(symbol byte, bits uint) huffmanStep {
	return 1<<24 | huffmanStep(symbol)<<8 | huffmanStep(bits)
}

func twoHuffmanSteps(first, second byte, bits uint) huffmanStep {
	return 2<<24 | huffmanStep(second)<<16 | huffmanStep(first)<<8 | huffmanStep(bits)
}

func (s huffmanStep) count() int      { return int(s >> 24) }
func (s huffmanStep) symbols() uint16 { return uint16(s >> 8) } // the first symbol is in the low byte

// bits returns the total length of the codes. Because of the mask the compiler can shift by the result with one instruction.
func (s huffmanStep) bits() uint { return uint(s & 63) }

var (
	huffmanCodes = makeHuffmanCodes()
	huffmanSteps = makeHuffmanSteps()
)

func makeHuffmanCodes() (codes [256]huffmanCode) {
	next := uint32(0)
	for length, symbols := range huffmanSymbols {
		next <<= 1
		for _, symbol := range []byte(symbols) {
			codes[symbol] = huffmanCode{next, uint8(length)}
			next++
		}
	}
	return codes
}

func makeHuffmanSteps() (steps [1 << huffmanLookup]huffmanStep) {
	fill := func(code uint32, step huffmanStep) {
		rest := huffmanLookup - step.bits()
		for i := range uint32(1) << rest {
			steps[code<<rest+i] = step
		}
	}
	for a, first := range huffmanCodes {
		if first.bits > huffmanLookup {
			continue
		}
		fill(first.code, oneHuffmanStep(byte(a), uint(first.bits)))
		for b, second := range huffmanCodes {
			if both := first.bits + second.bits; both <= huffmanLookup {
				fill(first.code<<second.bits|second.code, twoHuffmanSteps(byte(a), byte(b), uint(both)))
			}
		}
	}
	return steps
}

// huffmanRoom returns how many bytes of room are needed to decode n bytes. A step writes two bytes, even if it decodes only one symbol.
func huffmanRoom(n int) int { return n*8/huffmanMinBits + 1 }

// appendHuffmanDecoded appends the bytes that src encodes. It returns false if src contains EOS, or if the padding isn't the beginning of
// EOS or has more than 7 bits (RFC 7541, section 5.2).
func appendHuffmanDecoded(dst, src []byte) (_ []byte, ok bool) {
	dst = slices.Grow(dst, huffmanRoom(len(src)))
	out, written := dst[len(dst):cap(dst)], 0
	var window uint64 // the next bits of src, beginning at the highest bit
	var n uint        // how many bits of window are valid; the bits below are zero, or the beginning of the next bytes of src
	for len(src) >= 8 {
		window |= binary.BigEndian.Uint64(src) >> n
		src = src[(63-n)/8:]
		n |= 56
		for range 56 / huffmanLookup {
			step := huffmanSteps[window>>(64-huffmanLookup)]
			if step == 0 {
				symbol, length := huffmanLong(window)
				if length == 0 {
					return dst, false
				}
				if length <= n {
					out[written] = symbol
					written++
					window <<= length
					n -= length
				}
				break // refill the window
			}
			binary.LittleEndian.PutUint16(out[written:], step.symbols())
			written += step.count()
			window <<= step.bits()
			n -= step.bits()
		}
	}
	for {
		for ; n <= 56 && len(src) > 0; src = src[1:] {
			window |= uint64(src[0]) << (56 - n)
			n += 8
		}
		step := huffmanSteps[window>>(64-huffmanLookup)]
		if step == 0 || step.bits() > n {
			// A long code, the last symbol, or the padding.
			symbol := byte(step.symbols())
			length := uint(huffmanCodes[symbol].bits)
			if step == 0 {
				symbol, length = huffmanLong(window)
			}
			if length == 0 || length > n {
				padding := n < 8 && bits.LeadingZeros64(^window) >= int(n)
				return dst[:len(dst)+written], padding
			}
			step = oneHuffmanStep(symbol, length)
		}
		binary.LittleEndian.PutUint16(out[written:], step.symbols())
		written += step.count()
		window <<= step.bits()
		n -= step.bits()
	}
}

// huffmanLong returns the symbol with which window begins, if its code has more than huffmanLookup bits, and the length of the code. The
// length is 0 if there is no such symbol.
func huffmanLong(window uint64) (symbol byte, length uint) {
	for length := uint(huffmanLookup + 1); length <= huffmanMaxBits; length++ {
		symbols := huffmanSymbols[length]
		if len(symbols) == 0 {
			continue
		}
		first := huffmanCodes[symbols[0]].code
		if i := uint32(window>>(64-length)) - first; i < uint32(len(symbols)) {
			return symbols[i], length
		}
	}
	return 0, 0
}

// huffmanLen returns how many bytes s takes when it is encoded.
func huffmanLen(s []byte) int {
	n := 0
	for i := range len(s) {
		n += int(huffmanCodes[s[i]].bits)
	}
	return (n + 7) / 8
}

// appendHuffman appends the encoded s, which takes n bytes.
func appendHuffman(dst, s []byte, n int) []byte {
	start := len(dst)
	dst = slices.Grow(dst, n+4)[:start+n+4] // the last write always has 4 bytes, and some or all of them may be padding
	out := dst[start:]
	var window uint64 // its lowest bits haven't been written yet
	var left uint     // how many bits of window haven't been written
	for _, symbol := range s {
		c := huffmanCodes[symbol]
		window = window<<(c.bits&63) | uint64(c.code)
		if left += uint(c.bits); left >= 32 {
			left -= 32
			binary.BigEndian.PutUint32(out, uint32(window>>(left&63)))
			out = out[4:]
		}
	}
	// The remaining bits are followed by padding: the first bits of EOS, which are all ones.
	binary.BigEndian.PutUint32(out, uint32(window<<(32-left))|(1<<(32-left)-1))
	return dst[:start+n]
}
