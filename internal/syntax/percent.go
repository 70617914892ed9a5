package syntax

import "bytes"

// AppendPercentDecoded appends src with every "%XX" replaced by the byte it stands for. A "%" without two hexadecimal digits after it stays
// as it is, as in the percent-decode algorithm of the WHATWG URL standard.
func AppendPercentDecoded(dst, src []byte) []byte {
	for {
		i := bytes.IndexByte(src, '%')
		if i < 0 {
			return append(dst, src...)
		}
		dst = append(dst, src[:i]...)
		if c, ok := PercentEscape(src[i:]); ok {
			dst = append(dst, c)
			src = src[i+3:]
			continue
		}
		dst = append(dst, '%')
		src = src[i+1:]
	}
}

// EscapePath takes a path as the client sent it, and percent-encodes the bytes that a request target may contain but a URI's path can't:
// '"<>\^`{|}'. Existing percent-encoding stays. EscapePath is for url.URL, which ignores a RawPath with such a byte and encodes the decoded path
// instead. In the decoded path an encoded slash has become a plain one.
func EscapePath(path string) string {
	for i := range len(path) {
		if classes[path[i]]&classPath == 0 {
			return escapePathFrom(path, i)
		}
	}
	return path
}

// escapePathFrom is EscapePath for a path whose first bytes need no escape.
func escapePathFrom(path string, first int) string {
	const digits = "0123456789ABCDEF"
	escaped := append(make([]byte, 0, len(path)+8), path[:first]...)
	for _, c := range []byte(path[first:]) {
		if classes[c]&classPath != 0 {
			escaped = append(escaped, c)
			continue
		}
		escaped = append(escaped, '%', digits[c>>4], digits[c&15])
	}
	return string(escaped)
}

// PercentEscape returns the byte that the escape at the start of b stands for. It reports false if b doesn't start with an escape.
func PercentEscape(b []byte) (byte, bool) {
	if len(b) < 3 || b[0] != '%' {
		return 0, false
	}
	high, low := HexValue(b[1]), HexValue(b[2])
	if high < 0 || low < 0 {
		return 0, false
	}
	return byte(high<<4 | low), true
}

// AppendFormDecoded is AppendPercentDecoded for a name or value of application/x-www-form-urlencoded, where "+" stands
// for a space.
func AppendFormDecoded(dst, src []byte) []byte {
	for i := 0; i < len(src); i++ {
		switch c := src[i]; c {
		case '+':
			dst = append(dst, ' ')
		case '%':
			if decoded, ok := PercentEscape(src[i:]); ok {
				c = decoded
				i += 2
			}
			dst = append(dst, c)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// IsFormEncoded reports whether AppendFormDecoded would change b.
func IsFormEncoded(b []byte) bool {
	return bytes.IndexByte(b, '%') >= 0 || bytes.IndexByte(b, '+') >= 0
}

// AppendFormEncoded appends src as a name or value of application/x-www-form-urlencoded: ASCII letters, digits and
// "*-._" as they are, a space as "+", every other byte as "%XX" (WHATWG URL standard, urlencoded serializing).
func AppendFormEncoded(dst, src []byte) []byte {
	const digits = "0123456789ABCDEF"
	for _, c := range src {
		switch {
		case IsLetter(c), c >= '0' && c <= '9', c == '*', c == '-', c == '.', c == '_':
			dst = append(dst, c)
		case c == ' ':
			dst = append(dst, '+')
		default:
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}
