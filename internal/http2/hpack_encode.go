package http2

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/filohttp/filo/internal/field"
)

// The first bytes of representations (RFC 7541, section 6), and how many bits of them begin an integer.
const (
	indexedField, indexedBits       = 0x80, 7
	withIndexing, withIndexingBits  = 0x40, 6
	tableSizeUpdate, sizeUpdateBits = 0x20, 5
	neverIndexed                    = 0x10
	withoutIndexing, literalBits    = 0x00, 4
	huffmanString, stringBits       = 0x80, 7
)

// AppendStatus appends the status of an answer, which has three digits.
func AppendStatus(dst []byte, status int) []byte {
	switch status {
	case 200:
		return append(dst, indexedField|8)
	case 204:
		return append(dst, indexedField|9)
	case 206:
		return append(dst, indexedField|10)
	case 304:
		return append(dst, indexedField|11)
	case 400:
		return append(dst, indexedField|12)
	case 404:
		return append(dst, indexedField|13)
	case 500:
		return append(dst, indexedField|14)
	}
	return append(dst, withoutIndexing|8, 3, byte('0'+status/100), byte('0'+status/10%10), byte('0'+status%10))
}

// AppendField appends a field that isn't added to the table. The name is needed only if its number is field.Unknown. It may be in any case,
// and goes out in lower case. A value that an attacker mustn't guess through a table is marked as never to be indexed: see sensitive.
func AppendField(dst []byte, id field.ID, name, value []byte) []byte {
	dst = appendName(dst, id, name)
	if len(value) >= huffmanMinLen {
		return appendString(dst, value)
	}
	return append(appendInt(dst, 0, stringBits, uint32(len(value))), value...)
}

// AppendNumber is AppendField for a known name and a value in decimal digits.
func AppendNumber(dst []byte, id field.ID, value int64) []byte {
	dst = append(dst, literalNames[id]...)
	length := len(dst)
	dst = strconv.AppendInt(append(dst, 0), value, 10)
	dst[length] = byte(len(dst) - length - 1)
	return dst
}

