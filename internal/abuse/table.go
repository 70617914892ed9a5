package abuse

import (
	"encoding/binary"
	"errors"

	"github.com/filohttp/filo/internal/http2"
)

// tableCheck holds a server to RFC 7541, section 4.2: once it has acknowledged a smaller SETTINGS_HEADER_TABLE_SIZE, its next field block
// begins with an update to that size. Attacks that change the setting all the time would otherwise not notice a table that is out of step.
type tableCheck struct {
	size    uint32 // the size of the server's table, as announced by its blocks so far
	changes []tableChange
	nSent   int // SETTINGS
	nAcked  int
	due     bool
	least   uint32 // what the next block must begin with, if due
}

// tableChange is the least table size in the n-th SETTINGS that were sent.
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

// acked records SETTINGS with ACK.
func (t *tableCheck) acked() {
	t.nAcked++
	for len(t.changes) > 0 && t.changes[0].n <= t.nAcked {
		if least := t.changes[0].least; !t.due || least < t.least {
			t.due, t.least = true, least
		}
		t.changes = t.changes[1:]
	}
}

// block checks the updates at the beginning of a block.
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

// appendField appends a field that isn't added to the server's table.
func appendField(b []byte, name, value string) []byte {
	return appendString(appendString(append(b, 0x00), name), value)
}

// appendIndexed appends a field that is added to the server's table.
func appendIndexed(b []byte, name, value string) []byte {
	return appendString(appendString(append(b, 0x40), name), value)
}

func appendString(b []byte, s string) []byte { return append(appendLength(b, len(s)), s...) }

// appendLength appends the length of a string that isn't coded (RFC 7541, section 5.2).
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

// appendHeaders appends HEADERS, with END_HEADERS, of a field block that fits into one frame.
func appendHeaders(b []byte, id uint32, block []byte, endStream bool) []byte {
	flags := http2.FlagEndHeaders
	if endStream {
		flags |= http2.FlagEndStream
	}
	return append(http2.AppendFrameHeader(b, len(block), http2.FrameHeaders, flags, id), block...)
}
