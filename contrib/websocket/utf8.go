package websocket

import "unicode/utf8"

// utf8Check validates text that arrives in pieces, each piece as soon as it arrives (RFC 6455, section 8.1). The zero value is ready.
type utf8Check struct {
	part [utf8.UTFMax]byte // an incomplete rune
	have int
}

// valid reports whether the text up to the end of this piece is valid UTF-8, perhaps with an incomplete rune at the end.
func (u *utf8Check) valid(piece []byte) bool {
	for u.have > 0 && len(piece) > 0 {
		u.part[u.have] = piece[0]
		u.have++
		piece = piece[1:]
		if !utf8.FullRune(u.part[:u.have]) {
			continue
		}
		if r, size := utf8.DecodeRune(u.part[:u.have]); r == utf8.RuneError && size == 1 {
			return false
		}
		u.have = 0
	}
	whole := wholeRunes(piece)
	u.have += copy(u.part[u.have:], piece[whole:])
	return utf8.Valid(piece[:whole])
}

// complete reports whether the text doesn't end within a rune.
func (u *utf8Check) complete() bool { return u.have == 0 }

// wholeRunes returns the length of b without an incomplete rune at its end.
func wholeRunes(b []byte) int {
	for i := len(b) - 1; i >= 0 && i > len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				break
			}
			return i
		}
	}
	return len(b)
}
