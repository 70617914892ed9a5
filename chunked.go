package filo

import (
	"math"

	"github.com/filohttp/filo/internal/syntax"
)

// chunkState is what the chunk decoder expects next (RFC 9112, section 7.1).
type chunkState uint8

const (
	chunkSizeStart  chunkState = iota // first digit of a chunk-size
	chunkSize                         // further digits, ';' or CR
	chunkExtName                      // inside the name of an extension
	chunkExtValue                     // first byte of an extension's value
	chunkExtToken                     // inside a value that is a token
	chunkExtQuoted                    // inside a quoted value
	chunkExtEscaped                   // after a backslash in a quoted value
	chunkExtEnd                       // after a quoted value: ';' or CR
	chunkSizeLF                       // LF of the chunk-size line
	chunkData                         // inside the data
	chunkDataCR                       // CR after the data
	chunkDataLF                       // LF after the data
	chunkTrailer                      // at the trailer section: the head parser's work
)

// maxChunkExtensions is how many bytes of chunk extensions one body may have. Nobody uses them; without a limit
// they are a way to send for ever.
const maxChunkExtensions = 4096

// maxChunkDigits is how many digits a chunk size may have, leading zeros included: those of the largest 64-bit number.
const maxChunkDigits = 16

// chunkDecoder takes the chunked coding apart. It is strict: no sign, prefix or white space about the size, CRLF
// and nothing else as line ends, and extensions that are well-formed. The zero value is ready for a body.
type chunkDecoder struct {
	state      chunkState
	empty      bool  // the element that the state is inside of has no byte yet
	digits     uint8 // of the chunk-size so far
	extensions uint16
	remaining  int64 // data of the current chunk that hasn't come yet
}

// decode consumes n bytes of b: framing, and at most one piece of data, which it returns as a part of b.
// Called again with what is left it goes on; it has seen the last chunk when the state is chunkTrailer.
func (d *chunkDecoder) decode(b []byte) (data []byte, n int, err *HTTPError) {
	for n < len(b) && d.state != chunkTrailer {
		if d.state == chunkData {
			size := len(b) - n
			if int64(size) > d.remaining {
				size = int(d.remaining)
			}
			data = b[n : n+size : n+size]
			d.took(int64(size))
			return data, n + size, nil
		}
		if err := d.framing(b[n]); err != nil {
			return nil, n, err
		}
		n++
	}
	return nil, n, nil
}

// took notes that size bytes of the current chunk's data were consumed.
func (d *chunkDecoder) took(size int64) {
	d.remaining -= size
	if d.remaining == 0 {
		d.state = chunkDataCR
	}
}

// framing takes one byte that isn't data.
func (d *chunkDecoder) framing(c byte) *HTTPError {
	switch d.state {
	case chunkSizeStart, chunkSize:
		return d.size(c)
	case chunkSizeLF:
		if c != '\n' {
			return errBareCR
		}
		d.state = chunkData
		if d.remaining == 0 {
			d.state = chunkTrailer
		}
	case chunkDataCR:
		if c != '\r' {
			return errChunkEnd
		}
		d.state = chunkDataLF
	case chunkDataLF:
		if c != '\n' {
			return errChunkEnd
		}
		d.state, d.digits = chunkSizeStart, 0
	default:
		return d.extension(c)
	}
	return nil
}

func (d *chunkDecoder) size(c byte) *HTTPError {
	if v := syntax.HexValue(c); v >= 0 {
		if d.digits == maxChunkDigits || d.remaining > math.MaxInt64>>4 {
			return errChunkSize
		}
		d.digits++
		d.remaining = d.remaining<<4 | int64(v)
		d.state = chunkSize
		return nil
	}
	if d.state == chunkSizeStart {
		return errChunkSize
	}
	return d.endElement(c, errChunkSize)
}

// extension takes one byte of chunk-ext = *( ";" chunk-ext-name [ "=" ( token / quoted-string ) ] ). The optional
// white space of the grammar is "bad" by its own name, and is refused.
func (d *chunkDecoder) extension(c byte) *HTTPError {
	if d.extensions++; d.extensions > maxChunkExtensions {
		return errChunkExtensions
	}
	switch d.state {
	case chunkExtName, chunkExtToken:
		if syntax.IsTokenByte(c) {
			d.empty = false
			return nil
		}
		if d.empty {
			return errChunkExtension
		}
		if c == '=' && d.state == chunkExtName {
			d.state = chunkExtValue
			return nil
		}
		return d.endElement(c, errChunkExtension)
	case chunkExtValue:
		if c == '"' {
			d.state = chunkExtQuoted
			return nil
		}
		d.state, d.empty = chunkExtToken, true
		return d.extensionAgain(c)
	case chunkExtQuoted:
		switch {
		case c == '"':
			d.state = chunkExtEnd
		case c == '\\':
			d.state = chunkExtEscaped
		case c < 0x20 && c != '\t' || c == 0x7f:
			return errChunkExtension
		}
	case chunkExtEscaped:
		if c < 0x20 && c != '\t' || c == 0x7f {
			return errChunkExtension
		}
		d.state = chunkExtQuoted
	case chunkExtEnd:
		return d.endElement(c, errChunkExtension)
	}
	return nil
}

// extensionAgain takes a byte a second time, in the state that it led to.
func (d *chunkDecoder) extensionAgain(c byte) *HTTPError {
	d.extensions--
	return d.extension(c)
}

// endElement takes the byte after a size or an extension: another extension, or the line's end.
func (d *chunkDecoder) endElement(c byte, err *HTTPError) *HTTPError {
	switch c {
	case ';':
		d.state, d.empty = chunkExtName, true
	case '\r':
		d.state = chunkSizeLF
	case '\n':
		return errBareLF
	default:
		return err
	}
	return nil
}
