// Package syntax holds the grammar that HTTP versions share: classes of characters, percent-encoding, request targets, hosts, and
// elements of field values. Its functions don't keep the bytes that they are given.
package syntax

import (
	"encoding/binary"
	"math/bits"
)

// The classes of bytes, one bit each in classes.
const (
	classToken  = 1 << iota // tchar, RFC 9110 section 5.6.2
	classTarget             // bytes that may be in a request target on the wire: visible ASCII except '#'
	classHost               // bytes of a reg-name besides percent-encoding: unreserved and sub-delims of RFC 3986, except the comma
	classPath               // bytes of a path in a URI, RFC 3986 section 3.3; also brackets, which net/url and browsers don't encode
)

var classes = func() (table [256]uint8) {
	for c := byte(0x21); c < 0x7f; c++ {
		if c != '#' {
			table[c] |= classTarget
		}
		if c >= '0' && c <= '9' || IsLetter(c) {
			table[c] |= classToken | classHost | classPath
		}
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		table[c] |= classToken
	}
	for _, c := range []byte("-._~!$&'()*+;=") {
		table[c] |= classHost
	}
	for _, c := range []byte("-._~!$&'()*+,;=:@/%[]") {
		table[c] |= classPath
	}
	return table
}()

// IsTokenByte reports whether c may be in a token (RFC 9110, section 5.6.2).
func IsTokenByte(c byte) bool { return classes[c]&classToken != 0 }

// IsTargetByte reports whether c may be in a request target: visible ASCII except '#', since browsers send more than RFC 3986 allows.
func IsTargetByte(c byte) bool { return classes[c]&classTarget != 0 }

// IsLetter reports whether c is a letter of ASCII.
func IsLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// IsToken reports whether s is a token, which has at least one byte.
func IsToken[S []byte | string](s S) bool {
	for i := 0; i < len(s); i++ {
		if !IsTokenByte(s[i]) {
			return false
		}
	}
	return len(s) > 0
}

// HexValue returns the value of a hexadecimal digit in either case, or -1 for any other byte.
func HexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case IsLetter(c) && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// IndexControl returns the index of the first control byte in b at or after i, or len(b) if there is none. HTAB counts as a control byte.
// IndexControl examines eight bytes at a time, since field values make up most of a head.
func IndexControl(b []byte, i int) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		del := x ^ 0x7f*ones
		// hit has the high bit set in each byte that is DEL or below 0x20. A borrow can also set the high bit of a wrong byte, but only above the
		// first correct one, and only the first one counts.
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

// EqualFold reports whether a and b are equal, ignoring the case of ASCII letters. Field names, tokens and schemes are ASCII.
func EqualFold[A, B []byte | string](a A, b B) bool {
	if len(a) != len(b) {
		return false
	}
	for i := 0; i < len(a); i++ {
		if a[i] != b[i] && (a[i]^b[i] != 0x20 || !IsLetter(a[i])) {
			return false
		}
	}
	return true
}

// TrimSpace returns b without the optional white space of HTTP at its ends: spaces and tabs.
func TrimSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}
