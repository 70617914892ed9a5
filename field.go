package filo

import (
	"fmt"

	"github.com/filohttp/filo/internal/syntax"
	"golang.org/x/net/http/httpguts"
)

// Field is a header field that is prepared once and set in many messages, which is faster than Header.Set.
type Field struct {
	line    string // as it goes on the wire, with CRLF
	nameLen uint16
	id      fieldID
}

// NewField makes a field. It trims white space around the value. It panics if the name isn't a token, or if the value has
// control bytes.
func NewField(name, value string) Field {
	if len(name) > maxFieldName || !httpguts.ValidHeaderFieldName(name) {
		panic(fmt.Sprintf("filo: NewField: %q is no field name", name))
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		panic(fmt.Sprintf("filo: NewField: %q is no value for a field", value))
	}
	value = string(syntax.TrimSpace([]byte(value)))
	return Field{line: name + ": " + value + "\r\n", nameLen: uint16(len(name)), id: lookupField(name)}
}

// Name returns the field's name.
func (f *Field) Name() string { return f.line[:f.nameLen] }

// Value returns the field's value.
func (f *Field) Value() string { return f.line[f.nameLen+2 : len(f.line)-2] }

// SetField replaces all fields of f's name by f, as Set does.
func (h *Header) SetField(f *Field) {
	at := h.findNamed(f.Name(), f.id, 0)
	if at < 0 {
		h.AddField(f)
		return
	}
	h.removeFrom(f.Name(), f.id, at+1)
	h.fields[at] = h.appendPrepared(f)
}

// AddField appends f and keeps others of the same name.
func (h *Header) AddField(f *Field) { h.fields = append(h.fields, h.appendPrepared(f)) }

// appendPrepared writes f's line to the end of buf.
func (h *Header) appendPrepared(f *Field) field {
	old := h.own()
	start := uint32(len(h.buf))
	h.buf = append(h.buf, f.line...)
	h.poisonOutgrown(old)
	value := start + uint32(f.nameLen) + 2
	return field{name: start, nameLen: f.nameLen, id: f.id, line: true, value: value, valueLen: uint32(len(h.buf)) - 2 - value}
}
