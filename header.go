package filo

import (
	"bytes"
	"iter"
	"strconv"

	"github.com/filohttp/filo/internal/syntax"
	"golang.org/x/net/http/httpguts"

	"github.com/filohttp/filo/internal/lend"
)

// field is one header field: where its name and value are in the bytes of its Header. Offsets and not slices, so that
// the bytes can move, and so that the garbage collector has nothing to look at.
type field struct {
	name, value uint32
	valueLen    uint32
	nameLen     uint16
	id          fieldID
	// line says that the field stands in the bytes as it goes on the wire, "Name: value\r\n": it was set and not parsed.
	line bool
}

// Header is an ordered list of header fields, of a request, a response, or a trailer section.
//
// Lookup ignores the case of names; the fields keep the order and case in which they were sent or set. A name may occur several
// times. A []byte from a Header is borrowed: it is valid until the handler returns or the Header changes. A string belongs to
// the caller. A Header isn't safe for concurrent use.
//
// No field that is set can break the framing of a message: control bytes in a value (CR, LF and NUL among them) become spaces,
// and a field whose name isn't a token of RFC 9110 is left out.
//
// A Header must not be copied. To pass fields on, add each field of All.
type Header struct {
	_ noCopy
	// buf holds the names and values. Fields that were set stand there as they go on the wire, "Name: value\r\n".
	buf    []byte
	fields []field
	// borrowed is set while buf is the connection's read buffer: it is copied before it is written to.
	borrowed bool
}

// noCopy makes go vet object to copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Len returns the number of fields.
func (h *Header) Len() int { return len(h.fields) }

// Get returns the value of the first field called name, "" if there is none.
func (h *Header) Get(name string) string { return string(h.GetBytes(name)) }

// GetBytes returns the value of the first field called name, nil if there is none.
func (h *Header) GetBytes(name string) []byte {
	if i := h.find(name, 0); i >= 0 {
		return h.valueOf(i)
	}
	return nil
}

// maxFieldName is how long a name may be.
const maxFieldName = 1<<16 - 1

// Has reports whether there is a field called name.
func (h *Header) Has(name string) bool { return h.find(name, 0) >= 0 }

// Values yields the value of each field called name, in order.
func (h *Header) Values(name string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := h.find(name, 0); i >= 0; i = h.find(name, i+1) {
			if !yield(h.valueOf(i)) {
				return
			}
		}
	}
}

// All yields the name and the value of each field, in order and in the case in which they were sent or set.
func (h *Header) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for i := range h.fields {
			if !yield(h.nameOf(i), h.valueOf(i)) {
				return
			}
		}
	}
}

// Set replaces all fields called name by one with the value. It takes the place of the first of them.
func (h *Header) Set(name, value string) { setField(h, name, lookupField(name), value) }

// SetBytes is Set for a value in bytes, which it copies.
func (h *Header) SetBytes(name string, value []byte) { setField(h, name, lookupField(name), value) }

// Add appends a field and keeps others of the same name.
func (h *Header) Add(name, value string) { addField(h, name, lookupField(name), value) }

// AddBytes is Add for a value in bytes, which it copies.
func (h *Header) AddBytes(name string, value []byte) { addField(h, name, lookupField(name), value) }

// Del removes all fields called name.
func (h *Header) Del(name string) { h.removeFrom(name, lookupField(name), 0) }

// Reset removes all fields.
func (h *Header) Reset() {
	h.fields = h.fields[:0]
	if h.borrowed {
		h.buf, h.borrowed = nil, false
	}
	h.buf = h.buf[:0]
}

// resetWithin is Reset, and lets go of a buffer over a size.
func (h *Header) resetWithin(size int) {
	if cap(h.buf) > size {
		*h = Header{}
	} else if len(h.buf) > 0 {
		h.Reset()
	}
}

func (h *Header) nameOf(i int) []byte {
	f := &h.fields[i]
	end := f.name + uint32(f.nameLen)
	return h.buf[f.name:end:end]
}

func (h *Header) valueOf(i int) []byte {
	f := &h.fields[i]
	end := f.value + f.valueLen
	return h.buf[f.value:end:end]
}

// find returns the index of the first field called name at or after from, -1 if there is none.
func (h *Header) find(name string, from int) int { return h.findNamed(name, lookupField(name), from) }

// findNamed is find for a name of which the number is known.
func (h *Header) findNamed(name string, id fieldID, from int) int {
	if id != fieldUnknown {
		return h.findID(id, from)
	}
	for i := from; i < len(h.fields); i++ {
		f := &h.fields[i]
		if f.id == fieldUnknown && int(f.nameLen) == len(name) && syntax.EqualFold(h.nameOf(i), name) {
			return i
		}
	}
	return -1
}

func (h *Header) findID(id fieldID, from int) int {
	for i := from; i < len(h.fields); i++ {
		if h.fields[i].id == id {
			return i
		}
	}
	return -1
}

