package filo

import (
	"encoding/binary"
	"math/bits"
)

// The character classes of RFC 9110, section 5.6, and RFC 3986 as one bit each of a table.
const (
	charToken  = 1 << iota // tchar, RFC 9110 section 5.6.2
	charTarget             // what a request target may be sent with: visible ASCII without '#'
	charHex                // HEXDIG of either case
)

var charClass = func() (table [256]uint8) {
	for c := byte(0x21); c < 0x7f; c++ {
		if c != '#' {
			table[c] |= charTarget
		}
		switch {
		case c >= '0' && c <= '9', isLetter(c):
			table[c] |= charToken
		}
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		table[c] |= charToken
	}
	for _, c := range []byte("0123456789abcdefABCDEF") {
		table[c] |= charHex
	}
	return table
}()

func isToken[S []byte | string](s S) bool {
	for i := 0; i < len(s); i++ {
		if charClass[s[i]]&charToken == 0 {
			return false
		}
	}
	return len(s) > 0
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case isLetter(c) && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// indexControl returns the index of the first control byte in b at or after i, len(b) if there is none. It looks at
// eight bytes at a time: field values are most of a head. HTAB counts as a control byte here.
func indexControl(b []byte, i int) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		del := x ^ 0x7f*ones
		// A byte's high bit is set where the byte is below 0x20, or is DEL. A borrow can set one too much,
		// but only above the first hit, and only the first one counts.
		if hit := ((x-0x20*ones) & ^x | (del-ones) & ^del) & high; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b); i++ {
		if b[i] < 0x20 || b[i] == 0x7f {
			return i
		}
	}
	return i
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}
