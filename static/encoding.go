package static

import (
	"bytes"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
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
				named[i] = syntax.Weight(bytes.TrimSpace(weight))
			}
		}
	}
	return named
}

var comma, semicolon = []byte{','}, []byte{';'}

// codingNumber returns the number of a coding, -1 if it is another one. RFC 9110, section 8.4.1.3: x-gzip is gzip.
func codingNumber(name []byte) int {
	for i := range encodings {
		if syntax.EqualFold(name, encodings[i].name) {
			return i
		}
	}
	switch {
	case syntax.EqualFold(name, "x-gzip"):
		return codingGzip
	case syntax.EqualFold(name, "identity"):
		return codingIdentity
	case string(name) == "*":
		return codingAny
	}
	return -1
}
