package abuse

import (
	"encoding/binary"
	"errors"

	"github.com/filohttp/filo/internal/http2"
)

// tableCheck checks a rule of RFC 7541, section 4.2: once a server has acknowledged a smaller SETTINGS_HEADER_TABLE_SIZE, its next field
// block begins with an update to that size. Without this check, attacks that change the setting all the time would not notice that the
// server's table has become inconsistent with the client's.
type tableCheck struct {
	size    uint32 // the size of the server's table, according to the updates in its field blocks
	changes []tableChange
	nSent   int // how many SETTINGS the client has sent
	nAcked  int
	due     bool
	least   uint32 // if due is set, the largest size that the update at the beginning of the next block may have
}

// tableChange records the smallest table size in the n-th SETTINGS frame that the client has sent.
type tableChange struct {
	n     int
	least uint32
}

var errTable = errors.New("a field block without the update of the table's size that a lower SETTINGS_HEADER_TABLE_SIZE asks for")

// sent records SETTINGS that the client sends.
func (t *tableCheck) sent(flags http2.Flags, entries []byte) {
	if flags.Has(http2.FlagAck) {
		return
	}
	t.nSent++
	change, found := tableChange{n: t.nSent}, false
	for b := entries; len(b) >= 6; b = b[6:] {
		if binary.BigEndian.Uint16(b) != headerTableSize {
			continue
		}
		if value := binary.BigEndian.Uint32(b[2:]); !found || value < change.least {
			change.least, found = value, true
		}
	}
	if found {
		t.changes = append(t.changes, change)
	}
}

// acked records that the server has acknowledged SETTINGS.
func (t *tableCheck) acked() {
	t.nAcked++
	for len(t.changes) > 0 && t.changes[0].n <= t.nAcked {
		if least := t.changes[0].least; !t.due || least < t.least {
			t.due, t.least = true, least
		}
		t.changes = t.changes[1:]
	}
}

// block checks the size updates at the beginning of a field block.
func (t *tableCheck) block(b []byte) error {
	least := t.size
	for len(b) > 0 && b[0]&0xe0 == 0x20 {
		size, n := uint32(b[0]&0x1f), 1
		if size == 0x1f {
			for shift := 0; n < len(b) && shift < 28; shift += 7 {
				size += uint32(b[n]&0x7f) << shift
				if n++; b[n-1] < 0x80 {
					break
				}
			}
		}
		t.size, least = size, min(least, size)
		b = b[n:]
	}
	due := t.due && t.least < least
	t.due = false
	if due {
		return errTable
	}
	return nil
}

// appendField appends a field that isn't added to HPACK's table.
func appendField(b []byte, name, value string) []byte {
	return appendString(appendString(append(b, 0x00), name), value)
}

// appendIndexed appends a field that is added to HPACK's table.
func appendIndexed(b []byte, name, value string) []byte {
	return appendString(appendString(append(b, 0x40), name), value)
}

func appendString(b []byte, s string) []byte { return append(appendLength(b, len(s)), s...) }

// appendLength appends the length of a string without Huffman code (RFC 7541, section 5.2).
func appendLength(b []byte, n int) []byte {
	if n < 0x7f {
		return append(b, byte(n))
	}
	b = append(b, 0x7f)
	for n -= 0x7f; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// appendHeaders appends a HEADERS frame with END_HEADERS. The field block must fit into one frame.
func appendHeaders(b []byte, id uint32, block []byte, endStream bool) []byte {
	flags := http2.FlagEndHeaders
	if endStream {
		flags |= http2.FlagEndStream
	}
	return append(http2.AppendFrameHeader(b, len(block), http2.FrameHeaders, flags, id), block...)
}
