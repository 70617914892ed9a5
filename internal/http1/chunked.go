package http1

import (
	"math"

	"github.com/filohttp/filo/internal/syntax"
)

// chunkState says to which part of the chunked coding the next byte belongs (RFC 9112, section 7.1).
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
	chunkTrailer                      // at the trailer section, which the head parser parses
)

// maxChunkExtensions limits the total bytes of all chunk extensions of a body. Clients don't use extensions, and without a limit an attacker
// could send them forever.
const maxChunkExtensions = 4096

// maxChunkDigits is the maximum number of digits of a chunk size, including leading zeros. It is the number of digits of the largest 64-bit
// number.
const maxChunkDigits = 16

// ChunkDecoder decodes the chunked coding. It is strict: the size has no sign, prefix or white space, lines end with CRLF only, and
// extensions are well-formed. The zero value is ready for a body.
type ChunkDecoder struct {
	state      chunkState
	empty      bool   // the current name or token has no byte yet
	digits     uint8  // digits of the chunk-size so far
	extensions uint16 // bytes of extensions so far; its type must hold maxChunkExtensions + 1
	remaining  int64  // bytes of the current chunk's data that haven't been consumed
}

// Decode consumes n bytes of b: framing, and at most one piece of data, which it returns as a slice of b. The caller must call it again with
// the remaining bytes. After the last chunk AtTrailer returns true.
func (d *ChunkDecoder) Decode(b []byte) (data []byte, n int, fault Fault) {
	for n < len(b) && d.state != chunkTrailer {
		if d.state == chunkData {
			size := len(b) - n
			if int64(size) > d.remaining {
				size = int(d.remaining)
			}
			data = b[n : n+size : n+size]
			d.Took(int64(size))
			return data, n + size, NoFault
		}
		if fault := d.framing(b[n]); fault != NoFault {
			return nil, n, fault
		}
		n++
	}
	return nil, n, NoFault
}

// Took records that size bytes of the current chunk's data were consumed.
func (d *ChunkDecoder) Took(size int64) {
	d.remaining -= size
	if d.remaining == 0 {
		d.state = chunkDataCR
	}
}

// framing consumes one byte of the framing.
func (d *ChunkDecoder) framing(c byte) Fault {
	switch d.state {
	case chunkSizeStart, chunkSize:
		return d.size(c)
	case chunkSizeLF:
		if c != '\n' {
			return FaultBareCR
		}
		d.state = chunkData
		if d.remaining == 0 {
			d.state = chunkTrailer
		}
	case chunkDataCR:
		if c != '\r' {
			return FaultChunkEnd
		}
		d.state = chunkDataLF
	case chunkDataLF:
		if c != '\n' {
			return FaultChunkEnd
		}
		d.state, d.digits = chunkSizeStart, 0
	default:
		return d.extension(c)
	}
	return NoFault
}

func (d *ChunkDecoder) size(c byte) Fault {
	if v := syntax.HexValue(c); v >= 0 {
		if d.digits == maxChunkDigits || d.remaining > math.MaxInt64>>4 {
			return FaultChunkSize
		}
		d.digits++
		d.remaining = d.remaining<<4 | int64(v)
		d.state = chunkSize
		return NoFault
	}
	if d.state == chunkSizeStart {
		return FaultChunkSize
	}
	return d.endElement(c, FaultChunkSize)
}

// extension consumes one byte of chunk-ext = *( ";" chunk-ext-name [ "=" ( token / quoted-string ) ] ). It refuses the optional white
// space of the grammar, which the RFC itself calls "bad".
func (d *ChunkDecoder) extension(c byte) Fault {
	if d.extensions++; d.extensions > maxChunkExtensions {
		return FaultChunkExtensions
	}
	switch d.state {
	case chunkExtName, chunkExtToken:
		if syntax.IsTokenByte(c) {
			d.empty = false
			return NoFault
		}
		if d.empty {
			return FaultChunkExtension
		}
		if c == '=' && d.state == chunkExtName {
			d.state = chunkExtValue
			return NoFault
		}
		return d.endElement(c, FaultChunkExtension)
	case chunkExtValue:
		if c == '"' {
			d.state = chunkExtQuoted
			return NoFault
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
			return FaultChunkExtension
		}
	case chunkExtEscaped:
		if c < 0x20 && c != '\t' || c == 0x7f {
			return FaultChunkExtension
		}
		d.state = chunkExtQuoted
	case chunkExtEnd:
		return d.endElement(c, FaultChunkExtension)
	}
	return NoFault
}

// extensionAgain passes a byte to extension again, after the first call has changed the state without consuming the byte.
func (d *ChunkDecoder) extensionAgain(c byte) Fault {
	d.extensions--
	return d.extension(c)
}

// endElement consumes the byte after a size or an extension: ";" begins another extension, and CR ends the line. For any other byte it
// returns fault, or FaultBareLF for LF.
func (d *ChunkDecoder) endElement(c byte, fault Fault) Fault {
	switch c {
	case ';':
		d.state, d.empty = chunkExtName, true
	case '\r':
		d.state = chunkSizeLF
	case '\n':
		return FaultBareLF
	default:
		return fault
	}
	return NoFault
}

// GiveBack undoes Took for size bytes of data that the caller doesn't consume yet.
func (d *ChunkDecoder) GiveBack(size int) {
	d.remaining += int64(size)
	d.state = chunkData
}

// InData reports whether the next byte is data. If so, Remaining returns how many bytes of data the chunk has left.
func (d *ChunkDecoder) InData() bool { return d.state == chunkData }

// Remaining returns how many bytes of the current chunk's data haven't been consumed.
func (d *ChunkDecoder) Remaining() int64 { return d.remaining }

// AtTrailer reports whether the trailer section, which Parser.ParseTrailer parses, is next.
func (d *ChunkDecoder) AtTrailer() bool { return d.state == chunkTrailer }
