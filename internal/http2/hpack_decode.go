package http2

import "github.com/filohttp/filo/internal/field"

// HPACKError says why a field block can't be decoded. That is a connection error of type COMPRESSION_ERROR (RFC 9113, section 4.3).
type HPACKError string

// Error explains the error to the client.
func (e HPACKError) Error() string { return string(e) }

const (
	errCutShort    HPACKError = "hpack: the block ends inside a field"
	errIndex       HPACKError = "hpack: an index that neither table has"
	errInteger     HPACKError = "hpack: an integer of more than 4 bytes behind its prefix"
	errHuffman     HPACKError = "hpack: invalid Huffman code or padding"
	errLateUpdate  HPACKError = "hpack: an update of the table's size must be at the beginning of a block"
	errTableSize   HPACKError = "hpack: a table larger than SETTINGS_HEADER_TABLE_SIZE"
	errNoReduction HPACKError = "hpack: a smaller SETTINGS_HEADER_TABLE_SIZE was acknowledged, but the table wasn't made smaller"
)

// Sink receives the decoded fields of a block.
type Sink interface {
	// Field receives the next field. The slices are valid until it returns. id is the ID of the name; it is field.Unknown for pseudo-header
	// fields, too. A field is valid if its name is a token in lower case, which a colon may precede, and if its value has neither control
	// bytes nor white space around it (RFC 9113, section 8.2.1).
	Field(name, value []byte, id field.ID, valid bool)
}

// Decoder decodes the field blocks that a connection receives (RFC 7541). It must decode each of them in order, since a block refers to
// table entries of earlier blocks. Call Reset first. A Decoder allocates no memory until it decodes a literal.
type Decoder struct {
	table   table
	allowed uint32 // the largest table size that an update may set
	reduced bool   // the next block must make the table smaller
}

// Reset makes d a decoder for a new connection. It keeps the memory.
func (d *Decoder) Reset() {
	d.table.evict(0)
	d.table.text = d.table.text[:0]
	d.table.max, d.allowed, d.reduced = initialTableSize, initialTableSize, false
}

// SetTableSize sets how large the peer may make the table, in bytes, at most MaxTableSize. The caller calls it when the peer acknowledges
// SETTINGS_HEADER_TABLE_SIZE, since the previous limit applies until then.
func (d *Decoder) SetTableSize(size uint32) {
	if size > MaxTableSize {
		panic("http2: SETTINGS_HEADER_TABLE_SIZE over MaxTableSize")
	}
	d.allowed = size
	d.reduced = size < d.table.max
}

// Trim releases memory that the table doesn't need at present, if its text has more than keep bytes. It is for connections that have become
// idle.
func (d *Decoder) Trim(keep int) {
	if cap(d.table.text) > keep {
		d.table.trim()
	}
}

// Decode decodes a block and passes its fields to the sink. The block must be complete: the concatenated payloads of HEADERS and of the
// CONTINUATION frames that follow it. If sink is nil, Decode only updates the table.
//
// The limit bounds the size of the block in bytes, and also the size of its fields, each of which counts 32 bytes more than its name and
// value. Several Cookie fields (crumbs) count as one field, with the two bytes that join each crumb to the next (RFC 9113, section 8.2.3).
// If the limit is exceeded, over is true, and the sink receives neither the field that exceeds it nor any later field. The table is updated
// all the same, so the connection can go on.
//
// An error is an HPACKError, and ends the connection.
func (d *Decoder) Decode(block []byte, limit int, sink Sink) (over bool, err error) {
	out := output{sink: sink, left: limit}
	if len(block) > limit || sink == nil {
		out.left = -1
	}
	if block, err = d.updates(block); err != nil {
		return false, err
	}
	for len(block) > 0 {
		c := block[0]
		if c&0x80 == 0 {
			if block, err = d.literal(block, &out); err != nil {
				return false, err
			}
			continue
		}
		index := uint32(c & 0x7f)
		if index < 0x7f {
			block = block[1:]
		} else if index, block, err = readInt(block, 7); err != nil {
			return false, err
		}
		e, text := d.table.lookup(index)
		if e == nil {
			return false, errIndex
		}
		out.field(&fieldView{e.name(text), e.value(text), e.id, e.validName, e.validValue})
	}
	return out.left < 0 && sink != nil, nil
}

// updates processes the updates of the table's size, which are allowed only at the beginning of a block (RFC 7541, section 4.2).
func (d *Decoder) updates(block []byte) ([]byte, error) {
	for len(block) > 0 && block[0]&0xe0 == 0x20 {
		size, rest, err := readInt(block, 5)
		if err != nil {
			return nil, err
		}
		if size > d.allowed {
			return nil, errTableSize
		}
		d.table.resize(size)
		d.reduced = false
		block = rest
	}
	if d.reduced {
		return nil, errNoReduction // RFC 9113, section 4.3.1
	}
	return block, nil
}