// getID returns the value of the first field with the number id, nil if there is none.
func (h *Header) getID(id fieldID) []byte {
	if i := h.findID(id, 0); i >= 0 {
		return h.valueOf(i)
	}
	return nil
}

func (h *Header) removeFrom(name string, id fieldID, from int) {
	i := h.findNamed(name, id, from)
	if i < 0 {
		return
	}
	kept := h.fields[:i]
	for next := h.findNamed(name, id, i+1); next >= 0; next = h.findNamed(name, id, i+1) {
		kept = append(kept, h.fields[i+1:next]...)
		i = next
	}
	h.fields = append(kept, h.fields[i+1:]...)
}

// hasToken reports whether the list in the fields with the number id has the token, in any case and place
// (RFC 9110, section 5.6.1: a list may be spread over several fields and have empty elements).
func (h *Header) hasToken(id fieldID, token string) bool {
	for i := h.findID(id, 0); i >= 0; i = h.findID(id, i+1) {
		if listHasToken(h.valueOf(i), token) {
			return true
		}
	}
	return false
}

func listHasToken(list []byte, token string) bool {
	for len(list) > 0 {
		var element []byte
		element, list, _ = bytes.Cut(list, []byte{','})
		if syntax.EqualFold(syntax.TrimSpace(element), token) {
			return true
		}
	}
	return false
}

// setID is Set with the canonical name of a known field.
func (h *Header) setID(id fieldID, value string) { setField(h, fieldNames[id], id, value) }

var plainTextField = NewField(fieldNames[fieldContentType], textPlain)

// setPlainText sets Content-Type to textPlain: the commonest field of all, so without the looking and cleaning.
func (h *Header) setPlainText() {
	if len(h.fields) > 0 || h.borrowed {
		h.SetField(&plainTextField)
		return
	}
	const line = "Content-Type: " + textPlain + "\r\n"
	h.buf = append(h.buf[:0], line...)
	h.fields = append(h.fields, field{
		nameLen: uint16(len("Content-Type")), id: fieldContentType, line: true,
		value: uint32(len("Content-Type: ")), valueLen: uint32(len(textPlain)),
	})
}

func (h *Header) setInt(id fieldID, value int64) {
	var digits [20]byte
	setField(h, fieldNames[id], id, strconv.AppendInt(digits[:0], value, 10))
}

func setField[V []byte | string](h *Header, name string, id fieldID, value V) {
	at := h.findNamed(name, id, 0)
	if at < 0 {
		addField(h, name, id, value)
		return
	}
	if f, ok := appendField(h, name, id, value); ok {
		h.removeFrom(name, id, at+1)
		h.fields[at] = f
	}
}

func addField[V []byte | string](h *Header, name string, id fieldID, value V) {
	if f, ok := appendField(h, name, id, value); ok {
		h.fields = append(h.fields, f)
	}
}

// appendField writes a field's line to the end of buf.
func appendField[V []byte | string](h *Header, name string, id fieldID, value V) (field, bool) {
	if len(name) > maxFieldName || id == fieldUnknown && !httpguts.ValidHeaderFieldName(name) {
		return field{}, false
	}
	old := h.own()
	f := field{name: uint32(len(h.buf)), nameLen: uint16(len(name)), id: id, line: true}
	h.buf = append(h.buf, name...)
	h.buf = append(h.buf, ": "...)
	f.value = uint32(len(h.buf))
	h.buf = append(h.buf, value...)
	cleanValue(h.buf[f.value:])
	trimmed := syntax.TrimSpace(h.buf[f.value:])
	if len(trimmed) < len(value) {
		h.buf = append(h.buf[:f.value], trimmed...)
	}
	f.valueLen = uint32(len(trimmed))
	h.buf = append(h.buf, "\r\n"...)
	h.poisonOutgrown(old)
	return f, true
}

// own makes buf the Header's own, to be appended to, and returns it as it is before that.
func (h *Header) own() (old []byte) {
	if h.borrowed {
		h.buf, h.borrowed = bytes.Clone(h.buf), false
		return nil
	}
	return h.buf
}

// poisonOutgrown overwrites the buffer from before a change if there is a new one since: what was lent of it is valid until
// the Header is changed.
func (h *Header) poisonOutgrown(old []byte) {
	if lend.RaceEnabled && cap(old) > 0 && &old[:1][0] != &h.buf[0] {
		lend.Poison(old[:cap(old)])
	}
}

// cleanValue replaces what may not be in a field value (RFC 9110, section 5.5) by spaces.
func cleanValue(v []byte) {
	for i := syntax.IndexControl(v, 0); i < len(v); i = syntax.IndexControl(v, i+1) {
		if v[i] != '\t' {
			v[i] = ' '
		}
	}
}

// appendLine appends field i as it goes on the wire.
func (h *Header) appendLine(dst []byte, i int) []byte {
	f := &h.fields[i]
	if f.line {
		return append(dst, h.buf[f.name:f.value+f.valueLen+2]...)
	}
	dst = append(append(dst, h.nameOf(i)...), ": "...)
	return append(append(dst, h.valueOf(i)...), "\r\n"...)
}
