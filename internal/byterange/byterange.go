// Package byterange reads the field Range, and writes Content-Range (RFC 9110, section 14).
package byterange

import (
	"bytes"
	"strconv"

	"github.com/filohttp/filo/internal/syntax"
)

// Max is the maximum number of ranges in a request. Clients that need several ranges ask for a few. A limit is needed because each range costs the
// server more than the client.
const Max = 32

// Range is a nonempty part of a file.
type Range struct{ Begin, Length int64 }

// Verdict says how a request's Range field is answered.
type Verdict int

const (
	Ignored       Verdict = iota // the file is sent as a whole
	Good                         // the ranges are sent
	Unsatisfiable                // 416
)

// Parse appends to dst the requested ranges that lie within a file of the given size. They are in the order of the request and may overlap,
// but together they are no larger than the file.
func Parse(dst []Range, value []byte, size int64) ([]Range, Verdict) {
	// RFC 9110, section 14.2: a server must ignore a Range field with an unknown unit; 14.1: "Range units are ... case-insensitive".
	unit, set, ok := bytes.Cut(value, []byte{'='})
	if !ok || !syntax.EqualFold(unit, "bytes") || size == 0 {
		return dst, Ignored
	}
	asked, left, tooMuch := 0, size, false
	for len(set) > 0 {
		var spec []byte
		spec, set, _ = bytes.Cut(set, []byte{','})
		if spec = bytes.Trim(spec, " \t"); len(spec) == 0 {
			continue
		}
		if asked++; asked > Max {
			return dst, Ignored
		}
		r, ok := parseRange(spec, size)
		if !ok {
			return dst, Unsatisfiable
		}
		if r.Length == 0 {
			continue
		}
		dst = append(dst, r)
		tooMuch = tooMuch || r.Length > left // parsing goes on, since a malformed range that follows makes the field unsatisfiable
		left -= r.Length
	}
	switch {
	case asked == 0 || tooMuch:
		return dst, Ignored
	case len(dst) == 0:
		return dst, Unsatisfiable
	}
	return dst, Good
}

// parseRange reads an int-range or a suffix-range (RFC 9110, section 14.1.1). The result is empty if the range lies beyond the file's end.
func parseRange(spec []byte, size int64) (r Range, ok bool) {
	first, last, ok := bytes.Cut(spec, []byte{'-'})
	if !ok {
		return r, false
	}
	end, ok := parsePosition(last)
	if len(first) == 0 {
		length := min(end, size)
		return Range{size - length, length}, ok
	}
	if len(last) == 0 {
		end, ok = maxPosition, true
	}
	begin, beginOK := parsePosition(first)
	if !ok || !beginOK || end < begin {
		return r, false
	}
	if begin >= size {
		return r, true
	}
	return Range{begin, min(end, size-1) - begin + 1}, true
}

// maxPosition also replaces all larger positions.
const maxPosition = 1<<63 - 1

// parsePosition reads 1*DIGIT.
func parsePosition(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		if digit := int64(c - '0'); n <= (maxPosition-digit)/10 {
			n = n*10 + digit
		} else {
			n = maxPosition
		}
	}
	return n, len(b) > 0
}

// AppendContentRange appends the value of a Content-Range field.
func (r Range) AppendContentRange(dst []byte, size int64) []byte {
	dst = append(dst, "bytes "...)
	dst = strconv.AppendInt(dst, r.Begin, 10)
	dst = append(dst, '-')
	dst = strconv.AppendInt(dst, r.Begin+r.Length-1, 10)
	dst = append(dst, '/')
	return strconv.AppendInt(dst, size, 10)
}
