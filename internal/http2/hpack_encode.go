package http2

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/filohttp/filo/internal/field"
)

// The first bytes of representations (RFC 7541, section 6), and how many of their low bits are the prefix of an integer.
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

// AppendField appends a field without adding it to the table. The name is used only if id is field.Unknown. AppendField turns it into lower
// case. A secret value is marked as never to be indexed, so that an attacker can't guess it by means of a table: see sensitive.
func AppendField(dst []byte, id field.ID, name, value []byte) []byte {
	dst = appendName(dst, id, name)
	if len(value) >= huffmanMinLen {
		return appendString(dst, value)
	}
	return append(appendInt(dst, 0, stringBits, uint32(len(value))), value...)
}

// AppendNumber is AppendField for a known name and an integer, which is encoded in decimal digits.
func AppendNumber(dst []byte, id field.ID, value int64) []byte {
	dst = append(dst, literalNames[id]...)
	length := len(dst)
	dst = strconv.AppendInt(append(dst, 0), value, 10)
	dst[length] = byte(len(dst) - length - 1)
	return dst
}

// appendName appends the first part of a literal that isn't indexed, including its name.
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

// sensitive reports whether the values of a field are secrets. If a secret is in a table, and an attacker can have guesses sent as fields on
// the same connection, then the size of a block shows whether a guess is right. So each hop must keep secrets out of its tables (RFC 7541,
// section 7.1.3), which the representation "never indexed" demands. Only credentials are secrets: cookies, and fields that authenticate.
// Fields that aren't secrets are added to a table only as a Literal, which the server's own code has prepared.
func sensitive(id field.ID) bool {
	switch id {
	case field.Authorization, field.Cookie, field.ProxyAuthorization, field.SetCookie:
		return true
	}
	return false
}

