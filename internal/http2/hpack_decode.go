package http2

import "github.com/filohttp/filo/internal/field"

// HPACKError says why a field block can't be decoded, which is a connection error of type COMPRESSION_ERROR (RFC 9113, section 4.3).
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

// Sink takes the fields of a block.
type Sink interface {
	// Field takes the next field. The slices are valid until it returns. id is the number of the name; it is field.Unknown for
	// pseudo-header fields, too. A field is valid if its name is a token in lower case, or such a token behind a colon, and if its value
	// has neither control bytes nor white space around it (RFC 9113, section 8.2.1).
	Field(name, value []byte, id field.ID, valid bool)
}

// Decoder decodes the field blocks that a connection receives (RFC 7541): each of them, in order, since they build upon each other. Call
// Reset first. A Decoder holds no memory until it is sent an entry for its table.
type Decoder struct {
	table   table
	allowed uint32 // the largest size that an update may give the table
	reduced bool   // the next block must make the table smaller
}

// Reset makes d a decoder for a new connection. It keeps its memory.
func (d *Decoder) Reset() {
	d.table.evict(0)
	d.table.text = d.table.text[:0]
	d.table.max, d.allowed, d.reduced = initialTableSize, initialTableSize, false
}

// SetTableSize sets how large the peer may make the table, in bytes, at most MaxTableSize. It is called when the peer acknowledges
// SETTINGS_HEADER_TABLE_SIZE: until then, the previous size holds.
func (d *Decoder) SetTableSize(size uint32) {
	if size > MaxTableSize {
		panic("http2: SETTINGS_HEADER_TABLE_SIZE over MaxTableSize")
	}
	d.allowed = size
	d.reduced = size < d.table.max
}

// Trim gives up memory that the table doesn't need now. It is for a connection that has become idle.
func (d *Decoder) Trim() { d.table.trim() }

// Decode decodes a block and gives its fields to the sink. The block must be whole: the payloads of HEADERS and of the CONTINUATION frames
// behind it, one after the other. If there is no sink, only the table changes.
//
// The limit is for the block, in bytes, and for its fields, each of which counts 32 bytes more than its name and value. The crumbs of a
// cookie count as one field, and each crumb also counts the two bytes that join it to others (RFC 9113, section 8.2.3). The sink gets
// neither a field that is over the limit nor any behind it, and over is true. Such a block has been decoded like any other, and the
// connection can go on.
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

// updates reads the updates of the table's size, which only the beginning of a block may have (RFC 7541, section 4.2).
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

	// A string that is for the table, or has a Huffman code, is written behind the table's text. If it stays, it is already in place there.
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

// fieldView is a decoded field. Its slices point to where the name and the value lie.
type fieldView struct {
	name, value           []byte
	id                    field.ID
	validName, validValue bool
}

// output gives fields to a sink.
type output struct {
	sink   Sink
	left   int // of the limit; negative: something is over it
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

// readInt reads an integer whose prefix has the number of bits (RFC 7541, section 5.1), and returns the rest of b.
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

// codedString is a string in the form that it has in a field block (RFC 7541, section 5.2).
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

// decode appends the string to text if it must be kept there, or decoded. It reports false if it can't be.
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