// literal decodes a field whose value is in the block (RFC 7541, section 6.2); the name may come from a table. It returns the rest of the
// block.
func (d *Decoder) literal(block []byte, out *output) (rest []byte, err error) {
	t, prefix, indexed := &d.table, uint(4), false
	switch c := block[0]; {
	case c&0x40 != 0:
		prefix, indexed = 6, true
	case c&0x20 != 0:
		return nil, errLateUpdate
	}
	index, rest, err := readInt(block, prefix)
	if err != nil {
		return nil, err
	}
	var codedName, codedValue codedString
	var known *entry
	room := 0
	if index == 0 {
		if codedName, rest, err = readString(rest); err != nil {
			return nil, err
		}
		room = codedName.room()
	} else {
		if known, _ = t.lookup(index); known == nil {
			return nil, errIndex
		}
		room = int(known.nameLen)
	}
	if codedValue, rest, err = readString(rest); err != nil {
		return nil, err
	}

	// A string that will be added to the table, or that is Huffman-coded, is written after the table's text. If it is added, it needn't be
	// moved.
	t.prepare(room+codedValue.room(), len(rest))
	text, start, ok := t.text, len(t.text), true
	var f fieldView
	if known != nil {
		_, origin := t.lookup(index) // prepare may have moved the text
		f.name, f.id, f.validName = known.name(origin), known.id, known.validName
		if indexed {
			text = append(text, f.name...)
		}
	} else {
		if text, f.name, ok = codedName.decode(text, indexed); !ok {
			return nil, errHuffman
		}
		f.id = field.Lookup(f.name)
		f.validName = validName(f.name, f.id)
	}
	if text, f.value, ok = codedValue.decode(text, indexed); !ok {
		return nil, errHuffman
	}
	f.validValue = validValue(f.value)
	if indexed {
		t.add(text, &f)
	} else {
		t.text = text[:start]
	}
	out.field(&f)
	return rest, nil
}

// fieldView is a decoded field. Its slices refer to the block or to the text of a table.
type fieldView struct {
	name, value           []byte
	id                    field.ID
	validName, validValue bool
}

// output passes fields to a sink.
type output struct {
	sink   Sink
	left   int // what is left of the limit; negative: it was exceeded
	crumbs bool
}

func (o *output) field(f *fieldView) {
	size := len(f.name) + len(f.value) + entryOverhead
	if f.id == field.Cookie {
		if o.crumbs {
			size = len(f.value) + len("; ")
		}
		o.crumbs = true
	}
	if o.left < size {
		o.left = -1
		return
	}
	o.left -= size
	o.sink.Field(f.name, f.value, f.id, f.validName && f.validValue)
}

// readInt reads an integer with a prefix of the given number of bits (RFC 7541, section 5.1), and returns the rest of b.
func readInt(b []byte, bits uint) (v uint32, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, errCutShort
	}
	prefix := uint32(1)<<bits - 1
	if v = uint32(b[0]) & prefix; v < prefix {
		return v, b[1:], nil
	}
	for i, c := range b[1:] {
		if i == 4 {
			return 0, nil, errInteger
		}
		v += uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v, b[i+2:], nil
		}
	}
	return 0, nil, errCutShort
}

// codedString is a string as it is encoded in a field block (RFC 7541, section 5.2).
type codedString struct {
	b       []byte
	huffman bool
}

func readString(b []byte) (s codedString, rest []byte, err error) {
	n, rest, err := readInt(b, 7)
	if err != nil {
		return s, nil, err
	}
	if uint64(n) > uint64(len(rest)) {
		return s, nil, errCutShort
	}
	return codedString{rest[:n:n], b[0]&0x80 != 0}, rest[n:], nil
}

// room returns how many bytes decode may append.
func (s *codedString) room() int {
	if s.huffman {
		return huffmanRoom(len(s.b))
	}
	return len(s.b)
}

// decode returns the decoded string. It appends the string to text if the string is Huffman-coded or keep is set. It returns false if the
// code is invalid.
func (s *codedString) decode(text []byte, keep bool) (_, decoded []byte, ok bool) {
	switch start := len(text); {
	case s.huffman:
		text, ok = appendHuffmanDecoded(text, s.b)
		return text, text[start:len(text):len(text)], ok
	case keep:
		return append(text, s.b...), s.b, true
	}
	return text, s.b, true
}