// appendName appends the beginning of a literal that isn't indexed, up to its name.
func appendName(dst []byte, id field.ID, name []byte) []byte {
	if id != field.Unknown {
		return append(dst, literalNames[id]...)
	}
	dst = appendInt(append(dst, withoutIndexing), 0, stringBits, uint32(len(name)))
	for _, c := range name {
		if c-'A' < 26 {
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return dst
}

// sensitive reports whether a value is a secret. Suppose that a secret is in a table, and an attacker can have fields of his own sent on
// the same connection. Then he could guess the secret, and the size of a block would show whether the guess is right. So each hop on the
// way must leave it out of tables (RFC 7541, section 7.1.3), as the representation says. Only credentials are secrets: cookies, and fields
// that authenticate. Fields of other names never get into a table either, unless the server's own code has prepared them as a Literal.
func sensitive(id field.ID) bool {
	switch id {
	case field.Authorization, field.Cookie, field.ProxyAuthorization, field.SetCookie:
		return true
	}
	return false
}

var (
	// staticNames has the first index in the static table of a known name, 0 for none.
	staticNames = makeStaticNames()
	// literalNames has for each known name the beginning of a literal that isn't indexed.
	literalNames = makeLiteralNames()
)

func makeStaticNames() (indexes [field.Count]uint8) {
	for i := len(staticEntries) - 1; i > 0; i-- {
		indexes[staticEntries[i].id] = uint8(i)
	}
	indexes[field.Unknown] = 0
	return indexes
}

func makeLiteralNames() (literals [field.Count]string) {
	for id := field.Unknown + 1; id < field.Count; id++ {
		first := byte(withoutIndexing)
		if sensitive(id) {
			first = neverIndexed
		}
		b := appendInt(nil, first, literalBits, uint32(staticNames[id]))
		if staticNames[id] == 0 {
			b = appendString(b, []byte(lowerNames[id]))
		}
		literals[id] = string(b)
	}
	return literals
}

// Literal is a field that is prepared once and appended to many blocks: by an Encoder, or by Append without one. It never changes.
type Literal struct {
	indexing string // its representation when it is added to the table
	plain    string // and when it isn't
	size     uint32 // of its entry; neverFits for a literal that must not get into a table
	// number distinguishes the literals of the process that may get into a table. It isn't 0.
	number uint32
	slot   uint8
}

const neverFits = 1<<32 - 1

// literals counts the literals that were made.
var literals atomic.Uint64

// NewLiteral prepares a field. The name must be a token; it goes out in lower case. The value must have no control bytes.
func NewLiteral(name, value string) Literal {
	id := field.Lookup(name)
	name = strings.ToLower(name)
	number := literals.Add(1)
	l := Literal{number: uint32(number), size: uint32(len(name)+len(value)) + entryOverhead}
	// The Date is another literal every second, and takes the place of the one before.
	if l.slot = dateSlot; id != field.Date {
		l.slot = uint8(1 + l.number%(encoderSlots-1))
	}
	l.plain = string(appendString(appendName(nil, id, []byte(name)), []byte(value)))
	if sensitive(id) || number >= 1<<32-1 { // a program that makes literals all the time has run out of numbers
		l.number, l.size = 1<<32-1, neverFits
		return l
	}
	b := appendInt(nil, withIndexing, withIndexingBits, uint32(staticNames[id]))
	if staticNames[id] == 0 {
		b = appendString(b, []byte(name))
	}
	l.indexing = string(appendString(b, []byte(value)))
	return l
}

// Append appends the field without the table. That is for blocks whose place among others isn't known when they are encoded.
func (l *Literal) Append(dst []byte) []byte { return append(dst, l.plain...) }

const (
	// encoderSlots is how many literals an Encoder keeps in the table: a power of two.
	encoderSlots = 8
	dateSlot     = 0
)

// Encoder encodes literals by the table of a connection's peer. Its blocks must be sent in the order in which they were encoded, and every
// block that is sent to the peer must begin with Begin, even one that the Encoder doesn't encode. Call Reset first.
//
// All that it knows about the table is where its literals are. There is nothing else in the table.
type Encoder struct {
	slots [encoderSlots]encoderSlot
	// added and bytes count the entries that were ever added to the table, and their sizes. Both wrap around: the entries with which they
	// are compared are in the table, and so less than initialTableSize behind.
	added, bytes uint16
	max          uint16 // the size of the table

	// due says that the next block must begin with an update. Since the last block, the peer has allowed as little as least, and it now
	// allows last.
	due         bool
	least, last uint16
}

// encoderSlot says which literal is in the table, and where.
type encoderSlot struct {
	number uint32 // the literal's; 0: none
	added  uint16 // how many entries were added before it
	bytes  uint16 // and their size
}

// Reset makes e an encoder for a new connection.
func (e *Encoder) Reset() { *e = Encoder{max: initialTableSize} }

// SetTableSize takes over the sizes that the peer allows by SETTINGS_HEADER_TABLE_SIZE: the smallest of the received values, and the last
// one. The table doesn't become larger than it is at first, so a peer that allows more doesn't change anything.
func (e *Encoder) SetTableSize(least, last uint32) {
	if !e.due {
		e.least = e.max
	}
	e.least = min(e.least, uint16(min(least, last, initialTableSize)))
	e.last = uint16(min(last, initialTableSize))
	e.due = e.least < e.max || e.last != e.max
}

// Begin begins a block. It appends the updates of the table's size that are due. The table must shrink to the smallest size that the peer
// has allowed since the last block, even if a larger one is allowed now (RFC 7541, section 4.2).
func (e *Encoder) Begin(dst []byte) []byte {
	if !e.due {
		return dst
	}
	return e.update(dst)
}

func (e *Encoder) update(dst []byte) []byte {
	e.due = false
	if e.least < min(e.max, e.last) {
		// The decoder of x/net, and so every client in Go, takes a second update only if the first has left nothing in the table.
		dst = appendInt(dst, tableSizeUpdate, sizeUpdateBits, 0)
		e.evict(0)
	}
	e.max = e.last
	e.evict(e.max)
	return appendInt(dst, tableSizeUpdate, sizeUpdateBits, uint32(e.max))
}

// evict forgets the literals that aren't in the table when the table has a size of max.
func (e *Encoder) evict(max uint16) {
	for i := range e.slots {
		// An entry is in the table if it fits there together with all that were added after it.
		if s := &e.slots[i]; e.bytes-s.bytes > max {
			*s = encoderSlot{}
		}
	}
}

// Append appends the field: as an index if the table has it, and otherwise literally, in which case the table gets it if there is a slot.
func (e *Encoder) Append(dst []byte, l *Literal) []byte {
	s := &e.slots[l.slot%encoderSlots]
	if age := e.added - s.added; s.number == l.number && age < 1<<indexedBits-1-uint16(staticCount) {
		return append(dst, indexedField|byte(uint16(staticCount)+age))
	}
	return e.add(dst, l, s)
}

// add appends a field that isn't in the table, or so far behind that its index has two bytes. It adds the field to the table if there is a
// slot. A literal keeps its slot as long as it is in the table: two literals that took turns in a slot would always push each other out.
func (e *Encoder) add(dst []byte, l *Literal, s *encoderSlot) []byte {
	if s.number == l.number {
		return appendInt(dst, indexedField, indexedBits, staticCount+uint32(e.added-s.added))
	}
	if l.size > uint32(e.max) || s.number != 0 && l.slot != dateSlot {
		return append(dst, l.plain...)
	}
	*s = encoderSlot{l.number, e.added, e.bytes}
	e.added++
	e.bytes += uint16(l.size)
	e.evict(e.max)
	return append(dst, l.indexing...)
}

// appendInt appends an integer whose first byte has other bits before the prefix of that many bits (RFC 7541, section 5.1).
func appendInt(dst []byte, first byte, bits uint, v uint32) []byte {
	prefix := uint32(1)<<bits - 1
	if v < prefix {
		return append(dst, first|byte(v))
	}
	dst = append(dst, first|byte(prefix))
	for v -= prefix; v >= 0x80; v >>= 7 {
		dst = append(dst, 0x80|byte(v))
	}
	return append(dst, byte(v))
}

// huffmanMinLen is how long a value must be for AppendField to encode it. The code saves a quarter of a value and takes about two
// nanoseconds a byte, which a short value isn't worth.
const huffmanMinLen = 64

// appendString appends a string literal, with Huffman's code if that is shorter.
func appendString(dst, s []byte) []byte {
	if n := huffmanLen(s); n < len(s) {
		return appendHuffman(appendInt(dst, huffmanString, stringBits, uint32(n)), s, n)
	}
	return append(appendInt(dst, 0, stringBits, uint32(len(s))), s...)
}
