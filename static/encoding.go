package static

import (
	"bytes"

	"github.com/filohttp/filo"
)

// encoding is a content coding that a file may have been compressed in.
type encoding struct {
	name, suffix string
	number       int // the index in encodings
	field        filo.Field
}

const codingGzip = 2

// encodings are in the order of preference among those that a client likes as much.
var encodings = [...]encoding{
	{"zstd", ".zst", 0, filo.NewField("Content-Encoding", "zstd")},
	{"br", ".br", 1, filo.NewField("Content-Encoding", "br")},
	{"gzip", ".gz", codingGzip, filo.NewField("Content-Encoding", "gzip")},
}

// The codings that Accept-Encoding may name and that matter here: encodings, by their index, and these.
const (
	codingIdentity = len(encodings) + iota
	codingAny
	codings
)

// qualities are the weights of codings, in thousandths, and -1 of those that Accept-Encoding doesn't name.
type qualities [codings]int

// maxQuality is the weight 1.
const maxQuality = 1000

// choose returns the representation that Accept-Encoding (RFC 9110, section 12.5.3) likes best, nil if it refuses all.
func (e *entry) choose(h *filo.Header) *representation {
	named := acceptedCodings(h)
	var best *representation
	quality := 0
	for _, r := range e.representations[1:] {
		q := named[r.encoding.number]
		if q < 0 {
			q = named[codingAny]
		}
		if q > quality {
			best, quality = r, q
		}
	}
	// "If the representation has no content coding, then it is acceptable by default unless specifically excluded".
	plain := named[codingIdentity]
	if plain > quality || best == nil && plain < 0 && named[codingAny] != 0 {
		return e.representations[0]
	}
	return best
}

// acceptedCodings reads Accept-Encoding.
func acceptedCodings(h *filo.Header) qualities {
	named := qualities{-1, -1, -1, -1, -1}
	for list := range h.Values("Accept-Encoding") {
		for len(list) > 0 {
			var element []byte
			element, list, _ = bytes.Cut(list, comma)
			name, weight, _ := bytes.Cut(element, semicolon)
			if i := codingNumber(bytes.TrimSpace(name)); i >= 0 && named[i] < 0 {
				named[i] = parseQuality(bytes.TrimSpace(weight))
			}
		}
	}
	return named
}

var comma, semicolon = []byte{','}, []byte{';'}

// codingNumber returns the number of a coding, -1 if it is another one. RFC 9110, section 8.4.1.3: x-gzip is gzip.
func codingNumber(name []byte) int {
	for i := range encodings {
		if equalFold(name, encodings[i].name) {
			return i
		}
	}
	switch {
	case equalFold(name, "x-gzip"):
		return codingGzip
	case equalFold(name, "identity"):
		return codingIdentity
	case string(name) == "*":
		return codingAny
	}
	return -1
}

// parseQuality reads a weight (RFC 9110, section 12.4.2), such as "q=0.5". Without one it is 1, and one that is malformed is 0.
func parseQuality(weight []byte) int {
	if len(weight) == 0 {
		return maxQuality
	}
	name, value, _ := bytes.Cut(weight, []byte{'='})
	if !equalFold(name, "q") || len(value) == 0 || len(value) > 5 || value[0] != '0' && value[0] != '1' ||
		len(value) > 1 && value[1] != '.' {
		return 0
	}
	quality, unit := int(value[0]-'0')*maxQuality, maxQuality/10
	for _, digit := range value[min(2, len(value)):] {
		if digit < '0' || digit > '9' {
			return 0
		}
		quality += int(digit-'0') * unit
		unit /= 10
	}
	if quality > maxQuality {
		return 0
	}
	return quality
}

// equalFold compares ASCII without regard to case. s is in lower case.
func equalFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != s[i] {
			return false
		}
	}
	return true
}