var (
	// staticNames has, for each known name, its first index in the static table, or 0 if it isn't there.
	staticNames = makeStaticNames()
	// literalNames has, for each known name, the first part of a literal that isn't indexed.
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

// Literal is a field that is prepared once and appended to many blocks, by an Encoder or by its own method Append. It is immutable.
type Literal struct {
	indexing string // the representation that adds it to the table
	plain    string // the representation that doesn't
	size     uint32 // the size of its entry; neverFits for a literal that mustn't be added to a table
	// number identifies the literal among all literals of the process that may be added to a table. It isn't 0.
	number uint32
	slot   uint8
}

const neverFits = 1<<32 - 1

// literals counts the literals that NewLiteral has made.
var literals atomic.Uint64

// NewLiteral prepares a field. The name must be a token; it is turned into lower case. The value must have no control bytes.
func NewLiteral(name, value string) Literal {
	id := field.Lookup(name)
	name = strings.ToLower(name)
	number := literals.Add(1)
	l := Literal{number: uint32(number), size: uint32(len(name)+len(value)) + entryOverhead}
	// Each second has a new literal for Date, which must replace the previous one. So Date has a slot that no other literal uses.
	if l.slot = dateSlot; id != field.Date {
		l.slot = uint8(1 + l.number%(encoderSlots-1))
	}
	l.plain = string(appendString(appendName(nil, id, []byte(name)), []byte(value)))
	if sensitive(id) || number >= 1<<32-1 { // a program that keeps making literals may run out of numbers
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

// Append appends the field without using the table. It is for blocks that are encoded before their order among other blocks is known.
func (l *Literal) Append(dst []byte) []byte { return append(dst, l.plain...) }

const (
	// encoderSlots is how many literals an Encoder keeps in the table: a power of two.
	encoderSlots = 8
	dateSlot     = 0
)

// Encoder encodes literals as indexes into the dynamic table of a connection's peer. Its blocks must be sent in the order in which they were
// encoded. Begin must be called for each block that is sent to the peer, even if the Encoder doesn't encode the block's fields. Call Reset
// first.
//
// The table contains nothing but literals of the Encoder, and the Encoder records only their positions.
type Encoder struct {
	slots [encoderSlots]encoderSlot
	// added and bytes are the number and the total size of all entries that were ever added to the table. Both may overflow. That is
	// harmless: they are compared only with the values that they had when an entry of a slot was added, and since then they have grown by
	// at most twice initialTableSize.
	added, bytes uint16
	max          uint16 // the size of the table

	// due says that the next block must begin with an update of the table's size. least is the smallest size that the peer has allowed since
	// the last block, and last is the size that it allows now.
	due         bool
	least, last uint16
}

// encoderSlot says which literal is in the table, and where.
type encoderSlot struct {
	number uint32 // the literal's number; 0: the slot is empty
	added  uint16 // Encoder.added before the literal was added
	bytes  uint16 // Encoder.bytes before the literal was added
}

// Reset makes e an encoder for a new connection.
func (e *Encoder) Reset() { *e = Encoder{max: initialTableSize} }

// SetTableSize sets the sizes that the peer allows by SETTINGS_HEADER_TABLE_SIZE: the smallest of the received values, and the last one. The
// Encoder never uses more than the initial size, so a larger value has no effect.
func (e *Encoder) SetTableSize(least, last uint32) {
	if !e.due {
		e.least = e.max
	}
	e.least = min(e.least, uint16(min(least, last, initialTableSize)))
	e.last = uint16(min(last, initialTableSize))
	e.due = e.least < e.max || e.last != e.max
}

// Begin begins a block. It appends the updates of the table's size that are required. The table must shrink to the smallest size that the
// peer has allowed since the last block, even if a larger one is allowed now (RFC 7541, section 4.2).
func (e *Encoder) Begin(dst []byte) []byte {
	if !e.due {
		return dst
	}
	return e.update(dst)
}

func (e *Encoder) update(dst []byte) []byte {
	e.due = false
	if e.least < min(e.max, e.last) {
		// The decoder of x/net, which clients in Go use, accepts a second update only if the table is empty after the first one.
		dst = appendInt(dst, tableSizeUpdate, sizeUpdateBits, 0)
		e.evict(0)
	}
	e.max = e.last
	e.evict(e.max)
	return appendInt(dst, tableSizeUpdate, sizeUpdateBits, uint32(e.max))
}

// evict empties the slots of literals that the table evicts when its size becomes max.
func (e *Encoder) evict(max uint16) {
	for i := range e.slots {
		// An entry is still in the table if it and all later entries together fit into max.
		if s := &e.slots[i]; e.bytes-s.bytes > max {
			*s = encoderSlot{}
		}
	}
}

// Append appends the field: as an index if it is in the table, and otherwise as a literal. The literal is added to the table if it fits
// there and its slot is free; a Date replaces the previous one.
func (e *Encoder) Append(dst []byte, l *Literal) []byte {
	s := &e.slots[l.slot%encoderSlots]
	if age := e.added - s.added; s.number == l.number && age < 1<<indexedBits-1-uint16(staticCount) {
		return append(dst, indexedField|byte(uint16(staticCount)+age))
	}
	return e.add(dst, l, s)
}

// add appends a field that isn't in the table, or whose index there needs two bytes. If the field isn't in the table, add adds it there,
// provided that it fits and its slot is free or the slot of Date. Any other literal keeps its slot as long as it is in the table. Otherwise
// two literals with the same slot would replace each other again and again.
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

// appendInt appends an integer with a prefix of the given number of bits (RFC 7541, section 5.1). The parameter first holds the other
// bits of the first byte.
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

// huffmanMinLen is the length from which AppendField Huffman-codes a value. The code makes a value shorter by a quarter, and takes about two
// nanoseconds for each byte, which isn't worth it for a short value.
const huffmanMinLen = 64

// appendString appends a string literal, Huffman-coded if that is shorter.
func appendString(dst, s []byte) []byte {
	if n := huffmanLen(s); n < len(s) {
		return appendHuffman(appendInt(dst, huffmanString, stringBits, uint32(n)), s, n)
	}
	return append(appendInt(dst, 0, stringBits, uint32(len(s))), s...)
}
