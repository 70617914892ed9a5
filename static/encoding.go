package static

import (
	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// encoding is a content coding in which a file may be stored.
type encoding struct {
	name, suffix string
	number       int // the coding's number in package syntax
	field        filo.Field
}

// encodings is in the order of preference, which decides between encodings that a client accepts equally.
var encodings = [...]encoding{
	{"zstd", ".zst", syntax.Zstd, filo.NewField("Content-Encoding", "zstd")},
	{"br", ".br", syntax.Brotli, filo.NewField("Content-Encoding", "br")},
	{"gzip", ".gz", syntax.Gzip, filo.NewField("Content-Encoding", "gzip")},
}

// choose returns the representation that Accept-Encoding (RFC 9110, section 12.5.3) prefers, nil if the client refuses all of
// them.
func (e *entry) choose(h *filo.Header) *representation {
	accepted := acceptedCodings(h)
	var best *representation
	quality := 0
	for _, r := range e.representations[1:] {
		if q := accepted.Weight(r.encoding.number); q > quality {
			best, quality = r, q
		}
	}
	if plain, ok := accepted.Plain(); plain > quality || best == nil && ok {
		return e.representations[0]
	}
	return best
}

// acceptedCodings reads Accept-Encoding.
func acceptedCodings(h *filo.Header) (accepted syntax.Codings) {
	for list := range h.Values("Accept-Encoding") {
		accepted.Read(list)
	}
	return accepted
}
