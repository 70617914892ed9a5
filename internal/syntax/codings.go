package syntax

import "bytes"

// The content codings that Accept-Encoding may name, by number.
const (
	Zstd = iota
	Brotli
	Gzip
	Deflate
	Identity
	anyCoding
	codings
)

// CodingNames are the names of the content codings.
var CodingNames = [codings]string{"zstd", "br", "gzip", "deflate", "identity", "*"}

// Codings holds the weight that a client gives to each content coding, in thousandths plus one. 0 means that the client doesn't name the coding. The
// zero value names none.
type Codings [codings]int

// Read reads a value of Accept-Encoding (RFC 9110, section 12.5.3). If the value names a coding twice, the first weight counts.
func (c *Codings) Read(list []byte) {
	for len(list) > 0 {
		var element []byte
		element, list, _ = bytes.Cut(list, []byte{','})
		name, weight, _ := bytes.Cut(element, []byte{';'})
		if i := CodingNumber(TrimSpace(name)); i >= 0 && c[i] == 0 {
			c[i] = 1 + Weight(TrimSpace(weight))
		}
	}
}

// CodingNumber returns the number of the coding with the name, or -1 if the name is unknown. x-gzip is another name of gzip (RFC 9110, section
// 8.4.1.3).
func CodingNumber(name []byte) int {
	for i, known := range CodingNames {
		if EqualFold(name, known) {
			return i
		}
	}
	if EqualFold(name, "x-gzip") {
		return Gzip
	}
	return -1
}

// Weight returns the weight of the coding with that number, or 0 if the client doesn't accept the coding.
func (c *Codings) Weight(coding int) int {
	if c[coding] == 0 {
		coding = anyCoding
	}
	return max(0, c[coding]-1)
}

// Plain returns the weight that the client gives to identity explicitly, and whether it accepts an answer without a coding, which is
// "acceptable by default unless specifically excluded" (RFC 9110, section 12.5.3).
func (c *Codings) Plain() (weight int, ok bool) {
	named := c[Identity]
	return max(0, named-1), named > 1 || named == 0 && c[anyCoding] != 1
}
